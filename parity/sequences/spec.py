"""The file that says how a graph with state is driven: chunk, context, state pairs, and where the reference is."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weights_bridge.errors import StageError, all_at_once

SCHEMA = "mlx-sentis/sequence/1"
KINDS = {str: "a text", int: "a whole number", list: "a list"}
# a step of 2^26 values is a quarter of a GiB, and nobody samples sound faster than 768 kHz
RANGES = {"chunk": (1, 2**26), "context": (0, 2**26), "rate": (1, 768_000)}
SECTIONS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "signal": {"input": str, "chunk": int, "context": int, "axis": int, "rate": int, "file": str, "tail": str},
    "reference": {"file": str, "method": str, "arguments": list, "axis": int},
}
TAILS = ("pad", "drop")
HINT = "docs/sequences.md shows one"


@dataclass(frozen=True)
class SequenceSpec:
    """How a graph is driven over a signal.

    Attributes:
        path: the TOML file; the files it names lie beside it.
        input: the graph's input that the signal goes to.
        chunk: new values of the signal a step.
        context: values from before them that go in front, zeros at the beginning.
        axis: of the graph's input, along which the signal runs; -1 is the last.
        rate: values per second, None where the signal has no clock; a WAV file is resampled to it.
        signal: the WAV file, None where the recorded reference holds the signal.
        tail: what happens to a last step that is not full: `pad` with zeros, or `drop`.
        state: input name to the output that is fed to it in the next step; all start as zeros.
        fixed: input name to its value in every step.
        outputs: the outputs to compare; empty for all that are no state.
        reference: a `.npz` that was recorded, or a TorchScript file.
        method: of the TorchScript module, called with the whole signal.
        arguments: behind the signal.
        reference_axis: of what the method returns, along which the steps lie.
    """

    path: Path
    input: str
    chunk: int
    context: int = 0
    axis: int = -1
    rate: int | None = None
    signal: Path | None = None
    tail: str = "pad"
    state: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    reference: Path | None = None
    method: str = "forward"
    arguments: tuple[Any, ...] = ()
    reference_axis: int = 0


def read_spec(path: Path) -> SequenceSpec:
    """Read a sequence file.

    Raises:
        StageError: missing, no TOML, or entries that are unknown, missing or of another kind; all at once.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StageError(f"{path}: no such file", hint="give a sequence file (TOML)") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise StageError(f"{path}: not readable as TOML: {error}", hint=HINT) from None
    if faults := list(_faults(found)):
        raise all_at_once(f"{path}: not a sequence file:", faults, hint=HINT)
    signal, reference = found["signal"], found["reference"]
    beside = path.parent
    return SequenceSpec(
        path=path,
        input=signal["input"],
        chunk=signal["chunk"],
        context=signal.get("context", 0),
        axis=signal.get("axis", -1),
        rate=signal.get("rate"),
        signal=beside / signal["file"] if "file" in signal else None,
        tail=signal.get("tail", "pad"),
        state=found.get("state", {}),
        fixed=found.get("fixed", {}),
        outputs=tuple(found.get("outputs", ())),
        reference=beside / reference["file"],
        method=reference.get("method", "forward"),
        arguments=tuple(reference.get("arguments", ())),
        reference_axis=reference.get("axis", 0),
    )


def _faults(found: Mapping[str, Any]) -> Any:
    if found.get("schema") != SCHEMA:
        yield f"schema: found {found.get('schema')!r}, wanted {SCHEMA!r}"
    known = {"schema", "state", "fixed", "outputs", *SECTIONS}
    yield from (f"{name}: unknown, known: {', '.join(sorted(known))}" for name in found.keys() - known)
    for section, kinds in SECTIONS.items():
        table = found.get(section)
        if not isinstance(table, dict):
            yield f"[{section}]: missing"
            continue
        yield from (f"{section}.{key}: unknown, known: {', '.join(kinds)}" for key in table.keys() - kinds.keys())
        for key, value in table.items():
            if key in kinds and (not isinstance(value, kinds[key]) or isinstance(value, bool)):
                yield f"{section}.{key}: found {value!r}, wanted {KINDS[kinds[key]]}"  # pyright: ignore
    yield from _value_faults(found)


def _value_faults(found: Mapping[str, Any]) -> Any:
    signal = found.get("signal") if isinstance(found.get("signal"), dict) else {}
    assert isinstance(signal, dict)
    for section, key in (("signal", "input"), ("signal", "chunk"), ("reference", "file")):
        table = found.get(section)
        if isinstance(table, dict) and key not in table:
            yield f"{section}.{key}: missing"
    for key, (least, most) in RANGES.items():
        if isinstance(value := signal.get(key), int) and not least <= value <= most:
            wanted = f"at least {least}" if value < least else f"at most {most}"
            yield f"signal.{key}: found {value}, wanted {wanted}"
    if signal.get("tail", "pad") not in TAILS:
        yield f"signal.tail: found {signal['tail']!r}, wanted one of {', '.join(TAILS)}"
    state = found.get("state", {})
    if not isinstance(state, dict) or not all(isinstance(value, str) for value in state.values()):
        yield '[state]: wanted INPUT = "OUTPUT" for each state'
    elif len(set(state.values())) != len(state):
        yield "[state]: one output is fed to two inputs"
    if not isinstance(found.get("fixed", {}), dict):
        yield "[fixed]: wanted INPUT = VALUE"
    yield from _fed_twice(signal, state, found.get("fixed", {}))
    outputs = found.get("outputs", [])
    if not isinstance(outputs, list) or not all(isinstance(name, str) for name in outputs):
        yield "outputs: wanted a list of names"
    else:
        yield from (f"outputs: {name!r} is there twice" for name in {n for n in outputs if outputs.count(n) > 1})


def _fed_twice(signal: Mapping[str, Any], state: Any, fixed: Any) -> Any:
    """Yield the inputs that more than one section feeds: one would go in the other's place, and nobody would see it."""
    names = [signal.get("input"), *(name for table in (state, fixed) if isinstance(table, dict) for name in table)]
    yield from (
        f"{name}: fed by more than one of signal.input, [state] and [fixed]"
        for name in {name for name in names if names.count(name) > 1}
    )
