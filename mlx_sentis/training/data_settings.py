"""The settings `data.*` in a training: the data is shaped already, so they may only say what it was prepared with."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from weights_bridge.errors import StageError, UsedWronglyError, all_at_once
from weights_bridge.files import read_object
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import DataSettings, Resolved

DEFAULTS = DataSettings()


def prepared_with(run: RunFolder) -> dict[str, Any]:
    """Return the settings of `data` that a run's own files record, name to value."""
    contract, path = read_object(run.path("prompt_contract.json")), run.path("data", "dataset.json")
    dataset = read_object(path) if path.is_file() else {}
    window, near = dataset.get("window", {}), dataset.get("near_duplicates", {})
    found = {
        "train_turns": contract.get("train_turns", "all"),
        "max_tokens": window.get("max_tokens"),
        "too_long": window.get("too_long"),
        "near_duplicate": near.get("threshold"),
        "seed": dataset.get("seed"),
    }
    return {name: value for name, value in found.items() if value is not None}


def take_data_settings(run: RunFolder, resolved: Resolved, *, from_run: bool) -> None:
    """Refuse settings of `data` that the data contradicts, and put what it was prepared with in their place.

    A file that was written by a run lists every setting, so one that has its default there was not asked for.

    Args:
        run: with prepared data.
        resolved: the settings of the training; changed.
        from_run: the file is the run's own `config.toml`, which an earlier training wrote: nobody asked for its values.

    Raises:
        UsedWronglyError: a flag says something else than what the data was prepared with, or what nothing records.
        StageError: a file says something else.
    """
    known, faults, is_flag = prepared_with(run), [], False
    for one in fields(DataSettings):
        name, origin = f"data.{one.name}", resolved.origins.get(f"data.{one.name}", "default")
        found = getattr(resolved.settings.data, one.name)
        by_flag = origin == "flag"
        by_file = origin.startswith("file ") and not from_run and found != getattr(DEFAULTS, one.name)
        if one.name in known and (by_flag or by_file) and found != known[one.name]:
            faults.append(f"{name}: found {found!r} ({origin}), the data was prepared with {known[one.name]!r}")
            is_flag |= by_flag
        elif one.name not in known and by_flag:
            faults.append(f"{name}: found {found!r} ({origin}), a training shapes no data")
            is_flag = True
    if faults:
        hint = "give it to `mlx-sentis prepare`, or leave it out here"
        kind = UsedWronglyError if is_flag else StageError
        raise all_at_once(f"{run.path('data')}: settings that are not the data's:", faults, hint=hint, kind=kind)
    for name, value in known.items():
        if getattr(resolved.settings.data, name) != value:
            setattr(resolved.settings.data, name, value)
            resolved.origins[f"data.{name}"] = "prepared data"
