"""What the optimiser does behind the patterns: folding, no-ops, Dense, linear layers, Relu, duplicates."""

from __future__ import annotations

import pytest

MATRIX = "float[2,3] x"
W = "float[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}"


def test_what_has_constant_inputs_only_is_no_layer(predicted):
    found = predicted("a = Add(c, c) b = Sqrt(a) y = Pow(x, b)", "float[8] c = {1,2,3,4,5,6,7,8}")
    assert found.layers == {"Pow": 1}
    assert [one.value for one in found.fused if one.fusion == "ConstantFolding"] == ["a", "b"]


def test_random_layers_are_never_folded(predicted):
    assert predicted("r = RandomNormal<shape=[2,3,8]>() y = Add(x, r)").layers == {"Add": 1, "RandomNormal": 1}


def test_a_known_size_is_a_constant_and_a_named_one_is_not(predicted):
    body = "s = Shape(x) d = Gather(s, at) e = Concat<axis=0>(d, rest) y = Expand(z, e)"
    init = "int64[1] at = {1}, int64[1] rest = {8}"
    words = {"inputs": "float[N,3,8] x, float[3,8] z", "output": "float[3,8] y"}
    assert predicted(f"z2 = Neg(z) {body.replace('z,', 'z2,')}", init, **words).layers == {"Neg": 1}  # to its own sizes
    named = predicted(body.replace("Expand(z, e)", "Tile(z, e)"), init.replace("at = {1}", "at = {0}"), **words)
    assert named.layers == {"Concat": 1, "Narrow": 1, "Shape": 1, "Tile": 1}


def test_a_reshape_whose_sizes_are_known_but_one_needs_no_shape_at_run_time(predicted):
    body = "s = Shape(x) n = Gather(s, zero) k = Concat<axis=0>(n, end) y = Reshape(x, k)"
    init = "int64[1] zero = {0}, int64[2] end = {4, 6}"
    found = predicted(body, init, inputs="float[N,3,8] x", output="float[N,4,6] y")
    assert found.layers == {"Reshape": 1}


@pytest.mark.parametrize(
    "body, init, layers",
    [
        ("y = Cast<to=1>(x)", "", {}),
        ("y = Dropout(x)", "", {}),
        ("y = Concat<axis=0>(x)", "", {}),
        ("y = Transpose<perm=[0,1,2]>(x)", "", {}),
        ("y = Reshape(x, s)", "int64[3] s = {2, 3, 8}", {}),
        ("y = Reshape(x, s)", "int64[3] s = {0, 3, -1}", {}),
        ("y = Reshape(x, s)", "int64[3] s = {3, 2, 8}", {"Reshape": 1}),
        ("y = Expand(x, s)", "int64[3] s = {1, 1, 1}", {}),
        ("y = Tile(x, s)", "int64[3] s = {1, 1, 1}", {}),
        ("y = Tile(x, s)", "int64[3] s = {1, 1, 2}", {"Tile": 1}),
        ("y = Mul(x, one)", "float one = {1}", {"ScalarMad": 1}),  # no-ops are looked for before it is one
        ("y = Mul(x, one)", "float one = {2}", {"ScalarMad": 1}),
        ("y = Mul(x, one)", "float[1,1,1,1] one = {2}", {"Mul": 1}),
        ("y = Sub(one, x)", "float one = {2}", {"ScalarMad": 1}),
        ("y = Div(one, x)", "float one = {2}", {"Div": 1}),
        ("y = Div(x, one)", "float one = {2}", {"ScalarMad": 1}),
        ("y = Pow(x, e)", "float e = {2}", {"Square": 1}),
        ("y = Pow(x, e)", "float e = {-0.5}", {"Rsqrt": 1}),
        ("y = Pow(x, e)", "int64 e = {2}", {"Square": 1}),
        ("y = Pow(x, e)", "float e = {3}", {"Pow": 1}),
        ("a = ReduceMean<axes=[1]>(x) y = ReduceMean<axes=[1]>(a)", "", {"ReduceMean": 1}),
        ("a = ReduceMean<axes=[1]>(x) y = ReduceMean<axes=[1], keepdims=0>(a)", "", {"ReduceMean": 1, "Squeeze": 1}),
        ("y = Gather(x, at)", "int64 at = {0}", {"Select": 1}),
        ("y = Gather(x, at)", "int64[1] at = {0}", {"Narrow": 1}),
        ("y = Gather(x, at)", "int64[2] at = {0, 1}", {"Gather": 1}),
    ],
)
def test_simpler_layers(predicted, body, init, layers):
    kept = predicted(f"n = Neg(x) {body.replace('(x', '(n')} ".replace(", x)", ", n)"), init, output="float[] y")
    assert kept.layers == {"Neg": 1} | layers


