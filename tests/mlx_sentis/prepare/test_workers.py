"""Rows prepared by processes: the same bytes as without, bugs with their traceback, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare import workers
from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.stage import prepare_data
from mlx_sentis.prepare.workers import Line, Preparer, in_batches, prepared_batches, workers_for
from weights_bridge.errors import StageError
from weights_bridge.settings import DataSettings

ROOT = Path(__file__).resolve().parents[3]
ENDLESS = """
import sys
sys.modules["torch"] = None  # starts in half the time without
from pathlib import Path
from mlx_sentis.prepare import workers
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.workers import Preparer, prepared_batches
from mlx_sentis.recipe import make_recipe
from mlx_sentis.templates import load_tokenizer

def rows():
    number = 0
    while True:
        number += 1
        said = [{"role": "user", "content": f"Open gate {number}"}, {"role": "assistant", "content": "Yes."}]
        yield Row(said, [], f"a:{number}")

if __name__ == "__main__":
    model = Path(sys.argv[1])
    workers.ROWS_AT_ONCE = 8
    preparer = Preparer(load_tokenizer(model), make_recipe(model))
    for _ in prepared_batches(rows(), preparer, model, None, 1):
        print("at work", flush=True)
"""


def row(number: int, answer: Any = "Yes.") -> Row:
    said = [{"role": "user", "content": f"Open gate {number}"}, {"role": "assistant", "content": answer}]
    return Row(said, [], f"rows.jsonl:{number}")


def test_processes_write_the_same_bytes_as_none(
    llama: Any, jsonl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = jsonl([{"prompt": f"Open gate {number}", "completion": f"Gate {number}."} for number in range(60)])
    monkeypatch.setattr(workers, "ROWS_AT_ONCE", 7)
    prepare_data(file, llama.folder, tmp_path / "here", llama.recipe, DataSettings())
    monkeypatch.setattr(workers, "ROWS_FOR_WORKERS", 1)
    monkeypatch.setattr("mlx_sentis.prepare.stage.workers_for", lambda rows: 2)
    prepare_data(file, llama.folder, tmp_path / "there", llama.recipe, DataSettings())
    files = sorted(path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.*"))
    assert len(files) == 8
    for name in files:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes(), name


def test_a_bug_in_a_process_keeps_its_traceback_and_a_faulty_row_is_only_that(llama: Any) -> None:
    preparer = Preparer(llama.tokenizer, llama.recipe)
    rows = iter([row(1), row(2, "a <|im_end|> b"), row(3, answer=7)])  # a content that no reader lets through
    batches = prepared_batches(rows, preparer, llama.folder, None, 1)
    with pytest.raises(TypeError) as caught:
        list(batches)
    assert "masks.py" in str(caught.value.__cause__)  # the process's own traceback
    outcomes = preparer([row(1), row(2, "a <|im_end|> b")]).outcomes
    assert isinstance(outcomes[0], Line)
    assert str(outcomes[1]).startswith("rows.jsonl:2: ")


def test_few_rows_stay_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert [workers_for(rows) for rows in (1, workers.ROWS_FOR_WORKERS - 1, workers.ROWS_FOR_WORKERS)] == [0, 0, 4]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert workers_for(10**6) == workers.MOST_WORKERS
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert workers_for(10**6) == 0


def test_rows_are_taken_a_batch_at_a_time() -> None:
    taken: list[int] = []

    def rows() -> Iterator[Row]:
        for number in range(1000):
            taken.append(number)
            yield row(number)

    assert len(next(in_batches(rows()))) == workers.ROWS_AT_ONCE == len(taken)


def test_a_line_is_the_row_with_its_name(llama: Any) -> None:
    prepared = next(prepared_rows([row(1)], llama.tokenizer, llama.recipe))
    assert isinstance(prepared, Prepared)
    (line,) = Preparer(llama.tokenizer, llama.recipe)([row(1)]).outcomes
    assert isinstance(line, Line)
    assert json.loads(line.named("train-0001")) == prepared.as_json("train-0001") | {
        "trained": [[*prepared.trained[0]]]
    }
    assert line.named("train-0001").endswith(b"}\n")


@pytest.fixture
def at_work(llama: Any, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that prepares rows without end, with a worker that has begun."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, str(script), str(llama.folder)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    yield process
    process.kill()
    process.communicate()


def members(group: int) -> set[str]:
    """Return the processes of a process group that have not ended."""
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,pid=,stat="], capture_output=True, text=True, check=True).stdout
    fields = [line.split() for line in listed.splitlines()]
    return {pid for pgid, pid, state in fields if pgid == str(group) and not state.startswith("Z")}


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(at_work: subprocess.Popen[str], ended_by: int) -> None:
    assert len(members(at_work.pid)) >= 2
    at_work.send_signal(ended_by)
    # all of them hold the other end of these pipes: the last one to go closes it, and is listed a moment longer
    _, errors = at_work.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while (left := members(at_work.pid)) and time.monotonic() < deadline:
        pass
    assert left == set()
    assert at_work.returncode in (-ended_by, 1)
    assert ("KeyboardInterrupt" in errors) == (ended_by == signal.SIGINT)


class Deadly:
    """An object that ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (9,)


def test_a_worker_that_dies_ends_the_work_with_an_error_of_one_line(llama: Any) -> None:
    preparer = Preparer(llama.tokenizer, llama.recipe)
    batches = prepared_batches(iter([row(1, Deadly())]), preparer, llama.folder, None, 1)
    with pytest.raises(StageError, match="a process that prepares rows was ended from outside"):
        list(batches)
