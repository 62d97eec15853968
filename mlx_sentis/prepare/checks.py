"""Prompt contract and prepared rows checked again: everything is rendered anew, and what differs is named.

Both checks run against a model directory (or its tokenizer): before the first update on the base model, in gate A0 on
the merged one. A changed template byte, pad id or stop id, a doubled BOS and a mask shifted by one each fail by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.contract import GIVEN, make_contract, rows_of
from mlx_sentis.prepare.masks import Prepared, TrainTurns, prepared_rows
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.too_long import Dropped
from mlx_sentis.recipe import CLOCK_NOTE, make_recipe
from mlx_sentis.templates import load_tokenizer
from weights_bridge.compare import GateResult
from weights_bridge.errors import StageError

CONTEXT_BYTES = 16
LONG, HASH_SHOWN = 64, 12  # characters that a message shows of a value, of a hash
CHOSEN = (*GIVEN, "samples", "train_turns", "rendered")  # without these nothing can be rendered again
BYTES = ("rendered", "before", "after", "answer", "sample_answer", "probe_answer", "decoded")  # named by their byte
NEEDED = ("id", "messages", "tools", "text", "ids", "prompt_tokens", "trained")


def check_contract(
    model: Path | Any, contract: dict[str, Any], recipe: dict[str, Any] | None = None
) -> list[GateResult]:
    """Render the contract's sample again and compare every field; a failure names its field.

    Args:
        model: the model directory under test (its own template, stop ids and padding count), or a tokenizer.
        contract: `prompt_contract.json`.
        recipe: the facts of the model under test; None makes them from the directory.

    Returns:
        One result per field: found is the model under test, wanted the contract.

    Raises:
        StageError: the directory's tokenizer or configuration cannot be read.
    """
    if missing := [key for key in CHOSEN if key not in contract]:
        return [_field_result(key, False, "missing", "the contract has no such field") for key in missing]
    facts = make_recipe(model) if recipe is None else recipe
    try:
        found = make_contract(rows_of(contract), _tokenizer(model), facts, train_turns=contract["train_turns"])
    except StageError as error:
        return [_field_result("rendered", False, "altered", error.message)]
    wanted_fields, found_fields = _fields(contract), _fields(found)
    return [
        _compared_field(field, found_fields.get(field), wanted_fields.get(field))
        for field in dict.fromkeys([*found_fields, *wanted_fields])
    ]


def broken_hint(recipe: Mapping[str, Any]) -> str:
    """Return how a contract that does not hold is mended: preparing again helps unless the template reads the clock."""
    if CLOCK_NOTE in recipe.get("notes", ()):
        return "the template writes today's date: prepare with --template FILE, a copy of it with a fixed date"
    return "prepare the data again"


def _tokenizer(model: Path | Any) -> Any:
    return load_tokenizer(model) if isinstance(model, Path) else model


def _fields(contract: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the contract's fields, the nested ones as `padding.value`; what was chosen and not found is left out."""
    fields: dict[str, Any] = {}
    for key, value in contract.items():
        if key in GIVEN or key in ("probe_call", "train_turns"):
            continue
        if isinstance(value, dict):
            fields |= _fields(value, f"{prefix}{key}.")
        else:
            fields[prefix + key] = value
    return fields


def _compared_field(field: str, found: Any, wanted: Any) -> GateResult:
    if found == wanted:
        return _field_result(field, True, "exact")
    if found is None or wanted is None:
        return _field_result(field, False, "missing", f"found {_brief(found)}, wanted {_brief(wanted)}")
    name = field.rpartition(".")[2]
    if name in BYTES:
        return _field_result(field, False, "altered", _byte_difference(found, wanted))
    if name == "ids":
        return _field_result(field, False, "altered", _id_difference(found, wanted))
    if name.endswith("sha256") and isinstance(found, str) and isinstance(wanted, str):
        return _field_result(field, False, "altered", f"found {found[:HASH_SHOWN]}…, wanted {wanted[:HASH_SHOWN]}…")
    if isinstance(found, str) and isinstance(wanted, str) and max(len(found), len(wanted)) > LONG:
        return _field_result(field, False, "altered", _text_difference(found, wanted))
    return _field_result(field, False, "altered", f"found {_brief(found)}, wanted {_brief(wanted)}")


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 2 * LONG else f"{text[:LONG]}… ({len(text)} characters)"


def _field_result(field: str, passed: bool, reason: str, detail: str = "") -> GateResult:
    return GateResult(f"contract {field}", passed, reason, where="" if passed else field, detail=detail)


