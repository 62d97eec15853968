"""The gradient proof passes on all architectures and sees planted errors, a hundred times over its limit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from helpers import call
from training_rows import PREFIX, nested_rows, rendered_rows

from mlx_sentis.demo.toy import MODEL_TYPES
from mlx_sentis.training import prefix
from mlx_sentis.training.prefix import SegmentCache
from mlx_sentis.training.prove import LIMIT, prove_step, worst_difference
from mlx_sentis.training.sharing import Sharing

Make = Callable[..., Any]
SHARED = Sharing(PREFIX, streams=2)
causal = prefix.create_causal_mask


@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_nested_sharing_gives_the_plain_steps_gradients(decoder: Make, model_type: str, kind: str) -> None:
    proof = prove_step(decoder(model_type, kind, moved=False), nested_rows(), SHARED, 0)
    assert proof.passed, proof.text()
    assert proof.passes > 4
    assert 0 < proof.floor < LIMIT
    assert proof.loss == pytest.approx(proof.plain_loss, rel=1e-6)
    assert proof.computed_tokens * 1.3 < proof.plain_tokens


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_gradient_of_every_trained_parameter_is_compared(decoder: Make, model_type: str) -> None:
    proof = prove_step(decoder(model_type), rendered_rows(30, 12, 21), PREFIX, 0)
    assert proof.passed, proof.text()
    assert proof.parameters == 2 * 7 * 3  # layers, Linear modules, A, B and magnitude


def misses(decoder: Make, model_type: str) -> None:
    proof = prove_step(decoder(model_type, "lora"), nested_rows(), SHARED, 0)
    assert not proof.passed
    assert proof.worst > 100 * LIMIT, proof.text()
    assert proof.floor < LIMIT


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_position_off_by_one_is_seen(decoder: Make, model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = SegmentCache.__init__

    def off_by_one(self: Any, parent: Any = None) -> None:
        made(self, parent)
        self.offset += parent is not None

    # the mask keeps its alignment: only the rotary positions are wrong
    monkeypatch.setattr(SegmentCache, "make_mask", right_mask)
    monkeypatch.setattr(SegmentCache, "__init__", off_by_one)
    misses(decoder, model_type)


def right_mask(self: SegmentCache, length: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
    offset = 0 if self.parent is None else self.parent.length
    return causal(length, offset=offset, window_size=window_size)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_window_off_by_one_is_seen(decoder: Make, by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(length: int, offset: int = 0, window_size: int | None = None) -> mx.array:
        return causal(length, offset=offset, window_size=window_size and window_size + by)

    monkeypatch.setattr(prefix, "create_causal_mask", other)
    misses(decoder, "gemma3_text")


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_a_mask_that_hides_one_ancestor_token_is_seen(
    decoder: Make, model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(length: int, offset: int = 0, **words: Any) -> mx.array:
        mask = causal(length, offset=offset, **words)
        hidden = mx.arange(mask.shape[1]) == max(0, offset - 1)
        return mask & ~hidden if offset else mask

    monkeypatch.setattr(prefix, "create_causal_mask", blind)
    misses(decoder, model_type)


def test_a_mask_one_token_too_wide_is_seen(decoder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(length: int, offset: int = 0, **words: Any) -> mx.array:
        mask = causal(length, offset=offset, **words)
        return mx.concatenate([mask[:, 1:], mask[:, -1:]], axis=1)  # each query sees the token behind it

    monkeypatch.setattr(prefix, "create_causal_mask", wide)
    misses(decoder, "qwen2")


def test_a_gradient_that_is_not_a_number_never_passes() -> None:
    good = {"a": np.ones(3), "b": np.ones(3)}
    worst, name = worst_difference({"a": np.ones(3), "b": np.full(3, np.nan)}, good)
    assert np.isnan(worst)
    assert name == "b"
    assert worst_difference(good, good)[0] == 0.0


@pytest.fixture
def run(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "run"))


def test_train_proves_the_step_on_rendered_rows_and_trains_nothing(run: Path) -> None:
    result = call("train", "--data", run, "--out", run, "--prove-step", "--json", "--set", "adapter.rank=4")
    proof = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert (proof["schema"], proof["passed"], proof["rows"]) == ("mlx-sentis/prove-step/1", True, 8)
    assert 0 < proof["worst"] <= proof["limit"] == LIMIT
    assert not (run / "checkpoints").exists()
    whole = call("train", "--data", run, "--out", run, "--prove-step", "--json", "--no-share-prefix")
    assert json.loads(whole.stdout)["computed_tokens"] > proof["computed_tokens"]


def test_a_step_that_is_wrong_is_exit_3_and_names_the_parameter(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        prefix, "create_causal_mask", lambda length, offset=0, **kw: causal(length, offset, **kw) | True
    )
    result = call("train", "--data", run, "--out", run, "--prove-step", "--set", "adapter.type=lora")
    assert result.exit_code == 3
    assert "MISS" in result.stdout
    assert "the gradient differs by" in result.stderr
    assert "lora_" in result.stderr
