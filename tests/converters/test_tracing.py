"""Pieces traced side by side: each keeps its inputs, weights and numbers; one that cannot be traced is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weights_bridge.errors import StageError

pytest.importorskip("torch")
import torch
from torch import nn

from converters.families.causal_lm_torch import Piece
from converters.tracing import Fragment, trace

OPSET = 18


class Scaled(nn.Module):
    """A Linear whose result is divided by the number of rows: what it computes hangs on a size."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) / x.shape[0]


class Decides(nn.Module):
    """Branches on a value, which no graph can hold."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if float(x.sum()) > 0 else x - 1


def piece(name: str, module: nn.Module, rows: int) -> Piece:
    return Piece(name, module.eval(), {"x": torch.randn(rows, 4)}, {"x": (0,)}, ["y"])


def answer(fragment: Fragment, module: Any, x: np.ndarray) -> np.ndarray:
    """Run a fragment in ONNX Runtime, its weights given."""
    import onnx
    import onnxruntime

    opsets = [onnx.helper.make_opsetid("", fragment.opset)]
    model = onnx.helper.make_model(fragment.graph, opset_imports=opsets, ir_version=fragment.ir_version)
    feeds = {"x": x}
    for local, (name, transform) in fragment.weights.items():
        array = module.get_parameter(name).detach().numpy()
        feeds[local] = np.ascontiguousarray(array.T if transform == "transpose" else array)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def test_pieces_traced_together_compute_what_each_module_does() -> None:
    first, second = Scaled(), Scaled()
    fragments = trace([piece("first", first, 5), piece("second", second, 15)], OPSET)
    assert list(fragments) == ["first", "second"]
    for name, module, rows in (("first", first, 2), ("second", second, 7)):
        fragment = fragments[name]
        assert fragment.graph.input[0].name == "x"
        assert [value.name for value in fragment.graph.output] == ["y"]
        assert {source for source, _ in fragment.weights.values()} == {"linear.weight"}
        x = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
        wanted = module(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(answer(fragment, module, x), wanted, rtol=1e-5, atol=1e-6)


def test_the_piece_that_cannot_be_traced_is_named() -> None:
    with pytest.raises(StageError, match=r"^second: torch\.onnx cannot export it at opset 18"):
        trace([piece("first", Scaled(), 5), piece("second", Decides(), 15)], OPSET)
