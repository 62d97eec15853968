"""A decoder without a cache gets one, and gives the same logits in every way of feeding it."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx.parser
import pytest

from converters.surgery import inject_kv as injecting
from converters.surgery.inject_kv import inject_kv
from converters.surgery.kv_ladder import pieces_of
from weights_bridge.errors import BudgetMissedError, StageError

WIDTH, HEADS, HEAD, VOCABULARY = 8, 2, 4, 20
BEGIN = """<ir_version: 8, opset_import: ["" : 17]> g (int64[B,T] input_ids) => (float[B,T,20] logits) {
    s = Shape(input_ids) n = Gather(s, one) count = Gather(s, at1) pos = Range(zero, n, one)
    e = Gather(wte, input_ids) p = Gather(wpe, pos) h0 = Add(e, p)
    row = Unsqueeze(pos, at1) col = Unsqueeze(pos, at0) seen = LessOrEqual(col, row)
    far = Sub(row, col) near = Less(far, window) close = And(seen, near) bias = Where(seen, none, low)"""
HEADS_OF = (
    "{x}{i} = MatMul(h{i}, {x}w{i}) {x}r{i} = Reshape({x}{i}, {shape}) {x}h{i} = Transpose<perm=[0,2,1,3]>({x}r{i})"
)
END = "logits = MatMul(h2, head) }"


def layer(i: int, masked: str, *, grouped: bool = False, turned: bool = False) -> str:
    """Return a layer in text; `masked` makes m from the scaled scores c."""
    lines = [HEADS_OF.format(x=x, i=i, shape="one_head" if grouped and x != "q" else "heads") for x in "qkv"]
    if grouped:
        lines.append(f"n5{i} = Concat<axis=0>(at1, at1, pair, count, at1)")
        lines.append(f"n4{i} = Concat<axis=0>(at1, pair, count, width)")
        for x in "kv":  # for as many tokens as the input has
            lines.append(f"{x}u{i} = Unsqueeze({x}h{i}, at2) {x}e{i} = Expand({x}u{i}, n5{i})")
            lines.append(f"{x}g{i} = Reshape({x}e{i}, n4{i})")
    key, value = (f"kg{i}", f"vg{i}") if grouped else (f"kh{i}", f"vh{i}")
    keys = f"Transpose<perm=[0,2,3,1]>(kr{i})" if turned else f"Transpose<perm=[0,1,3,2]>({key})"
    lines.append(f"kt{i} = {keys} d{i} = MatMul(qh{i}, kt{i}) c{i} = Mul(d{i}, scale)")
    lines.append(f"m{i} = {masked.format(c=f'c{i}')} a{i} = Softmax<axis=-1>(m{i}) o{i} = MatMul(a{i}, {value})")
    lines.append(f"ot{i} = Transpose<perm=[0,2,1,3]>(o{i}) f{i} = Reshape(ot{i}, flat) z{i} = MatMul(f{i}, ow{i})")
    lines.append(f"h{i + 1} = Add(h{i}, z{i})")
    return "\n".join(lines)


def decoder(*layers: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model("\n".join([BEGIN, *layers, END]))
    rng = np.random.default_rng(1)
    arrays = {
        "one": np.int64(1), "zero": np.int64(0), "window": np.int64(6), "none": np.float32(0), "low": np.float32(-1e9),
        "at0": [0], "at1": [1], "at2": [2], "heads": [0, 0, HEADS, HEAD], "one_head": [0, 0, 1, HEAD],
        "flat": [0, 0, WIDTH], "pair": [HEADS], "width": [HEAD], "scale": np.float32(0.5),
        "wte": rng.standard_normal((VOCABULARY, WIDTH)), "wpe": rng.standard_normal((64, WIDTH)),
        "head": rng.standard_normal((WIDTH, VOCABULARY)), "inf": np.float32(-np.inf),
    }  # fmt: skip
    for i, text in enumerate(layers):
        narrow = HEAD if "one_head" in text else WIDTH
        arrays |= {f"{x}w{i}": rng.standard_normal((WIDTH, narrow if x in "kv" else WIDTH)) for x in "qkvo"}
    read = {name for node in model.graph.node for name in node.input}
    for name, value in arrays.items():
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        if name in read:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


ADDED, CHOSEN = "Add({c}, bias)", "Where(seen, {c}, low)"
WINDOWED = "Where(close, {c}, low)"


@pytest.mark.parametrize("layers", [
    (layer(0, ADDED), layer(1, ADDED)),
    (layer(0, CHOSEN), layer(1, ADDED, grouped=True)),
    (layer(0, CHOSEN, turned=True), layer(1, CHOSEN)),
    (layer(0, ADDED), layer(1, WINDOWED)),
], ids=["added", "grouped", "turned", "windowed"])  # fmt: skip
def test_the_ladder_holds_for_every_form_of_attention(saved, tmp_path, layers):
    report = inject_kv(saved(decoder(*layers)), tmp_path / "kv.onnx")
    assert report["layers"] == 2 and all(row["passed"] for row in report["ladder"])
    assert [row["rung"] for row in report["ladder"]] == [
        f"{name}, optimisation {level}" for level in ("off", "all") for name in pieces_of(4)
    ]
    caches = [
        f"{side}.{i}.{part}" for side in ("past_key_values", "present") for i in (0, 1) for part in ("key", "value")
    ]
    windowed = ["sliding_attention_mask"] if WINDOWED.split("{")[0] in layers[1] else []
    assert report["inputs"] == ["input_ids", "position_ids", "attention_mask", *windowed, *caches[:4]]
    assert report["outputs"] == ["logits", *caches[4:]]
    onnx.checker.check_model(str(tmp_path / "kv.onnx"), full_check=True)


def test_grouped_keys_are_cached_before_they_are_repeated(saved, tmp_path):
    inject_kv(saved(decoder(layer(0, ADDED), layer(1, ADDED, grouped=True))), tmp_path / "kv.onnx")
    contract = json.loads((tmp_path / "kv.contract.json").read_text())
    shapes = {row["name"]: row["shape"] for row in contract["inputs"]}
    assert shapes["past_key_values.0.key"] == ["batch", HEADS, "past", HEAD]
    assert shapes["past_key_values.1.key"] == ["batch", 1, "past", HEAD]


def test_the_contract_says_what_a_loop_needs(saved, tmp_path):
    inject_kv(saved(decoder(layer(0, ADDED), layer(1, WINDOWED))), tmp_path / "kv.onnx")
    contract = json.loads((tmp_path / "kv.contract.json").read_text())
    assert contract["constants"] | {} == {
        "layers": 2, "kv_heads": 2, "head_dim": 4, "vocab": VOCABULARY, "sliding_window": 6,
        "layer_kinds": ["full_attention", "sliding_attention"],
    }  # fmt: skip
    assert contract["masks"] == {"attention_mask": "full_attention", "sliding_attention_mask": "sliding_attention"}


def test_what_is_no_causal_decoder_is_refused_with_its_place(saved, tmp_path):
    def refused(model, message):
        with pytest.raises(StageError, match=message):
            inject_kv(saved(model), tmp_path / "kv.onnx")
        assert not (tmp_path / "kv.onnx").exists()

    refused(decoder(layer(0, "Identity({c})"), layer(1, ADDED)), "nothing is added to the scores")
    refused(decoder(layer(0, "Where(near, {c}, low)"), layer(1, ADDED)), "a token sees what comes behind it")
    twice = layer(0, "Add({c}, bias) mm0 = Add(m0, bias)").replace("(m0) o0", "(mm0) o0")
    refused(decoder(twice, layer(1, ADDED)), "Add 'mm0', Add 'm0' is added")
    plain = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (int64[B,T] ids) => (float[B,T,8] y) { y = Gather(w, ids) }'
    )
    plain.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((20, 8), np.float32), "w"))
    refused(plain, "no attention in the graph")
    fixed = decoder(layer(0, ADDED), layer(1, ADDED))
    fixed.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 41
    refused(fixed, "its length is fixed")


def test_a_cache_that_is_joined_wrongly_fails_a_rung_and_leaves_no_file(saved, tmp_path, monkeypatch):
    def broken(graph, value, cache, present, *, turned):
        real(graph, value, cache, present, turned=turned)
        if present.name == "present.1.value":
            graph.nodes[-1].inputs.reverse()  # the new ones in front of the past

    real = injecting._join
    monkeypatch.setattr(injecting, "_join", broken)
    with pytest.raises(BudgetMissedError, match="token by token"):
        inject_kv(saved(decoder(layer(0, ADDED), layer(1, ADDED))), tmp_path / "kv.onnx")
    assert not (tmp_path / "kv.onnx").exists()


def test_a_mask_that_is_forgotten_is_found_at_its_node(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(injecting, "MASKED", 0.0)
    with pytest.raises(BudgetMissedError, match=r"at once.*first at Add 'm0'"):
        inject_kv(saved(decoder(layer(0, ADDED), layer(1, ADDED))), tmp_path / "kv.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "qwen3"])
def test_a_decoder_that_torch_exported_without_a_cache_decodes_as_transformers_does(tmp_path, model_type):
    """What a person who has nothing but such a file would do: inject, then run the loop by its contract."""
    import torch
    from transformers import AutoModelForCausalLM

    from mlx_sentis.demo.toy import write_toy_model
    from parity.runners.onnx_decoder import OnnxDecoder
    from parity.runners.torch_causal_lm import TorchCausalLM

    folder = write_toy_model(tmp_path / "model", model_type)
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    class Uncached(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = whole.requires_grad_(False)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.whole(input_ids=input_ids, use_cache=False).logits

    sizes = ({1: torch.export.Dim.DYNAMIC},)
    names = {"input_names": ["input_ids"], "output_names": ["logits"], "opset_version": 18, "verbose": False}
    example = (torch.zeros(1, 7, dtype=torch.int64),)
    program = torch.onnx.export(Uncached().eval(), example, dynamic_shapes=sizes, dynamo=True, **names)
    assert program is not None
    program.save(str(tmp_path / "uncached.onnx"), external_data=False)
    report = inject_kv(tmp_path / "uncached.onnx", tmp_path / "kv.onnx")
    assert all(row["psnr_db"] is None or row["psnr_db"] > 120 for row in report["ladder"])
    decoder = OnnxDecoder(tmp_path / "kv.onnx", json.loads((tmp_path / "kv.contract.json").read_text()))
    prompt = np.random.default_rng(3).integers(6, 300, 30).tolist()
    assert decoder.greedy(prompt, 16).ids == TorchCausalLM(folder).greedy(prompt, 16)[0]


def test_pieces_add_up_to_the_sequence():
    for tokens in (1, 7, 41):
        ways = pieces_of(tokens)
        assert all(sum(lengths) == tokens and min(lengths) > 0 for lengths in ways.values())
    assert len(set(pieces_of(41)["in pieces"])) > 3
