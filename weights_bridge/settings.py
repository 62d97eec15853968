"""One dataclass, one TOML, one truth: recipe → file → flags → resolved settings, each value with its origin."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomlkit

from weights_bridge.errors import StageError, all_at_once, unknown_name
from weights_bridge.files import write_text


@dataclass
class ModelSettings:
    """Which model."""

    name: str = "smollm2-135m"  # a catalogue name, a Hugging Face directory or a hub id


@dataclass
class DataSettings:
    """How the data is shaped."""

    source: str = "npc-commands"  # a shipped set's name, a file, or a folder with one file per split
    max_tokens: int = 1024  # the longest row in tokens; longer ones are refused
    holdout_share: float = 0.2  # of a single file's rows; a folder brings its own splits
    valid_share: float = 0.1
    calibration_share: float = 0.1
    seed: int = 42


@dataclass
class AdapterSettings:
    """What is trained."""

    type: Literal["lora", "dora"] = "dora"
    rank: int = 16
    alpha: float = 16.0  # the effective scale is alpha / rank
    targets: list[str] = field(default_factory=lambda: ["all-linear"])


@dataclass
class TrainSettings:
    """How it is trained."""

    epochs: int = 3
    batch_rows: int = 16
    learning_rate: float = 5e-4
    weight_decay: float = 0.0
    warmup_updates: int = 4
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    gradient_clip: float = 0.0  # global L2 norm; 0 is off
    share_prefix: bool = True
    seed: int = 42


@dataclass
class ExportSettings:
    """What graph is written."""

    opset: int = 18
    dtype: Literal["fp32", "fp16"] = "fp32"
    batch: Literal["1", "dynamic"] = "1"
    sentis: Literal["2.4", "2.5", "2.6"] = "2.6"


@dataclass
class ParitySettings:
    """How the edges are measured."""

    fixture_rows: int = 3  # rendered rows of the training split, the longest among them
    greedy_tokens: int = 32
    seed: int = 42


@dataclass
class EvalSettings:
    """How the held-out rows are scored."""

    max_new_tokens: int = 32
    rows: int = 0  # the first N held-out rows only; 0 is all


@dataclass
class Settings:
    """Everything a run can be told."""

    model: ModelSettings = field(default_factory=ModelSettings)
    data: DataSettings = field(default_factory=DataSettings)
    adapter: AdapterSettings = field(default_factory=AdapterSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    export: ExportSettings = field(default_factory=ExportSettings)
    parity: ParitySettings = field(default_factory=ParitySettings)
    eval: EvalSettings = field(default_factory=EvalSettings)


@dataclass
class Resolved:
    """Settings with the origin of each value (`default`, `recipe`, `file NAME`, `flag`)."""

    settings: Settings
    origins: dict[str, str]

    def write(self, path: Path) -> None:
        """Write `config.toml`, each value with its origin as a comment."""
        document = tomlkit.document()
        document.add(tomlkit.comment("Resolved configuration; the comment says where a value comes from."))
        for section in dataclasses.fields(self.settings):
            table = tomlkit.table()
            values = getattr(self.settings, section.name)
            for item in dataclasses.fields(values):
                value = tomlkit.item(getattr(values, item.name))
                value.comment(self.origins.get(f"{section.name}.{item.name}", "default"))
                table.add(item.name, value)
            document.add(section.name, table)
        write_text(path, tomlkit.dumps(document))


def resolve(
    *,
    recipe: dict[str, dict[str, Any]] | None = None,
    file: Path | None = None,
    overrides: tuple[str, ...] = (),
) -> Resolved:
    """Merge recipe, file and `section.key=value` overrides, later ones winning.

    Args:
        recipe: section to key to value, from the model's own files.
        file: a TOML file of the same two levels.
        overrides: texts such as `train.batch_rows=8`.

    Raises:
        StageError: an unknown section or key, or a value of the wrong type; all of a source at once.
    """
    resolved = Resolved(Settings(), {})
    _apply(resolved, recipe or {}, "recipe")
    if file is not None:
        _apply(resolved, _read_toml(file), f"file {file.name}")
    for override in overrides:
        _apply(resolved, _parse_override(override), "flag")
    return resolved


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StageError(f"{path}: no such file", hint="give an existing TOML file with --config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StageError(f"{path}: not TOML: {error}", hint="see config.toml in any run folder for the form") from None


def _parse_override(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    section, dot, name = key.partition(".")
    if not (equals and dot):
        raise StageError(f"--set {text!r}: not of the form section.key=value", hint="example: --set train.epochs=2")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value  # a bare word is a string
    return {section: {name: parsed}}


def _apply(resolved: Resolved, values: dict[str, Any], origin: str) -> None:
    faults: list[str] = []
    sections = {f.name for f in dataclasses.fields(Settings)}
    for section, entries in values.items():
        if section not in sections:
            faults.append(str(unknown_name("section", section, sections)).replace("\n  hint:", ";"))
            continue
        if not isinstance(entries, dict):
            faults.append(f"{section}: found {entries!r}, wanted a table")
            continue
        target = getattr(resolved.settings, section)
        hints = get_type_hints(type(target))
        for name, value in entries.items():
            if name not in hints:
                faults.append(str(unknown_name("key", f"{section}.{name}", hints)).replace("\n  hint:", ";"))
                continue
            try:
                setattr(target, name, _checked(value, hints[name]))
            except ValueError as error:
                faults.append(f"{section}.{name}: found {value!r}, wanted {error}")
                continue
            resolved.origins[f"{section}.{name}"] = origin
    if faults:
        raise all_at_once(f"configuration ({origin}):", faults, hint="config.toml of any run folder lists all keys")


def _checked(value: Any, kind: Any) -> Any:
    origin = get_origin(kind)
    if origin is Literal:
        if isinstance(value, float | int) and not isinstance(value, bool):
            value = str(value)
        if value not in get_args(kind):
            raise ValueError(f"one of {', '.join(map(str, get_args(kind)))}")
        return value
    if origin is list:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items) or not items:
            raise ValueError("a list of texts")
        return items
    if origin in (typing.Union, types.UnionType):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is bool or isinstance(value, bool):
        if kind is bool and isinstance(value, bool):
            return value
        raise ValueError("true or false" if kind is bool else f"a {kind.__name__}")
    if not isinstance(value, kind):
        raise ValueError({int: "a whole number", float: "a number", str: "a text"}[kind])
    return value
