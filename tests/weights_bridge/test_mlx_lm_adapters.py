"""mlx-lm's adapter directories, in and out, against the library itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapters_compared import IDS, NONSENSE, Q, assert_same, merged_logits, not_read_as_anything_else, patterned
from helpers import edit_json
from safetensors.numpy import load_file, save_file

from weights_bridge.adapter_file import Adapter, read_adapter
from weights_bridge.errors import StageError
from weights_bridge.foreign_adapters import write_adapter_file
from weights_bridge.merge import merged_tensors
from weights_bridge.mlx_lm_adapter import read_mlx_lm, write_mlx_lm
from weights_bridge.model_folder import ModelFolder

Make = Callable[..., Path]


@pytest.mark.parametrize("kind", ["lora", "rslora", "dora"])
def test_mlx_lm_loads_what_was_written_with_the_same_logits_and_it_comes_back(
    base: ModelFolder, made_adapter: Make, tmp_path: Path, kind: str
) -> None:
    import mlx.core as mx
    from mlx_lm.tuner.utils import load_adapters
    from mlx_lm.utils import load_model

    adapter = read_adapter(made_adapter("llama", kind, 4, 8.0))
    write_mlx_lm(adapter, base, tmp_path / "mlx")
    model, _ = load_model(base.path)
    load_adapters(model, str(tmp_path / "mlx"))
    model.eval()
    wanted = merged_logits(base, adapter)
    assert np.abs(np.array(model(mx.array(IDS))) - wanted).max() < 2e-5 * np.abs(wanted).max()
    back = read_mlx_lm(tmp_path / "mlx", base)
    assert {n: a.tobytes() for n, a in back.flat().items()} == {n: a.tobytes() for n, a in adapter.flat().items()}
    assert back.scale_of(Q) == pytest.approx(adapter.scale_of(Q))


@pytest.fixture
def mlx_dir(base: ModelFolder, made_adapter: Make, tmp_path: Path) -> Path:
    write_mlx_lm(read_adapter(made_adapter("llama", "lora", 4, 80.0)), base, tmp_path / "mlx")
    return tmp_path / "mlx"


def test_scale_is_not_alpha(base: ModelFolder, mlx_dir: Path) -> None:
    found = read_mlx_lm(mlx_dir, base)
    assert (found.scale, found.facts["alpha"]) == (20.0, 80.0)
    config = mlx_dir / "adapter_config.json"
    edit_json(config, lambda c: c["lora_parameters"].update(alpha=80.0))
    assert read_mlx_lm(mlx_dir, base).scale == 20.0
    edit_json(config, lambda c: c["lora_parameters"].update(alpha=20.0))
    with pytest.raises(StageError, match=r"scale 20\.0 and alpha 20\.0 \(alpha / rank = 5\) disagree"):
        read_mlx_lm(mlx_dir, base)
    edit_json(config, lambda c: c["lora_parameters"].pop("scale"))
    with pytest.raises(StageError, match=r"scale: found None; .* alpha is not read in its place"):
        read_mlx_lm(mlx_dir, base)


@pytest.mark.parametrize("field", ["rank", "scale", "alpha", "dropout", "keys", "fine_tune_type", "num_layers"])
def test_no_value_of_an_mlx_lm_field_gets_past_a_refusal_as_anything_else(
    base: ModelFolder, mlx_dir: Path, field: str
) -> None:
    config = json.loads((mlx_dir / "adapter_config.json").read_text())
    for value in NONSENSE:
        own = config["lora_parameters"] | ({field: value} if field in config["lora_parameters"] else {})
        document = config | {"lora_parameters": own} | ({} if field in own else {field: value})
        (mlx_dir / "adapter_config.json").write_text(json.dumps(document))
        not_read_as_anything_else(lambda: read_mlx_lm(mlx_dir, base))


def test_a_directory_that_only_has_checkpoints_says_which(base: ModelFolder, mlx_dir: Path) -> None:
    (mlx_dir / "adapters.safetensors").rename(mlx_dir / "0000100_adapters.safetensors")
    with pytest.raises(StageError, match=r"mlx: no adapters\.safetensors") as caught:
        read_mlx_lm(mlx_dir, base)
    assert "found 0000100_adapters.safetensors: copy" in caught.value.hint


@pytest.mark.parametrize(("layers", "missing"), [(2, True), (-1, True), (16, True), (1, False)])
def test_a_module_that_keys_names_and_the_file_lost_is_refused(
    base: ModelFolder, mlx_dir: Path, layers: int, missing: bool
) -> None:
    file = mlx_dir / "adapters.safetensors"
    save_file({name: array for name, array in load_file(file).items() if Q not in name}, file)
    edit_json(mlx_dir / "adapter_config.json", lambda config: config.update(num_layers=layers))
    if missing:
        with pytest.raises(StageError, match=rf"{Q}: named by lora_parameters\.keys, its tensors are missing"):
            read_mlx_lm(mlx_dir, base)
    else:
        assert Q not in read_mlx_lm(mlx_dir, base).modules


def test_a_parameter_that_mlx_lm_does_not_have_is_refused_by_name(base: ModelFolder, mlx_dir: Path) -> None:
    edit_json(mlx_dir / "adapter_config.json", lambda config: config["lora_parameters"].update(use_rslora=True))
    with pytest.raises(StageError, match=r"lora_parameters\.use_rslora: True has no counterpart here"):
        read_mlx_lm(mlx_dir, base)


def test_what_mlx_lm_has_no_field_for_is_refused(base: ModelFolder, made_adapter: Make, tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught:
        write_mlx_lm(read_adapter(made_adapter("llama", "lora", 4, 8.0, patterned)), base, tmp_path / "mlx")
    assert [line.split(":")[0].strip() for line in caught.value.message.splitlines()[1:]] == ["ranks", "scales"]

    def gap(tensors: dict[str, Any], facts: dict[str, Any]) -> None:
        for name in [name for name in tensors if name.startswith("model.layers.1")]:
            del tensors[name]
        facts["targets"] = [name for name in facts["targets"] if "layers.0" in name]

    with pytest.raises(StageError, match="targets: mlx-lm adapts the same modules in the last layers"):
        write_mlx_lm(read_adapter(made_adapter("llama", "lora", 4, 8.0, gap)), base, tmp_path / "mlx")
    assert not (tmp_path / "mlx").exists()


def test_saved_tensors_survive_the_interchange_file(untied: ModelFolder, made_adapter: Make, tmp_path: Path) -> None:
    plain = read_adapter(made_adapter("qwen3", "lora", 4, 8.0))
    head = np.random.default_rng(0).standard_normal((untied.config["vocab_size"], 64)).astype(np.float32)
    adapter = Adapter(plain.facts | {"saved": ["lm_head.weight"]}, plain.modules, {"lm_head.weight": head})
    write_adapter_file(tmp_path / "a.safetensors", adapter)
    found = read_adapter(tmp_path / "a.safetensors")
    assert_same(found, adapter)
    np.testing.assert_array_equal(dict(merged_tensors(untied, found))["lm_head.weight"], head)
    assert found.facts["saved"] == ["lm_head.weight"]
    with pytest.raises(StageError, match=r"lm_head\.weight: whole tensors have no place"):
        write_mlx_lm(found, untied, tmp_path / "mlx")
