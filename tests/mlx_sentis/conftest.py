"""A small GGUF model, written with the gguf package itself: the source of the conversion and catalogue tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import quantize

from mlx_sentis.demo.toy import CHATML, SPECIAL, toy_config, toy_tokenizer, toy_weights

GGUF_FROM_TORCH = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class SmallGguf:
    """The file, and what its tensors must become: torch name to float32 array."""

    path: Path
    tensors: dict[str, np.ndarray]


def gguf_name(name: str) -> str:
    if name in GGUF_FROM_TORCH:
        return GGUF_FROM_TORCH[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{GGUF_FROM_TORCH[rest.removesuffix('.weight')]}.weight"


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Put row i + D/2 of each head right after row i, one row at a time."""
    width = rows.shape[0] // heads
    order = [h * width + i + half * width // 2 for h in range(heads) for i in range(width // 2) for half in (0, 1)]
    return rows[order]


def quantised(name: str, array: np.ndarray) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    kinds = gguf.GGMLQuantizationType
    if array.ndim == 1:
        return array, kinds.F32
    kind = kinds.Q8_0 if "embed" in name else kinds.Q4_1
    return quantize(array, kind), kind


def write_small_gguf(path: Path) -> SmallGguf:
    tokenizer = json.loads(toy_tokenizer().to_str())["model"]
    tokens = sorted(tokenizer["vocab"], key=tokenizer["vocab"].get)
    config = toy_config("llama", len(tokens), 2, 1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(4096)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(50000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["merges"]])
    for add, token in (("bos", 1), ("eos", 2), ("unk", 0), ("pad", 2)):
        getattr(writer, f"add_{add}_token_id")(token)
    writer.add_chat_template(CHATML)
    tensors = {}
    for name, array in toy_weights(config).items():
        stored, kind = quantised(name, array)
        tensors[name] = gguf.quants.dequantize(stored, kind)
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        writer.add_tensor(gguf_name(name), interleaved(stored, heads) if heads else stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return SmallGguf(path, tensors)


@pytest.fixture(scope="session")
def small_gguf(tmp_path_factory: pytest.TempPathFactory) -> SmallGguf:
    return write_small_gguf(tmp_path_factory.mktemp("gguf") / "small.gguf")


@pytest.fixture
def model_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The `models` folder of an empty user cache."""
    monkeypatch.setenv("MLX_SENTIS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"
