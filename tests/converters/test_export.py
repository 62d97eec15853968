from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from converters import onnx_file
from converters.explain import explain
from converters.export import export_model
from converters.scan import scan
from mlx_sentis.demo.toy import DECODER_TYPES, MODEL_TYPES, write_toy_model
from weights_bridge.compare import psnr_db
from weights_bridge.errors import StageError
from weights_bridge.settings import ExportSettings

OTHERS = [pytest.param(kind, marks=pytest.mark.slow) for kind in DECODER_TYPES if kind not in MODEL_TYPES]
ALL = pytest.mark.parametrize("model_type", [*MODEL_TYPES, *OTHERS])
SLIDING = ("gemma2", "gemma3_text")


@ALL
@pytest.mark.parametrize("optimisation", ["off", "all"])
def test_logits_equal_transformers_beyond_100_db(exported, reference_logits, prompt, model_type, optimisation):
    made = exported(model_type)
    wanted = reference_logits(made.model, prompt)
    assert psnr_db(wanted, made.logits(prompt, [70], optimisation)) > 100


@ALL
def test_a_kv_loop_from_an_empty_cache_equals_one_pass_of_transformers(exported, reference_logits, prompt, model_type):
    made = exported(model_type)
    wanted = reference_logits(made.model, prompt)
    assert psnr_db(wanted, made.logits(prompt, [29, 1, 1, 1, 1, 20, 1, 1, 15])) > 100  # crosses the window of 32


def test_gemma_needs_its_sliding_mask_and_its_two_rotary_bases(exported, reference_logits, prompt):
    made = exported("gemma3_text")
    wanted = reference_logits(made.model, prompt)
    full = {"attention_mask": "full_attention", "sliding_attention_mask": "full_attention"}
    unmasked = type(made)(made.model, made.onnx, made.contract | {"masks": full})
    got = unmasked.logits(prompt, [70])
    assert psnr_db(wanted[:, :32], got[:, :32]) > 100  # inside the window both masks are the same
    assert psnr_db(wanted[:, 40:], got[:, 40:]) < 60


@ALL
def test_names_and_shapes_are_the_contracts(exported, model_type):
    made = exported(model_type)
    graph = onnx_file.read_skeleton(made.onnx).model.graph
    for side, values in (("inputs", graph.input), ("outputs", graph.output)):
        shapes = [[d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim] for value in values]
        assert [value.name for value in values] == [entry["name"] for entry in made.contract[side]]
        assert shapes == [entry["shape"] for entry in made.contract[side]]
    masks = ["attention_mask", "sliding_attention_mask"][: 1 + (model_type in SLIDING)]
    assert [entry["name"] for entry in made.contract["inputs"]][2 : 2 + len(masks)] == masks
    assert made.contract["inputs"][0]["shape"] == [1, "query"]


@ALL
def test_each_weight_is_stored_once_under_its_torch_name(exported, model_type):
    made = exported(model_type)
    model = onnx.load(str(made.onnx))
    from safetensors.numpy import load_file

    weights = load_file(made.model / "model.safetensors")
    sources = made.contract["initialisers"]
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert {entry["torch"] for entry in sources.values()} == weights.keys()
    for name, entry in sources.items():
        wanted = weights[entry["torch"]]
        np.testing.assert_array_equal(tensors[name], wanted.T if entry["transform"] == "transpose" else wanted)
    constants = sum(array.nbytes for name, array in tensors.items() if name not in sources)
    assert constants < 1000
    assert made.onnx.stat().st_size < sum(array.nbytes for array in weights.values()) + 80_000


def test_a_tied_table_is_read_as_it_lies_by_gather_and_head(exported):
    graph = onnx_file.read_skeleton(exported("llama").onnx).model.graph
    readers = [
        (n.op_type, list(n.input).index("model.embed_tokens.weight"))
        for n in graph.node
        if "model.embed_tokens.weight" in n.input
    ]
    assert readers == [("Gather", 0), ("Gemm", 1)]
    assert not any("lm_head" in tensor.name for tensor in graph.initializer)


