"""The same work on many hosts at once: for each a result, or the error that kept it from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..errors import DdtreeError

Target = TypeVar("Target")
Result = TypeVar("Result")

_MAX_PARALLEL = 16


def each(
    targets: Mapping[str, Target | DdtreeError], work: Callable[[Target], Result]
) -> dict[str, Result | DdtreeError]:
    """Results in the order of `targets`; a target that is an error already stays one."""

    def attempt(target: Target | DdtreeError) -> Result | DdtreeError:
        if isinstance(target, DdtreeError):
            return target
        try:
            return work(target)
        except DdtreeError as error:
            return error

    with ThreadPoolExecutor(max_workers=_MAX_PARALLEL) as pool:
        return dict(zip(targets, pool.map(attempt, targets.values()), strict=True))
