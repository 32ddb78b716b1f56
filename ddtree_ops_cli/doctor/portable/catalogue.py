"""All checks, in the order in which they are shown."""

from __future__ import annotations

from . import checks_build, checks_driver, checks_packages, checks_place
from .checks import BLOCKING, Check

CHECKS: tuple[Check, ...] = tuple(
    sorted(
        (
            *checks_driver.CHECKS,
            *checks_build.CHECKS,
            *checks_packages.CHECKS,
            *checks_place.CHECKS,
        ),
        key=lambda check: check.severity != BLOCKING,
    )
)
