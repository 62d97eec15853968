"""Splits: cut once, before training, by seed and by class; nothing that says almost the same stands on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mlx_sentis.prepare.index import RowIndex
from mlx_sentis.prepare.sources import SPLITS
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, UsedWronglyError, all_at_once, counted
from weights_bridge.settings import DataSettings

# Too few groups of a class for every split: it is trained first, then tested, then validated.
ORDER_WHEN_FEW = ("train", "holdout", "valid", "calibration")
TRAIN = SPLITS.index("train")


def shares_of(settings: DataSettings) -> dict[str, float]:
    """Return split to its share of the rows, in [0, 1); training keeps the rest.

    Raises:
        UsedWronglyError: a share below 0, or nothing left to train.
    """
    shares = {
        "valid": settings.valid_share,
        "calibration": settings.calibration_share,
        "holdout": settings.holdout_share,
    }
    if min(shares.values()) < 0 or sum(shares.values()) >= 1:
        found = ", ".join(f"data.{name}_share = {share:g}" for name, share in shares.items())
        what = f"{found}: wanted shares from 0 that leave rows to train"
        raise UsedWronglyError(what, hint="their sum must be below 1")
    return shares


def cut(index: RowIndex, groups: Array, shares: Mapping[str, float]) -> Array:
    """Cut the training rows into train and the splits of `shares`, each class by itself; groups stay whole.

    A group belongs to the rarest of its classes. The order in which a class is dealt out is that of the texts' numbers,
    which are hashes of seed and text, so the same rows in another order are cut the same way.

    Args:
        index: all rows; those given in another split stay there.
        groups: [rows] a number per row; rows with one number stay together.
        shares: split to share of the rows; a class with enough groups gives at least one to each.

    Returns:
        [rows] uint8, a place in `SPLITS`.

    Raises:
        StageError: too few groups for a split whose share is above 0.
    """
    splits = index.splits
    pool = np.flatnonzero(splits == TRAIN)
    _, unit = np.unique(groups[pool], return_inverse=True)
    sizes, classes = np.bincount(unit), _classes(index, pool, unit)
    order = np.lexsort((_least(index.texts[pool], unit), classes))
    places = np.empty(len(sizes), np.uint8)
    rare: list[int] = []
    for members in np.split(order, np.flatnonzero(np.diff(classes[order])) + 1):
        places[members] = _dealt(sizes[members].tolist(), shares)
        rare += members.tolist() if len(members) <= len(ORDER_WHEN_FEW) else []
    _fill(places, sizes, rare, shares)
    splits[pool] = places[unit]
    _require_rows(splits, index, len(sizes), shares)
    return splits


def _classes(index: RowIndex, pool: Array, unit: Array) -> Array:
    """Return the class of each group as a rank: the rarest class is 0, names decide between equals."""
    kinds = index.kind_numbers[pool]
    rows = np.bincount(kinds, minlength=len(index.kinds))
    rank = np.empty(len(index.kinds), np.int64)
    rank[sorted(range(len(rank)), key=lambda kind: (rows[kind], index.kinds[kind]))] = np.arange(len(rank))
    return _least(rank[kinds], unit)


def _least(values: Array, unit: Array) -> Array:
    """Return the least value of each group."""
    least = np.full(int(unit.max()) + 1 if len(unit) else 0, np.iinfo(values.dtype).max, values.dtype)
    np.minimum.at(least, unit, values)
    return least


def _dealt(sizes: Sequence[int], shares: Mapping[str, float]) -> list[int]:
    """Return the split of each group of one class.

    Args:
        sizes: rows in each group, in the order in which they are dealt.
        shares: split to share of the rows.
    """
    wanted = [split for split in ORDER_WHEN_FEW if split == "train" or shares.get(split, 0) > 0]
    dealt = [TRAIN] * len(sizes)
    if len(sizes) <= len(wanted):
        largest_first = sorted(range(len(sizes)), key=lambda at: -sizes[at])
        for at, split in zip(largest_first, wanted, strict=False):
            dealt[at] = SPLITS.index(split)
        return dealt
    left = list(range(len(sizes)))
    for split, rows in _rows_wanted(sum(sizes), wanted, shares).items():
        taken = _taken(left, sizes, rows)
        for at in taken:
            dealt[at] = SPLITS.index(split)
        left = sorted(set(left) - set(taken))
    return dealt


def _rows_wanted(rows: int, wanted: Sequence[str], shares: Mapping[str, float]) -> dict[str, int]:
    """Return how many of a class's rows each split but train should get; train keeps at least one."""
    counts = {split: max(1, int(rows * shares[split] + 0.5)) for split in wanted if split != "train"}
    while sum(counts.values()) >= rows:  # the least of each may ask for more than there is
        counts[max(counts, key=lambda split: counts[split])] -= 1
    return counts


