"""Splits: cut once, before training, by seed and by class; no text may stand on both sides."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import SPLITS
from weights_bridge.errors import StageError, all_at_once, counted
from weights_bridge.settings import DataSettings

# Too few rows of a class for every split: it is trained first, then tested, then validated.
ORDER_WHEN_FEW = ("train", "holdout", "valid", "calibration")


def shares_of(settings: DataSettings) -> dict[str, float]:
    """Return split to its share of the rows, in [0, 1); training keeps the rest.

    Raises:
        StageError: a share below 0, or nothing left to train.
    """
    shares = {
        "valid": settings.valid_share,
        "calibration": settings.calibration_share,
        "holdout": settings.holdout_share,
    }
    if min(shares.values()) < 0 or sum(shares.values()) >= 1:
        found = ", ".join(f"data.{name}_share = {share:g}" for name, share in shares.items())
        raise StageError(f"{found}: wanted shares from 0 that leave rows to train", hint="their sum must be below 1")
    return shares


def cut(rows: Sequence[Row], shares: Mapping[str, float], seed: int) -> dict[str, list[Row]]:
    """Cut rows into train and the splits of `shares`, each class by itself.

    Rows that say the same stay together. The order within a class is that of a hash of seed and text, so the same rows
    in another order are cut the same way.

    Args:
        rows: all rows.
        shares: split to share; a class with enough rows gives at least one to each.
        seed: of the cut.

    Raises:
        StageError: too few rows for a split whose share is above 0.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.user_text].append(row)
    strata: dict[str, list[str]] = defaultdict(list)
    for text, members in groups.items():
        strata[min(row.kind for row in members)].append(text)
    place: dict[str, str] = {}
    for kind in sorted(strata):
        texts = sorted(strata[kind], key=lambda text: hashlib.sha256(f"{seed}\n{text}".encode()).digest())
        place |= zip(texts, _labels(len(texts), shares), strict=True)
    parts: dict[str, list[Row]] = {split: [] for split in ("train", *shares)}
    for row in rows:
        parts[place[row.user_text]].append(row)
    if empty := [split for split in parts if not parts[split] and shares.get(split, 1) > 0]:
        raise StageError(
            f"{len(groups)} rows with different texts are too few to cut: nothing left for {', '.join(empty)}",
            hint="add rows, or give a folder with one file per split",
        )
    return parts


def _labels(count: int, shares: Mapping[str, float]) -> list[str]:
    """Return the split of each of `count` texts of one class, in their order."""
    wanted = [split for split in ORDER_WHEN_FEW if split == "train" or shares.get(split, 0) > 0]
    if count <= len(wanted):
        return wanted[:count]
    counts = {split: max(1, int(count * shares[split] + 0.5)) for split in wanted if split != "train"}
    while sum(counts.values()) >= count:  # the least of each may ask for more than there is
        counts[max(counts, key=lambda split: counts[split])] -= 1
    labels = [split for split, number in counts.items() for _ in range(number)]
    return labels + ["train"] * (count - len(labels))


def check_no_leak(splits: Mapping[str, Sequence[Row]]) -> None:
    """Require that no user text stands in two splits.

    Raises:
        StageError: every such text with both places.
    """
    seen: dict[str, tuple[str, Row]] = {}
    leaks = []
    for split in SPLITS:
        for row in splits.get(split, ()):
            other, first = seen.setdefault(row.user_text, (split, row))
            if other != split:
                leaks.append(f"{row.source} and {first.source}: the same text {row.user_text[:60]!r}")
    if leaks:
        hint = "a held-out row that was trained scores nothing: take one of each pair out"
        raise all_at_once(f"{counted(len(leaks), 'text')} in two splits:", leaks, hint=hint)


def repeated(rows: Sequence[Row]) -> tuple[int, list[str]]:
    """Return how many rows repeat an earlier one of their split, and where the same prompt has two answers."""
    answers: dict[str, tuple[str, Row]] = {}
    twice, contradictions = 0, []
    for row in rows:
        prompt, answer = repr((row.messages[:-1], row.tools)), repr(row.messages[-1])
        earlier, first = answers.setdefault(prompt, (answer, row))
        twice += first is not row and earlier == answer
        if earlier != answer:
            contradictions.append(f"{first.source} and {row.source} answer {row.user_text[:60]!r} differently")
    return twice, contradictions


def class_counts(rows: Sequence[Row]) -> dict[str, int]:
    """Return class (tool, `none`, `text`) to its number of rows, the most frequent first."""
    return dict(sorted(Counter(row.kind for row in rows).items(), key=lambda item: (-item[1], item[0])))
