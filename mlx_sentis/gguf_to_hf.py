"""A GGUF model, dequantised once, as a Hugging Face directory that transformers and mlx-lm load.

Only what an embedded model needs is handled (Llama weights, SmolLM's byte-level tokenizer); anything else is refused by
name. Facts of the format: q and k rows are stored with the two rotary halves of each head interleaved; metadata keys
carry the architecture's name in front.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import write_json, write_text
from weights_bridge.model_folder import open_model_folder

MODULES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}  # Hugging Face's word to GGUF's
CONTROL, USER_DEFINED = 3, 4  # GGUF token types that a text is split at before any merge


class GgufModel:
    """An opened GGUF file.

    Args:
        path: the file.

    Raises:
        StageError: not a whole GGUF file.
    """

    def __init__(self, path: Path) -> None:
        import gguf

        self.path = path
        try:
            reader = gguf.GGUFReader(path)
        except (ValueError, IndexError, OSError) as error:  # a cut file ends in the middle of an array
            raise StageError(f"{path.name}: not a whole GGUF file: {error}", hint="fetch it again") from error
        self.fields = reader.fields
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def fact(self, key: str) -> Any:
        """Return one metadata value.

        Raises:
            StageError: the file does not have it.
        """
        if key not in self.fields:
            raise StageError(f"{self.path.name}: no metadata key {key!r}", hint="the file must be a language model")
        return self.fields[key].contents()

    def number(self, key: str) -> float:
        """Return a float32 metadata value as the decimal its author typed (1e-05, not 9.99999974e-06)."""
        return float(f"{self.fact(key):.6g}")

    def array(self, name: str) -> Array:
        """Return one tensor dequantised to float32, in torch's axis order."""
        from gguf.quants import dequantize

        tensor = self.tensors[name]
        try:
            return dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            kind = tensor.tensor_type.name
            raise StageError(f"{self.path.name}: {name} is {kind}, which gguf cannot dequantise") from None


def hf_from_gguf(source: Path, folder: Path) -> None:
    """Write a GGUF model into an existing empty directory as bf16 safetensors, configuration and tokenizer.

    Args:
        source: the GGUF file.
        folder: the directory; the caller sees to it that it appears whole.

    Raises:
        StageError: another architecture or tokenizer, an unknown tensor, or shapes that do not fit.
    """
    model = GgufModel(source)
    config = llama_config(model)
    write_weights(folder / "model.safetensors", torch_tensors(model, config))
    write_json(folder / "config.json", config)
    ids = {key: value for key, value in config.items() if key.endswith("_token_id")}
    write_json(folder / "generation_config.json", ids)
    write_tokenizer(model, folder)
    open_model_folder(folder).check_tensors()


def write_weights(path: Path, tensors: dict[str, Array]) -> None:
    """Write a safetensors file as transformers does.

    Raises:
        StageError: the file cannot be written.
    """
    try:
        save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:  # the library wraps the system's own error, a full disk for example
        hint = "free some room; MLX_SENTIS_CACHE moves the model cache"
        raise StageError(f"{path.name}: cannot be written: {error}", hint=hint) from error
    path.chmod(0o644)  # the library makes it readable for its owner only


def llama_config(model: GgufModel) -> dict[str, Any]:
    """Return `config.json` with the rotary base in both places that readers look at."""
    if (kind := model.fact("general.architecture")) != "llama":
        raise StageError(
            f"{model.path.name}: architecture {kind!r}, wanted 'llama'", hint="give a Hugging Face directory"
        )
    heads, hidden = model.fact("llama.attention.head_count"), model.fact("llama.embedding_length")
    rope_theta = model.number("llama.rope.freq_base")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "head_dim": hidden // heads,
        "intermediate_size": model.fact("llama.feed_forward_length"),
        "max_position_embeddings": model.fact("llama.context_length"),
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": model.fact("llama.block_count"),
        "num_key_value_heads": model.fact("llama.attention.head_count_kv"),
        "rms_norm_eps": model.number("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
        "tie_word_embeddings": "output.weight" not in model.tensors,
        "vocab_size": len(model.fact("tokenizer.ggml.tokens")),
        "bos_token_id": model.fact("tokenizer.ggml.bos_token_id"),
        "eos_token_id": model.fact("tokenizer.ggml.eos_token_id"),
        "pad_token_id": model.fact("tokenizer.ggml.padding_token_id"),
        "dtype": "bfloat16",
    }


def torch_tensors(model: GgufModel, config: dict[str, Any]) -> dict[str, Array]:
    """Return torch name to bf16 array (rounded to nearest, ties to even) of every tensor of the file.

    Raises:
        StageError: tensors without a name in the table, all at once; rotary factors are among them.
    """
    names = {name: torch_name(name) for name in model.tensors}
    if unknown := [name for name, torch in names.items() if torch is None]:
        hint = "only plain Llama models are converted; give a Hugging Face directory instead"
        raise all_at_once(f"{model.path.name}: tensors without a counterpart:", unknown, hint=hint)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors: dict[str, Array] = {}
    for name, torch in names.items():
        array = model.array(name)
        module = name.split(".")[-2]
        if module in heads:
            array = rotary_halves_apart(array, heads[module])
        tensors[str(torch)] = np.ascontiguousarray(array.astype(ml_dtypes.bfloat16))
    return tensors


def torch_name(name: str) -> str | None:
    """Return the torch name of a GGUF tensor, None when the table has none."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    if match is None or match[2] not in MODULES:
        return None
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{MODULES[match[2]]}.weight"


def rotary_halves_apart(rows: Array, heads: int) -> Array:
    """Undo GGUF's row order of q and k.

    GGUF rotates rows 2i and 2i+1 of a head together, Hugging Face rows i and i + D/2.

    Args:
        rows: [heads * D, H] with the halves interleaved.
        heads: how many heads the rows hold.

    Returns:
        [heads * D, H] with the halves one after the other.
    """
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def write_tokenizer(model: GgufModel, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and, when the file has one, chat_template.jinja."""
    kind = model.fact("tokenizer.ggml.model"), model.fact("tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        found = "/".join(kind)
        raise StageError(
            f"{model.path.name}: tokenizer {found}, wanted gpt2/smollm", hint="give a Hugging Face directory"
        )
    tokens = model.fact("tokenizer.ggml.tokens")
    document = tokenizer_document(tokens, model.fact("tokenizer.ggml.token_type"), model.fact("tokenizer.ggml.merges"))
    write_text(folder / "tokenizer.json", json.dumps(document, ensure_ascii=False))
    named = {f"{role}_token": tokens[model.fact(f"tokenizer.ggml.{key}_token_id")] for role, key in ROLES.items()}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    write_json(folder / "tokenizer_config.json", settings | named)
    if "tokenizer.chat_template" in model.fields:
        write_text(folder / "chat_template.jinja", model.fact("tokenizer.chat_template"))


def tokenizer_document(tokens: list[str], kinds: list[int], merges: list[str]) -> dict[str, Any]:
    """Return tokenizer.json of a byte-level BPE that splits every digit off first.

    The digit rule comes before the byte-level one: without it, several newlines or spaces before a digit
    tokenise differently from the original.
    """
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": index, "content": token, **flags, "special": kind == CONTROL}
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (CONTROL, USER_DEFINED)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "unk_token": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }
