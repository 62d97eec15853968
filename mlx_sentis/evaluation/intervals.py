"""Intervals and tests for shares of right answers.

Sources: E. B. Wilson, *Probable inference, the law of succession, and statistical inference*, JASA 22 (1927);
Q. McNemar, *Note on the sampling error of the difference between correlated proportions*, Psychometrika 12 (1947),
in its exact form (binomial over the discordant pairs).
"""

from __future__ import annotations

import math

Z_95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution


def wilson_interval(right: int, of: int, z: float = Z_95) -> tuple[float, float] | None:
    """Return the Wilson score interval of a share, both ends in 0…1; None when nothing was counted.

    Args:
        right: how many were right.
        of: how many were asked.
        z: the normal quantile; the default gives 95 %.

    Raises:
        ValueError: `right` does not lie in 0…`of`.
    """
    if not 0 <= right <= of:
        raise ValueError(f"found {right} right of {of}, wanted 0 ≤ right ≤ of")
    if of == 0:
        return None
    share = right / of
    middle = share + z * z / (2 * of)
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    scale = 1 + z * z / of
    low = 0.0 if right == 0 else (middle - spread) / scale  # both ends are exact where rounding would leave 1e-17
    high = 1.0 if right == of else (middle + spread) / scale
    return low, high


def exact_mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided exact p-value of McNemar's test, in 0…1.

    Args:
        gained: pairs that were wrong before and are right after.
        lost: pairs that were right before and are wrong after.
    """
    discordant = gained + lost
    tail = sum(math.comb(discordant, k) for k in range(min(gained, lost) + 1)) / 2**discordant
    return min(1.0, 2 * tail)