@ALL
def test_the_graph_is_plain(exported, model_type):
    made = exported(model_type)
    model = onnx.load(str(made.onnx))
    onnx.checker.check_model(model, full_check=True)
    assert not model.functions and not model.metadata_props and not model.doc_string and not model.graph.value_info
    assert not any(node.doc_string or node.metadata_props or node.domain for node in model.graph.node)
    operators = {node.op_type for node in model.graph.node}
    assert not operators & {"If", "Loop", "Scan", "Shape", "Reciprocal", "Identity", "Range", "Where", "Expand", "Neg"}
    assert not operators & {"IsNaN", "GatherND", "ScatterND", "Trilu", "CumSum", "Equal"}
    assert "Slice" not in operators or model_type == "phi3"  # whose fused rows are cut, and half of a head turned
    assert scan(made.onnx, "2.6") == []


def test_what_every_layer_computes_alike_is_written_once(exported):
    nodes = onnx_file.read_skeleton(exported("llama").onnx).model.graph.node
    assert sum(node.op_type == "Unsqueeze" and node.input[0].startswith(("cos", "sin")) for node in nodes) == 2


def test_a_norm_is_written_in_the_form_that_sentis_fuses(exported):
    nodes = onnx_file.read_skeleton(exported("gemma3_text").onnx).model.graph.node
    made_by = {output: node for node in nodes for output in node.output}
    quotients = [node for node in nodes if node.op_type == "Div" and made_by[node.input[1]].op_type == "Sqrt"]
    assert len(quotients) == 2 * 6 + 1
    scaled = {name for node in nodes if node.op_type == "Mul" for name in node.input[1:]}
    for quotient in quotients:
        (product,) = [node for node in nodes if quotient.output[0] in node.input]
        assert product.input[1] == quotient.output[0] and product.output[0] in scaled  # Mul(scale, Mul(x, 1/√))


def test_dynamic_batch_computes_each_row_alone(exported, reference_logits):
    made = exported("qwen2", batch="dynamic")
    assert made.contract["inputs"][0]["shape"] == ["batch", "query"]
    ids = np.random.default_rng(1).integers(6, 300, (3, 12))
    assert psnr_db(reference_logits(made.model, ids), made.logits(ids, [8, 1, 3])) > 100


def test_fp16_halves_the_file_and_keeps_arithmetic_in_fp32(exported, reference_logits, prompt):
    wide, half = exported("llama"), exported("llama", dtype="fp16")
    model = onnx.load(str(half.onnx))
    sources = half.contract["initialisers"]
    kinds = {t.name: (t.data_type, len(t.dims)) for t in model.graph.initializer if t.name in sources}
    assert all(
        kind == (onnx.TensorProto.FLOAT16 if rank > 1 else onnx.TensorProto.FLOAT) for kind, rank in kinds.values()
    )
    assert half.onnx.stat().st_size < 0.6 * wide.onnx.stat().st_size
    assert 60 < psnr_db(reference_logits(half.model, prompt), half.logits(prompt, [70])) < 100
    assert scan(half.onnx, "2.6") == []


def test_the_opset_asked_is_the_opset_written_or_nothing_is(exported, tmp_path):
    model = exported("llama").model
    for opset in (17, 99):
        with pytest.raises(StageError, match=f"opset {opset}: torch's exporter writes 18 to 23") as caught:
            export_model(model, tmp_path / "m.onnx", ExportSettings(opset=opset), tmp_path / "contract.json")
        assert "--opset 18" in caught.value.hint
    assert list(tmp_path.iterdir()) == []
    versions = onnx_file.read_skeleton(exported("llama").onnx).model.opset_import
    assert [(entry.domain, entry.version) for entry in versions] == [("", 18)]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
@pytest.mark.parametrize("opset", range(19, 24))
def test_every_opset_that_is_written_is_as_clean_and_as_short_for_sentis(
    exported, reference_logits, prompt, model_type, opset
):
    made, known = exported(model_type, opset=opset), exported(model_type)
    assert scan(made.onnx, "2.6") == []
    assert explain(made.onnx).prediction.layers == explain(known.onnx).prediction.layers
    assert psnr_db(reference_logits(made.model, prompt), made.logits(prompt, [66, 1, 3])) > 100


def test_two_gib_are_refused_before_any_work(tmp_path, monkeypatch):
    model = write_toy_model(tmp_path / "model", "llama")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"vocab_size": 4_000_000, "hidden_size": 1024}))
    monkeypatch.setattr("converters.export.build", lambda *_: pytest.fail("traced"))
    with pytest.raises(StageError, match=r"15\.\d+ GiB.*2 GiB") as caught:
        export_model(model, tmp_path / "m.onnx", ExportSettings(), tmp_path / "c.json")
    assert "fp16" in caught.value.hint


def test_weights_that_do_not_fit_the_config_are_named_before_tracing(tmp_path, monkeypatch):
    model = write_toy_model(tmp_path / "model", "llama")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"intermediate_size": 100}))
    monkeypatch.setattr("converters.export.build", lambda *_: pytest.fail("traced"))
    with pytest.raises(StageError, match=r"gate_proj\.weight: found \(96, 64\), wanted \(100, 64\)"):
        export_model(model, tmp_path / "m.onnx", ExportSettings(), tmp_path / "c.json")


def test_a_cap_that_mlx_lms_definition_leaves_out_is_refused(tmp_path):
    from weights_bridge.model_folder import open_model_folder

    model = write_toy_model(tmp_path / "model", "gemma3_text")
    config = json.loads((model / "config.json").read_text()) | {"final_logit_softcapping": 30.0}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(StageError, match="final_logit_softcapping: mlx-lm's definition has no soft-capping"):
        open_model_folder(model)


def test_a_planted_wrong_rotary_base_shows_beyond_the_first_tokens(exported, reference_logits, prompt, tmp_path: Path):
    made = exported("llama")
    model = onnx.load(str(made.onnx))
    (table,) = [t for t in model.graph.initializer if t.dims == [8] and t.name not in made.contract["initialisers"]]
    broken = 1.0 / 10000.0 ** (np.arange(0, 16, 2, dtype=np.float32) / 16)
    table.CopyFrom(onnx.numpy_helper.from_array(broken.astype(np.float32), table.name))
    onnx.save(model, tmp_path / "broken.onnx")
    wanted = reference_logits(made.model, prompt)
    assert psnr_db(wanted, made.logits(prompt, [70], file=tmp_path / "broken.onnx")) < 60


def test_grouped_keys_are_never_repeated(exported):
    for model_type in ("llama", "gemma3_text"):
        made = exported(model_type)
        constants = made.contract["constants"]
        assert constants["heads"] > constants["kv_heads"]  # the toy has groups at all
        assert not any(node.op_type == "Expand" for node in onnx_file.read_skeleton(made.onnx).model.graph.node)


def test_the_next_tokens_id_comes_out_where_asked_for(exported, prompt):
    made = exported("llama", argmax=True)
    assert made.contract["outputs"][-1] == {"name": "next_token", "dtype": "int64", "shape": [1, 1]}
    from converters.ort_session import open_session

    feed = {
        "input_ids": prompt,
        "position_ids": np.arange(70)[None],
        "attention_mask": made.mask("full_attention", 70, 0),
    }
    logits, token = open_session(made.onnx).run(["logits", "next_token"], feed | made.empty_caches())
    assert token.shape == (1, 1) and token[0, 0] == logits[0, -1].argmax()
    assert scan(made.onnx, "2.6") == []
