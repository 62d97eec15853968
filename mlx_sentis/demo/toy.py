"""Toy models: two layers, real architecture, deterministic non-trivial weights, a real tokenizer.

They are Hugging Face directories that transformers and mlx-lm both load, small enough for the whole pipeline
to run in a minute without a network. They answer nonsense; every gate holds for them all the same.
"""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from weights_bridge import architectures
from weights_bridge.files import folder_written_whole, write_json, write_text
from weights_bridge.safetensors_writer import write_safetensors

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% set system = messages[0]['content'] + '\n\n' if messages[0]['role'] == 'system' else '' %}"
    "{% for message in messages if message['role'] != 'system' %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' }}"
    "{{ (system if loop.first else '') + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
CORPUS = (
    'You control a character in a game. Tools: move_to(place) open(thing) {"name": "move_to", "arguments": '
    '{"place": "the old mill"}} Could you please walk over to the gate and open it for me? I cannot do that. ',
    "system user assistant model light give item wait play emote on off door chest lamp bridge forge market stable ",
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<bos>", "<start_of_turn>", "<end_of_turn>")
MODEL_TYPES = ("llama", "qwen2", "qwen3", "gemma3_text")  # those that most tests are run on
DECODER_TYPES = (*MODEL_TYPES, "mistral", "smollm3", "phi3", "gemma2")  # every decoder; every stage covers them
CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
}


def toy_config(model_type: str, vocab_size: int, stop_id: int, bos_id: int) -> dict[str, Any]:
    """Return the configuration of a toy model: 2 layers, width 64, 4 heads of 16, a rotary base that is no default."""
    config: dict[str, Any] = {
        "model_type": model_type,
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
        "tie_word_embeddings": model_type not in ("qwen3", "mistral", "phi3"),
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "bos_token_id": bos_id,
        "eos_token_id": stop_id,
        "pad_token_id": 0,
        "dtype": "float32",
    }
    if model_type in ("mistral", "phi3"):
        config["sliding_window"] = None
    if model_type == "phi3":
        config |= {"partial_rotary_factor": 0.5, "original_max_position_embeddings": 4096}
        config["rope_parameters"]["partial_rotary_factor"] = 0.5
    if model_type == "smollm3":
        config |= {"no_rope_layers": [1, 0], "no_rope_layer_interval": 2, "layer_types": ["full_attention"] * 2}
    if model_type == "gemma2":
        del config["hidden_act"], config["mlp_bias"]
        config |= {
            "hidden_activation": "gelu_pytorch_tanh",
            "layer_types": ["sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 24,
            "sliding_window": 32,
            "attn_logit_softcapping": 20.0,
            "final_logit_softcapping": 5.0,
        }
    if model_type == "gemma3_text":
        del config["hidden_act"], config["mlp_bias"]
        config |= {
            "hidden_activation": "gelu_pytorch_tanh",
            "layer_types": ["sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 16,
            "sliding_window": 32,
            "sliding_window_pattern": 2,
            "rope_local_base_freq": 5000.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 50000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
            },
        }
    config["architectures"] = [CLASSES[model_type]]
    return config


def toy_weights(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Return torch name to float32 array; each tensor's values depend on its name and the seed only."""
    table = architectures.get(config["model_type"])
    is_offset_norm = config["model_type"].startswith("gemma")
    weights = {}
    for name, shape in table.torch_shapes(config).items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        noise = rng.standard_normal(shape).astype(np.float32)
        if name.endswith("norm.weight"):
            weights[name] = 0.2 * noise + (0.0 if is_offset_norm else 1.0)
        elif len(shape) == 1:
            weights[name] = 0.1 * noise
        else:
            weights[name] = noise * np.float32(0.3 if "embed" in name else 1.2 / math.sqrt(shape[1]))
        weights[name] = np.ascontiguousarray(weights[name], np.float32)
    return weights


def toy_tokenizer() -> Tokenizer:
    """Return a byte-level BPE tokenizer of 480 pieces, trained on a few sentences (deterministic)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(  # pyright: ignore
        vocab_size=480,
        min_frequency=1,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def write_toy_model(folder: Path, model_type: str, *, seed: int = 0) -> Path:
    """Write a toy model directory, whole or not at all, and return it.

    Args:
        folder: the directory to make (replaced when it exists).
        model_type: one of `DECODER_TYPES`.
        seed: of the weights.
    """
    architectures.get(model_type)  # unknown names are refused before anything is written
    tokenizer = toy_tokenizer()
    gemma = model_type.startswith("gemma")
    stop = "<end_of_turn>" if gemma else "<|im_end|>"
    bos = "<bos>" if gemma else "<|endoftext|>"
    ids = tokenizer.get_vocab()
    stop_id, bos_id = ids[stop], ids[bos]
    config = toy_config(model_type, tokenizer.get_vocab_size(), stop_id, bos_id)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": bos,
        "eos_token": stop,
        "pad_token": "<|endoftext|>",
    }
    weights = toy_weights(config, seed)
    with folder_written_whole(folder) as new:
        write_safetensors(new / "model.safetensors", {n: a.shape for n, a in weights.items()}, weights.items())
        write_json(new / "config.json", config)
        write_json(new / "generation_config.json", {"eos_token_id": [stop_id], "bos_token_id": bos_id})
        write_text(new / "tokenizer.json", json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False))
        write_json(new / "tokenizer_config.json", settings)
        write_text(new / "chat_template.jinja", GEMMA if gemma else CHATML)
        write_text(new / "README.md", "---\nlicense: mit\n---\nA toy model with made weights: it answers nonsense.\n")
    return folder