def _taken(left: Sequence[int], sizes: Sequence[int], rows: int) -> list[int]:
    """Return the groups, in order, that fit into `rows`; where none does, the smallest that is not the greater part."""
    taken, room = [], rows
    for at in left:
        if sizes[at] <= room:
            taken.append(at)
            room -= sizes[at]
    smallest = min(left, key=lambda at: sizes[at])
    if not taken and rows and 2 * sizes[smallest] <= sum(sizes[at] for at in left):
        return [smallest]
    return taken


def _fill(places: Array, sizes: Array, rare: Sequence[int], shares: Mapping[str, float]) -> None:
    """Give splits that got less than half of their share groups of rare classes, which are all trained so far.

    A data set of hundreds of tools with a row or two each would have nothing to test otherwise.

    Args:
        places: [groups] the split of each; changed.
        sizes: [groups] rows in each.
        rare: groups of classes with too few for every split, in the order in which they are dealt.
        shares: split to share of the rows.
    """
    for split in ORDER_WHEN_FEW[1:]:
        number, wanted = SPLITS.index(split), shares.get(split, 0) * sizes.sum()
        found = sizes[places == number].sum()
        if 2 * found >= wanted:
            continue
        for group in rare:
            if places[group] == TRAIN and found + sizes[group] <= wanted + 0.5 and (places == TRAIN).sum() > 1:
                places[group] = number
                found += sizes[group]


def _require_rows(splits: Array, index: RowIndex, groups: int, shares: Mapping[str, float]) -> None:
    found = np.bincount(splits, minlength=len(SPLITS))
    empty = [name for name, rows in zip(SPLITS, found, strict=True) if not rows and shares.get(name, name == "train")]
    if not empty:
        return
    texts = len(np.unique(index.texts[index.splits == TRAIN]))
    alike = groups < texts
    what = "1 row" if texts == 1 else f"{texts} rows with different texts"
    what += f" in {counted(groups, 'group')} that say the same" if alike else ""
    hint = "add rows, or give a folder with one file per split"
    hint += "; a higher data.near_duplicate makes smaller groups" if alike else ""
    raise StageError(
        f"{what} {'is' if texts == 1 else 'are'} too few to cut: nothing left for {', '.join(empty)}", hint=hint
    )


def check_no_leak(index: RowIndex) -> None:
    """Require that no text stands in two given splits.

    Raises:
        StageError: every such text with both places.
    """
    if leaks := exact_leaks(index):
        hint = "a held-out row that was trained scores nothing: take one of each pair out"
        raise all_at_once(f"{counted(len(leaks), 'text')} in two splits:", leaks, hint=hint)


def exact_leaks(index: RowIndex) -> list[str]:
    """Return a line for every row whose text an earlier split has, with both places."""
    _, firsts, inverse = np.unique(index.texts, return_index=True, return_inverse=True)
    splits, leaks = index.splits, []
    leaked = np.flatnonzero(splits != splits[firsts[inverse]])
    for row, first in zip(leaked.tolist(), firsts[inverse[leaked]].tolist(), strict=True):
        source, text, _ = index.shown(row)
        leaks.append(f"{source} and {index.shown(first)[0]}: the same text {text[:60]!r}")
    return leaks


def repeats(index: RowIndex, splits: Array) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """Find rows that repeat the prompt of an earlier row of their split.

    Args:
        index: all rows.
        splits: [rows] the split of each.

    Returns:
        Split to how many rows repeat prompt and answer of an earlier one, and pairs (first row of a prompt, later row)
        whose answers differ.
    """
    prompts, answers = index.prompts, index.answers
    known = np.unique(np.stack([splits.astype(np.uint64), prompts, answers]), axis=1)[0].astype(np.int64)
    counts = np.bincount(splits, minlength=len(SPLITS)) - np.bincount(known, minlength=len(SPLITS))
    order = np.lexsort((prompts, splits))  # stable: rows with one prompt stay in reading order
    differs = (np.diff(prompts[order]) != 0) | (np.diff(splits[order]) != 0)
    starts = np.concatenate([[0], np.flatnonzero(differs) + 1]).astype(np.int64)
    first = order[starts[np.cumsum(np.concatenate([[0], differs])).astype(np.int64)]]
    other = answers[order] != answers[first]
    pairs = zip(first[other].tolist(), order[other].tolist(), strict=True)
    return dict(zip(SPLITS, counts.tolist(), strict=True)), sorted(pairs, key=lambda pair: pair[1])
