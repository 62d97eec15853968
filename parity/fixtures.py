"""Rendered-prompt fixtures: which token sequences are measured, and the files that carry them to other machines.

A fixture is `<name>.npz` with keys `in::<input>` and `out::<output>` (out: what the original computed, not ONNX
Runtime), the same tensors as raw little-endian bytes for Unity, and an entry in `index.json` with their SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.runners.decoder_io import check_ids, empty_cache, prefill_inputs
from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.files import folder_written_whole, sha256_of, write_json
from weights_bridge.npz import read_npz

SIDES = (("in::", 4), ("out::", 5))
HINT = "a run keeps its fixtures in onnx/fixtures; make or copy it again"
LONG_TOKENS = 101  # a wrong rotary base hides in shorter prompts


@dataclass(frozen=True)
class Fixture:
    """One token sequence to measure.

    Attributes:
        name: file-safe, unique among the fixtures of a run.
        ids: the whole sequence.
        prompt_tokens: how many of them are the prompt; the rest is the answer.
        source: which rows it comes from, in words.
    """

    name: str
    ids: list[int]
    prompt_tokens: int
    source: str

    @property
    def prompt(self) -> list[int]:
        return self.ids[: self.prompt_tokens]


def choose_fixtures(rows: Sequence[Mapping[str, Any]], count: int, contract: Mapping[str, Any]) -> list[Fixture]:
    """Choose the longest row and typical ones, and make a longer one where none is long enough.

    Args:
        rows: prepared rows, or plain `{"ids": [...]}`.
        count: how many rows, ≥ 1.
        contract: for the vocabulary and the sliding window.

    Returns:
        At most `count` rows, longest first, the others spread evenly over the lengths; when no row is longer than
        100 tokens (and than the window), one more made by concatenating rows.

    Raises:
        StageError: no rows, or ids outside the vocabulary, with the row.
    """
    if not rows:
        raise StageError("no rows to make fixtures of", hint="run `mlx-sentis prepare` first")
    for at, row in enumerate(rows):
        _check_row(row, at, contract["constants"]["vocab"])
    order = sorted(range(len(rows)), key=lambda at: (-len(rows[at]["ids"]), at))
    places = sorted({round(k * (len(order) - 1) / max(1, count)) for k in range(count)})
    chosen = [_of_row(rows[order[place]], order[place]) for place in places]
    wanted = max(LONG_TOKENS, (contract["constants"].get("sliding_window") or 0) + 1)
    if len(chosen[0].ids) < wanted:
        chosen.insert(0, concatenated([rows[at] for at in order], wanted))
    return chosen


def concatenated(rows: Sequence[Mapping[str, Any]], tokens: int) -> Fixture:
    """Return whole rows one after another, repeated when they run out, until `tokens` are reached."""
    ids: list[int] = []
    used = 0
    while len(ids) < tokens:
        ids += rows[used % len(rows)]["ids"]
        used += 1
    return Fixture("concatenated", ids, len(ids), f"{used} rows concatenated: no single row has {tokens} tokens")


def greedy_prompts(fixtures: Sequence[Fixture], new_tokens: int, window: int | None) -> dict[str, list[int]]:
    """Return at least two prompts for the KV loop; where layers slide, one loop crosses the window.

    Args:
        fixtures: at least one.
        new_tokens: how many tokens the loop adds.
        window: of sliding layers, None where none slides.
    """
    prompts = {fixture.name: fixture.prompt for fixture in fixtures if fixture.name != "concatenated"}
    prompts = prompts or {fixtures[0].name: fixtures[0].prompt}
    if window is not None:
        short = max(1, window - new_tokens // 2)
        ids = list(fixtures[0].ids)
        while len(ids) < short:
            ids += fixtures[0].ids
        prompts["across the window"] = ids[:short]
    if len(prompts) < 2:
        name, prompt = next(iter(prompts.items()))
        prompts[f"{name}, first half"] = prompt[: max(1, len(prompt) // 2)]
    return prompts


def write_fixtures(
    folder: Path,
    fixtures: Sequence[Fixture],
    outputs: Sequence[Mapping[str, Array]],
    contract: Mapping[str, Any],
) -> None:
    """Write fixtures as npz, raw bytes and index, the whole folder or nothing.

    Args:
        folder: `onnx/fixtures`; replaced.
        fixtures: what was run.
        outputs: per fixture, what the original computed, by graph output name.
        contract: says which inputs the graph has.
    """
    with folder_written_whole(folder) as new:
        entries = []
        for fixture, computed in zip(fixtures, outputs, strict=True):
            inputs = prefill_inputs(fixture.ids, 0, contract) | empty_cache(contract)
            tensors = {f"in::{name}": array for name, array in inputs.items()}
            tensors |= {f"out::{name}": array for name, array in computed.items()}
            archive = new / f"{fixture.name}.npz"
            np.savez(archive, **tensors)  # pyright: ignore[reportArgumentType]
            raw = [_write_raw(new, fixture.name, key, array) for key, array in tensors.items()]
            facts = {"name": fixture.name, "source": fixture.source, "tokens": len(fixture.ids)}
            entries.append(facts | {"npz": archive.name, "sha256": sha256_of(archive), "tensors": raw})
        write_json(new / "index.json", {"schema": "mlx-sentis/fixtures/1", "fixtures": entries})


def _write_raw(folder: Path, fixture: str, key: str, array: Array) -> dict[str, Any]:
    """Write one tensor little-endian; an empty one (the first cache) has no file."""
    side, _, name = key.partition("::")
    entry = {"key": key, "dtype": str(array.dtype), "shape": list(array.shape), "file": None, "sha256": None}
    if array.size == 0:
        return entry
    path = folder / fixture / f"{side}.{name}.bin"
    path.parent.mkdir(exist_ok=True)
    np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tofile(path)
    return entry | {"file": f"{fixture}/{path.name}", "sha256": sha256_of(path)}


def read_fixture(path: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Read a fixture's inputs and outputs.

    Raises:
        StageError: no such file, no npz, or no `in::` or no `out::` tensors in it.
    """
    inputs, outputs, found, strays = _sides(path)
    if not inputs or not outputs or strays:
        hint = "--edge b alone needs no outputs" if inputs and not strays else "see onnx/fixtures"
        raise StageError(f"{path}: found keys {found}, wanted in::<input> and out::<output>", hint=hint)
    return inputs, outputs


