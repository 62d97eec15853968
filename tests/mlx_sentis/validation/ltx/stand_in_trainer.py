"""A stand-in for the LTX-2 trainer: reads the same configuration and leaves the same files, without a model.

Like the real one it writes `training_config.yaml` first, renders every sample at step 0 and again after the only step,
and always saves a last checkpoint with its state. Each render is the sample it was made of, as JSON, so that a test
can see which one it is. Flags before the configuration plant failures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--memory", type=int, help="the most pixels it can render")
    parser.add_argument("--fail", action="store_true", help="end with exit code 1 before any render")
    parser.add_argument("--leave-out", type=int, help="a sample's number that gets no render")
    parser.add_argument("--empty", type=int, help="a sample's number whose render is empty")
    asked = parser.parse_args()
    config = yaml.safe_load(asked.config.read_text(encoding="utf-8"))
    print(f"step 0: {len(config['validation']['samples'])} samples", flush=True)
    output = Path(config["output_dir"])
    output.mkdir(parents=True, exist_ok=True)
    (output / "training_config.yaml").write_text(yaml.dump(config), encoding="utf-8")
    weights = Path(config["model"]["load_checkpoint"])
    if not weights.is_absolute() or not weights.is_file():
        print(f"no checkpoint at {weights}", file=sys.stderr)
        return 1
    if asked.fail:
        print("ValueError: the text encoder is missing", file=sys.stderr)
        return 1
    width, height, frames = config["validation"]["video_dims"]
    if asked.memory is not None and width * height > asked.memory:
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", file=sys.stderr)
        return 1
    for step in (0, config["optimization"]["steps"]):
        render(config, output / "samples", step, frames, asked)
    checkpoints = output / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    (checkpoints / "lora_weights_step_00001.safetensors").write_bytes(b"thrown away")
    (checkpoints / "training_state_step_00001.pt").write_bytes(b"state")
    return 0


def render(config: dict[str, Any], folder: Path, step: int, frames: int, asked: argparse.Namespace) -> None:
    folder.mkdir(exist_ok=True)
    extension = "wav" if config["validation"].get("generate_video") is False else "png" if frames == 1 else "mp4"
    for number, sample in enumerate(config["validation"]["samples"], 1):
        if number == asked.leave_out:
            continue
        made = json.dumps({"step": step, "dims": config["validation"]["video_dims"], **sample}, ensure_ascii=False)
        path = folder / f"step_{step:06d}_{number}.{extension}"
        path.write_text("" if number == asked.empty else made, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
