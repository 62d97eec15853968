"""The interchange file: read whole, or refused with every fault by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weights_bridge.adapter_file import naming_scheme, read_adapter
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.errors import StageError

Make = Callable[..., Path]
Q = "model.layers.0.self_attn.q_proj"


def refusal(path: Path) -> str:
    with pytest.raises(StageError) as caught:
        read_adapter(path)
    return caught.value.message


def test_a_whole_file_gives_modules_facts_and_scale(made_adapter: Make) -> None:
    adapter = read_adapter(made_adapter("llama", "dora", rank=4, alpha=8.0))
    assert (adapter.scale, adapter.facts["rank"], len(adapter.modules)) == (2.0, 4, 14)
    assert list(adapter.modules) == sorted(adapter.modules)
    assert {part: array.shape for part, array in adapter.modules[Q].items()} == {
        "lora_A": (4, 64),
        "lora_B": (64, 4),
        "magnitude": (64,),
    }
    assert len(adapter.flat()) == 42
    assert adapter.flat()[f"{Q}.lora_A"] is adapter.modules[Q]["lora_A"]


@pytest.mark.parametrize(("rank", "alpha", "scale"), [(64, 64.0, 1.0), (8, 160.0, 20.0)])
def test_the_scale_is_alpha_over_rank(made_adapter: Make, rank: int, alpha: float, scale: float) -> None:
    assert read_adapter(made_adapter(rank=rank, alpha=alpha)).scale == scale


def test_a_dora_without_a_magnitude_is_refused_by_module(made_adapter: Make) -> None:
    message = refusal(made_adapter(change=lambda tensors, facts: tensors.pop(f"{Q}.magnitude")))
    assert message.splitlines()[1:] == [f"  {Q}: found ['lora_A', 'lora_B'], wanted ['lora_A', 'lora_B', 'magnitude']"]


def test_a_lora_with_a_magnitude_is_refused(made_adapter: Make) -> None:
    message = refusal(made_adapter(kind="lora", change=lambda t, f: t.update({f"{Q}.magnitude": np.ones(64, "f4")})))
    assert f"{Q}: found ['lora_A', 'lora_B', 'magnitude'], wanted ['lora_A', 'lora_B']" in message


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_by_tensor(made_adapter: Make, value: float) -> None:
    def spoil(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        tensors[f"{Q}.lora_B"][3, 1] = value

    assert refusal(made_adapter(change=spoil)).splitlines()[1:] == [f"  {Q}.lora_B: holds values that are not finite"]


def test_peft_names_are_refused_by_name(made_adapter: Make) -> None:
    def rename(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        for part in ("lora_A", "lora_B"):
            tensors[f"base_model.model.{Q}.{part}.weight"] = tensors.pop(f"{Q}.{part}")

    message = refusal(made_adapter(kind="lora", change=rename))
    assert f"base_model.model.{Q}.lora_A: not among the metadata's targets" in message
    assert f"{Q}: missing, the metadata names it" in message


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_with_exactly_its_tensors(made_adapter: Make, kind: str) -> None:
    adapter = read_adapter(made_adapter("llama", kind))
    assert (adapter.kind.name, adapter.kind.parts) == (kind, set(adapter.modules[Q]))
    first = sorted(adapter.kind.parts)[0]
    message = refusal(made_adapter("llama", kind, change=lambda tensors, facts: tensors.pop(f"{Q}.{first}")))
    assert f"{Q}: found" in message and f"{first!r}" in message.partition("wanted")[2]


def test_a_module_may_have_its_own_rank_and_alpha(made_adapter: Make) -> None:
    own = {"ranks": {Q: 2}, "alphas": {Q: 6.0}}
    adapter = read_adapter(made_adapter(change=lambda tensors, facts: facts.update(own)))
    assert (adapter.rank_of(Q), adapter.scale_of(Q)) == (2, 3.0)
    assert adapter.scale_of("model.layers.1.mlp.up_proj") == 2.0


def test_the_matrix_of_an_xs_adapter_must_have_its_rank(made_adapter: Make) -> None:
    message = refusal(made_adapter("llama", "lora-xs", change=lambda t, f: f.update(ranks={Q: 3})))
    assert f"{Q}.M_xs: found (4, 4), wanted (3, 3)" in message


def test_a_full_fine_tune_holds_the_models_own_tensors(made_adapter: Make) -> None:
    def full(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        tensors.clear()
        tensors["model.norm.weight"] = np.ones(64, "f4")
        facts.update(type="full", rank=0, targets=["model.norm.weight"])

    adapter = read_adapter(made_adapter(change=full))
    assert adapter.is_full and list(adapter.flat()) == ["model.norm.weight"]


@pytest.mark.parametrize(
    ("names", "scheme"),
    [
        (["base_model.model.x.q_proj.lora_A.weight"], "PEFT"),
        (["model.x.q_proj.lora_A.default.weight"], "PEFT"),
        (["lora_unet_x_q.lora_down.weight", "lora_unet_x_q.alpha"], "kohya"),
        (["unet.x.lora.up.weight"], "diffusers"),
        (["unet.x.attn1.processor.to_q_lora.down.weight"], "diffusers"),
        (["transformer.blocks.0.attn.to_q.lora_A.weight"], "diffusers"),
        (["text_encoder.x.q_proj.lora_linear_layer.up.weight"], "diffusers"),
        (["diffusion_model.x.qkv.lora_A.weight", "diffusion_model.x.qkv.alpha"], "ComfyUI"),
        (["diffusion_model.x.qkv.lora_down.weight"], "ComfyUI"),
        (["text_encoders.x.q_proj.lora_up.weight"], "ComfyUI"),
        (["lora_te1_x_q_proj.lora_up.weight", "lora_te1_x_q_proj.dora_scale"], "kohya"),
        (["lora_unet_x.lokr_w1", "lora_unet_x.lokr_w2_a"], "LyCORIS"),
        (["model.layers.0.q_proj.lora_a", "model.layers.0.q_proj.lora_b"], "mlx-lm"),
        (["model.x.parametrizations.weight.0.lora_A"], "stable-audio-3 parametrizations"),
        (["model.x.q_proj.lora_A", "model.x.q_proj.magnitude"], "mlx-sentis"),
        (["model.x.q_proj.weight"], None),
    ],
)
def test_a_naming_scheme_is_recognised(names: list[str], scheme: str | None) -> None:
    assert naming_scheme(names) == scheme


def test_a_foreign_file_is_refused_with_its_naming_scheme(made_adapter: Make) -> None:
    def rename(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[f"base_model.model.{name}.weight"] = tensors.pop(name)
        facts.clear()

    assert "its tensors are named as by PEFT" in refusal(made_adapter(kind="lora", change=rename))


def test_a_module_the_metadata_names_and_one_it_does_not_are_refused(made_adapter: Make) -> None:
    def change(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        facts["targets"] = ["model.layers.9.mlp.up_proj", *facts["targets"][1:]]

    lines = refusal(made_adapter(change=change)).splitlines()[1:]
    assert lines == [
        f"  {Q}: not among the metadata's targets",
        "  model.layers.9.mlp.up_proj: missing, the metadata names it",
    ]


def test_a_file_of_another_kind_is_refused(
    made_adapter: Make, toy_model: Callable[[str], Path], tmp_path: Path
) -> None:
    assert "no `adapter` facts" in refusal(made_adapter(change=lambda tensors, facts: facts.clear()))
    assert "no `adapter` facts" in refusal(toy_model("llama") / "model.safetensors")
    (tmp_path / "x").write_text("hello")
    assert "not a whole safetensors file" in refusal(tmp_path / "x")
    assert "not a whole safetensors file" in refusal(tmp_path / "gone")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": "vera"}, "type: found 'vera', wanted lora, rslora, dora, "),
        ({"rank": 0}, "rank: found 0, wanted 1 or more"),
        ({"rank": "4"}, "rank: found '4', wanted 1 or more"),
        ({"scale": 8.0}, "scale: found 8.0, wanted 2.0 of alpha 8.0 and rank 4"),
        ({"alpha": float("inf"), "scale": float("inf")}, "alpha: found inf, wanted a finite number"),
        ({"scale": float("nan")}, "scale: found nan, wanted 2.0 of alpha 8.0 and rank 4"),
        ({"alpha": None}, "facts in the metadata are not whole"),
        ({"targets": None}, "targets: missing"),
        ({"ranks": {"model.x": 3}}, "model.x: has a rank or an alpha and is no target"),
        ({"ranks": {Q: 0}}, f"ranks: found 0 for {Q}"),
        ({"alphas": {Q: -1.0}}, f"alphas: found -1.0 for {Q}"),
        ({"norm": "half"}, "norm: found 'half', wanted detached or attached"),
    ],
)
def test_facts_that_make_no_sense_are_refused(made_adapter: Make, changes: dict[str, Any], message: str) -> None:
    assert message in refusal(made_adapter(change=lambda tensors, facts: facts.update(changes)))


@pytest.mark.parametrize("key", ["type", "rank", "alpha", "scale", "targets"])
def test_a_missing_fact_is_named(made_adapter: Make, key: str) -> None:
    assert key in refusal(made_adapter(change=lambda tensors, facts: facts.pop(key))).rpartition("metadata")[2]


def test_a_cut_file_is_refused(made_adapter: Make) -> None:
    path = made_adapter()
    path.write_bytes(path.read_bytes()[:-100])
    assert "not a whole safetensors file" in refusal(path)
