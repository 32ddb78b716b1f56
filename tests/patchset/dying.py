"""A program of the tests: runs apply or revert in processes that die, and lets the next recover.

    python dying.py kill|torn|full PATCHES WORK apply|revert|recover apply|revert

`kill` dies by SIGKILL before the 1st, 2nd, ... change that the first operation makes to the disk;
`torn` in the middle of a write, at every size; `full` meets a full disk at every size, and lives.
After each, the tree must be in a state that status names, and the second operation must end in
exactly what it gives on an undisturbed tree. `recover` is the revert of an apply that died when
all was staged. Prints how many deaths were tried.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.patchset.apply import apply, revert
from ddtree_ops_cli.patchset.manifest import PatchSet
from ddtree_ops_cli.patchset.verify import survey
from tests.patchset.sample import ADDED, PATCHED, VERSION, fingerprint, write_tree

CHANGES = {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.chown"}
OPERATIONS = {"apply": apply, "revert": revert, "recover": revert}
DIED_OF_IT = 9


def die_at(count: int) -> None:
    """Kill this process just before its `count`-th change of the disk."""
    left = count

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
        if event in CHANGES or writes:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def die_at_the_first_swap() -> None:
    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and str(arguments[1]).endswith("/RECORD"):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def limit_files(size: int, *, deadly: bool) -> None:
    """Let no file of this process grow beyond `size` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def in_a_process(trouble: Callable[[], None], operation: Callable[[], object]) -> int:
    """The wait status of a child that meets `trouble` during `operation`."""
    child = os.fork()
    if child == 0:
        try:
            trouble()
            operation()
        except DdtreeError as error:
            os._exit(DIED_OF_IT if "nothing was changed" in str(error) else 3)
        except BaseException:  # noqa: BLE001 - a child never returns into the parent's program
            os._exit(4)
        os._exit(0)
    return os.waitpid(child, 0)[1]


class Stage:
    def __init__(self, patches: Path, work: Path) -> None:
        self.patches, self.tree = patches, work / "tree"
        pristine = write_tree(work / "pristine")
        applied = shutil.copytree(pristine, work / "applied")
        contents = PatchSet.load(VERSION, patches).contents(
            lambda path: (pristine / path).read_bytes()
        )
        self.contents = {path: {(pristine / path).read_bytes(), contents[path]} for path in PATCHED}
        apply(applied, patches)
        staged = shutil.copytree(pristine, work / "staged")
        in_a_process(die_at_the_first_swap, lambda: apply(staged, patches))
        assert survey(staged, patches).state == "interrupted"
        self.template = {"apply": pristine, "revert": applied, "recover": staged}
        self.end = {"apply": fingerprint(applied), "revert": fingerprint(pristine)}

    def reset(self, first: str) -> None:
        shutil.rmtree(self.tree, ignore_errors=True)
        shutil.copytree(self.template[first], self.tree, symlinks=True)

    def check_interrupted(self, at: str) -> None:
        """No file is missing or torn, the new package is whole or not there, status knows it."""
        for path, allowed in self.contents.items():
            assert (self.tree / path).read_bytes() in allowed, f"{at}: {path} is torn"
        whole = {(self.tree / path).exists() for path in ADDED}
        assert len(whole) == 1, f"{at}: half a package"
        state = survey(self.tree, self.patches).state
        assert state in ("unpatched", "interrupted", "applied"), f"{at}: {state}"

    def check_recovery(self, second: str, at: str) -> None:
        OPERATIONS[second](self.tree, self.patches)
        assert fingerprint(self.tree) == self.end[second], f"{at}: not recovered"


def main() -> None:
    how, patches, work, first, second = sys.argv[1:]
    stage = Stage(Path(patches), Path(work))
    tried = 0
    sizes = range(1, 3000, 149)
    for number in range(1, 1000):
        if how == "kill":
            trouble = lambda: die_at(number)  # noqa: E731, B023 - called before the next turn
        else:
            if number > len(sizes):
                break
            size = sizes[number - 1]
            trouble = lambda: limit_files(size, deadly=how == "torn")  # noqa: E731, B023
        stage.reset(first)
        before = fingerprint(stage.tree)
        status = in_a_process(trouble, lambda: OPERATIONS[first](stage.tree, stage.patches))
        at = f"{how} {number}"
        if how == "kill" and not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0, f"{at}: {status}"
            break
        code = os.waitstatus_to_exitcode(status)
        allowed = {"kill": (-9,), "torn": (-signal.SIGXFSZ, 0), "full": (DIED_OF_IT, 0)}[how]
        assert code in allowed, f"{at}: ended with {code}"
        tried += code != 0
        if how == "full" and code != 0:
            assert fingerprint(stage.tree) == before, f"{at}: something was changed"
        stage.check_interrupted(at)
        stage.check_recovery(second, at)
    sys.stdout.write(f"{tried}\n")


if __name__ == "__main__":
    main()
