"""An LTX-2 trainer's workspace as it is found: configuration, captions, checkpoints, trigger word.

<workspace>/
  config.yaml                   what was trained
  dataset/dataset.json          captions and media of the trained samples
  dataset/holdout.jsonl         those kept back; may be missing
  outputs/checkpoints/          lora_weights_step_<N>.safetensors
  plan.md                       may name the trigger word
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.jsonl import lines_of
from weights_bridge.errors import StageError, all_at_once

CHECKPOINT = re.compile(r"(lora|model)_weights_step_(\d+)\.safetensors")
TRIGGER_ROW = re.compile(r"^\|\s*LoRA trigger word\s*\|\s*(.*?)\s*\|\s*$", re.MULTILINE | re.IGNORECASE)
NO_TRIGGER = ("", "n/a", "none", "-", "–", "—")
Config = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """One caption with its media.

    Attributes:
        caption: as it was trained, verbatim.
        columns: the whole row; paths are relative to `dataset/`.
        where: file and place, for errors.
    """

    caption: str
    columns: Mapping[str, Any]
    where: str


@dataclass(frozen=True)
class Workspace:
    """A workspace, read.

    Attributes:
        root: absolute.
        config: of `config.yaml`.
        trained: the trained samples.
        held_out: the samples kept back; empty when none were.
    """

    root: Path
    config: Config
    trained: list[Sample]
    held_out: list[Sample]

    @property
    def dataset(self) -> Path:
        return self.root / "dataset"

    @property
    def eval_folder(self) -> Path:
        return self.root / "outputs" / "eval"


def open_workspace(root: Path) -> Workspace:
    """Read a workspace.

    Raises:
        StageError: a part is missing or cannot be read.
    """
    root = root.absolute()
    return Workspace(root, read_config(root / "config.yaml"), *_samples(root / "dataset"))


def read_config(path: Path) -> Config:
    """Read a configuration as the trainer does.

    Raises:
        StageError: not there, or not a YAML mapping.
    """
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = "give the folder that holds config.yaml, dataset/ and outputs/"
        raise StageError(f"{path}: no such file", hint=hint) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StageError(f"{path}: not YAML: {' '.join(str(error).split())}", hint="mend the file") from None
    if not isinstance(found, dict):
        raise StageError(f"{path}: found no mapping at its top", hint="give the configuration that was trained with")
    return found


def write_config(path: Path, config: Config) -> None:
    """Write a configuration that the trainer reads back as it stands here."""
    import yaml

    from weights_bridge.files import write_text

    write_text(path, yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=110))


def _samples(dataset: Path) -> tuple[list[Sample], list[Sample]]:
    trained = _rows_of(dataset / "dataset.json")
    kept = dataset / "holdout.jsonl"
    held_out = _rows_of(kept) if kept.is_file() else []
    faults = [f"{row.where}: no caption" for row in [*trained, *held_out] if not row.caption.strip()]
    if faults:
        raise all_at_once(f"{dataset}: samples without a caption:", faults, hint="caption them")
    if not trained:
        raise StageError(f"{dataset / 'dataset.json'}: holds no sample", hint="give the data that was trained on")
    return trained, held_out


def _rows_of(path: Path) -> list[Sample]:
    """Return the samples of a JSON array or of JSON lines, whatever the file's name says."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise StageError(f"{path}: no such file", hint="give the workspace with the data that was trained on") from None
    except UnicodeDecodeError as error:
        raise StageError(f"{path}: not UTF-8 text (byte {error.start})", hint="save it again as UTF-8") from None
    except json.JSONDecodeError:
        rows: list[tuple[int, Any]] = [(number, item) for number, item in lines_of(path) if item is not None]
    else:
        rows = list(enumerate(whole, 1)) if isinstance(whole, list) else [(1, whole)]
    faults = [
        f"{path}:{number}: {'not an object' if not isinstance(i, str) else i}"
        for number, i in rows
        if not isinstance(i, dict)
    ]
    if faults:
        raise all_at_once(f"{path}: rows that cannot be read:", faults, hint="wanted objects with caption and media")
    return [Sample(str(row.get("caption") or ""), row, f"{path}:{number}") for number, row in rows]


def checkpoint_of(workspace: Workspace, wanted: str | None = None) -> Path:
    """Return the absolute path of the final weights, or of the step that the user asks for.

    Args:
        workspace: the workspace.
        wanted: a step; None is the last one of the configuration.

    Raises:
        StageError: they are not there. An earlier checkpoint is never taken in place of the final one.
    """
    folder = workspace.root / "outputs" / "checkpoints"
    kind = "model" if (workspace.config.get("model") or {}).get("training_mode") == "full" else "lora"
    found = {int(match[2]): path for path in sorted(folder.glob("*")) if (match := _match(path)) and match[1] == kind}
    steps = (workspace.config.get("optimization") or {}).get("steps")
    step = int(wanted) if wanted is not None and wanted.isdecimal() else steps
    if step in found and (wanted is None or wanted.isdecimal()):
        return found[step]
    known = ", ".join(map(str, sorted(found))) or "none"
    what = f"final checkpoint (step {steps})" if wanted is None else f"checkpoint {wanted}"
    hint = f"checkpoints there: {known}; `--checkpoint N` renders an earlier one, and only that"
    raise StageError(f"{folder}: the {what} is not there", hint=hint)


def _match(path: Path) -> re.Match[str] | None:
    return CHECKPOINT.fullmatch(path.name)


def trigger_of(workspace: Workspace) -> str | None:
    """Return the trigger word that `plan.md` records, None when there is none."""
    plan = workspace.root / "plan.md"
    found = TRIGGER_ROW.search(plan.read_text(encoding="utf-8", errors="replace")) if plan.is_file() else None
    word = found[1].strip("`\"' ") if found else ""
    return None if word.lower() in NO_TRIGGER else word
