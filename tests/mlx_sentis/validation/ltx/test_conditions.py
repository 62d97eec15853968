"""Each mode's conditions, in the shape of the trainer's example configurations, with media of the right samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import call

from mlx_sentis.validation.ltx.conditions import generates, needed_conditions

Make = Callable[..., Path]
Trainer = Callable[..., str]
V = {"is_generated": True, "latents_dir": "latents"}
A = {"is_generated": True, "latents_dir": "audio_latents"}
FROZEN = {"is_generated": False, "latents_dir": "other"}


def on(part: dict[str, Any], *conditions: dict[str, Any]) -> dict[str, Any]:
    return part | {"conditions": list(conditions)}


def reference(folder: str) -> dict[str, Any]:
    return {"type": "reference", "latents_dir": folder, "probability": 1.0}


MODES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "T2V": ({"video": V, "audio": A}, []),
    "T2A": ({"audio": A}, []),
    "I2V": (
        {"video": on(V, {"type": "first_frame", "probability": 0.5}), "audio": A},
        [{"type": "first_frame", "image_or_video": "video.mp4"}],
    ),
    "video extension": (
        {"video": on(V, {"type": "prefix", "temporal_boundary": 8}), "audio": A},
        [{"type": "prefix", "video": "video.mp4", "num_frames": 57}],
    ),
    "video suffix": (
        {"video": on(V, {"type": "suffix", "temporal_boundary": 8, "probability": 1.0}), "audio": A},
        [{"type": "suffix", "video": "video.mp4", "num_frames": 64}],
    ),
    "audio extension": (
        {"audio": on(A, {"type": "prefix", "temporal_boundary": 8})},
        [{"type": "prefix", "audio": "audio.wav", "duration": 1.0}],
    ),
    "V2V IC-LoRA": (
        {"video": on(V, reference("reference_latents"), {"type": "first_frame", "probability": 0.2})},
        [
            {
                "type": "reference",
                "video": "reference_video.mp4",
                "downscale_factor": 1,
                "temporal_scale_factor": 1,
                "include_in_output": True,
            }
        ],
    ),
    "AV2AV IC-LoRA": (
        {"video": on(V, reference("reference_latents")), "audio": on(A, reference("reference_audio_latents"))},
        [
            {
                "type": "reference",
                "video": "reference_video.mp4",
                "downscale_factor": 1,
                "temporal_scale_factor": 1,
                "include_in_output": True,
            },
            {"type": "reference", "audio": "reference_audio.wav"},
        ],
    ),
    "A2A IC-LoRA": (
        {"audio": on(A, reference("reference_audio_latents"))},
        [{"type": "reference", "audio": "reference_audio.wav"}],
    ),
    "V2A": ({"video": FROZEN, "audio": A}, [{"type": "video_to_audio", "video": "video.mp4"}]),
    "A2V": ({"video": V, "audio": FROZEN}, [{"type": "audio_to_video", "audio": "audio.wav"}]),
    "video inpainting": (
        {"video": on(V, {"type": "mask", "mask_dir": "video_masks", "probability": 1.0})},
        [{"type": "mask", "video": "video.mp4", "mask": "video_mask.mp4"}],
    ),
    "audio inpainting": (
        {"audio": on(A, {"type": "mask", "mask_dir": "audio_masks", "probability": 1.0})},
        [{"type": "mask", "audio": "audio.wav", "mask": "audio_mask.pt"}],
    ),
    "video outpainting": (
        {"video": on(V, {"type": "spatial_crop", "spatial_region": [0, 0, 288, 576], "probability": 1.0})},
        [{"type": "spatial_crop", "video": "video.mp4", "spatial_region": [0, 0, 288, 576]}],
    ),
}


def run(root: Path, trainer: Trainer, *flags: object) -> Any:
    words = ["--trainer", "ltx", "--workspace", root, "--command", trainer(), "--ood", "A voice in the fog."]
    return call("validate", *words, *flags)


def samples(root: Path) -> dict[str, Any]:
    folder = root / "outputs" / "eval"
    return {p.relative_to(folder).as_posix(): json.loads(p.read_text()) for p in sorted(folder.glob("*/*"))}


@pytest.mark.parametrize("mode", MODES)
def test_every_sample_of_a_mode_gets_its_conditions_with_media_of_its_own(
    mode: str, make_workspace: Make, trainer: Trainer
) -> None:
    strategy, wanted = MODES[mode]
    root = make_workspace(lambda config: config.update(training_strategy={"name": "flexible", **strategy}))
    result = run(root, trainer)
    assert result.exit_code == 0, result.output
    found = samples(root)
    assert len(found) == 3 + 1 + 5
    for name, made in found.items():
        if name.startswith("out-of-distribution"):
            owner = "kept-0"  # not seen in training either
        else:
            _, number, _, kind = made["prompt"].partition("] ")[2].partition(".")[0].split()
            owner = f"{kind}-{number}"
            assert kind == ("train" if name.startswith("in-distribution") else "kept")
        media = root / "dataset" / "media"
        with_media = [
            {key: f"{media}/{owner}-{value}" if is_file(value) else value for key, value in condition.items()}
            for condition in wanted
        ]
        assert made.get("conditions", []) == with_media


def is_file(value: Any) -> bool:
    return isinstance(value, str) and "." in value


def test_fields_of_the_configurations_own_validation_samples_win(make_workspace: Make, trainer: Trainer) -> None:
    shown = [
        {"type": "first_frame", "image_or_video": "/old.png"},
        {"type": "reference", "video": "/old.mp4", "downscale_factor": 2, "temporal_scale_factor": 1},
    ]

    def change(config: dict[str, Any]) -> None:
        config["training_strategy"] = {"name": "flexible", "video": on(V, reference("reference_latents"))}
        config["validation"]["samples"] = [{"prompt": "old", "conditions": shown}]

    root = make_workspace(change)
    assert run(root, trainer).exit_code == 0
    for made in samples(root).values():
        (condition,) = made["conditions"]
        assert condition.pop("video").endswith("reference_video.mp4")
        assert condition == {"type": "reference", "downscale_factor": 2, "temporal_scale_factor": 1}


def test_new_prompts_take_turns_with_the_held_out_media(make_workspace: Make, trainer: Trainer) -> None:
    strategy = MODES["V2A"][0]
    root = make_workspace(lambda config: config.update(training_strategy={"name": "flexible", **strategy}), held_out=2)
    assert run(root, trainer, "--ood", "A song", "--ood", "A drum").exit_code == 0
    owners = [
        made["conditions"][0]["video"].split("/")[-1][:6] for made in samples(root).values() if "OOD" in made["prompt"]
    ]
    assert owners == ["kept-0", "kept-1", "kept-0"]


def test_without_held_out_samples_new_prompts_borrow_trained_media_and_it_is_said(
    make_workspace: Make, trainer: Trainer
) -> None:
    strategy = MODES["V2A"][0]
    root = make_workspace(lambda config: config.update(training_strategy={"name": "flexible", **strategy}), held_out=0)
    result = run(root, trainer)
    assert result.exit_code == 0 and "borrow their media from trained samples" in result.stderr


def test_missing_media_are_named_all_at_once_before_the_trainer_starts(make_workspace: Make, trainer: Trainer) -> None:
    strategy = MODES["video inpainting"][0]
    root = make_workspace(lambda config: config.update(training_strategy={"name": "flexible", **strategy}), trained=3)
    (root / "dataset" / "media" / "train-1-video_mask.mp4").unlink()
    rows = json.loads((root / "dataset" / "dataset.json").read_text())
    del rows[2]["video_mask"]
    (root / "dataset" / "dataset.json").write_text(json.dumps(rows))
    result = run(root, trainer)
    assert result.exit_code == 1
    assert "dataset.json:2: video_mask" in result.stderr and "no such file" in result.stderr
    assert "dataset.json:3: no video_mask, which mask needs" in result.stderr
    assert not (root / "outputs" / "eval").exists()


def test_the_trainers_older_strategies_and_column_names_are_understood() -> None:
    old = {"training_strategy": {"name": "video_to_video"}, "validation": {"reference_downscale_factor": 2}}
    (needed,) = needed_conditions(old)
    assert (needed.type, needed.fields["downscale_factor"]) == ("reference", 2)
    assert needed_conditions({"training_strategy": {"name": "text_to_video"}}) == []
    with_images = {"training_strategy": {"name": "text_to_video"}, "validation": {"images": ["a.png"]}}
    assert [one.type for one in needed_conditions(with_images)] == ["first_frame"]
    assert not generates({"training_strategy": {"name": "text_to_video"}}, "audio")
    assert generates({"training_strategy": {"name": "text_to_video", "with_audio": True}}, "audio")