def test_an_identity_from_input_to_output_stays(predicted):
    assert predicted("y = Identity(x)").layers == {"Identity": 1}


def test_layers_that_lead_nowhere_go(predicted):
    assert predicted("a = Neg(x) b = Exp(a) y = Abs(x)").layers == {"Abs": 1}


def test_transposes_in_a_row_become_one_and_an_opposite_pair_none(predicted):
    twice = predicted("a = Transpose<perm=[0,2,1]>(x) b = Transpose<perm=[1,0,2]>(a) y = Neg(b)", output="float[] y")
    assert twice.layers == {"Neg": 1, "Transpose": 1}
    back = predicted("a = Transpose<perm=[0,2,1]>(x) b = Transpose<perm=[0,2,1]>(a) y = Neg(b)")
    assert back.layers == {"Neg": 1}
    read = predicted(
        "a = Transpose<perm=[0,2,1]>(x) b = Transpose<perm=[0,2,1]>(a) c = Neg(a) y = Transpose<perm=[0,2,1]>(c)"
    )
    assert read.layers == {"Transpose": 2, "Neg": 1}


def test_products_with_constants_and_what_is_added_become_dense(predicted):
    words = {"inputs": MATRIX, "output": "float[2,4] y"}
    bias = f"{W}, float[4] b = {{1,2,3,4}}"
    assert predicted("a = MatMul(x, w) y = Add(a, b)", bias, **words).layers == {"Dense": 1}
    assert predicted("a = MatMul(x, w) y = Add(b, a)", bias, **words).layers == {"Dense": 1}
    assert predicted("y = Gemm(x, w, b)", bias, **words).layers == {"Dense": 1}
    assert predicted("y = MatMul(x, w)", W, **words).layers == {"MatMul": 1}
    turned = predicted("y = Gemm<transB=1>(x, w)", "float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}", **words)
    assert turned.layers == {"MatMul2D": 1}
    scaled = predicted("y = Gemm<alpha=2.0>(x, w, b)", bias, **words)
    assert scaled.layers == {"Dense": 1}  # the factor goes into the weights
    rows = predicted("a = MatMul(x, w) y = Add(a, z)", W, inputs="float[2,3] x, float[2,4] z", output="float[2,4] y")
    assert rows.layers == {"Add": 1, "MatMul": 1}  # what is added is no vector
    read = predicted(
        "a = MatMul(x, w) k = Neg(a) y = Add(a, b)", bias, inputs=MATRIX, output="float[2,4] y, float[2,4] k"
    )
    assert read.layers == {"Add": 1, "MatMul": 1, "Neg": 1}


def test_linear_layers_with_constants_in_a_row_become_one(predicted):
    init = "float two = {2}, float[8] v = {1,2,3,4,5,6,7,8}, float[8] u = {1,2,3,4,5,6,7,8}"
    assert predicted("a = Mul(x, two) b = Add(a, two) y = Mul(b, two)", init).layers == {"ScalarMad": 1}
    assert predicted("a = Mul(x, v) y = Mul(u, a)", init).layers == {"Mul": 1}
    assert predicted("a = Mul(x, v) y = Mul(a, two)", init).layers == {"Mul": 1}
    assert predicted("a = Add(x, v) y = Mul(a, two)", init).layers == {"Add": 1, "ScalarMad": 1}
    assert predicted("a = Add(x, v) y = Sub(a, u)", init).layers == {"Sub": 1}
    assert predicted("a = Mul(x, v) y = Mul(a, x)", init).layers == {"Mul": 2}


def test_batch_normalisation_and_relu_go_into_the_convolution(predicted):
    init = "float[1,3,1,1] k = {1,2,3}, float[1] g = {1}, float[1] b = {1}, float[1] m = {1}, float[1] v = {1}"
    words = {"inputs": "float[1,3,8,8] x", "output": "float[1,1,8,8] y"}
    body = "c = Conv<kernel_shape=[1,1]>(x, k) n = BatchNormalization(c, g, b, m, v) y = Relu(n)"
    found = predicted(body, init, **words)
    assert found.layers == {"Conv": 1}
    assert [one.fusion for one in found.fused] == ["BatchNormFold", "LinearFold", "FuseRelu"]
    read = predicted(body + " z = Neg(n)", init, **words | {"output": "float[1,1,8,8] y, float[1,1,8,8] z"})
    assert read.layers == {"Conv": 1, "Neg": 1, "Relu": 1}


