"""A workspace as an LTX-2 training leaves it, small, with media that are a few bytes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

STAND_IN = Path(__file__).parent / "stand_in_trainer.py"
TRAINED, HELD_OUT = 6, 7
Make = Callable[..., Path]

CONFIG = """\
# trained with
model:
  model_path: "/models/ltx.safetensors"
  training_mode: "lora"
  load_checkpoint: null
lora: {rank: 32, alpha: 32, target_modules: ["to_k", "to_q"]}
training_strategy:
  name: "flexible"
  video: {is_generated: true, latents_dir: "latents"}
  audio: {is_generated: true, latents_dir: "audio_latents"}
optimization:
  learning_rate: 1e-4
  steps: 2000
  batch_size: 3
  gradient_accumulation_steps: 2
validation:
  samples:
    - prompt: "an old prompt"
  negative_prompt: >-
    blurry,
    dark
  video_dims: [ 960, 544, 89 ]
  frame_rate: 24.0
  video_cfg_scale: 3.0
  stg_blocks: [28]
  interval: 100
  generate_audio: true
  skip_initial_validation: true
checkpoints: {interval: 250, keep_last_n: -1, precision: "bfloat16"}
hub: {push_to_hub: false, hub_model_id: null}
wandb: {enabled: false, project: "ltx"}
seed: 42
output_dir: "outputs"
"""


def row(kind: str, number: int) -> dict[str, Any]:
    """One sample: a caption and every kind of media."""
    named = {"video": "mp4", "audio": "wav", "reference_video": "mp4", "reference_audio": "wav", "video_mask": "mp4"}
    media = {column: f"media/{kind}-{number}-{column}.{suffix}" for column, suffix in named.items()}
    media["audio_mask"] = f"media/{kind}-{number}-audio_mask.pt"
    return {"caption": f"Take {number} of {kind}. A soft voice says the number {number}.", **media}


@pytest.fixture
def make_workspace(tmp_path: Path) -> Make:
    """Return a function that makes a workspace; `change` edits its configuration."""

    def make(
        change: Callable[[dict[str, Any]], object] | None = None,
        *,
        held_out: int = HELD_OUT,
        trained: int = TRAINED,
        steps: tuple[int, ...] = (1750, 2000),
    ) -> Path:
        root = tmp_path / "projects" / "my lora"
        (root / "dataset" / "media").mkdir(parents=True)
        rows = {
            "train": [row("train", number) for number in range(trained)],
            "kept": [row("kept", number) for number in range(held_out)],
        }
        for one in [*rows["train"], *rows["kept"]]:
            for column, path in one.items():
                if column != "caption":
                    (root / "dataset" / path).write_bytes(b"media")
        (root / "dataset" / "dataset.json").write_text(json.dumps(rows["train"]), encoding="utf-8")
        if held_out:
            lines = "".join(json.dumps(one) + "\n" for one in rows["kept"])
            (root / "dataset" / "holdout.jsonl").write_text(lines, encoding="utf-8")
        text = CONFIG
        if change is not None:
            config = yaml.safe_load(CONFIG)
            change(config)
            text = yaml.safe_dump(config, sort_keys=False)
        (root / "config.yaml").write_text(text, encoding="utf-8")
        checkpoints = root / "outputs" / "checkpoints"
        checkpoints.mkdir(parents=True)
        for step in steps:
            (checkpoints / f"lora_weights_step_{step:05d}.safetensors").write_bytes(b"weights %d" % step)
            (checkpoints / f"training_state_step_{step:05d}.pt").write_bytes(b"state")
        return root

    return make


@pytest.fixture
def trainer() -> Callable[..., str]:
    """Return the command line of the stand-in with flags."""

    def command(*flags: object) -> str:
        return shlex.join([sys.executable, str(STAND_IN), *map(str, flags)])

    return command
