"""The validate-only configuration: the trained one with a few keys changed, and smaller when memory runs out.

Changed are `model.load_checkpoint`, `optimization.steps`, `validation.skip_initial_validation`, `validation.interval`,
`validation.samples`, `checkpoints.interval`, `checkpoints.no_resume` and `output_dir`. Everything else stays as it was
trained: batch size and accumulation (they decide the memory), `video_dims`, `frame_rate`, guidance, `generate_audio`.
Where the trained configuration sends something to a hub or to a tracker, that is switched off: this phase stays here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlx_sentis.validation.ltx.workspace import Config

DEFAULT_DIMS = (960, 544, 89)  # the trainer's own default: width, height, frames
GRID = 32  # width and height are multiples of it, frames are 8·n + 1
SENDS = (("hub", "push_to_hub"), ("wandb", "enabled"))


def eval_config(config: Config, checkpoint: Path, samples: Sequence[dict[str, Any]], output: Path) -> Config:
    """Return the configuration that renders samples with a checkpoint and does one step that is thrown away.

    Args:
        config: as trained.
        checkpoint: absolute path of the weights.
        samples: `{"prompt", "conditions"}`.
        output: absolute path of `outputs/eval`.
    """
    made = copy.deepcopy(config)
    _section(made, "model")["load_checkpoint"] = str(checkpoint)
    _section(made, "optimization")["steps"] = 1
    _section(made, "validation").update(skip_initial_validation=False, interval=1, samples=list(samples))
    _section(made, "checkpoints").update(interval=None, no_resume=True)
    made["output_dir"] = str(output)
    for section, key in sends(config):
        made[section][key] = False
    return made


def sends(config: Config) -> list[tuple[str, str]]:
    """Return the switches by which a configuration would send results away."""
    return [(section, key) for section, key in SENDS if (config.get(section) or {}).get(key)]


def _section(config: Config, name: str) -> dict[str, Any]:
    if not isinstance(config.get(name), dict):
        config[name] = {}
    return config[name]


def smaller(config: Config) -> Config | None:
    """Return the configuration with a quarter of the pixels, or half the frames where only audio is made.

    Crop regions shrink along. None when it cannot become smaller.
    """
    validation = config["validation"]
    width, height, frames = validation.get("video_dims") or DEFAULT_DIMS
    if validation.get("generate_video") is False:
        dims = (width, height, max(1, (frames - 1) // 16 * 8 + 1))
    else:
        dims = (_halved(width), _halved(height), frames)
    if dims == (width, height, frames):
        return None
    made = copy.deepcopy(config)
    made["validation"]["video_dims"] = list(dims)
    for sample in made["validation"]["samples"]:
        for condition in sample.get("conditions", ()):
            if "spatial_region" in condition:
                condition["spatial_region"] = _shrunk(condition["spatial_region"], (width, height), dims)
    return made


def _halved(size: int) -> int:
    return max(GRID, size // 2 // GRID * GRID)


def _shrunk(region: Sequence[int], before: tuple[int, int], after: Sequence[int]) -> list[int]:
    """Return (y1, x1, y2, x2) on the grid of the smaller picture."""
    scales = (after[1] / before[1], after[0] / before[0]) * 2
    return [round(edge * scale / GRID) * GRID for edge, scale in zip(region, scales, strict=True)]


def dims_text(config: Config) -> str:
    """Return `960×544, 89 frames`."""
    width, height, frames = config["validation"].get("video_dims") or DEFAULT_DIMS
    return f"{width}×{height}, {frames} frames"
