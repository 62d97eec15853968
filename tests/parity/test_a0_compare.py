"""Gate A0's verdicts and explanations on made arrays: three columns, and the place where a miss begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.a0_compare import EXACT, Sides, backward_results, forward_results, place_of
from parity.a0_miss import BETWEEN, backward_begin, forward_begin, norm_verdict
from parity.a0_tables import columns_text, depth_series, depth_text, draw_depth
from parity.budgets import load_budgets
from weights_bridge.compare import Array, GateReport

Arrays = dict[str, Array]
BUDGETS = load_budgets("default")
PNG = b"\x89PNG\r\n\x1a\n"
LAYERS, TOKENS, WIDTH = 3, 12, 8
TENSOR = "model.layers.{}.mlp.up_proj.lora_A"


def right() -> Arrays:
    """One row's hidden states, logits, loss and gradients, and a trace."""
    rng = np.random.default_rng(5)
    shape = (TOKENS, WIDTH)
    arrays = {f"row0/hidden{k}": rng.standard_normal(shape) for k in range(LAYERS + 1)}
    arrays |= {f"trace/row0/grad{k}": rng.standard_normal(shape) for k in range(LAYERS + 1)}
    arrays |= {f"grad/{TENSOR.format(i)}": rng.standard_normal((2, WIDTH)) for i in range(LAYERS)}
    arrays |= {"row0/logits": rng.standard_normal((TOKENS, 50)), "loss": np.array(2.0)}
    arrays["grad/embeddings/row0"] = rng.standard_normal(shape)
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def off(arrays: Arrays, *names: str, by: float = 1e-7) -> Arrays:
    """Return the arrays with a relative error in the named ones, in all without names."""
    rng = np.random.default_rng(9)
    noise = {n: 1 + by * rng.standard_normal(a.shape) for n, a in arrays.items() if n in names or not names}
    return arrays | {name: (arrays[name] * factor).astype(np.float32) for name, factor in noise.items()}


def alone(*wrong: str) -> Arrays:
    """What layers make of torch's activations: right but for the named arrays."""
    found = off(right())
    found |= {name.removeprefix("trace/"): array for name, array in found.items() if name.startswith("trace/")}
    return off(found, *wrong, by=0.01) if wrong else found


def test_the_verdict_is_on_float64_and_the_floor_stands_beside_it() -> None:
    wanted = right()
    sides = Sides(off(wanted, by=1e-6), off(wanted, by=1e-3), wanted)
    for compared in (forward_results(sides, 1, BUDGETS), backward_results(sides, 1, BUDGETS)):
        assert not compared.failed
        for entry in compared.columns:
            assert all(isinstance(entry[column], float) for column in ("mlx_torch_fp64", "torch_fp32_fp64"))
            assert float(entry["mlx_torch_fp64"] or 0) > 100 > float(entry["torch_fp32_fp64"] or 0)
    wrong = Sides(off(wanted, by=1e-3), off(wanted, by=1e-6), wanted)
    assert forward_results(wrong, 1, BUDGETS).failed and backward_results(wrong, 1, BUDGETS).failed


def test_equal_tensors_are_exact_and_what_is_not_finite_has_no_level() -> None:
    wanted = right()
    broken = wanted | {"row0/hidden1": np.full((TOKENS, WIDTH), np.nan, np.float32)}
    compared = forward_results(Sides(broken, wanted, wanted), 1, BUDGETS)
    levels = {str(entry["tensor"]): entry["mlx_torch_fp64"] for entry in compared.columns}
    assert levels["forward row 0 layer 1"] == EXACT and levels["forward row 0 layer 0"] is None
    assert [r.reason for r in compared.results if not r.passed] == ["nan"]


def test_a_missing_and_an_extra_gradient_fail_by_themselves() -> None:
    wanted = right()
    mlx = {name: array for name, array in wanted.items() if name != f"grad/{TENSOR.format(1)}"}
    mlx["grad/other"] = np.ones(3, np.float32)
    reasons = {r.tensor: r.reason for r in backward_results(Sides(mlx, wanted, wanted), 1, BUDGETS).results}
    assert reasons[f"backward {TENSOR.format(1)}"] == "missing" and reasons["backward other"] == "extra"


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (("row0/hidden2",), "layer 1"),
        (("row0/hidden0", "row0/hidden3"), "embeddings"),
        (("row0/logits",), "head"),
        ((), BETWEEN),
    ],
)
def test_a_forward_miss_begins_at_the_first_layer_that_misses_by_itself(wrong: tuple[str, ...], place: str) -> None:
    begin, depth = forward_begin(right(), alone(*wrong), 1, BUDGETS)
    assert (begin.passed, begin.where) == (False, place)
    assert list(depth["forward row 0"]) == ["embeddings", "layer 0", "layer 1", "layer 2", "head"]