def _byte_difference(found: str, wanted: str) -> str:
    """Name the first differing byte of two texts, with what surrounds it."""
    a, b = found.encode(), wanted.encode()
    place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    around = slice(max(0, place - CONTEXT_BYTES), place + CONTEXT_BYTES)
    return f"byte {place}: found {_shown(a[around])}, wanted {_shown(b[around])} ({len(a)} and {len(b)} bytes)"


def _shown(piece: bytes) -> str:
    return repr(piece.decode("utf-8", errors="replace"))


def check_rows(
    rows: Sequence[dict[str, Any]], model: Path | Any, recipe: dict[str, Any], *, train_turns: TrainTurns = "all"
) -> list[GateResult]:
    """Derive prepared rows again and compare.

    Args:
        rows: rows of `data/*.jsonl`.
        model: the model directory under test, or its tokenizer.
        recipe: the run's recipe (`tools`, `stop_ids`, `bos_id`).
        train_turns: which turns were trained, as the prompt contract says.

    Returns:
        One result per row that is right, one per wrong field of a row that is not: the row's id, the first token where
        they part, found and wanted. No rows is one failed result.
    """
    if not rows:
        return [GateResult("rows", False, "nothing compared")]
    results: list[GateResult] = []
    whole = []
    for number, row in enumerate(rows):
        missing = [key for key in NEEDED if key not in row]
        name = str(row.get("id", f"number {number}"))
        if missing:
            results.append(_failed(name, missing[0], "missing", f"the row has no {', '.join(missing)}"))
        else:
            whole.append(row)
    inputs = [Row(row["messages"], row["tools"], str(row["id"])) for row in whole]
    found = prepared_rows(inputs, _tokenizer(model), recipe, train_turns=train_turns)
    for row, again in zip(whole, found, strict=True):
        results += _compared(row, again)
    return results


def _compared(row: dict[str, Any], again: Prepared | Dropped | str) -> list[GateResult]:
    name = row["id"]
    if not isinstance(again, Prepared):
        return [_failed(name, "text", "altered", str(again).partition(": ")[2])]
    faults = []
    if row["text"] != again.text:
        faults.append(_failed(name, "text", "altered", _text_difference(row["text"], again.text)))
    if row["ids"] != again.ids:
        faults.append(_failed(name, "ids", "altered", _id_difference(row["ids"], again.ids)))
    elif detail := _mask_difference(row["trained"], again, row["ids"]):
        faults.append(_failed(name, "trained", "altered", detail))
    if row["prompt_tokens"] != again.prompt_tokens:
        detail = f"found {row['prompt_tokens']}, wanted {again.prompt_tokens}"
        faults.append(_failed(name, "prompt_tokens", "altered", detail))
    if "expect" in row and row["expect"] != again.row.expect():
        detail = f"found {row['expect']}, wanted {again.row.expect()}"
        faults.append(_failed(name, "expect", "altered", detail))
    return faults or [GateResult(f"row {name}", True, "exact")]


def _failed(name: str, field: str, reason: str, detail: str) -> GateResult:
    return GateResult(f"row {name} {field}", False, reason, where=f"row {name}, {field}", detail=detail)


def _mask_difference(spans: Sequence[Sequence[int]], again: Prepared, ids: Sequence[int]) -> str:
    """Name the first token on which two masks disagree; the empty text when there is none."""
    found = {index for start, stop in spans for index in range(start, stop)}
    wanted = {index for start, stop in again.trained for index in range(start, stop)}
    if found == wanted:
        return ""
    first = min(found ^ wanted)
    words = ("trained", "not trained") if first in found else ("not trained", "trained")
    token = ids[first] if first < len(ids) else "none, the row ends before"
    shown = [tuple(span) for span in spans]
    return f"token {first} (id {token}): found {words[0]}, wanted {words[1]}; spans {shown}, wanted {again.trained}"


def _id_difference(found: Sequence[int], wanted: Sequence[int]) -> str:
    place = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), -1)
    if place < 0:
        return f"found {len(found)} tokens, wanted {len(wanted)}"
    return f"token {place}: found {found[place]}, wanted {wanted[place]}"


def _text_difference(found: str, wanted: str) -> str:
    shorter = min(len(found), len(wanted))
    place = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), shorter)
    return f"character {place}: found {found[place : place + 24]!r}, wanted {wanted[place : place + 24]!r}"
