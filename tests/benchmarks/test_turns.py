"""Contenders that take turns."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.turns import Turn, in_turn


class Contender:
    """Writes its name down at each step; it may die before one of them."""

    def __init__(self, name: str, log: list[str], dies_at: int = -1) -> None:
        self.name, self.log, self.dies_at, self.released = name, log, dies_at, 0

    def release(self) -> None:
        self.released += 1

    def __call__(self, folder: str) -> dict[str, Any]:
        turn = Turn(folder, self.release)
        for step in range(3):
            if step == self.dies_at:
                return {"not_measured": "died"}
            turn()
            self.log.append(self.name + str(step))
        return {"steps": 3}


def test_contenders_make_one_step_each_in_turn(tmp_path: Path) -> None:
    log: list[str] = []
    told: list[str] = []
    contenders = {name: Contender(name, log) for name in "abc"}
    found = in_turn(contenders, 3, tmp_path, told.append)
    assert log == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]
    assert found == {name: {"steps": 3} for name in "abc"}
    assert [one.released for one in contenders.values()] == [3, 3, 3]  # before every wait: the others have the memory
    assert told[0] == "a, warm-up" and told[-1] == "c, step 2 of 2"


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_contender_that_dies_is_passed_over_and_says_why(step: int, tmp_path: Path) -> None:
    log: list[str] = []
    found = in_turn({"a": Contender("a", log, dies_at=step), "b": Contender("b", log)}, 3, tmp_path, lambda _: None)
    assert found == {"a": {"not_measured": "died"}, "b": {"steps": 3}}
    assert log == [name + str(at) for at in range(3) for name in "ab" if name == "b" or at < step]


def test_an_error_of_ours_ends_the_benchmark_and_the_others_are_not_left_waiting(tmp_path: Path) -> None:
    def fails(folder: str) -> dict[str, Any]:
        Turn(folder)()
        raise RuntimeError("ours is broken")

    log: list[str] = []
    with pytest.raises(RuntimeError, match="ours is broken"):
        in_turn({"ours": fails, "b": Contender("b", log)}, 3, tmp_path, lambda _: None)
    assert log == ["b0", "b1", "b2"]


def test_without_a_folder_nobody_waits() -> None:
    Turn(None)()
