"""A comparison in words: what follows from it, and what makes it worth less. Pure."""

from __future__ import annotations

from .comparison import LEAST_ROUNDS, Comparison
from .run import Run


def verdict(comparison: Comparison) -> str:
    """One sentence that a person can act on."""
    first, second = _called(comparison.first), _called(comparison.second)
    ratio = comparison.overall.ratio
    if ratio is None:
        return f"no verdict: no prompt has a decode rate on both {first} and {second}"
    change = _percent(ratio.estimate)
    if ratio.low is None or ratio.high is None or comparison.verdict == "too few rounds":
        return (
            f"no verdict: {comparison.rounds} rounds count, and it takes {LEAST_ROUNDS}; "
            f"so far {first} is at {change:+.1f} % against {second}"
        )
    low, high = _percent(ratio.low), _percent(ratio.high)
    if comparison.verdict == "faster":
        span = f"95 %: {low:.1f} to {high:.1f} %"
        return f"{first} is {change:.1f} % faster than {second} ({span})"
    if comparison.verdict == "slower":
        span = f"95 %: {-high:.1f} to {-low:.1f} %"
        return f"{first} does not pay here: it is {-change:.1f} % slower than {second} ({span})"
    return (
        f"no difference shown: {first} is at {change:+.1f} % against {second} "
        f"(95 %: {low:+.1f} to {high:+.1f} %)"
    )


def cautions(comparison: Comparison, run: Run) -> list[str]:
    """Each thing that makes the figures worth less, in one line."""
    found = []
    if run.status != "complete":
        found.append(f"this run is not complete: {run.reason}")
    if not run.settings.shape.greedy:
        found.append("texts are sampled, so they are not compared; acceptance is from counters")
    differing = [
        row.prompt for row in comparison.prompts if row.agreement and not row.agreement.same
    ]
    if differing:
        found.append(
            f"the arms answer differently on {', '.join(differing)}: their speed there is that of "
            "different texts"
        )
    unsteady = [arm for arm in run.arms if not run.steady(arm)]
    if unsteady:
        found.append(f"warm-up ended without steady rates of {' and '.join(unsteady)}")
    disturbed = [done for done in run.rounds if done.disturbed]
    if disturbed:
        fate = "counted all the same" if run.settings.busy_ok else "left out"
        found.append(
            f"{len(disturbed)} disturbed rounds {fate}, the first: {disturbed[0].disturbed[0]}"
        )
    if comparison.left_out:
        found.append(
            f"not in the overall ratio, because too short for a rate: "
            f"{', '.join(comparison.left_out)}"
        )
    cached = sum((one.cached_tokens or 0) > 0 for done in run.counted for one in done.measurements)
    if cached:
        found.append(f"{cached} answers had prompt tokens in the prefix cache: mind their TTFT")
    if comparison.repeats is not None and comparison.repeats < 1:
        found.append(
            f"{1 - comparison.repeats:.0%} of the timed answers took other verify steps than the "
            "answer that acceptance is from"
        )
    return found


def _called(arm: str) -> str:
    return {"tree": "the tree", "plain": "plain decoding"}.get(arm, arm)


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)
