"""Child processes: what comes back from them, in every way they can end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.children import environment, run_child
from weights_bridge.errors import BudgetMissedError, StageError

MODULE = """
import json, os, signal, sys
from pathlib import Path
from weights_bridge.errors import BudgetMissedError, StageError

def answer(request):
    print("a library warns", file=sys.stderr)
    if request["do"] == "write":
        found = [request["number"] * 2, os.getpid(), os.environ.get("TQDM_DISABLE")]
        Path(request["out"]).write_text(json.dumps(found))
    elif request["do"] == "refuse":
        raise StageError("x.json:3: found ñ\\n  second line", hint="mend it")
    elif request["do"] == "miss":
        raise BudgetMissedError("70 dB", hint="look")
    elif request["do"] == "lack":
        raise ModuleNotFoundError("No module named 'torch'", name="torch.nn")
    elif request["do"] == "lack ours":
        raise ModuleNotFoundError("No module named 'parity.typo'", name="parity.typo")
    elif request["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        raise KeyError("a bug in the child")
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    (tmp_path / "made_child.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(do: str) -> None:
        run_child("made_child", {"do": do, "number": 21, "out": str(tmp_path / "out.json")}, tmp_path / "request.json")

    return run


def test_a_child_answers_in_a_process_of_its_own_without_bars(child: Callable[[str], None], tmp_path: Path) -> None:
    child("write")
    number, process, bars = json.loads((tmp_path / "out.json").read_text())
    assert (number, bars) == (42, "1")
    assert process != os.getpid()


def test_a_framework_that_is_not_installed_is_one_line_and_a_missing_module_of_ours_a_bug(
    child: Callable[[str], None],
) -> None:
    with pytest.raises(StageError, match=r"^torch is not installed here") as caught:
        child("lack")
    assert "pip install" in caught.value.hint
    with pytest.raises(RuntimeError, match=r"No module named 'parity\.typo'"):
        child("lack ours")


def test_a_childs_refusal_is_raised_here_with_its_hint(child: Callable[[str], None]) -> None:
    with pytest.raises(StageError) as caught:
        child("refuse")
    assert type(caught.value) is StageError
    assert (caught.value.message, caught.value.hint) == ("x.json:3: found ñ\n  second line", "mend it")


def test_a_missed_budget_keeps_its_exit_code(child: Callable[[str], None]) -> None:
    with pytest.raises(BudgetMissedError) as caught:
        child("miss")
    assert (caught.value.exit_code, caught.value.message, caught.value.hint) == (3, "70 dB", "look")


def test_a_killed_child_is_told_by_its_signal(child: Callable[[str], None]) -> None:
    with pytest.raises(StageError, match="made_child: ended by signal 9"):
        child("die")


def test_a_bug_in_a_child_keeps_its_traceback(child: Callable[[str], None]) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)Traceback.*KeyError: 'a bug in the child'"):
        child("other")


def test_bars_are_not_silenced_for_stages_that_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    assert "TQDM_DISABLE" not in environment()
