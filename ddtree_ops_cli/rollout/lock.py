"""Who may change a GPU of a host, or build on it: one at a time.

A lock is an flock(2) that a shell on the host holds as long as the connection to it is open. It
is gone with whatever ends the connection: the command, this machine, the network. The same shell
appends to the audit log, so nothing is written there by somebody who lost the lock.

    <state directory>/locks/<name>    who holds it, or held it last
    <state directory>/audit.jsonl     see audit.py
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import DdtreeError, LockHeld
from ..hosts.dialogue import Dialogue, Ended
from ..hosts.state import HostState
from ..output.console import note

_RETRY_S = 1.0

# Arguments: state directory, name of the lock, who takes it (JSON without its first brace).
_HOLD = r"""
exec 2>&1
umask 002
lock=$dir/locks/$2 log=$dir/audit.jsonl
command -v flock >/dev/null || { echo 'flock is missing: install util-linux'; exit 1; }
mkdir -p -- "$dir/locks" || exit 1
exec 9<>"$lock" || exit 1
flock -w 1 9 || { printf 'held '; head -n 1 -- "$lock"; exit 1; }
now() { date -u +%Y-%m-%dT%H:%M:%SZ; }
printf '{"pid":%s,"since":"%s",%s\n' $$ "$(now)" "$3" 2>/dev/null >"$lock"
[ -z "$(tail -c 1 -- "$log" 2>/dev/null)" ] || echo 2>/dev/null >>"$log" ||
    { echo "$log cannot be written: is the disk full?"; exit 1; }
echo taken
while IFS= read -r line; do
    said=$({ printf '{"at":"%s",%s\n' "$(now)" "$line" >>"$log"; } 2>&1) && echo ok || echo "$said"
done
"""

# Prints a line a lock: `held NAME {...}` or `free NAME {...}`, the latter with the last holder.
_SHOW = r"""
for lock in "$dir"/locks/*; do
    [ -f "$lock" ] || continue
    state=held
    # Shared: two who look at once do not take each other for a holder.
    flock -s -n "$lock" true && state=free
    printf '%s %s ' "$state" "${lock##*/}"
    head -n 1 -- "$lock"
    [ -s "$lock" ] || echo
done
"""

# Ends the shell that holds the lock, if that is the one with this pid.
_BREAK = r"""
exec 2>&1
lock=$dir/locks/$2
flock -s -n "$lock" true && exit 0
case $(head -n 1 -- "$lock") in
    '{"pid":'"$3",*) kill "$3" || exit 1 ;;
    *) echo 'somebody else took it meanwhile'; exit 1 ;;
esac
flock -s -w 5 "$lock" true || { echo 'it is still held'; exit 1; }
"""


@dataclass(frozen=True, slots=True)
class Holder:
    name: str
    """Of the lock: `gpu-1`, `build`."""
    held: bool
    """False: it is free, and this is who held it last."""
    pid: int
    """Of the shell on the host that holds it."""
    since: str
    """UTC by the host's clock."""
    who: str
    """user@machine."""
    purpose: str
    client_pid: int
    """Of the command, on the machine in `who`."""

    def __str__(self) -> str:
        return f"{self.who}, {self.purpose}, since {self.since}"

    @property
    def is_left_over(self) -> bool:
        """It is ours, and whoever took it is gone: the host has not noticed the cut link yet."""
        return is_gone(self.who, self.client_pid) or (
            self.who == me() and self.client_pid == os.getpid()
        )


class LockLost(DdtreeError):
    """Somebody broke the lock, so what is done now is theirs to decide."""

    exit_code = LockHeld.exit_code


class Lock:
    """A lock that is held."""

    def __init__(self, state: HostState, name: str, purpose: str, dialogue: Dialogue) -> None:
        self.state = state
        self.name = name
        self.purpose = purpose
        self._dialogue = dialogue

    def record(self, entry: Mapping[str, Any]) -> None:
        """Append to the audit log. Raises LockLost, or what keeps it from being written."""
        try:
            answer = self._dialogue.ask(json.dumps(entry)[1:])
        except Ended as ended:
            raise LockLost(
                f"the lock {self.name} was broken by somebody else",
                where=f"host {self.state.shell.name}",
                mend="nothing more is done here; see `ddtree history` and `ddtree status`",
            ) from ended
        if answer != "ok":
            raise DdtreeError(
                f"the audit log cannot be written: {answer}",
                where=f"host {self.state.shell.name}",
                mend="is its disk full?",
            )


def me() -> str:
    return f"{getpass.getuser()}@{platform.node()}"


def is_gone(who: str, client_pid: int) -> bool:
    """Whether a command of ours, on this machine, has ended; False for anybody else's."""
    if who != me():
        return False
    try:
        os.kill(client_pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@contextmanager
def hold(state: HostState, name: str, *, purpose: str, wait_s: float = 0.0) -> Iterator[Lock]:
    """Take the lock, wait for it up to `wait_s` seconds; raises LockHeld, naming the holder."""
    begin = time.monotonic()
    said = False
    while True:
        with _attempt(state, name, purpose) as got:
            if isinstance(got, Lock):
                yield got
                return
        if got is not None and got.is_left_over:
            note(f"taking over the lock {name} that {got.purpose} left behind at {got.since}")
            break_lock(state, got)
            continue
        if time.monotonic() - begin >= wait_s:
            raise LockHeld(
                f"the lock {name} is held by {got or 'somebody'}",
                where=f"host {state.shell.name}",
                mend=f"wait with --lock-wait SECONDS, or see `ddtree lock show {state.shell.name}`",
            )
        if not said:
            note(f"waiting for the lock {name}, held by {got or 'somebody'}")
            said = True
        time.sleep(_RETRY_S)


@contextmanager
def _attempt(state: HostState, name: str, purpose: str) -> Iterator[Lock | Holder | None]:
    """The lock, or who has it; None if that was not said."""
    mine = {"who": me(), "purpose": purpose, "client_pid": os.getpid()}
    with state.converse(_HOLD, name, json.dumps(mine)[1:]) as dialogue:
        first = dialogue.hear()
        if first == "taken":
            yield Lock(state, name, purpose, dialogue)
        elif first.startswith("held"):
            yield _holder(name, held=True, text=first.removeprefix("held "))
        else:
            raise DdtreeError(
                f"no lock can be taken: {first}",
                where=f"host {state.shell.name}",
                mend=f"it would lie in {state.directory} (state_directory in the host's profile)",
            )


def holders(state: HostState) -> list[Holder]:
    """Every lock that was ever taken on the host."""
    found = []
    for line in state.run(_SHOW).out.splitlines():
        kind, name, text = (*line.split(" ", 2), "", "")[:3]
        if (holder := _holder(name, held=kind == "held", text=text)) is not None:
            found.append(holder)
    return found


def break_lock(state: HostState, holder: Holder) -> None:
    """End the shell that holds it. Nothing happens if it is free by now."""
    done = state.run(_BREAK, holder.name, str(holder.pid))
    if done.exit_code != 0:
        raise LockHeld(
            f"the lock {holder.name} cannot be broken: {done.out.strip()}",
            where=f"host {state.shell.name}",
            mend=f"its holder is process {holder.pid} there",
        )


def _holder(name: str, *, held: bool, text: str) -> Holder | None:
    try:
        entry = json.loads(text)
        return Holder(
            name=name,
            held=held,
            pid=int(entry["pid"]),
            since=str(entry["since"]),
            who=str(entry["who"]),
            purpose=str(entry["purpose"]),
            client_pid=int(entry["client_pid"]),
        )
    except (ValueError, KeyError, TypeError):
        return None  # a full disk has no room for the name
