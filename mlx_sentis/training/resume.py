"""The state of a training between two updates: taking it, putting it back, and what it must be of.

A resumed run goes on as if it had never stopped: trained tensors, optimiser, MLX's random key, the place in the
data, the schedule's update and the figures behind `best` and `patience` all come back. States are only taken
between updates, so the gradients of micro-batches that a kill cut off are computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import mlx.core as mx
import mlx.optimizers as optimizers
from mlx.utils import tree_flatten, tree_map_with_path

from mlx_sentis.training.adapters import adapter_tensors
from mlx_sentis.training.checkpoints import STATE, STATE_ARRAYS
from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.sharing import Sharing, rule_of
from mlx_sentis.training.state_checks import array_faults, document_faults
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import read_json
from weights_bridge.settings import Settings

SCHEMA = "mlx-sentis/checkpoint/2"
# what a resume may change: none of it alters an update that is already done. More epochs stretch a schedule that
# ends with the run (linear, cosine) from the resumed update on.
MAY_CHANGE = {"epochs", "save_every", "keep_last", "patience", "memory_limit_gib", "cache_limit_gib"}


@dataclass
class Progress:
    """Where a training stands between two updates.

    Attributes:
        step: updates done.
        epoch: the running epoch, from 0.
        position: updates done in it; rows are planned from seed and epoch, so this is the place in the data.
        best_score, best_step: the lowest validation loss so far (training loss without validation rows) and where.
        stale_epochs: epochs since then.
        first_loss, last_loss: training losses, nats per labelled token.
        valid_losses: after each epoch.
        tokens_computed, tokens_plain: sums over the updates.
        seconds: spent training, over all processes.
        finished: nothing is left to do.
    """

    step: int = 0
    epoch: int = 0
    position: int = 0
    best_score: float | None = None
    best_step: int = 0
    stale_epochs: int = 0
    first_loss: float | None = None
    last_loss: float | None = None
    valid_losses: list[float] = field(default_factory=list)
    tokens_computed: int = 0
    tokens_plain: int = 0
    seconds: float = 0.0
    finished: bool = False

    CURSOR = ("epoch", "position")


def origin_of(settings: Settings, hashes: Mapping[str, str], model: CausalLM, *, processes: int = 1) -> dict[str, Any]:
    """Return what a state is of: settings, files, and the layout of what is trained.

    Args:
        settings: of `adapter` and `train`.
        hashes: name to SHA-256 of data, recipe and base weights.
        model: trainable as the settings say.
        processes: how many train together; it decides which rows are summed first.
    """
    layout = {name: list(array.shape) for name, array in adapter_tensors(model).items()}
    chosen = {"train": asdict(settings.train), "adapter": asdict(settings.adapter)}
    origin = {"settings": chosen, "files": dict(hashes), "trained": layout}
    return origin if processes == 1 else origin | {"processes": processes}


def take_state(
    progress: Progress, origin: Mapping[str, Any], model: CausalLM, optimizer: optimizers.Optimizer, sharing: Sharing
) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """Return the JSON part and the fp32 arrays of a state."""
    figures = asdict(progress)
    cursor = {name: figures.pop(name) for name in Progress.CURSOR} | {"micro_batches_of_next_update": 0}
    flat: list[tuple[str, mx.array]] = tree_flatten(optimizer.state)  # pyright: ignore
    whole = {name: int(array.item()) for name, array in flat if array.dtype != mx.float32}  # pyright: ignore
    arrays = {f"trained.{name}": array for name, array in adapter_tensors(model).items()}
    arrays |= {f"optimizer.{name}": array for name, array in flat if name not in whole}
    state = {"schema": SCHEMA, **figures, "cursor": cursor, "rng": random_key(), "optimizer": whole}
    return state | {"sharing": rule_of(sharing), "made_from": dict(origin)}, arrays


def random_key() -> list[int]:
    """Return MLX's global random key, two words of 32 bits."""
    return [int(word) for word in mx.random.state[0].tolist()]  # pyright: ignore


def set_random_key(words: list[int]) -> None:
    """Put MLX's global random key back: a seed is its two words side by side."""
    mx.random.seed(words[0] << 32 | words[1])


