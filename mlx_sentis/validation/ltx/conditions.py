"""What a validation sample needs beside its prompt, by the mode that was trained.

| mode | conditions of each sample |
|---|---|
| T2V, T2A | none |
| I2V | first_frame |
| video or audio extension | prefix or suffix |
| V2V, AV2AV, A2A IC-LoRA | reference |
| V2A (foley) | video_to_audio |
| A2V | audio_to_video |
| video or audio inpainting | mask |
| video outpainting | spatial_crop |

A bare prompt would ask a conditioned model for another task than it was trained for. The mode is read from
`training_strategy`; the fields beside the media (frames, seconds, scale factors) from the configuration's own
validation samples where they have such a condition, else from the trained one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_sentis.validation.ltx.workspace import Config, Sample
from weights_bridge.errors import all_at_once

Modality = str  # `video` or `audio`
LATENT_FRAMES = 8  # pixel frames in one latent frame of the default video VAE
AUDIO_SECONDS = 1.0  # of a prefix or suffix of audio, as in the trainer's example configurations
COLUMNS = {  # where a sample's media stand, the trainer's own aliases included
    "video": ("video", "media_path"),
    "audio": ("audio", "video", "media_path"),  # the audio track of a video is the audio
    "video mask": ("video_mask",),
    "audio mask": ("audio_mask",),
    "video reference": ("reference_video", "ref_media_path"),
    "audio reference": ("reference_audio",),
}


@dataclass(frozen=True)
class Needed:
    """One condition that every sample of a mode gets.

    Attributes:
        type: the trainer's word.
        modality: which of the two it conditions.
        fields: what stands in it beside type and media.
    """

    type: str
    modality: Modality
    fields: Mapping[str, Any]

    @property
    def media(self) -> dict[str, str]:
        """Field to what it holds, a key of `COLUMNS`."""
        if self.type == "first_frame":
            return {"image_or_video": "video"}
        if self.type == "reference":
            return {self.modality: f"{self.modality} reference"}
        return {self.modality: self.modality} | ({"mask": f"{self.modality} mask"} if self.type == "mask" else {})


def needed_conditions(config: Config) -> list[Needed]:
    """Return the conditions that every validation sample of a configuration needs."""
    strategy = config.get("training_strategy") or {}
    found = _legacy(config, strategy) if "video" not in strategy and "audio" not in strategy else _flexible(strategy)
    return [Needed(one.type, one.modality, _fields(config, one)) for one in found]


def _flexible(strategy: Mapping[str, Any]) -> list[Needed]:
    found = []
    for modality, other, frozen in (("video", "audio", "video_to_audio"), ("audio", "video", "audio_to_video")):
        part = strategy.get(modality) or {}
        if part and not part.get("is_generated") and (strategy.get(other) or {}).get("is_generated"):
            found.append(Needed(frozen, modality, {}))
        conditions = part.get("conditions") or []
        always = [one for one in conditions if one.get("probability", 1.0) >= 1.0]
        found += [Needed(one["type"], modality, one) for one in always or conditions]
    return found


def _legacy(config: Config, strategy: Mapping[str, Any]) -> list[Needed]:
    """Return what the trainer's two older strategies need."""
    if strategy.get("name") == "video_to_video":
        return [Needed("reference", "video", {})]
    trains_frames = bool((config.get("validation") or {}).get("images"))
    return [Needed("first_frame", "video", {})] if trains_frames else []


def _fields(config: Config, needed: Needed) -> dict[str, Any]:
    """Return a condition's fields beside type and media."""
    shown = _shown(config, needed)
    if shown is not None:
        return {key: value for key, value in shown.items() if key != "type" and key not in needed.media}
    boundary = needed.fields.get("temporal_boundary", LATENT_FRAMES)
    if needed.type in ("prefix", "suffix") and needed.modality == "audio":
        return {"duration": AUDIO_SECONDS}
    if needed.type == "prefix":
        return {"num_frames": (boundary - 1) * LATENT_FRAMES + 1}
    if needed.type == "suffix":
        return {"num_frames": boundary * LATENT_FRAMES}
    if needed.type == "spatial_crop":
        return {"spatial_region": list(needed.fields["spatial_region"])}
    if needed.type == "reference" and needed.modality == "video":
        validation = config.get("validation") or {}
        return {
            "downscale_factor": validation.get("reference_downscale_factor", 1),
            "temporal_scale_factor": 1,
            "include_in_output": validation.get("include_reference_in_output", True),
        }
    return {}


def _shown(config: Config, needed: Needed) -> Mapping[str, Any] | None:
    """Return the first such condition among the configuration's own validation samples."""
    samples = (config.get("validation") or {}).get("samples") or []
    every = (condition for sample in samples for condition in sample.get("conditions") or [])
    return next((c for c in every if c.get("type") == needed.type and all(key in c for key in needed.media)), None)


def conditions_of(needed: Iterable[Needed], sample: Sample, dataset: Path, faults: list[str]) -> list[dict[str, Any]]:
    """Return the conditions of one sample; what is missing goes to `faults`.

    Args:
        needed: of the mode.
        sample: the one whose media are taken.
        dataset: the folder its paths are relative to.
        faults: `place: reason`, to be raised all at once.
    """
    made = []
    for one in needed:
        media = {field: _media(what, sample, dataset, faults, one.type) for field, what in one.media.items()}
        made.append({"type": one.type, **media, **one.fields})
    return made


def _media(what: str, sample: Sample, dataset: Path, faults: list[str], condition: str) -> str:
    names = COLUMNS[what]
    value = next((sample.columns[name] for name in names if sample.columns.get(name)), None)
    if value is None:
        faults.append(f"{sample.where}: no {names[0]}, which {condition} needs")
        return ""
    path = dataset / str(value)  # an absolute path stays as it is
    if not path.is_file():
        faults.append(f"{sample.where}: {names[0]} {path}: no such file")
    return str(path)


def raise_faults(faults: list[str]) -> None:
    """Raise what `conditions_of` found.

    Raises:
        StageError: any fault, all at once.
    """
    if faults:
        hint = "the mode that was trained needs these media for every sample it renders"
        raise all_at_once("validation samples lack their media:", sorted(set(faults)), hint=hint)


def generates(config: Config, modality: Modality) -> bool:
    """Tell whether a run generates video or audio."""
    strategy = config.get("training_strategy") or {}
    if "video" in strategy or "audio" in strategy:
        return bool((strategy.get(modality) or {}).get("is_generated"))
    return modality == "video" or bool(strategy.get("with_audio"))
