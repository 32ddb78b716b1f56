"""The ratio of two arms that were measured in pairs, with its interval. Pure.

Method. The unit is the round: y = log(rate of the first arm / rate of the second), for the overall
figure the mean of that over the prompts. Both rates of a pair are taken within seconds, so what
drifts slowly (heat, clocks, neighbours) cancels in y. What comes with the position in the pair does
not, so y is regressed on x, the share of pairs in which the first arm went first minus the share in
which it went second; the intercept is the ratio without an advantage of position. That is the
analysis of the two-period cross-over design (Hills and Armitage, Br. J. Clin. Pharmacol. 8, 1979,
7-20). The interval is Student's, with the residual degrees of freedom of the regression.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

CONFIDENCE = 0.95

# Student's t, 97.5 % quantiles for 1 to 9 degrees of freedom; above, the expansion is as exact.
_T_975 = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)


@dataclass(frozen=True, slots=True)
class Ratio:
    """`estimate` with its 95 % interval; without one if there are too few rounds."""

    estimate: float
    low: float | None
    high: float | None
    rounds: int


def paired_ratio(log_ratios: Sequence[float], first_share: Sequence[float]) -> Ratio:
    """The ratio behind one log ratio a round (natural logarithms), at least one.

    `first_share`, per round: +1 if the first arm went first in every pair, -1 if in none, 0 if in
    half of them.
    """
    count = len(log_ratios)
    mean_x, mean_y = fmean(first_share), fmean(log_ratios)
    spread = math.fsum((x - mean_x) ** 2 for x in first_share)
    # One slope costs one round; without two different orders there is nothing to take out.
    slope, freedom = 0.0, count - 1
    adjusted = spread > 1e-12 and count > 2
    if adjusted:
        products = ((x - mean_x) * y for x, y in zip(first_share, log_ratios, strict=True))
        slope, freedom = math.fsum(products) / spread, count - 2
    middle = mean_y - slope * mean_x
    if freedom < 1:
        return Ratio(math.exp(middle), None, None, count)
    left = ((y - middle - slope * x) ** 2 for x, y in zip(first_share, log_ratios, strict=True))
    leverage = 1 / count + (mean_x**2 / spread if adjusted else 0.0)
    half = t_quantile(freedom) * math.sqrt(math.fsum(left) / freedom * leverage)
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half), count)


def geometric_mean(rates: Iterable[float]) -> float:
    """Of at least one positive number."""
    return math.exp(fmean(map(math.log, rates)))


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, to 1e-4.

    Above 9 degrees of freedom by the expansion 26.7.5 of Abramowitz and Stegun, Handbook of
    Mathematical Functions (1964).
    """
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))
