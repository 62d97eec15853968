from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from scan_cases import graph


def with_tensor(body: str, tensor: onnx.TensorProto, inputs: str = "float[2,8] x", output: str = "float[] y"):
    model = graph(body, inputs, 18, output=output)
    model.graph.initializer.append(tensor)
    return model


@pytest.mark.parametrize("kind, to", [("FLOAT16", 1), ("BOOL", 1), ("UINT8", 1), ("INT8", 6)])
def test_typed_fields_become_raw_data(mended, kind, to):
    element = onnx.TensorProto.DataType.Value(kind)
    tensor = onnx.helper.make_tensor("w", element, [8], [1, 0, 1, 1, 0, 0, 1, 0])
    assert tensor.int32_data
    tried = mended("raw_tensors", with_tensor(f"c = Cast<to={to}>(w) f = Cast<to=1>(c) y = Add(x, f)", tensor))
    assert tried.before == ["TENSOR.TYPED_FIELD"] and tried.operators == ["Cast", "Cast", "Add"]


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.uint32, np.uint64])
def test_other_integers_are_stored_as_int32_where_a_cast_reads_them(mended, dtype):
    tensor = onnx.numpy_helper.from_array(np.arange(8).astype(dtype), "w")
    tried = mended("raw_tensors", with_tensor("f = Cast<to=1>(w) y = Add(x, f)", tensor))
    assert tried.operators == ["Cast", "Add"] and tried.constant("w").dtype == np.int32


def test_what_was_declared_of_a_constant_that_changes_its_type_goes(mended):
    tensor = onnx.numpy_helper.from_array(np.arange(8).astype(np.uint16), "w")
    model = with_tensor("f = Cast<to=1>(w) y = Add(x, f)", tensor)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.UINT16, [8]))
    assert not mended("raw_tensors", model).model.graph.value_info


def test_a_reader_that_wants_the_type_gets_it_back(mended):
    tensor = onnx.numpy_helper.from_array(np.arange(8, dtype=np.uint32), "w")
    tried = mended("raw_tensors", with_tensor("y = Concat<axis=0>(w, w)", tensor, output="uint32[] y"))
    assert tried.operators == ["Cast", "Concat"]


def test_bf16_becomes_float_with_the_same_numbers(mended):
    values = np.random.default_rng(0).standard_normal(8).astype(ml_dtypes.bfloat16)
    tensor = onnx.numpy_helper.from_array(values, "w")
    tried = mended("raw_tensors", with_tensor("f = Cast<to=1>(w) y = Mul(x, f)", tensor))
    assert tried.constant("w").dtype == np.float32 and set(tried.levels.values()) == {None}


@pytest.mark.parametrize("number", [3e10, -3e10])
def test_doubles_beyond_the_range_become_floats(mended, number):
    tensor = onnx.numpy_helper.from_array(np.array([number, -1.0]), "w")
    tried = mended("raw_tensors", with_tensor("m = Mul(x, w) y = Cast<to=1>(m)", tensor, "double[3,2] x"))
    assert tried.before == ["DOUBLE.RANGE"] and tried.operators == ["Cast", "Mul", "Cast"]


def test_constants_in_nodes(mended):
    body = "w = Constant<value = uint16[8] {1,2,3,4,5,6,7,8}>() f = Cast<to=1>(w) y = Add(x, f)"
    mended("raw_tensors", graph(body, opset=18))


def test_a_sparse_tensor_becomes_dense(mended):
    model = graph("y = Mul(x, w)", opset=18)
    values = onnx.numpy_helper.from_array(np.array([2.0, 3.0], np.float32), "w")
    places = onnx.numpy_helper.from_array(np.array([1, 6]), "i")
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [8]))
    tried = mended("raw_tensors", model)
    assert tried.constant("w").tolist() == [0, 2, 0, 0, 0, 0, 3, 0]


@pytest.mark.parametrize(
    "tensor, reason",
    [
        (onnx.numpy_helper.from_array(np.arange(8, dtype=np.float16), "w"), ""),
        (onnx.numpy_helper.from_array(np.array([1, 2**31], np.uint32), "w"), "outside int32"),
        (onnx.numpy_helper.from_array(np.ones(4, np.complex64), "w"), "no number type"),
    ],
)
def test_it_must_not_fire(left, tensor, reason):
    assert reason in left("raw_tensors", with_tensor("y = Identity(w)", tensor))
