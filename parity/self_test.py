"""`parity --self-test`: does gate A0 find bugs in this very model? Each is planted in a copy and must be named.

Numeric bugs are planted in MLX's loaded model (`mutations`), one after the other against one answer of torch; those
of files in copies of the merged directory and of the prepared rows. Nothing of the user's is changed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from parity.a0 import bridge_results, request_of_run
from parity.a0_miss import OTHER
from parity.a0_model import made_request
from parity.a0_sides import TORCH, answer_of
from parity.children import run_child
from parity.gate_request import BACKWARD, FORWARD, TRACE, GateRequest
from parity.mutations import MUTATIONS
from parity.runners.mlx_self_test import Trial
from parity.runners.torch_adapters import norm_of
from parity.tables import table
from weights_bridge.adapter_file import read_adapter
from weights_bridge.compare import Array, GateResult
from weights_bridge.errors import BudgetMissedError, StageError, counted
from weights_bridge.files import read_json, read_jsonl
from weights_bridge.model_folder import ModelFolder, open_model_folder
from weights_bridge.run_folder import RunFolder
from weights_bridge.safetensors_reader import SafetensorsFile
from weights_bridge.safetensors_writer import write_safetensors
from weights_bridge.settings import AdapterSettings, ParitySettings

LOGITS_AT_MOST = 1 << 22
Say = Callable[[str], None]
ROWS_CHECKED = 50


def self_test_of_run(run: RunFolder, say: Say = lambda text: None) -> list[Trial]:
    """Plant bugs in a copy of a run with a trained adapter.

    Raises:
        StageError: a part is missing, or the gate misses without any bug.
    """
    run.require_trained_data()
    base, asked = request_of_run(run, ParitySettings(fixture_rows=2))
    say(f"{counted(len(MUTATIONS), 'numeric bug')}: torch computes once, then MLX once for each")
    trials = numeric_trials(asked)
    say("bugs of files: template, masks, merged weights")
    return trials + merged_trials(base, asked) + prompt_trials(run)


def self_test_of_model(folder: Path, adapter: AdapterSettings, say: Say = lambda text: None) -> list[Trial]:
    """Plant bugs in a model that has no run yet, with a made adapter on it.

    Raises:
        StageError: the directory cannot be loaded, or the gate misses without any bug.
    """
    say(f"{counted(len(MUTATIONS), 'numeric bug')}: torch computes once, then MLX once for each")
    with made_request(folder, adapter) as (base, asked):
        return numeric_trials(asked) + merged_trials(base, asked)


def numeric_trials(asked: GateRequest) -> list[Trial]:
    """Plant every bug of the catalogue in the MLX side.

    Raises:
        StageError: the gate misses without any bug.
    """
    asked = asked.with_(rows=asked.rows[:1], logits_at_most=LOGITS_AT_MOST)  # the longest row: windows and positions
    arrays = answer_of(TORCH, asked.with_(parts=[FORWARD, BACKWARD, TRACE]))
    norm = norm_of(read_adapter(Path(asked.adapter)))
    if norm is not None:
        other = answer_of(TORCH, asked.with_(parts=[BACKWARD], norm=OTHER[norm]))
        arrays |= {f"other/{name}": array for name, array in other.items()}
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-self-test-") as work:
        given, out = Path(work) / "given.npz", Path(work) / "trials.json"
        np.savez(given, **arrays)  # pyright: ignore[reportArgumentType]
        request = asked.with_(given=str(given), out=str(out)).as_json() | {"norm_stated": norm, "bugs": list(MUTATIONS)}
        run_child("parity.runners.mlx_self_test", request, Path(work) / "request.json")
        clean, *trials = [Trial(**trial) for trial in read_json(out)]
    if not clean.caught:
        hint = "`mlx-sentis parity --edge a0` says where; a self-test needs a gate that passes"
        raise StageError(f"the gate misses without any bug: {clean.detail}", hint=hint)
    return trials


def merged_trials(base: ModelFolder, asked: GateRequest) -> list[Trial]:
    """Alter one tensor and one constant in copies of the merged directory."""
    merged, adapter = Path(asked.merged), Path(asked.adapter)
    trials = []
    name = "model.embed_tokens.weight"
    file = open_model_folder(merged).stored[name]  # one shard of several in a large model
    with copied(merged, file.path.name) as copy:
        shapes, dtypes = ({n: getattr(e, what) for n, e in file.entries.items()} for what in ("shape", "dtype"))
        write_safetensors(copy / file.path.name, shapes, _altered(file, name), file.metadata, dtypes)
        bug = "one value of the embeddings altered in the merged directory"
        trials.append(judged(bug, name, bridge_results(base, adapter, copy)))
    with copied(merged, "config.json") as copy:
        config = read_json(merged / "config.json")
        config["rms_norm_eps"] = 2 * config.get("rms_norm_eps", 1e-6)
        (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
        bug = "epsilon of the norms doubled in the merged configuration"
        trials.append(judged(bug, "merged config rms_norm_eps", bridge_results(base, adapter, copy)))
    return trials


def _altered(file: SafetensorsFile, name: str) -> Iterator[tuple[str, Array]]:
    """Yield a file's tensors, of one of which the first value is another."""
    for own, array in file.tensors():
        if own == name:
            array.flat[0] += 1.0
        yield own, array


