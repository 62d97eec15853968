"""One dataclass, one TOML, one truth: recipe → file → flags → resolved settings, each value with its origin."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomlkit

from weights_bridge.errors import StageError, UsedWronglyError, all_at_once, unknown_name
from weights_bridge.files import write_text
from weights_bridge.sentis_version import minor_version

AdapterType = Literal[
    "lora", "rslora", "dora", "dora-rows", "dora-cols", "bora", "lora-xs", "dora-rows-xs", "dora-cols-xs", "bora-xs"
]
SEEDS = 2**63 - 1  # what TOML holds; MLX and numpy take more
PETABYTE_GIB = 2.0**20
KINDS = {int: "a whole number", float: "a number", str: "a text"}


def at_least(default: Any, least: float, most: float = math.inf) -> Any:
    """Declare a number with its smallest allowed value, and its greatest where there is one."""
    return field(default=default, metadata={"least": least, "most": most})


def above_zero(default: float, most: float = math.inf) -> Any:
    """Declare a number that must be greater than 0, and at most `most`."""
    return field(default=default, metadata={"least": math.ulp(0.0), "most": most})


def share_below_one(default: float) -> Any:
    """Declare a number from 0 to just below 1."""
    return field(default=default, metadata={"least": 0.0, "below": 1.0})


def read_by(reader: Callable[[str], str], default: str) -> Any:
    """Declare a choice that is written in more than one way: the reader gives the way that is kept."""
    return field(default=default, metadata={"reader": reader})


@dataclass
class ModelSettings:
    """Which model."""

    name: str = "smollm2-135m"  # a catalogue name, a Hugging Face directory or a hub id


@dataclass
class DataSettings:
    """How the data is shaped."""

    source: str = "npc-commands"  # a shipped set's name, a file, or a folder with one file per split
    format: str = "auto"  # messages, command, completion, alpaca, …; auto looks at the rows
    map: list[str] = field(default_factory=list)  # FIELD=COLUMN, where the rows name their fields otherwise
    skip_bad: bool = False  # leave bad rows out and list them, instead of refusing the source
    max_tokens: int = at_least(1024, 2)  # the longest row in tokens
    too_long: Literal["refuse", "drop", "left"] = "refuse"  # longer rows; left cuts the beginning of their prompt
    train_turns: Literal["all", "last"] = "all"  # which assistant turns of a conversation are trained
    near_duplicate: float = above_zero(0.8, most=1)  # Jaccard similarity from which two texts stay on one side
    holdout_share: float = at_least(0.2, 0)  # of a single file's rows; a folder brings its own splits
    valid_share: float = at_least(0.1, 0)
    calibration_share: float = at_least(0.1, 0)
    seed: int = at_least(42, 0, SEEDS)


@dataclass
class AdapterSettings:
    """What is trained. Patterns name modules as `targets` does."""

    type: AdapterType = "dora"
    rank: int = at_least(16, 1)
    alpha: float = above_zero(16.0)  # the effective scale is alpha / rank, for rslora alpha / √rank
    targets: list[str] = field(default_factory=lambda: ["all-linear"])  # names, *, [i-j], re:…
    exclude: list[str] = field(default_factory=list)  # of the targets, in the same forms
    rank_pattern: dict[str, int] = field(default_factory=dict)  # pattern to rank, the first match wins
    alpha_pattern: dict[str, float] = field(default_factory=dict)  # pattern to alpha
    dropout: float = share_below_one(0.0)  # of the adapter's input, in training only
    norm: Literal["detached", "attached"] = "detached"  # whether gradients flow through the norms of DoRA and BoRA
    quantise: Literal["no", "2", "3", "4", "5", "6", "8", "mxfp4", "mxfp8", "nvfp4"] = "no"  # the frozen weights


@dataclass
class TrainSettings:
    """How it is trained."""

    epochs: int = at_least(3, 1, 100_000)
    batch_rows: int = at_least(8, 1)  # rows of a micro-batch
    batch_tokens: int = at_least(0, 0)  # tokens of a micro-batch instead of rows; 0: by rows
    buckets: bool = False  # rows of similar length share a micro-batch; where classes differ in length, so do batches
    accumulate: int = at_least(1, 1)  # micro-batches of one update; what is left at an epoch's end is an update too
    optimizer: Literal["adamw", "adam", "sgd", "adafactor", "lion", "muon"] = "adamw"
    learning_rate: float = above_zero(2e-3)
    weight_decay: float = at_least(0.0, 0)
    beta1: float = share_below_one(0.9)  # decay of the first moment: adamw, adam, lion
    beta2: float = share_below_one(0.999)  # decay of the second moment: adamw, adam, lion
    epsilon: float = above_zero(1e-8)  # added to the root of the second moment: adamw, adam
    momentum: float = share_below_one(0.9)  # sgd, muon
    warmup_updates: int = at_least(8, 0)  # linear; inverse has a warm-up of its own
    schedule: Literal["constant", "linear", "cosine", "inverse"] = "cosine"
    inverse_gamma: float = above_zero(1e6)  # InverseLR: updates after which the rate has fallen by 2^-inverse_power
    inverse_power: float = at_least(0.5, 0)
    inverse_warmup: float = share_below_one(0.0)  # InverseLR: update k is scaled by 1 - inverse_warmup^(k + 1)
    final_learning_rate: float = at_least(0.0, 0)  # where linear, cosine and inverse end
    gradient_clip: float = at_least(1.0, 0)  # global L2 norm; 0 is off
    share_prefix: bool = True
    full: bool = False  # train the model's own weights instead of an adapter
    checkpoint_activations: bool = False  # compute each layer again in the backward pass instead of keeping it
    save_every: int = at_least(0, 0)  # a checkpoint every so many updates; 0: at the end of each epoch only
    keep_last: int = at_least(0, 0)  # checkpoints to keep beside best; 0 keeps all
    patience: int = at_least(0, 0)  # epochs without a better validation loss after which training ends; 0 is off
    memory_limit_gib: float = at_least(0.0, 0, PETABYTE_GIB)  # 0: what the machine has
    cache_limit_gib: float = at_least(0.0, 0, PETABYTE_GIB)  # freed arrays MLX may keep for reuse; 0: MLX decides
    seed: int = at_least(42, 0, SEEDS)


@dataclass
class ExportSettings:
    """What graph is written."""

    opset: int = 18
    dtype: Literal["fp32", "fp16"] = "fp32"
    batch: Literal["1", "dynamic"] = "1"
    sentis: Literal["2.4", "2.5", "2.6"] = read_by(minor_version, "2.6")
    argmax: bool = False  # also put out the likeliest next token's id: logits need not leave the device


@dataclass
class ParitySettings:
    """How the edges are measured."""

    fixture_rows: int = at_least(3, 1)  # rendered rows of the training split, the longest among them
    greedy_tokens: int = at_least(32, 1)
    seed: int = at_least(42, 0, SEEDS)


@dataclass
class EvalSettings:
    """How the held-out rows are scored."""

    max_new_tokens: int = at_least(32, 1)
    rows: int = at_least(0, 0)  # the first N held-out rows only; 0 is all


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
                value = _toml_item(getattr(values, item.name))
                value.comment(self.origins.get(f"{section.name}.{item.name}", "default"))
                table.add(item.name, value)
            document.add(section.name, table)
        write_text(path, tomlkit.dumps(document))


def _toml_item(value: Any) -> Any:
    """Return a value for the file; a table of patterns stays on its line, so that a comment fits beside it."""
    if not isinstance(value, dict):
        return tomlkit.item(value)
    inline = tomlkit.inline_table()
    inline.update(value)
    return inline


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
        UsedWronglyError: an override has an unknown section or key, or a value of the wrong type or size; all at once.
        StageError: the same in the file.
    """
    resolved = Resolved(Settings(), {})
    _apply(resolved, recipe or {}, "recipe")
    if file is not None:
        _apply(resolved, _read_toml(file), f"file {file.name}")
    flags: dict[str, dict[str, Any]] = {}
    for override in overrides:
        section, name, value = _parse_override(override)
        flags.setdefault(section, {})[name] = value
    _apply(resolved, flags, "flag")
    return resolved


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StageError(f"{path}: no such file", hint="give an existing TOML file") from None
    except OSError as error:
        raise StageError(f"{path}: cannot be read: {error.strerror}", hint="give a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StageError(f"{path}: not TOML: {error}", hint="see config.toml in any run folder for the form") from None


def _parse_override(text: str) -> tuple[str, str, Any]:
    key, equals, value = text.partition("=")
    section, dot, name = key.partition(".")
    if not (equals and dot):
        wanted = f"--set {text!r}: not of the form section.key=value"
        raise UsedWronglyError(wanted, hint="example: --set train.epochs=2")
    if _is_text(section, name) and value[:1] not in ("'", '"'):
        return section, name, value  # a model called 42 needs no quotes
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value  # a bare word is a string
    return section, name, parsed


def _is_text(section: str, name: str) -> bool:
    known = {f.name: f.default_factory for f in dataclasses.fields(Settings)}
    return section in known and get_type_hints(known[section]).get(name) is str


def _apply(resolved: Resolved, values: dict[str, Any], origin: str) -> None:
    faults: list[str] = []
    sections = {f.name for f in dataclasses.fields(Settings)}
    for section, entries in values.items():
        if section not in sections:
            faults.append(_unknown("section", section, sections))
            continue
        if not isinstance(entries, dict):
            faults.append(f"{section}: found {entries!r}, wanted a table")
            continue
        target = getattr(resolved.settings, section)
        hints = get_type_hints(type(target))
        fields = {f.name: f for f in dataclasses.fields(target)}
        for name, value in entries.items():
            if name not in hints:
                faults.append(_unknown("key", f"{section}.{name}", [f"{section}.{key}" for key in hints]))
                continue
            try:
                setattr(target, name, _in_range(_checked(value, hints[name], fields[name]), fields[name].metadata))
            except ValueError as error:
                faults.append(f"{section}.{name}: found {value!r}, wanted {error}")
                continue
            resolved.origins[f"{section}.{name}"] = origin
    if faults:
        error = UsedWronglyError if origin == "flag" else StageError
        hint = "config.toml of any run folder lists all keys"
        raise all_at_once(f"configuration ({origin}):", faults, hint=hint, kind=error)


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return str(unknown_name(kind, name, known)).replace("\n  hint:", ";")


def _checked(value: Any, kind: Any, declared: dataclasses.Field[Any]) -> Any:
    origin = get_origin(kind)
    if origin is Literal:
        if isinstance(value, float | int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and "reader" in declared.metadata:
            value = declared.metadata["reader"](value)
        if value not in get_args(kind):
            raise ValueError(f"one of {', '.join(map(str, get_args(kind)))}")
        return value
    if origin is list:
        items = value.split(",") if isinstance(value, str) else value
        may_be_empty = declared.default_factory is list
        if (
            not isinstance(items, list)
            or not all(isinstance(item, str) for item in items)
            or not (items or may_be_empty)
        ):
            raise ValueError("a list of texts")
        return items
    if origin is dict:
        return _checked_table(value, get_args(kind)[1], declared)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is bool or isinstance(value, bool):
        if kind is bool and isinstance(value, bool):
            return value
        raise ValueError("true or false" if kind is bool else KINDS[kind])
    if not isinstance(value, kind):
        raise ValueError(KINDS[kind])
    return value


def _checked_table(value: Any, kind: type, declared: dataclasses.Field[Any]) -> dict[str, Any]:
    """Return a table of numbers above 0; `a.b = 4` in TOML is a table in a table, and means the name `a.b`."""
    wanted = f"a table of pattern to {KINDS[kind]} above 0"
    if not isinstance(value, dict):
        raise ValueError(wanted)
    table: dict[str, Any] = {}
    for name, entry in value.items():
        inner = _checked_table(entry, kind, declared) if isinstance(entry, dict) else {"": entry}
        for rest, number in inner.items():
            if isinstance(number, bool) or not isinstance(number, int | kind) or not 0 < number < math.inf:
                raise ValueError(wanted)
            table[f"{name}.{rest}" if rest else name] = kind(number)
    return table


def _in_range(value: Any, limits: Mapping[str, float]) -> Any:
    least, most = limits.get("least", -math.inf), limits.get("most", math.inf)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number")
    if isinstance(value, int | float) and not least <= value <= most:
        up_to = f", at most {most:g}" if most < math.inf else ""
        raise ValueError(("a number above 0" if 0 < least < 1 else f"{least:g} or more") + up_to)
    if "below" in limits and value >= limits["below"]:
        raise ValueError(f"less than {limits['below']:g}")
    return value
