"""Validation renders of a text run: the tuned model answers prompts of three categories, one file each.

The prompts are put together without a framework, new texts become token ids in a child (transformers), and the answers
come from one runner in this process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_sentis.evaluation.generator import Generator, usable_prefix
from mlx_sentis.validation.asking import WEAKER
from mlx_sentis.validation.layout import require_ours
from mlx_sentis.validation.phase import Rendered, render_phase
from mlx_sentis.validation.prompts import CATEGORIES, Prompt
from mlx_sentis.validation.text import generic_texts, is_plain, new_prompts, own_prompts
from parity.children import run_child
from parity.evaluate import text_decoder
from parity.runners.generators import Runner, files_of, open_generator
from weights_bridge.adapter_file import adapter_of
from weights_bridge.errors import StageError, UsedWronglyError
from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings

ORDER = {"onnx": ("train", "bridge", "swap"), "mlx": ("train", "bridge")}
HINTS = {"bridge": "`mlx-sentis bridge RUN` merges it", "swap": "`mlx-sentis swap RUN` puts it into the graph"}


@dataclass(frozen=True)
class TextRenderer:
    """Greedy answers, one text file per prompt, ending before the stop token.

    Attributes:
        generator: the tuned model.
        decode: token ids to text.
        stop_ids: ids that end an answer.
        max_new_tokens: the most tokens per answer.
        say: hears of each prompt.
    """

    generator: Generator
    decode: Callable[[list[int]], str]
    stop_ids: Sequence[int]
    max_new_tokens: int
    say: Callable[[str], None]

    def render(self, prompts: Sequence[Prompt], folder: Path) -> list[Path]:
        """Answer every prompt; see `Renderer`."""
        rows = [{"ids": prompt.conditions, "prompt_tokens": len(prompt.conditions)} for prompt in prompts]
        self.generator.set_prefix(usable_prefix(rows, min(map(len, (row["ids"] for row in rows)))))
        files = []
        for number, prompt in enumerate(prompts, 1):
            found = self.generator.greedy(prompt.conditions, self.max_new_tokens, self.stop_ids)
            cut = f", cut after {self.max_new_tokens} tokens" if len(found.ids) == self.max_new_tokens else ""
            self.say(f"rendered {number}/{len(prompts)} ({prompt.category.folder}){cut}")
            files.append(folder / f"{number}.txt")
            files[-1].write_text(self.decode(found.ids) + "\n", encoding="utf-8", newline="\n")
        return files


def validate_run(
    run: RunFolder,
    settings: Settings,
    ask: Callable[[], Sequence[str] | None],
    *,
    runner: Runner = "mlx",
    checkpoint: str | None = None,
    max_new_tokens: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Rendered:
    """Render a run's tuned model on prompts of three categories into `outputs/eval/`.

    Args:
        run: a trained and merged run.
        settings: `eval.max_new_tokens`.
        ask: returns the user's out-of-distribution prompts, None for generic ones; called once, when the model is
            known to be there.
        runner: `mlx` (the merged directory) or `onnx` (the tuned graph).
        checkpoint: an update's number or a link's name, when the user wants it instead of the final model.
        max_new_tokens: the most tokens per answer; None is the longest answer that was trained, `eval.max_new_tokens`
            at least.
        say: hears what is being done.

    Raises:
        StageError: the final model is not there, or is older than the last training; the data was prepared after it;
            a prompt cannot be rendered.
    """
    run.require_trained_data()
    adapter = _adapter(run, runner, checkpoint)
    models = _base_and(run, adapter) if adapter is not None else _final(run, runner)
    target = run.path("outputs", "eval")
    require_ours(target)  # before a model is loaded
    splits = [run.path("data", f"{split}.jsonl") for split in ("train", "holdout")]
    data = [path for path in splits if path.exists() or run.is_recorded(path)]
    inputs = [run.path("recipe.json"), run.path("prompt_contract.json"), run.path("data", "dataset.json"), *data]
    with run.stage("validate", [*inputs, *models]) as stage:
        recipe = read_json(run.path("recipe.json"))
        decode = text_decoder(run, recipe)
        prompts = _prompts(run, ask(), decode, say)
        most = max_new_tokens or max(settings.eval.max_new_tokens, _longest_answer(run))
        generator = _open(run, runner, adapter)
        files = render_phase(prompts, TextRenderer(generator, decode, recipe["stop_ids"], most, say), target)
        stage.wrote(target)
        rendered = Rendered(target, files)
        counts = {category.folder: rendered.count(category) for category in CATEGORIES}
        stage.facts |= {"runner": runner, "checkpoint": checkpoint or "final", "renders": counts}
    return rendered


def _adapter(run: RunFolder, runner: Runner, checkpoint: str | None) -> Path | None:
    """Return the adapter of a checkpoint the user asked for."""
    if checkpoint is None:
        return None
    if runner == "onnx":
        hint = "take --runner mlx, or leave --checkpoint out"
        raise UsedWronglyError("--checkpoint: the graph holds the final weights only", hint=hint)
    return adapter_of(run.root, checkpoint)


def _base_and(run: RunFolder, adapter: Path) -> list[Path]:
    return [*files_of(run, "mlx", "base"), adapter.resolve()]


def _final(run: RunFolder, runner: Runner) -> list[Path]:
    """Return the files of the final model.

    Raises:
        StageError: they are not there, or were made before the last training.
    """
    files = files_of(run, runner, "tuned")
    consent = "an earlier checkpoint is rendered only when --checkpoint N asks for it"
    if missing := [path for path in files if not path.exists()]:
        hint = f"{HINTS['swap' if runner == 'onnx' else 'bridge']}; {consent}"
        raise StageError(f"{missing[0]}: the final model is not there", hint=hint)
    stages = list(run.manifest()["stages"])  # a repeated stage moves to the end
    for earlier, later in zip(ORDER[runner], ORDER[runner][1:], strict=False):
        if earlier in stages and later in stages and stages.index(later) < stages.index(earlier):
            raise StageError(
                f"{files[-1]}: was made before the last {earlier}, so it is not the final model",
                hint=f"{HINTS[later]}; {consent}",
            )
    return files


def _open(run: RunFolder, runner: Runner, adapter: Path | None) -> Generator:
    if adapter is None:
        return open_generator(run, runner, "tuned")
    from parity.runners.mlx_decoder import MlxDecoder

    return MlxDecoder(Path(read_json(run.path("recipe.json"))["model"]["path"]), adapter)


def _prompts(
    run: RunFolder, ood: Sequence[str] | None, decode: Callable[[list[int]], str], say: Callable[[str], None]
) -> list[Prompt]:
    """Return all prompts in the order of the categories."""
    texts = list(ood) if ood is not None else _generic(run)
    if ood is None:
        say(WEAKER)
    prompts = [*own_prompts(run.path("data"), decode), *new_prompts(texts, _ids(run, texts))]
    return sorted(prompts, key=lambda prompt: CATEGORIES.index(prompt.category))


def _generic(run: RunFolder) -> list[str]:
    dataset, contract = read_json(run.path("data", "dataset.json")), read_json(run.path("prompt_contract.json"))
    return generic_texts(dataset["tools"], plain=is_plain(contract["messages"]))


def _ids(run: RunFolder, texts: Sequence[str]) -> list[list[int]]:
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-prompts-") as work:
        request: dict[str, Any] = {"texts": list(texts), "out": str(Path(work) / "ids.json")}
        request |= {"recipe": str(run.path("recipe.json")), "contract": str(run.path("prompt_contract.json"))}
        run_child("parity.runners.prompt_ids", request, Path(work) / "request.json")
        return read_json(Path(request["out"]))["ids"]


def _longest_answer(run: RunFolder) -> int:
    import json

    with run.path("data", "train.jsonl").open("rb") as file:
        return max(len(row["ids"]) - row["prompt_tokens"] for row in map(json.loads, file))
