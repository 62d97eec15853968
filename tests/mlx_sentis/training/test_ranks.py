"""Two processes train as one would with the joint batch; what befalls one of them ends both, and nothing is lost."""

from __future__ import annotations

import copy
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from helpers import call
from joint_child import ROWS, joint_training
from safetensors.numpy import load_file

from mlx_sentis.launch import backend_of
from mlx_sentis.training import loop
from mlx_sentis.training.plan import plan_updates, require_shares, share_of
from mlx_sentis.training.ranks import ALONE, Ranks, join
from mlx_sentis.training.segments import read_tokens
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.settings import TrainSettings

ROOT = Path(__file__).resolve().parents[3]
Arrays = dict[str, np.ndarray]

PLAIN: dict[str, Any] = {"warmup_updates": 0, "schedule": "constant", "batch_rows": 11, "gradient_clip": 0.0}
SGD = PLAIN | {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.02, "epochs": 5}
ADAMW = PLAIN | {"optimizer": "adamw", "epochs": 5}
RANDOM = {"train": {"batch_rows": 4, "epochs": 2, "warmup_updates": 1}, "dropout": 0.3}  # three updates an epoch
EQUAL = [12] * 11  # rows of one length keep the order they are given in
CASES: dict[str, dict[str, Any]] = {
    "gradient": {"train": SGD | {"momentum": 0.9, "epochs": 1}},  # the first momentum is the gradient itself
    "sgd": {"train": SGD},
    "adamw": {"train": ADAMW, "tails": EQUAL},
    "tail": {"train": SGD | {"batch_rows": 5, "epochs": 1}},  # 5, 5 and 1: nothing is left for the second process
    "accumulated": {"train": SGD | {"batch_rows": 4, "accumulate": 3, "epochs": 2}},
    "whole": RANDOM,
    "terminated": RANDOM | {"plant": "SIGTERM"},
    "resumed": RANDOM | {"folder": "terminated", "resumes": True},
    "asked": RANDOM | {"plant": "SIGUSR1", "after": 1},
    "nan": RANDOM | {"plant": "nan"},
    "memory": RANDOM | {"plant": "memory"},
    "sink": RANDOM | {"plant": "sink", "in_rank": 0},
    "killed": RANDOM | {"plant": "kill", "after": 2},
}


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def launch(work: Path, *words: object, processes: int = 2) -> list[subprocess.CompletedProcess[str]]:
    """Start processes as `mlx.launch --backend ring` does, without the launcher, which takes a core for itself."""
    hosts = work / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in free_ports(processes)]))
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    started = []
    for rank in range(processes):
        environment = os.environ | {"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts), "PYTHONPATH": paths}
        command = [sys.executable, *map(str, words)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=environment, **pipes))
    ended = []
    for child in started:
        out, err = child.communicate(timeout=240)
        ended.append(subprocess.CompletedProcess(child.args, child.returncode, out, err))
    return ended


class Joint:
    """What two processes made of the cases."""

    def __init__(self, work: Path, model: Path) -> None:
        self.work, self.model = work, model

    def told(self, name: str, rank: int = 0) -> dict[str, Any]:
        return read_json(self.work / f"{name}-{rank}.json")

    def arrays(self, name: str, kind: str = "trained.") -> Arrays:
        return arrays_of(self.work / name, kind)

    def alone(self, name: str, folder: Path, kind: str = "trained.", **changed: Any) -> Arrays:
        """Train the same case in one process."""
        case = copy.deepcopy(CASES[name]) | changed
        rows = joint_rows(case.pop("tails", None))
        joint_training(self.model, folder, ALONE, **({"rows": rows} | case))
        return arrays_of(folder, kind)


def joint_rows(tails: list[int] | None) -> list[dict[str, Any]]:
    from training_rows import rendered_rows

    return rendered_rows(*tails) if tails else ROWS


def arrays_of(folder: Path, kind: str) -> Arrays:
    found = load_file(folder / "last" / "state.safetensors")
    return {name: array.astype(np.float64) for name, array in found.items() if name.startswith(kind)}


