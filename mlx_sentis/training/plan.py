"""What a training will do, before it does it: what can be trained on, which rows each update takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_sentis.training.batches import plan_epoch, require_batch
from mlx_sentis.training.segments import read_tokens
from weights_bridge.errors import StageError, all_at_once, counted
from weights_bridge.files import read_jsonl
from weights_bridge.settings import TrainSettings

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """What a training run leaves.

    Attributes:
        best_step: the update whose validation loss was lowest.
        losses: training loss of each update of this process, nats per labelled token.
        valid_losses: validation loss after each epoch.
        prefix_tokens: how many prompt tokens were shared.
        tokens_computed: tokens that went through the model.
        tokens_plain: tokens that a padded batch without a shared prefix would have cost.
        seconds: over all processes of a resumed run.
        updates: done in all.
        estimate_gib, peak_gib: memory of the largest update as estimated before start, and MLX's measured peak.
    """

    best_step: int
    losses: list[float]
    valid_losses: list[float]
    prefix_tokens: int
    tokens_computed: int
    tokens_plain: int
    seconds: float
    updates: int
    estimate_gib: float
    peak_gib: float


def read_prepared(path: Path) -> Rows:
    """Read a split that `prepare` wrote.

    Raises:
        StageError: a line is no prepared row; all at once.
    """
    rows = read_jsonl(path)
    if faults := [f"line {number}" for number, row in enumerate(rows, 1) if not _is_row(row)]:
        hint = "restore the file, or prepare the data again"
        raise all_at_once(f"{path}: not a prepared row, with id, ids and trained:", faults, hint=hint)
    return rows


def _is_row(row: Any) -> bool:
    if not (isinstance(row, dict) and isinstance(row.get("id"), str)):
        return False
    ids, trained = row.get("ids"), row.get("trained")
    if not (isinstance(ids, list) and ids and all(type(one) is int and one >= 0 for one in ids)):
        return False
    return isinstance(trained, list) and all(
        isinstance(span, list) and len(span) == 2 and all(type(at) is int for at in span) for span in trained
    )


def require_trainable(rows: Rows, settings: TrainSettings, valid: Rows | None = None) -> None:
    """Refuse before anything is loaded when there is nothing to train on.

    Raises:
        StageError: no rows, rows without a label or with a label nothing precedes, fewer rows than a batch, or
            patience without validation rows.
    """
    if not rows:
        raise StageError("data/train.jsonl: no rows", hint="prepare a data file with at least one row")
    if empty := [row["id"] for row in rows if not row["trained"]]:
        raise StageError(f"data/train.jsonl: no trained token in {', '.join(empty[:5])}", hint="prepare the data again")
    if whole := [row["id"] for row in rows if row["trained"][0][0] < 1]:
        hint = "nothing comes before the first token that it could be predicted from"
        raise StageError(f"data/train.jsonl: the first token is trained in {', '.join(whole[:5])}", hint=hint)
    require_batch(len(rows), settings)
    if settings.patience and valid is not None and not valid:
        hint = "data.valid_share=0.1 holds some back; or train.patience=0"
        raise StageError(f"train.patience={settings.patience}: there are no validation rows to judge by", hint=hint)


def plan_updates(rows: Rows, settings: TrainSettings, epoch: int) -> list[list[list[int]]]:
    """Return the micro-batches of each update of an epoch; what is left at its end is an update too.

    The first epoch opens with its largest update: when memory runs out it does so before anything is saved and not
    after an hour.

    Args:
        rows: the training rows.
        settings: `accumulate`, and what `plan_epoch` reads.
        epoch: counted from 0.
    """
    plan = plan_epoch(rows, settings, epoch)
    groups = [plan[start : start + settings.accumulate] for start in range(0, len(plan), settings.accumulate)]
    if epoch == 0:
        largest = max(range(len(groups)), key=lambda i: max(_size(rows, chosen) for chosen in groups[i]))
        groups.insert(0, groups.pop(largest))
    return groups


def count_updates(rows: Rows, settings: TrainSettings) -> int:
    """Return how many updates all epochs have; by rows each has as many, a token budget depends on the order."""
    if settings.batch_tokens:
        return sum(len(plan_updates(rows, settings, epoch)) for epoch in range(settings.epochs))
    batches = -(-len(rows) // settings.batch_rows)
    return settings.epochs * -(-batches // settings.accumulate)


def leftovers(rows: Rows, settings: TrainSettings) -> str:
    """Return in words what is smaller at an epoch's end, empty when everything comes out even."""
    plan = plan_epoch(rows, settings, 0)
    found = []
    if not settings.batch_tokens and (few := len(rows) % settings.batch_rows):
        found.append(f"a batch of {counted(few, 'row')} instead of {settings.batch_rows}")
    if few := len(plan) % settings.accumulate:
        micro = "1 micro-batch" if few == 1 else f"{few} micro-batches"
        found.append(f"an update of {micro} instead of {settings.accumulate}")
    return f"each epoch has {' and '.join(found)}: what is left over is trained too" if found else ""


def share_of(rows: Rows, chosen: list[int], rank: int, size: int) -> list[int]:
    """Return the row indices of a micro-batch that one of several processes takes.

    Rows of similar length go to different processes, so that all have about as much to do. Where there are more
    processes than rows, the last ones get none.

    Args:
        rows: the training rows.
        chosen: row indices of the micro-batch.
        rank: of the process, from 0.
        size: how many processes there are; one takes everything as it stands.
    """
    if size == 1:
        return chosen
    return sorted(chosen, key=lambda i: read_tokens(rows[i]))[rank::size]


def require_shares(rows: Rows, settings: TrainSettings, size: int) -> None:
    """Refuse micro-batches with fewer rows than there are processes; what is left at an epoch's end may have fewer.

    Raises:
        StageError: most of the time some processes would have nothing to do.
    """
    counts = [len(chosen) for chosen in plan_epoch(rows, settings, 0)]
    few = sum(count < size for count in counts)
    if few > 1 or few == len(counts):
        budget = settings.batch_tokens
        setting = f"train.batch_tokens={budget}" if budget else f"train.batch_rows={settings.batch_rows}"
        what = f"{setting}: {few} of {len(counts)} batches have fewer rows than the {size} processes"
        more = f"--set train.batch_tokens={budget * size}" if budget else f"--set train.batch_rows={size}"
        raise StageError(what, hint=f"{more} or more, or start fewer processes")


def _size(rows: Rows, chosen: list[int]) -> int:
    return len(chosen) * max(read_tokens(rows[i]) for i in chosen)


def largest_batch(rows: Rows, settings: TrainSettings) -> list[int]:
    """Return the row indices of the first epoch's largest micro-batch."""
    return max(plan_updates(rows, settings, 0)[0], key=lambda chosen: _size(rows, chosen))
