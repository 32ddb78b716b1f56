"""Every error that a user can meet, and the exit code it ends with.

An error says what is wrong, where, and how to mend it; `str(error)` is the one line that the
terminal shows. Anything else that escapes a command is a bug of ours and keeps its traceback.

    DdtreeError                 1   failed
      UsageError                2   the command line asks for something that does not exist
      ProfileError              3   a profile, playbook or prompt file is invalid
      HostUnreachable           4
      LockHeld                  5
      Unhealthy                 6   unhealthy or incoherent
      SomeHostsFailed           7
      PatchMismatch             8   patch or ABI mismatch
    Interrupted               130
"""

from __future__ import annotations

__all__ = [
    "DdtreeError",
    "HostUnreachable",
    "Interrupted",
    "LockHeld",
    "PatchMismatch",
    "ProfileError",
    "SomeHostsFailed",
    "Unhealthy",
    "UsageError",
]


class DdtreeError(Exception):
    """The operation failed."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, mend: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.mend = mend

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        advice = f"; {self.mend}" if self.mend else ""
        return f"{place}{self.what}{advice}"


class UsageError(DdtreeError):
    exit_code = 2


class ProfileError(DdtreeError):
    exit_code = 3


class HostUnreachable(DdtreeError):
    exit_code = 4


class LockHeld(DdtreeError):
    exit_code = 5


class Unhealthy(DdtreeError):
    exit_code = 6


class SomeHostsFailed(DdtreeError):
    exit_code = 7


class PatchMismatch(DdtreeError):
    exit_code = 8


class Interrupted(DdtreeError):
    exit_code = 130