def apart(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> float:
    """Return the relative L2 difference over all arrays."""
    assert found.keys() == wanted.keys() and wanted
    differences = sum(float(((found[name] - wanted[name]) ** 2).sum()) for name in wanted)
    return float(np.sqrt(differences / sum(float((array**2).sum()) for array in wanted.values())))


@pytest.fixture(scope="module")
def joint(toy_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Joint:
    work, model = tmp_path_factory.mktemp("joint"), toy_model("llama")
    request = work / "request.json"
    request.write_text(json.dumps({"model": str(model), "work": str(work), "cases": CASES}))
    first, second = launch(work, ROOT / "tests" / "joint_child.py", request)
    assert first.returncode == 0, first.stderr
    assert second.returncode == -9, second.stderr  # the last case kills it
    return Joint(work, model)


# --- the same numbers


def test_two_processes_have_the_gradient_of_the_joint_batch(joint: Joint, tmp_path: Path) -> None:
    momenta = joint.arrays("gradient", "optimizer.")
    gradient = {name: array for name, array in momenta.items() if name.endswith(".v")}
    wanted = {n: a for n, a in joint.alone("gradient", tmp_path, "optimizer.").items() if n.endswith(".v")}
    print(f"gradient: {apart(gradient, wanted):.1e}")
    assert apart(gradient, wanted) <= 1e-6
    assert max(apart({name: gradient[name]}, {name: wanted[name]}) for name in wanted) <= 3e-6


@pytest.fixture(scope="module")
def sgd_alone(joint: Joint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    joint.alone("sgd", folder)
    return folder


def test_five_updates_of_sgd_give_the_same_weights(joint: Joint, sgd_alone: Path) -> None:
    print(f"SGD, five updates: {apart(joint.arrays('sgd'), arrays_of(sgd_alone, 'trained.')):.1e}")
    assert apart(joint.arrays("sgd"), arrays_of(sgd_alone, "trained.")) <= 1e-6
    steps = joint.told("sgd")["steps"]
    assert steps == joint.told("sgd", 1)["steps"]  # both know the joint figures
    assert [one["trained"] for one in steps] == [sum(end - start for r in ROWS for start, end in r["trained"])] * 5


def test_adamw_is_as_far_from_one_process_as_another_order_of_rows_is(joint: Joint, tmp_path: Path) -> None:
    alone = joint.alone("adamw", tmp_path / "alone")
    orders = []
    for seed in range(2):
        rows = joint_rows(EQUAL)
        order = np.random.default_rng(seed).permutation(len(rows))
        orders.append(joint.alone("adamw", tmp_path / str(seed), rows=[rows[i] for i in order], tails=None))
    permuted = max(apart(order, alone) for order in orders)
    found = apart(joint.arrays("adamw"), alone)
    print(f"AdamW, five updates: {found:.1e} from one process, another order of rows {permuted:.1e}")
    assert 0 < permuted < 1e-5
    assert found <= 3 * permuted


@pytest.mark.parametrize("name", ["tail", "accumulated"])
def test_rows_that_cannot_be_dealt_out_evenly_change_nothing(joint: Joint, tmp_path: Path, name: str) -> None:
    assert apart(joint.arrays(name), joint.alone(name, tmp_path)) <= 1e-6
    assert [one["trained"] for one in joint.told(name)["steps"]] == [
        one["trained"] for one in joint.told(name, 1)["steps"]
    ]


def test_the_validation_loss_is_that_of_one_process(joint: Joint, sgd_alone: Path) -> None:
    losses = [read_json(folder / "last" / "state.json")["valid_losses"] for folder in (joint.work / "sgd", sgd_alone)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


# --- what befalls one process


def test_a_signal_to_one_process_stops_both_after_the_same_update(joint: Joint) -> None:
    for rank in (0, 1):
        told = joint.told("terminated", rank)
        assert told["ended"] == "InterruptedTrainingError"
        assert told["message"].startswith("stopped by SIGTERM after update 3 of 6; its state is saved in checkpoints/3")
        assert len(told["steps"]) == 3


def test_a_stopped_and_resumed_joint_run_is_bitwise_the_one_that_never_stopped(joint: Joint) -> None:
    assert joint.told("resumed")["ended"] == joint.told("whole")["ended"] == "well"
    assert joint.told("resumed")["steps"] == joint.told("whole")["steps"][3:]
    files = [(joint.work / name / "last" / "state.safetensors").read_bytes() for name in ("terminated", "whole")]
    assert files[0] == files[1]


def test_dropout_differs_between_processes_and_updates() -> None:
    keys = set()
    for rank in (0, 1):
        for update in (0, 1):
            trainer = object.__new__(loop.Trainer)
            trainer.ranks, trainer.settings = Ranks(Fake(rank)), TrainSettings()
            trainer.done = loop.Progress(step=update)
            trainer._seed_of_update()
            keys.add(tuple(loop.random_key()))
    assert len(keys) == 4


def test_a_request_to_save_that_one_process_hears_is_answered_by_the_first(joint: Joint) -> None:
    assert joint.told("asked")["ended"] == "well"
    assert (joint.work / "asked" / "1" / "state.json").is_file()
    assert joint.told("asked")["steps"] == joint.told("whole")["steps"]


def test_a_loss_that_is_not_finite_in_one_process_stops_both_with_the_state_before(joint: Joint) -> None:
    rows = plan_updates(ROWS, TrainSettings(batch_rows=4), 1)[0][0]
    for rank in (0, 1):
        message = joint.told("nan", rank)["message"]
        assert message.startswith("update 4, epoch 1: loss is nan; rows ")
        assert all(ROWS[i]["id"] in message for i in rows)  # of both processes
        assert message.endswith("the state of update 3 is kept in checkpoints/3")
    assert all(np.isfinite(array).all() for array in joint.arrays("nan").values())


def test_memory_that_runs_out_in_one_process_stops_both(joint: Joint) -> None:
    first, second = (joint.told("memory", rank) for rank in (0, 1))
    assert first["ended"] == second["ended"] == "OutOfMemoryError"
    assert (
        "does not fit into memory (process 1 of 2: MemoryError: std::bad_alloc); the state of update 3"
        in (first["message"])
    )


def test_a_sink_that_fails_in_the_first_process_ends_the_second(joint: Joint) -> None:
    assert joint.told("sink")["ended"] == "OSError"
    assert joint.told("sink", 1)["message"] == "process 0 of 2: OSError: the tracker is gone"


def test_a_process_that_is_killed_costs_no_update_that_was_done(joint: Joint) -> None:
    told = joint.told("killed")
    assert told["ended"] == "LostProcessError"
    assert told["message"].startswith("update 3: another process of this training is gone")
    assert told["message"].endswith("the state of update 2 is kept in checkpoints/2")
    assert told["steps"] == joint.told("whole")["steps"][:2]
    assert not (joint.work / "killed-1.json").exists()


def test_another_number_of_processes_is_refused_by_name(joint: Joint, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(joint.work / "terminated", tmp_path / "cut", symlinks=True))
    found = joint_training(joint.model, folder, ALONE, **RANDOM, resumes=True)
    assert "\n  processes: found 1, the state was made by 2" in found["message"]


# --- a process alone


class Fake:
    """A group that is never used to communicate."""

    def __init__(self, rank: int, size: int = 2) -> None:
        self.rank, self.size = lambda: rank, lambda: size


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "hosts.json"


@pytest.mark.parametrize(
    ("environment", "content", "wanted"),
    [
        ({}, None, ""),
        ({"MLX_RANK": "0"}, None, ""),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": ""}, "\n", ""),  # mlx.launch -n 1
        ({"MLX_RANK": "0", "MLX_HOSTFILE": ""}, '[["127.0.0.1:1"], ["127.0.0.1:2"]]', "ring"),
        ({"MLX_RANK": "1", "MLX_IBV_DEVICES": ""}, '[[null, "a"], ["b", null]]', "jaccl"),
        ({"MLX_RANK": "1", "MLX_WORLD_SIZE": "2"}, None, "nccl"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, None, "mpi"),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None, ""),
    ],
)
def test_only_a_launcher_makes_a_training_join_others(
    environment: dict[str, str], content: str | None, wanted: str, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        hosts.write_text(content)
    found = {name: value or str(hosts) for name, value in environment.items()}
    assert backend_of(found) == wanted
    if not wanted:
        monkeypatch.setattr(mx.distributed, "init", lambda **words: pytest.fail("a connection was opened"))
        for name, value in found.items():
            monkeypatch.setenv(name, value)
        assert join() is ALONE


def test_alone_nothing_is_communicated_and_everything_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("all_gather", "all_sum", "init"):
        monkeypatch.setattr(mx.distributed, name, lambda *words, **named: pytest.fail("communicated"))
    tree = {"a": mx.array([1.0, -0.0])}
    assert ALONE.summed(tree) is tree
    assert ALONE.tree_of_first(tree) is tree
    assert ALONE.text_of("words") == "words"
    assert ALONE.added(np.array([3])).tolist() == [3]
    with pytest.raises(KeyError), ALONE.together():
        raise KeyError


def test_shares_are_whole_disjoint_and_of_similar_length() -> None:
    chosen = [7, 2, 9, 4, 0]
    assert share_of(ROWS, chosen, 0, 1) is chosen
    shares = [share_of(ROWS, chosen, rank, 2) for rank in (0, 1)]
    assert sorted(shares[0] + shares[1]) == sorted(chosen)
    lengths = [sorted(read_tokens(ROWS[i]) for i in share) for share in shares]
    assert lengths[0][0] <= lengths[1][0] <= lengths[0][1] <= lengths[1][1] <= lengths[0][2]
    assert [share_of(ROWS, [5], rank, 3) for rank in (0, 1, 2)] == [[5], [], []]


def test_batches_with_fewer_rows_than_processes_are_refused() -> None:
    with pytest.raises(StageError, match=r"train\.batch_rows=1: 11 of 11 batches have fewer rows than the 2 proc") as e:
        require_shares(ROWS, TrainSettings(batch_rows=1), 2)
    assert e.value.hint.startswith("--set train.batch_rows=2 or more")
    with pytest.raises(StageError, match=r"train\.batch_tokens=64"):
        require_shares(ROWS, TrainSettings(batch_tokens=64), 2)
    require_shares(ROWS, TrainSettings(batch_rows=5), 2)  # one row is left at the end of an epoch
    require_shares(ROWS, TrainSettings(batch_rows=1), 1)


@pytest.mark.parametrize("words", [("train", "--data", "d", "--out", "o", "--prove-step"), ("families",)])
def test_what_runs_in_one_process_is_refused_under_a_launcher(
    words: tuple[str, ...], hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.write_text('[["127.0.0.1:1"], ["127.0.0.1:2"]]')
    monkeypatch.setenv("MLX_RANK", "0")
    monkeypatch.setenv("MLX_HOSTFILE", str(hosts))
    result = call(*words)
    assert result.exit_code == 2
    assert "without mlx.launch" in result.stderr


# --- the command


@pytest.mark.slow
def test_the_command_under_mlx_launch_writes_one_run_and_speaks_once(prepared: Path, tmp_path: Path) -> None:
    data, out = Path(shutil.copytree(prepared, tmp_path / "data")), tmp_path / "run"
    settings = ("--set", "train.epochs=2", "--set", "adapter.rank=4")
    train = ("-m", "mlx_sentis", "train", "--data", data, "--out", out, "--progress", "off", *settings)
    launcher = Path(sys.executable).with_name("mlx.launch")
    port = free_ports(1)[0]
    words = [launcher, "-n", "2", "--backend", "ring", "-p", port, "--", sys.executable, *train]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([str(w) for w in words], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1].startswith(f"{out}: 6 updates in "), done.stderr
    assert done.stdout.count("6 updates") == 1
    assert done.stderr.count("dora of rank 4 on 14 modules") == 1
    facts = read_json(out / "manifest.json")["stages"]["train"]["facts"]
    assert (facts["updates"], facts["processes"]) == (6, 2)

    single = tmp_path / "single"
    assert call("train", "--data", data, "--out", single, "--progress", "off", *settings).exit_code == 0
    assert apart(arrays_of(out / "checkpoints", "trained."), arrays_of(single / "checkpoints", "trained.")) <= 1e-5

    refused = launch(tmp_path, *train, "--set", "train.batch_rows=1")
    assert [one.returncode for one in refused] == [1, 0]
    assert "24 of 24 batches have fewer rows than the 2 processes" in refused[0].stderr
    assert refused[1].stderr == ""
    resumed = launch(tmp_path, *train, "--resume", "--set", "train.epochs=3", "--set", "train.schedule=constant")
    assert "train.schedule: found 'constant'" in resumed[0].stderr
    resumed = launch(tmp_path, *train, "--resume", "--set", "train.epochs=3")
    assert [one.returncode for one in resumed] == [0, 0], resumed[0].stderr
    assert (out / "checkpoints" / "9" / "adapter.safetensors").is_file()