@pytest.mark.parametrize(
    ("wrong", "place", "named"),
    [
        ((f"grad/{TENSOR.format(1)}",), "layer 1", TENSOR.format(1)),
        (("row0/grad0", "row0/grad2"), "layer 2", "handed on"),
        (("row0/grad3",), "head", "handed on"),
        ((), BETWEEN, "shared prefixes"),
    ],
)
def test_a_backward_miss_begins_at_the_first_place_from_the_head(
    wrong: tuple[str, ...], place: str, named: str
) -> None:
    begin, depth = backward_begin(right(), alone(*wrong), 1, BUDGETS)
    assert (begin.passed, begin.where) == (False, place) and named in begin.detail
    assert list(depth["backward"]) == ["layer 0", "layer 1", "layer 2", "head"]


def test_gradients_of_the_other_norm_convention_are_named() -> None:
    wanted = right()
    other = off(wanted, by=0.1)
    found = norm_verdict("detached", Sides(other, other, other), 1, BUDGETS)
    assert not found.passed and "those of attached norms, the adapter's file says detached" in found.detail
    assert norm_verdict("detached", Sides(off(wanted, by=0.1), wanted, wanted), 1, BUDGETS).passed


def missed_report() -> GateReport:
    wanted = right()
    sides = Sides(off(off(wanted), "row0/hidden2", "row0/hidden3", by=0.01), off(wanted), wanted)
    forward, backward = forward_results(sides, 1, BUDGETS), backward_results(sides, 1, BUDGETS)
    begin, depth = forward_begin(wanted, alone("row0/hidden2"), 1, BUDGETS)
    side = {"device": "cpu", "tf32": False, "matmul_precision": "highest"}
    facts = {
        "columns": forward.columns + backward.columns,
        "error_by_layer": forward.depth,
        "gradients_by_layer": backward.depth,
        "each_layer_alone": depth,
        "precision": {"mlx": side, "torch": side},
        "adapter_norm": "detached",
    }
    return GateReport("a0", [begin, *forward.results, *backward.results], facts)


def test_tables_and_picture_show_the_worst_tensors_and_each_layer_alone(tmp_path: Path) -> None:
    report = missed_report()
    text = columns_text(report.facts)
    assert "MLX ↔ torch fp32" in text and "torch fp32 ↔ fp64" in text and "TF32 off" in text
    assert "norms detached" in text
    first = next(line for line in text.splitlines() if line.startswith("forward"))
    assert first.startswith(("forward row 0 layer 1 ", "forward row 0 layer 2 "))
    series = depth_series(report.facts)
    through, by_itself = series["forward"], series["forward, each layer alone"]
    assert max(through["layer 1"] or 0, through["layer 2"] or 0, by_itself["layer 1"] or 0) < 60
    assert (by_itself["layer 2"] or 0) > 110  # what comes wrong is not charged to who hands it on
    lines = [line.split()[0] for line in depth_text(report.facts).splitlines()[2:]]
    assert lines == ["embeddings", "layer", "layer", "layer", "head"]
    assert draw_depth(report.as_json(), tmp_path / "a0.png")
    assert (tmp_path / "a0.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("tensor", "place"),
    [
        ("model.layers.12.self_attn.q_proj.lora_A", "layer 12"),
        ("model.embed_tokens.weight", "embeddings"),
        ("model.norm.weight", "head"),
    ],
)
def test_a_tensor_has_its_layer_as_its_place(tensor: str, place: str) -> None:
    assert place_of(tensor) == place


def test_float64_is_float64_where_transformers_asks_for_float32(toy_model: Callable[[str], Path]) -> None:
    import torch

    from parity.runners.torch_float64 import widened
    from parity.runners.torch_gate import load

    model = load(str(toy_model("llama")), torch.float64)
    ids = torch.tensor([[5, 9, 300, 17, 4]])
    seen: set[torch.dtype] = set()
    norm = model.model.layers[0].input_layernorm
    with torch.no_grad(), widened():
        x = torch.randn(2, 3, dtype=torch.float64)
        seen |= {x.float().dtype, x.to(torch.float32).dtype, torch.softmax(x, -1, dtype=torch.float32).dtype}
        wide = model(ids).logits
        y = torch.randn(1, 4, 64, dtype=torch.float64)
        wanted = norm.weight * (y / torch.sqrt((y * y).mean(-1, keepdim=True) + norm.variance_epsilon))
        assert torch.allclose(norm(y), wanted, rtol=0, atol=1e-14)
    with torch.no_grad():
        narrow = model(ids).logits
    assert seen == {torch.float64} and wide.dtype == torch.float64
    assert 1e-10 < float((wide - narrow).abs().max()) < 1e-4  # float32's rounding inside, gone
