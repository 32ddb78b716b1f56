"""The folder on a host where this toolkit keeps its locks and its audit log."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from .dialogue import Dialogue
from .shell import Completed, Shell

_DIRECTORY = 'case $1 in "~/"*) dir=$HOME/${1#"~/"} ;; *) dir=$1 ;; esac\n'


@dataclass(frozen=True, slots=True)
class HostState:
    shell: Shell
    directory: str
    """An absolute path on the host, or one below the login's home that begins with `~/`."""

    def run(self, script: str, *words: str) -> Completed:
        """Run a POSIX shell script, to which $dir is the directory; its words begin at $2."""
        return self.shell.run(self._argv(script, words))

    def converse(self, script: str, *words: str) -> AbstractContextManager[Dialogue]:
        return self.shell.converse(self._argv(script, words))

    def _argv(self, script: str, words: tuple[str, ...]) -> list[str]:
        return ["sh", "-c", _DIRECTORY + script, "ddtree", self.directory, *words]