def test_equal_layers_are_one(predicted):
    body = "a = Sin(x) b = Sin(x) c = Clip(a, lo, hi) d = Clip(b, low, hi) y = Add(c, d)"
    init = "float lo = {0}, float low = {0}, float hi = {1}"
    assert predicted(body, init).layers == {"Add": 1, "Clip": 1, "Sin": 1}
    assert predicted("a = Sin(x) b = Cos(x) y = Add(a, b)").layers == {"Add": 1, "Cos": 1, "Sin": 1}


def test_an_einsum_of_two_is_a_product(predicted):
    words = {"inputs": "float[2,3,4] x, float[2,4,5] z", "output": "float[2,3,5] y"}
    assert predicted('y = Einsum<equation="bij,bjk->bik">(x, z)', **words).layers == {"MatMul": 1}
    turned = predicted('y = Einsum<equation="bij,bjk->bki">(x, z)', **words | {"output": "float[2,5,3] y"})
    assert turned.layers == {"MatMul": 1, "Transpose": 1}
    joint = predicted(
        'y = Einsum<equation="bij,bij->b">(x, z)', inputs="float[2,3,4] x, float[2,3,4] z", output="float[2] y"
    )
    assert joint.layers == {"MatMul": 1, "Reshape": 3}
    lone = predicted('y = Einsum<equation="bij,bkl->bk">(x, z)', **words | {"output": "float[2,4] y"})
    assert lone.layers == {"Einsum": 1}


def test_nodes_that_are_several_layers(predicted):
    three = {"inputs": "float[8] x, float[8] z, float[8] v", "output": "float[8] y"}
    assert predicted("y = Sum(x, z, v)", **three).layers == {"Add": 2}
    assert predicted("y = Max(x, z, v)", **three).layers == {"Max": 2}
    assert predicted("y = Mean(x, z, v)", **three).layers == {"Add": 2, "ScalarMad": 1}
    assert predicted("y = Sum(x)", **three).layers == {"Add": 1}
    assert predicted('y = Gelu<approximate="tanh">(x)', **three).layers == {"GeluFast": 1}
    assert predicted("y = com.microsoft.Gelu(x)", **three).layers == {"Gelu": 1}


def test_an_operator_that_is_not_handled_stops_the_import_and_nothing_is_predicted(predicted):
    found = predicted("a = Sigmoid(x) b = Mul(x, a) y = Mystery(b)")
    assert found.layers == {} and found.fused == []
    assert found.not_predicted == ["Mystery 'y': not handled, the import stops"]


def test_a_version_whose_optimiser_was_not_read_says_so(predicted):
    assert predicted("y = Neg(x)", sentis="2.4").verified
    later = predicted("y = Neg(x)", sentis="2.6")
    assert later.layers == {"Neg": 1} and not later.verified


def test_a_version_without_facts_about_fusions_predicts_nothing(predicted, monkeypatch):
    from converters.facts import facts

    bare = facts("2.6").data | {}
    del bare["fusions"]
    monkeypatch.setattr("converters.fusions.facts", lambda version: type(facts(version))(version, bare, {}, {}, {}, {}))
    found = predicted("y = Neg(x)", sentis="2.6")
    assert found.layers == {} and found.not_predicted == ["the facts of 2.6 hold no fusions"]


def test_a_product_that_is_an_output_keeps_its_addition(predicted):
    words = {"inputs": MATRIX, "output": "float[2,4] y, float[2,4] a"}
    found = predicted("a = MatMul(x, w) y = Add(a, b)", f"{W}, float[4] b = {{1,2,3,4}}", **words)
    assert found.layers == {"Add": 1, "MatMul": 1}
    assert [miss.reasons[0].why for miss in found.misses] == ["MatMul is also read by an output of the model"]


def test_batched_products_become_dense_where_all_leading_sizes_are_equal(predicted):
    eight = ",".join(map(str, range(48)))
    words = {"inputs": "float[2,3,8] x", "output": "float[2,3,3] y"}
    bias = {size: f"float[{size},3,3] b = {{{','.join(['1'] * size * 9)}}}" for size in (1, 2)}
    body = "a = MatMul(x, w) y = Add(a, b)"
    assert predicted(body, f"float[2,8,3] w = {{{eight}}}, {bias[2]}", **words).layers == {"DenseBatched": 1}
    assert predicted(body, f"float[2,8,3] w = {{{eight}}}, {bias[1]}", **words).layers == {"Add": 1, "MatMul": 1}


