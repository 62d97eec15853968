"""Every kind of adapter through prepare, train, bridge and gate A0, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import call

from weights_bridge.adapter_file import read_adapter
from weights_bridge.adapter_kinds import KINDS

CASES = [(f"adapter.type={kind}",) for kind in KINDS]
CASES += [
    ("adapter.type=bora", "adapter.norm=attached"),
    ("adapter.type=dora-cols", "adapter.dropout=0.1"),
    (
        "adapter.type=lora",
        "adapter.targets=layers.[0-0].*",
        "adapter.exclude=k_proj",
        "adapter.rank_pattern={q_proj=2}",
    ),
    ("adapter.type=dora", "adapter.quantise=8"),
    ("train.full=true", "train.learning_rate=1e-4"),
]


@pytest.fixture(scope="module")
def prepared(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLX_SENTIS_CACHE", str(tmp_path_factory.mktemp("cache")))
        result = call("prepare", small_data, "--model", "toy-llama", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    return out


@pytest.mark.slow
@pytest.mark.usefixtures("children_here")
@pytest.mark.parametrize("settings", CASES, ids=lambda settings: " ".join(settings))
def test_a_kind_is_trained_merged_and_passes_gate_a0(prepared: Path, tmp_path: Path, settings: tuple[str, ...]) -> None:
    flags = [word for one in (*settings, "train.epochs=2") for word in ("--set", one)]
    trained = call("train", "--data", prepared, "--out", tmp_path, "--json", "--progress", "off", *flags)
    assert trained.exit_code == 0, trained.output
    figures = json.loads(trained.stdout)
    assert figures["last_loss"] < figures["first_loss"]
    bridged = call("bridge", tmp_path, "--json")
    assert bridged.exit_code == 0, bridged.output
    report = json.loads((tmp_path / "parity" / "a0.json").read_text(encoding="utf-8"))
    adapter = read_adapter(tmp_path / "checkpoints" / "best" / "adapter.safetensors")
    gradients = [r for r in report["results"] if r["tensor"].startswith("backward model.")]
    assert report["passed"] and len(gradients) == len([n for n in adapter.flat() if n.rpartition(".")[2] not in "UV"])