@dataclass(frozen=True)
class SavedState:
    """A state on disk."""

    folder: Path
    document: dict[str, Any]

    @property
    def progress(self) -> Progress:
        """Where the training stands."""
        known = {one.name for one in fields(Progress)} - set(Progress.CURSOR)
        figures = {name: value for name, value in self.document.items() if name in known}
        return Progress(**figures, **{name: self.document["cursor"][name] for name in Progress.CURSOR})

    @property
    def sharing(self) -> dict[str, float] | None:
        """The rule by which rows share; None in a state of an older version."""
        return self.document.get("sharing")

    def put_back(self, model: CausalLM, optimizer: optimizers.Optimizer) -> None:
        """Give model, optimiser and random state what the file holds.

        Args:
            model: trainable, of the layout that `require_same` has checked.
            optimizer: initialised for it.

        Raises:
            StageError: the file is damaged, or lacks something; all at once.
        """
        arrays = self._arrays()
        whole = self.document["optimizer"]
        missing: list[str] = []

        def saved(name: str, now: mx.array) -> mx.array:
            array = arrays.get(name)
            if array is None or array.shape != now.shape or array.dtype != now.dtype:
                missing.append(name)
                return now
            return array

        def of_optimizer(name: str, now: mx.array) -> mx.array:
            return mx.array(whole[name], now.dtype) if name in whole else saved(f"optimizer.{name}", now)

        trained = [(name, saved(f"trained.{name}", now)) for name, now in adapter_tensors(model).items()]
        found: Any = tree_map_with_path(of_optimizer, dict(optimizer.state))
        if missing:
            hint = "without them a resume would not be exact: train without --resume"
            raise all_at_once(f"{self.folder / STATE_ARRAYS}: not there, or of another shape:", missing, hint=hint)
        model.network.load_weights(trained, strict=False)
        optimizer.state.update(found)  # in place: a compiled step refers to it
        mx.eval(model.network.parameters(), optimizer.state)
        set_random_key(self.document["rng"])

    def _arrays(self) -> dict[str, mx.array]:
        path = self.folder / STATE_ARRAYS
        try:
            return mx.load(str(path))  # pyright: ignore
        except (RuntimeError, ValueError, OSError) as error:
            raise StageError(f"{path}: cannot be read: {error}", hint="train without --resume") from None


def last_state(checkpoints: Path) -> SavedState | None:
    """Return the newest state of a run, or None when it has none.

    Raises:
        StageError: its document is none.
    """
    path = checkpoints / "last" / STATE
    if not path.is_file():
        return None
    if not isinstance(document := read_json(path), dict):
        raise StageError(f"{path}: not a state", hint="train without --resume")
    return SavedState(path.parent.resolve(), document)


def require_state(checkpoints: Path) -> SavedState:
    """Return the newest state of a run, whole.

    Raises:
        StageError: there is none, or parts of it are missing, all named.
    """
    state = last_state(checkpoints)
    if state is None:
        hint = "train without --resume; checkpoints of an older version hold no state"
        raise StageError(f"{checkpoints}/last/{STATE}: nothing to resume from", hint=hint)
    if state.document.get("schema") != SCHEMA:
        found = state.document.get("schema")
        raise StageError(f"{state.folder}: found {found}, wanted {SCHEMA}", hint="train without --resume")
    kinds = get_type_hints(Progress)
    figures = {one.name: kinds[one.name] for one in fields(Progress) if one.name not in Progress.CURSOR}
    faults = [f"{STATE}: {fault}" for fault in document_faults(state.document, figures, Progress.CURSOR)]
    faults += array_faults(state.document, state.folder / STATE_ARRAYS)
    if faults:
        hint = "without it a resume would not be exact: resume from a whole checkpoint, or train again"
        raise all_at_once(f"{state.folder}: the state lacks:", faults, hint=hint)
    return state


def differences(state: SavedState, origin: Mapping[str, Any]) -> list[str]:
    """Return what forbids to go on from a state, one line each: data, recipe, base weights, settings, layout.

    Args:
        state: on disk.
        origin: of the run that wants to go on, see `origin_of`.
    """
    before = state.document["made_from"]
    faults = []
    for name in sorted(before["files"].keys() | origin["files"].keys()):
        found, wanted = origin["files"].get(name), before["files"].get(name)
        if found != wanted:
            faults.append(f"{name}: sha256 found {_short(found)}, the state was made with {_short(wanted)}")
    for section, values in before["settings"].items():
        now = origin["settings"][section]
        free = MAY_CHANGE if section == "train" else set()
        for name in sorted((values.keys() | now.keys()) - free):
            if now.get(name) != values.get(name):
                faults.append(f"{section}.{name}: found {now.get(name)!r}, the state has {values.get(name)!r}")
    was, now = before.get("processes", 1), origin.get("processes", 1)
    if was != now:
        faults.append(f"processes: found {now}, the state was made by {was}")
    faults += layout_differences(before["trained"], origin["trained"])
    return faults


def layout_differences(before: Mapping[str, list[int]], now: Mapping[str, list[int]]) -> list[str]:
    """Return which trained tensors differ, one line each."""
    faults = [f"trained tensor {name}: the state does not have it" for name in now.keys() - before.keys()]
    faults += [f"trained tensor {name}: only in the state" for name in before.keys() - now.keys()]
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            faults.append(f"trained tensor {name}: found shape {now[name]}, the state has {before[name]}")
    return faults


def require_same(state: SavedState, origin: Mapping[str, Any]) -> None:
    """Refuse to go on with anything else than what the state was made from.

    Raises:
        StageError: data, recipe, base weights, settings or layout differ; all at once, by name.
    """
    if faults := differences(state, origin):
        hint = (
            f"put it back, or train without --resume; a resume may change train.{', train.'.join(sorted(MAY_CHANGE))}"
        )
        raise all_at_once(f"{state.folder}: cannot go on from this state:", faults, hint=hint)


def _short(digest: str | None) -> str:
    return f"{digest[:12]}…" if digest else "none"
