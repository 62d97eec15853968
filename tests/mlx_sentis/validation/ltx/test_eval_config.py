"""The validate-only configuration: exactly the keys of the procedure, everything else as the trainer reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from mlx_sentis.validation.ltx.eval_config import eval_config, smaller
from mlx_sentis.validation.ltx.workspace import read_config, write_config

Make = Callable[..., Path]
CHECKPOINT, OUTPUT = Path("/w/outputs/checkpoints/lora_weights_step_02000.safetensors"), Path("/w/outputs/eval")
PATCHED = {
    "model.load_checkpoint": str(CHECKPOINT),
    "optimization.steps": 1,
    "validation.skip_initial_validation": False,
    "validation.interval": 1,
    "validation.samples": [{"prompt": "[CAT1-IND] a: #b"}],
    "checkpoints.interval": None,
    "checkpoints.no_resume": True,
    "output_dir": str(OUTPUT),
}


def leaves(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def test_only_the_keys_of_the_procedure_change_and_the_trainer_reads_all_others_as_before(
    make_workspace: Make,
) -> None:
    root = make_workspace()
    config = read_config(root / "config.yaml")
    made = eval_config(config, CHECKPOINT, [{"prompt": "[CAT1-IND] a: #b"}], OUTPUT)
    write_config(root / "eval-config.yaml", made)
    before = dict(leaves(yaml.safe_load((root / "config.yaml").read_text())))
    after = dict(leaves(yaml.safe_load((root / "eval-config.yaml").read_text())))
    assert {key: value for key, value in after.items() if key not in before or before[key] != value} == {
        key: value for key, value in PATCHED.items() if before.get(key, "missing") != value
    }
    assert before.keys() <= after.keys() and after.keys() - before.keys() == {"checkpoints.no_resume"}
    assert after["optimization.learning_rate"] == "1e-4"  # PyYAML reads 1e-4 as a text: so does the trainer
    assert after["validation.negative_prompt"] == "blurry, dark"
    assert (after["optimization.batch_size"], after["optimization.gradient_accumulation_steps"]) == (3, 2)
    assert config == read_config(root / "config.yaml")


def test_sections_that_are_missing_or_empty_are_made() -> None:
    made = eval_config({"model": None, "validation": {}}, CHECKPOINT, PATCHED["validation.samples"], OUTPUT)
    assert dict(leaves(made)) == PATCHED


def test_nothing_is_sent_to_a_hub_or_a_tracker() -> None:
    config = {"hub": {"push_to_hub": True, "hub_model_id": "me/mine"}, "wandb": {"enabled": True, "project": "p"}}
    made = eval_config(config, CHECKPOINT, [], OUTPUT)
    assert made["hub"] == {"push_to_hub": False, "hub_model_id": "me/mine"}
    assert made["wandb"] == {"enabled": False, "project": "p"}
    assert config["hub"]["push_to_hub"] is True


def sized(dims: list[int] | None, **more: Any) -> dict[str, Any]:
    return {"validation": {"samples": [{"prompt": "p"}], **({"video_dims": dims} if dims else {}), **more}}


def test_smaller_renders_keep_to_the_grid_of_the_model() -> None:
    for dims, wanted in (([960, 544, 89], [480, 256, 89]), ([768, 768, 25], [384, 384, 25]), (None, [480, 256, 89])):
        made = smaller(sized(dims))
        assert made is not None and made["validation"]["video_dims"] == wanted
    assert smaller(sized([32, 32, 9])) is None


def test_where_only_audio_is_made_the_frames_shrink_because_they_are_the_seconds() -> None:
    made = smaller(sized([960, 544, 89], generate_video=False))
    assert made is not None and made["validation"]["video_dims"] == [960, 544, 41]
    assert smaller(sized([960, 544, 1], generate_video=False)) is None


def test_crop_regions_shrink_with_the_picture() -> None:
    config = sized([960, 544, 89])
    region = {"type": "spatial_crop", "video": "v", "spatial_region": [0, 0, 288, 576]}
    config["validation"]["samples"] = [{"prompt": "p", "conditions": [region]}]
    made = smaller(config)
    assert made is not None
    assert made["validation"]["samples"][0]["conditions"][0]["spatial_region"] == [0, 0, 128, 288]
    assert region["spatial_region"] == [0, 0, 288, 576]
