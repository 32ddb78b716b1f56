"""One shell script that reads a host, and its answer taken apart. One round trip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import gpus

_MARK = "\x1e"
_PATIENCE_S = 10
"""For a command that is known to hang: nvidia-smi with a lost GPU, docker with a stuck daemon."""

# `fact NAME COMMAND...` prints a record mark, the name and the exit code, then all output.
PRELUDE = r"""
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
limited() {
  if command -v timeout >/dev/null 2>&1; then timeout -k 1 "$@"; else shift; "$@"; fi
}
fact() {
  name=$1; shift; out=$("$@" 2>&1 </dev/null); code=$?
  printf '\036%s %s\n%s\n' "$name" "$code" "$out"
}
"""

# In the order in which they run: the clock first, for then its answer arrives soonest, and what
# may hang last, so that it takes nothing else with it.
_SECTIONS = {
    "clock": "fact clock date +%s.%N",
    "system": "fact system uname -srmn\nfact release cat /etc/os-release",
    "memory": "fact memory cat /proc/meminfo",
    "ports": "fact ports grep -hs ' 0A ' /proc/net/tcp /proc/net/tcp6",
    "engine": rf"""
fact engine limited {_PATIENCE_S} docker info --format '{{{{json .}}}}'
root=$(printf '%s\n' "$out" | sed -n 's/.*"DockerRootDir":"\([^"]*\)".*/\1/p')
fact hook command -v nvidia-container-runtime-hook
fact cdi sh -c 'grep -lsE "$1" /etc/cdi/* /var/run/cdi/* | while read -r file; do
  echo "$file"; grep -ohE "$2" "$file"; done' sh 'kind"?: *"?nvidia\.com/gpu' '"?name"?: *[^,}}]+'
""",
    "disks": 'fact disks df -PB1 / ${root:+"$root"}',
    "gpus": f"""
fact gpus limited {_PATIENCE_S} nvidia-smi {gpus.QUERY}
[ "$code" = 0 ] && {{
  fact holders limited {_PATIENCE_S} nvidia-smi {gpus.HOLDERS_QUERY}
  pids=$(printf '%s\\n' "$out" | cut -d, -f2 | tr -dc '0-9\\n' | tr '\\n' ',')
  fact owners ps -o pid=,user:64=,cgroup:512= -p "${{pids%,}}"
}}
""",
}

ALL = tuple(_SECTIONS)
LIGHT = ("clock", "system", "engine")
"""What says that a host is there and can run containers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command of the script said, both streams together."""

    exit_code: int
    text: str


def script(sections: Iterable[str]) -> str:
    wanted = set(sections)
    return PRELUDE + "\n".join(text for name, text in _SECTIONS.items() if name in wanted) + "\n"


def answers(output: str) -> Mapping[str, Answer]:
    """By name. A command that did not end before the time was up is not among them."""
    found = {}
    for record in output.split(_MARK)[1:]:
        head, _, text = record.partition("\n")
        name, _, code = head.partition(" ")
        if code.isdigit():
            found[name] = Answer(int(code), printable(text).strip("\n"))
    return found


def printable(text: str) -> str:
    """Without what a terminal would obey: a host's words are shown to people."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