def prompt_trials(run: RunFolder) -> list[Trial]:
    """Alter a byte of the template and a label mask in copies."""
    from mlx_sentis.prepare.checks import check_contract, check_rows

    contract, recipe = read_json(run.path("prompt_contract.json")), read_json(run.path("recipe.json"))
    rows = read_jsonl(run.path("data", "train.jsonl"))[:ROWS_CHECKED]
    trials = []
    template = run.path("merged", "chat_template.jinja")
    if not template.is_file():
        trials.append(Trial("one byte of the chat template", None, detail="the template is no file of its own"))
    else:
        with copied(template.parent, template.name) as copy:
            text = template.read_text(encoding="utf-8")
            (copy / template.name).write_text(text + " ", encoding="utf-8")
            trials.append(judged("one byte of the chat template", "template_sha256", check_contract(copy, contract)))
    shifted = [dict(row) for row in rows]
    row = shifted[len(shifted) // 2]
    row["trained"] = [[start - 1, end - 1] for start, end in row["trained"]]
    found = check_rows(shifted, run.path("merged"), recipe, train_turns=contract.get("train_turns", "all"))
    return [*trials, judged("label mask one token early in one row", row["id"], found)]


def judged(bug: str, wanted: str, results: Sequence[GateResult]) -> Trial:
    """Return whether a failed result names the place."""
    failures = [result for result in results if not result.passed]
    named = next((r for r in failures if wanted in r.where or wanted in r.tensor), None)
    shown = named or (failures[0] if failures else None)
    found = "" if shown is None else wanted if named else shown.where
    return Trial(bug, named is not None, wanted, found, "" if shown is None else f"{shown.tensor}: {shown.detail}")


@contextmanager
def copied(folder: Path, without: str) -> Iterator[Path]:
    """Yield a copy of a directory without one of its files; weights are not copied where hard links can be had."""
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-self-test-") as work:
        for file in folder.iterdir():
            if file.name != without and file.is_file():
                same_file(file.resolve(), Path(work) / file.name)
        yield Path(work)


def same_file(file: Path, place: Path) -> None:
    """Copy a file; of weights a hard link is enough, where both are on one disk. Symbolic links are not trusted."""
    try:
        if file.suffix == ".safetensors":
            place.hardlink_to(file)
            return
    except OSError:
        pass  # another disk
    shutil.copyfile(file, place)


def trials_table(trials: Sequence[Trial]) -> str:
    """Return bug, verdict and place as a table, and a closing line."""
    words = {True: "caught", False: "MISSED", None: "cannot have it"}
    rows = [(words[trial.caught], trial.bug, trial.found, trial.detail) for trial in trials]
    caught, missed = (sum(trial.caught is verdict for trial in trials) for verdict in (True, False))
    text = table(("", "bug", "place", "the gate's words"), rows)
    return f"{text}\n\n{caught} caught at their place, {missed} missed, {len(trials) - caught - missed} impossible here"


def require_caught(trials: Sequence[Trial]) -> None:
    """Turn a bug that was not caught into exit 3.

    Raises:
        BudgetMissedError: with each such bug.
    """
    missed = [trial for trial in trials if trial.caught is False]
    if missed:
        lines = "".join(f"\n  {t.bug}: wanted {t.wanted}, found {t.found or 'nothing'}" for t in missed)
        hint = "the gate cannot be trusted for this model until these are found"
        raise BudgetMissedError(f"{counted(len(missed), 'planted bug')} not caught:{lines}", hint=hint)