def test_a_convolution_of_a_constant_is_not_linear_in_its_kernel(predicted):
    init = "float two = {2}, float[1,1,2,2] c = {1,2,3,4}"
    words = {"inputs": "float[1,1,1,1] k", "output": "float[1,1,2,2] y"}
    found = predicted("a = Conv<kernel_shape=[1,1]>(c, k) y = Mul(a, two)", init, **words)
    assert found.layers == {"Conv": 1, "ScalarMad": 1}


def test_a_sum_adds_its_last_input_first(predicted):
    from fusion_forms import LAYER_NORM, SCALARS

    fused = predicted(LAYER_NORM.replace("y = Add(k, b)", "y = Sum(b, k)"), SCALARS)
    assert fused.layers == {"LayerNormalization": 1}
    assert "LayerNormalization" not in predicted(LAYER_NORM.replace("y = Add(k, b)", "y = Sum(k, b)"), SCALARS).layers


def test_axes_as_attributes_are_not_read_where_they_are_an_input(predicted):
    from fusion_forms import RMS, SCALARS

    assert predicted(RMS, SCALARS, opset=17).layers == {"RMSNormalization": 1}
    assert "RMSNormalization" not in predicted(RMS, SCALARS, opset=18).layers  # it reduces over everything then


def test_literals_of_a_pattern_count(predicted):
    words = {"inputs": "float[8] x, float[8] z", "output": "int32[8] y"}
    found = predicted("d = Div(x, z) i = Cast<to=7>(d) y = Cast<to=6>(i)", **words)
    assert found.layers == {"Cast": 1, "Div": 1}  # no float comes out: the second Cast does nothing


def test_one_size_that_is_not_known_follows_from_the_others(predicted):
    computed = "s = Shape(x) n = Gather(s, zero) m = Mul(n, three) k = Concat<axis=0>(m, end) y = Reshape(x, k)"
    init = "int64[1] zero = {0}, int64[1] three = {3}, int64[1] end = {8}"
    found = predicted(computed, init, inputs="float[N,3,8] x", output="float[M,8] y")
    assert found.layers == {"Reshape": 1}
    given = predicted(
        "n = Neg(x) k = Concat<axis=0>(first, end) r = Reshape(n, k) y = Exp(r)", "int64[2] end = {3, 8}",
        inputs="float[N,3,8] x, int64[1] first", output="float[M,3,8] y",
    )  # fmt: skip
    assert given.layers == {"Exp": 1, "Neg": 1}


def test_integers_that_old_opsets_keep_in_attributes_are_constants_of_their_own(predicted):
    old = predicted("a = Neg(x) b = Unsqueeze<axes=[0]>(a) y = Squeeze<axes=[0]>(b)", opset=12)
    assert old.layers == {"Neg": 1, "Squeeze": 1, "Unsqueeze": 1}
    assert predicted("a = Neg(x) y = Reshape<shape=[2,3,8]>(a)", opset=4).layers == {"Neg": 1}
    assert predicted("a = Neg(x) y = Reshape(a)", opset=4).layers == {}
    cut = predicted("a = Slice<starts=[0], ends=[2], axes=[2]>(x) y = Exp(a)", opset=9, output="float[2,3,2] y")
    assert cut.layers == {"Exp": 1, "Slice": 1}


def test_nodes_that_lack_what_they_need_stop_the_import(predicted):
    import onnx
    from scan_cases import graph

    from converters.fusions import predict

    model = graph("a = Neg(x) y = Gemm(a, w)", init="float[8,8] w", inputs="float[2,8] x", output="float[2,8] y")
    changes = {
        "no input": lambda nodes: nodes[1].input.pop(),
        "an empty one": lambda nodes: nodes[0].input.__setitem__(0, ""),
        "no output": lambda nodes: nodes[0].output.pop(),
    }
    for name, change in changes.items():
        broken = onnx.ModelProto.FromString(model.SerializeToString())
        change(broken.graph.node)
        found = predict(broken, "2.4")
        assert not found.layers and "inputs or outputs are missing" in found.not_predicted[0], name


def test_a_size_counted_from_the_end_is_followed(predicted):
    body = "s = Shape(x) g = Gather(s, i) r = Concat<axis=0>(m, g) y = Reshape(x, r)"
    words = {"inputs": 'float["n",2,4] x', "output": 'float["k",4] y', "init": "int64[1] i = {-1}, int64[1] m = {-1}"}
    assert predicted(body, **words).layers == {"Reshape": 1}


def test_a_size_that_became_a_float_is_not_followed(predicted):
    body = "s = Shape(x) f = Cast<to=1>(s) g = Gather(f, i) y = Mul(x, g)"
    words = {"inputs": 'float["n",8] x', "output": 'float["n",8] y', "init": "int64 i = {1}"}
    assert {"Shape", "Cast"} <= set(predicted(body, **words).layers)
