from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from converters.fix import fix_model
from converters.passes import inline_weights
from converters.passes.base import Context
from converters.passes.resequence_weights import PASS
from converters.scan import scan

TEXT = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[3, "n"] x) => (float[3, "n"] y) { s = Mul(x, w1)  y = Sum(s) }
"""


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A model with two tensors out of order in its side file; one file may hold 200 bytes."""
    monkeypatch.setattr(inline_weights, "LIMIT_BYTES", 200)
    (tmp_path / "w.bin").write_bytes(b"".join(np.full((3, 8), index, np.float32).tobytes() for index in (1, 0)))
    model = onnx.parser.parse_model(TEXT.replace("y = Sum(s)", "t = MatMul(s, z) y = Sum(t)").replace('"n"', "8"))
    for index, dims in ((0, [3, 8]), (1, [3, 8])):
        tensor = model.graph.initializer.add(name=f"w{index}", data_type=1, dims=dims, data_location=1)
        for key, value in (("location", "w.bin"), ("offset", 96 * (1 - index)), ("length", 96)):
            tensor.external_data.add(key=key, value=str(value))
    model.graph.node[1].input[1] = "u"
    model.graph.node.insert(0, onnx.helper.make_node("Transpose", ["w0"], ["v"], perm=[1, 0]))
    model.graph.node.insert(1, onnx.helper.make_node("MatMul", ["v", "w1"], ["u"]))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "m.onnx"


def test_weights_that_do_not_fit_are_written_in_the_order_that_sentis_reads(stored, tmp_path):
    out = tmp_path / "out" / "m.onnx"
    assert "EXTERNAL.OFFSET" in [finding.id for finding in scan(stored)]
    report = fix_model(stored, out)
    rows = {row["name"]: row for row in report["passes"] if row["changed"]}
    assert list(rows) == ["resequence_weights", "sum_single"]
    assert rows["resequence_weights"]["proof"] == "exact"
    assert [finding.id for finding in scan(out)] == ["EXTERNAL.DATA"]
    assert (out.parent / "m.onnx.data").read_bytes() == np.repeat(np.float32([0, 1]), 24).tobytes()


def test_a_file_that_is_there_is_never_written_over(stored, tmp_path):
    (tmp_path / "there.data").write_bytes(b"mine")
    model = onnx.load(str(stored), load_external_data=False)
    outcome = PASS.run(model, Context(tmp_path, side=tmp_path / "there.data"))
    assert outcome.changed == 0 and outcome.left == {"there.data": "the file is there already"}
    assert (tmp_path / "there.data").read_bytes() == b"mine"


def test_it_must_not_fire_on_weights_that_fit(stored, tmp_path, monkeypatch):
    monkeypatch.setattr(inline_weights, "LIMIT_BYTES", 2**31)
    model = onnx.load(str(stored), load_external_data=False)
    assert PASS.run(model, Context(tmp_path, side=tmp_path / "new.data")).changed == 0
    assert not (tmp_path / "new.data").exists()


def test_nothing_is_left_behind_when_a_later_pass_fails(stored, tmp_path, monkeypatch):
    from converters import fix, mending

    def broken(*_):
        raise RuntimeError("later")

    monkeypatch.setattr(fix, "scan", lambda path, sentis: [])
    monkeypatch.setattr(mending, "measured", broken)
    with pytest.raises(RuntimeError):
        fix_model(stored, tmp_path / "out" / "m.onnx")
    assert not list((tmp_path / "out").iterdir())
