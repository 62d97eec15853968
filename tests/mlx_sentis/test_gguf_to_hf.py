"""GGUF to a Hugging Face directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from mlx_sentis.gguf_to_hf import hf_from_gguf, rotary_halves_apart, torch_name
from mlx_sentis.templates import load_tokenizer, render
from weights_bridge.errors import StageError
from weights_bridge.files import read_json


@pytest.fixture(scope="module")
def converted(small_gguf: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    hf_from_gguf(small_gguf.path, folder)
    return folder


def test_every_tensor_equals_the_library_s_dequantised_value_rounded_to_bf16(small_gguf: Any, converted: Path) -> None:
    found = load_file(converted / "model.safetensors")
    assert found.keys() == small_gguf.tensors.keys()
    for name, wanted in small_gguf.tensors.items():
        assert found[name].dtype == ml_dtypes.bfloat16
        assert np.array_equal(found[name].view(np.uint16), wanted.astype(ml_dtypes.bfloat16).view(np.uint16)), name


def test_q_and_k_rows_would_differ_without_the_reordering(small_gguf: Any, converted: Path) -> None:
    found = load_file(converted / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"]
    stored = {t.name: t for t in gguf.GGUFReader(small_gguf.path).tensors}["blk.0.attn_q.weight"]
    as_stored = gguf.quants.dequantize(stored.data, stored.tensor_type).astype(ml_dtypes.bfloat16)
    assert not np.array_equal(found, as_stored)
    assert np.array_equal(found, rotary_halves_apart(as_stored, 4))


def test_both_rotary_conventions_give_the_same_attention_scores() -> None:
    """Interleaved pairs of GGUF's rows and halves of the reordered rows rotate to the same dot products."""
    rng = np.random.default_rng(5)
    heads, width, hidden, tokens = 3, 8, 16, 7
    stored = [rng.standard_normal((heads * width, hidden)) for _ in "qk"]
    states = rng.standard_normal((tokens, hidden))
    angles = np.outer(np.arange(tokens), 50.0 ** (-np.arange(0, width, 2) / width))  # [T, D/2]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def rotated(rows: np.ndarray, first: Any, second: Any) -> np.ndarray:
        vectors = (states @ rows.T).reshape(tokens, heads, width)
        a, b = vectors[..., first], vectors[..., second]
        out = np.empty_like(vectors)
        out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
        return out

    def scores(rows: list[np.ndarray], first: Any, second: Any) -> np.ndarray:
        q, k = (rotated(r, first, second) for r in rows)
        return np.einsum("thd,shd->hts", q, k)

    pairs = slice(0, None, 2), slice(1, None, 2)
    halves = slice(0, width // 2), slice(width // 2, None)
    wanted = scores(stored, *pairs)
    assert np.allclose(scores([rotary_halves_apart(r, heads) for r in stored], *halves), wanted, atol=1e-12)
    assert not np.allclose(scores(stored, *halves), wanted, atol=1e-2)


def test_the_configuration_carries_the_rotary_base_in_both_places(converted: Path) -> None:
    config = read_json(converted / "config.json")
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 50000.0
    assert config["rms_norm_eps"] == 1e-5
    assert (config["head_dim"], config["num_key_value_heads"], config["tie_word_embeddings"]) == (16, 2, True)
    assert read_json(converted / "generation_config.json") == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}


def test_the_tokenizer_keeps_every_digit_and_special_token_apart(converted: Path) -> None:
    tokenizer = load_tokenizer(converted)
    for text in ("level 42", "a\n\n\n  7", "12 345", "naïve – 東京 😀 2x"):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text
        pieces = tokenizer.convert_ids_to_tokens(ids)
        assert all(len(piece) == 1 for piece in pieces if any(c.isdigit() for c in piece)), pieces
    assert tokenizer("<|im_start|>a<|im_end|>")["input_ids"][0::2] == [1, 2]
    assert render(tokenizer, [{"role": "user", "content": "hi"}]) == "<|im_start|>user\nhi<|im_end|>\n"


def test_transformers_loads_the_directory_with_no_missing_or_unexpected_key(converted: Path) -> None:
    from transformers import AutoModelForCausalLM

    _, info = AutoModelForCausalLM.from_pretrained(converted, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.0.attn_q_norm.weight"])
def test_a_tensor_the_table_lacks_has_no_torch_name(name: str) -> None:
    assert torch_name(name) is None


def written_gguf(path: Path, architecture: str, tensor: str | None = None) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    if tensor:
        writer.add_tensor(tensor, np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    path = written_gguf(tmp_path / "m.gguf", "falcon", "token_embd.weight")
    with pytest.raises(StageError, match=r"m\.gguf: architecture 'falcon', wanted 'llama'"):
        hf_from_gguf(path, tmp_path)


def test_a_missing_metadata_key_is_named(tmp_path: Path) -> None:
    path = written_gguf(tmp_path / "m.gguf", "llama", "token_embd.weight")
    with pytest.raises(StageError, match=r"no metadata key 'llama\.attention\.head_count'"):
        hf_from_gguf(path, tmp_path)


@pytest.mark.parametrize("kept", [0, 3, 2000, 60000])
def test_a_cut_file_is_one_clear_error(small_gguf: Any, tmp_path: Path, kept: int) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(small_gguf.path.read_bytes()[:kept])
    with pytest.raises(StageError, match=r"cut\.gguf: not a whole GGUF file"):
        hf_from_gguf(cut, tmp_path)


def test_the_tokenizer_document_is_stable(converted: Path) -> None:
    document = json.loads((converted / "tokenizer.json").read_text(encoding="utf-8"))
    kinds = [step["type"] for step in document["pre_tokenizer"]["pretokenizers"]]
    assert kinds == ["Digits", "ByteLevel"]
    assert [token["id"] for token in document["added_tokens"] if token["special"]] == [0, 1, 2, 3, 4, 5]
