"""Settings that the others leave without effect, and those that contradict each other."""

from __future__ import annotations

from dataclasses import fields

from weights_bridge.adapter_kinds import kind_of
from weights_bridge.errors import all_at_once
from weights_bridge.settings import AdapterSettings, Settings, TrainSettings

DEFAULTS = {"train": TrainSettings(), "adapter": AdapterSettings()}
MOMENTS = {"beta1", "beta2", "epsilon"}
# what each optimiser reads of these; Muon gives vectors to AdamW
READS = {
    "adamw": MOMENTS,
    "adam": MOMENTS,
    "sgd": {"momentum"},
    "adafactor": set[str](),
    "lion": {"beta1", "beta2"},
    "muon": MOMENTS | {"momentum"},
}


def require_agreeing(settings: Settings) -> None:
    """Refuse settings of which one asks for the opposite of another.

    Raises:
        StageError: all contradictions at once.
    """
    train, faults = settings.train, []
    if train.full and settings.adapter.quantise != "no":
        what = "quantised weights have no gradient"
        faults.append(f"train.full=true and adapter.quantise={settings.adapter.quantise}: {what}")
    if train.schedule != "constant" and train.final_learning_rate > train.learning_rate:
        rates = f"{train.final_learning_rate:g} is above train.learning_rate={train.learning_rate:g}"
        faults.append(f"train.final_learning_rate={rates}, where a {train.schedule} schedule begins to fall")
    if faults:
        raise all_at_once("settings that contradict each other:", faults, hint="leave one of them out")


def without_effect(settings: Settings) -> list[str]:
    """Return a line for each setting that was changed and does nothing beside the others."""
    train, adapter = settings.train, settings.adapter
    unread = sorted({*MOMENTS, "momentum"} - READS[train.optimizer])
    found = [_line("train", settings, name, f"{train.optimizer} has none") for name in unread]
    inverse = train.schedule == "inverse"
    for one in fields(TrainSettings):
        if one.name.startswith("inverse_") and not inverse:
            found.append(_line("train", settings, one.name, f"the schedule is {train.schedule}"))
    if inverse:
        found.append(_line("train", settings, "warmup_updates", "inverse has train.inverse_warmup"))
    if train.schedule == "constant":
        found.append(_line("train", settings, "final_learning_rate", "the schedule is constant"))
    if train.batch_tokens:
        found.append(_line("train", settings, "batch_rows", f"train.batch_tokens={train.batch_tokens} decides"))
    if train.full:
        names = [one.name for one in fields(AdapterSettings) if one.name != "quantise"]
        found += [_line("adapter", settings, name, "train.full=true trains all weights") for name in names]
    elif not kind_of(adapter.type).has_norm:
        found.append(_line("adapter", settings, "norm", f"{adapter.type} has no norms"))
    return [line for line in found if line]


def _line(section: str, settings: Settings, name: str, why: str) -> str:
    """Return the line of one setting, empty where it has its default: nobody asked for it."""
    value = getattr(getattr(settings, section), name)
    if value == getattr(DEFAULTS[section], name):
        return ""
    return f"{section}.{name}={value} has no effect: {why}"