def read_inputs(path: Path) -> dict[str, Array]:
    """Read a fixture's inputs, all that an edge without the original needs; outputs may stand beside them.

    Raises:
        StageError: no such file, no npz, no `in::` tensors in it, or keys of neither kind.
    """
    inputs, _, found, strays = _sides(path)
    if not inputs or strays:
        raise StageError(f"{path}: found keys {found}, wanted in::<input>", hint="see onnx/fixtures")
    return inputs


def read_outputs(path: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Read a file of outputs; inputs may stand beside them.

    Returns:
        Inputs, empty where it has none, and outputs.

    Raises:
        StageError: no such file, no npz, or no `out::` tensors in it.
    """
    inputs, outputs, found, _ = _sides(path)
    if not outputs:
        raise StageError(f"{path}: found keys {found}, wanted out::<output>", hint="record one array per output")
    return inputs, outputs


def _sides(path: Path) -> tuple[dict[str, Array], dict[str, Array], str, bool]:
    """Return inputs, outputs, the first keys in words, and whether there are keys of neither kind."""
    tensors = read_npz(path, HINT)
    inputs, outputs = ({k[n:]: a for k, a in tensors.items() if k.startswith(side)} for side, n in SIDES)
    found = ", ".join(sorted(tensors)[:4]) or "nothing"
    return inputs, outputs, found, len(inputs) + len(outputs) != len(tensors)


def _check_row(row: Mapping[str, Any], at: int, vocab: int) -> None:
    try:
        check_ids(row["ids"], vocab)
    except StageError as error:
        raise StageError(f"{row.get('id', f'row {at}')}: {error.message}", hint=error.hint) from None


def _of_row(row: Mapping[str, Any], at: int) -> Fixture:
    name = str(row.get("id", f"row-{at:04d}"))
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
    return Fixture(safe, list(row["ids"]), row.get("prompt_tokens") or len(row["ids"]), f"row {name}")
