"""The first inner tensor at which two graphs part is named, with its node and both values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from scan_cases import graph

from converters import divergence
from converters.divergence import first_divergence, values_of
from weights_bridge.errors import StageError

X = {"x": np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)}
LENGTH = 80


def chain(change: int | None = None, op: str = "Sub") -> bytes:
    """Return a graph of 80 nodes t0 … t79, one of which is another operator."""
    kinds = ["Add", "Tanh", "Mul", "Neg"]
    lines, name = [], "x"
    for at in range(LENGTH):
        kind = op if at == change else kinds[at % 4]
        lines.append(f"t{at} = {kind}({name}, w)" if kind in ("Add", "Sub", "Mul") else f"t{at} = {kind}({name})")
        name = f"t{at}"
    init = "float[8] w = {1,0.5,0.25,1,1,0.5,0.5,1}"
    return graph(" ".join(lines), init=init, output=f"float[2,8] {name}").SerializeToString()


@pytest.mark.parametrize("change", [0, 4, 40, 76])
@pytest.mark.parametrize("probes", [2, 3, 24, 100])
def test_the_first_node_that_differs_is_found_wherever_it_is(monkeypatch, change, probes):
    monkeypatch.setattr(divergence, "PROBES", probes)
    found = first_divergence(chain(), chain(change), X, 100.0)
    assert found is not None
    assert (found.op, found.tensor, found.before) == ("Sub", f"t{change}", f"t{change - 1}" if change else "")
    assert found.at is not None
    wanted, got = (values_of(model, [found.tensor], X)[found.tensor] for model in (chain(), chain(change)))
    assert (found.wanted, found.found) == (wanted[found.at], got[found.at])
    assert abs(found.wanted - found.found) == pytest.approx(np.abs(wanted - got).max())
    assert f"first at Sub 't{change}'" in str(found) and "wanted" in str(found)


def test_equal_graphs_have_no_divergence_and_a_budget_forgives():
    assert first_divergence(chain(), chain(), X, 100.0) is None
    assert first_divergence(chain(), chain(40), X, -200.0) is None


def test_a_shape_that_differs_and_a_number_that_is_none_are_named():
    whole = graph("a = Abs(x) b = Log(a) y = Neg(b)", output="float[2,8] y").SerializeToString()
    turned = graph("a = Abs(x) c = Log(a) b = Transpose(c) y = Neg(b)", output="float[8,2] y").SerializeToString()
    found = first_divergence(whole, turned, X, 100.0)
    assert found is not None and (found.tensor, found.at) == ("b", None) and "shape" in str(found)
    broken = graph("a = Abs(x) c = Neg(a) b = Log(c) y = Neg(b)", output="float[2,8] y").SerializeToString()
    found = first_divergence(whole, broken, X, 100.0)
    assert found is not None and found.tensor == "b" and np.isnan(found.found)


def test_side_files_are_found_beside_the_file(tmp_path):
    model = onnx.ModelProto.FromString(chain())
    for tensor in model.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name))
    onnx.save_model(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.data", size_threshold=0)
    np.testing.assert_array_equal(values_of(tmp_path / "m.onnx", ["t7"], X)["t7"], values_of(chain(), ["t7"], X)["t7"])


def test_a_tensor_that_is_not_there_is_an_error_of_one_line():
    with pytest.raises(StageError, match="ONNX Runtime"):
        values_of(chain(), ["t999"], X)
