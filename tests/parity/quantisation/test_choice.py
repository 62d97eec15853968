"""The order in which weights are made smaller, decided by what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from parity.quantisation.choice import choose
from parity.quantisation.preview import Kind
from weights_bridge.compare import GateResult

MIB = 2**20


def kind(name: str, mib: float, *, worse: tuple[str, ...] = (), **given: Any) -> Kind:
    task = {
        "rows": [{}] * 50,
        "verdicts": {axis: {"word": "regressed"} for axis in worse} | {"a": {"word": "improved"}},
    }
    error = GateResult("y", True, "within budget", 0.1, 0.1, 60.0)
    return Kind(name, int(mib * MIB), **({"errors": [error], "task": task, "changed": 3} | given))


def chosen(limit: float | None = None, tuned: bool = True, **kinds: Kind) -> tuple[str, bool, str]:
    found = choose(kinds, 100 * MIB, None if limit is None else int(limit * MIB), tuned)
    return found.kind, found.acceptable, "\n".join(found.steps)


def test_float16_is_taken_where_nothing_gets_worse_and_uint8_is_not_needed() -> None:
    name, fits, steps = chosen(float16=kind("float16", 50), uint8=kind("uint8", 25))
    assert (name, fits) == ("float16", True)
    assert "1. fine-tune first: done" in steps
    assert "2. Float16: yes, worst output 60.0 dB, 3 of 50 answers change, no axis gets worse" in steps
    assert "3. Uint8 only if memory-bound: not needed; it would save 25.0 MiB" in steps


def test_uint8_is_taken_only_where_float16_does_not_fit() -> None:
    kinds = {"float16": kind("float16", 50), "uint8": kind("uint8", 25)}
    assert chosen(limit=50, **kinds)[:2] == ("float16", True)
    assert chosen(limit=49, **kinds)[:2] == ("uint8", True)
    name, fits, steps = chosen(limit=24, **kinds)
    assert (name, fits) == ("uint8", False)
    assert "Uint8 weights take 25.0 MiB, the limit is 24.0 MiB" in steps
    assert "the limit is 0.05 MiB" in chosen(limit=0.05, **kinds)[2]


def test_uint8_that_makes_the_task_worse_is_not_taken_for_memory() -> None:
    kinds = {"float16": kind("float16", 50), "uint8": kind("uint8", 25, worse=("function_selection",))}
    name, fits, steps = chosen(limit=30, **kinds)
    assert (name, fits) == ("float16", False)
    assert "3. Uint8: no, the task gets worse: function selection" in steps


def test_float16_that_makes_the_task_worse_leaves_fp32_and_says_so() -> None:
    kinds = {"float16": kind("float16", 50, worse=("whole_call",)), "uint8": kind("uint8", 25)}
    name, fits, steps = chosen(**kinds)
    assert (name, fits) == ("fp32", False)
    assert "2. Float16: no, the task gets worse: whole call" in steps


def test_what_is_not_predicted_is_not_taken() -> None:
    unknown = kind("float16", 50, errors=[], why_not="not predicted: Foo")
    name, fits, steps = chosen(float16=unknown)
    assert (name, fits) == ("fp32", False) and "2. Float16: no, not predicted: Foo" in steps


def test_not_a_number_is_not_taken() -> None:
    bad = kind("float16", 50, errors=[GateResult("y", False, "nan", detail="3 values are not finite")])
    assert chosen(float16=bad)[:2] == ("fp32", False)


def test_a_level_that_reads_as_a_fault_is_not_taken_unless_the_task_was_asked() -> None:
    far = [GateResult("y", True, "within budget", 0.1, 0.1, 19.9)]
    name, fits, steps = chosen(float16=kind("float16", 50, errors=far, task=None))
    assert (name, fits) == ("fp32", False)
    assert "2. Float16: no, y: 19.9 dB, below 20 dB, and the task was not asked" in steps
    assert chosen(float16=kind("float16", 50, errors=far))[:2] == ("float16", True)
    just = [GateResult("y", True, "within budget", 0.1, 0.1, 20.0)]
    assert chosen(float16=kind("float16", 50, errors=just, task=None))[:2] == ("float16", True)


def test_untuned_weights_are_told_to_be_tuned_first() -> None:
    assert "these are no tuned weights: tune before you quantise" in chosen(tuned=False, float16=kind("float16", 50))[2]


@pytest.mark.parametrize("asked", ["float16", "uint8"])
def test_one_kind_alone_is_judged_by_itself(asked: str) -> None:
    limit = 1 if asked == "uint8" else None
    found = chosen(limit=limit, **{asked: kind(asked, 0.5)})
    assert found[:2] == (asked, True)


def test_an_output_that_fails_is_the_worst_whatever_the_others_lose() -> None:
    low, broken = GateResult("a", True, "", psnr_db=3.0), GateResult("b", False, "nan")
    worst = kind("float16", 50, errors=[low, broken]).worst
    assert worst is not None and worst.tensor == "b"
