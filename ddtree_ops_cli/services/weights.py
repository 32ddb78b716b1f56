"""What a host holds of a model's weights: one read for target and drafter together.

A small shell script looks, so that the host needs no Python; of large files only the header is
read. What it means is decided in `weights_verdict.py`.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import DdtreeError
from ..hosts import probe
from ..hosts.probe import Answer
from ..hosts.shell import Shell

Role = Literal["target", "drafter"]

_TIMEOUT_S = 120.0
_LARGEST_HEADER = 50_000_000

# Each model is a role, a path or Hugging Face id, a revision, and a cache (or nothing). The cache
# is found as huggingface_hub finds it (constants.py: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME).
_SCRIPT = rf"""
nl='
'
entries() {{
  for f in "$@"; do
    case $f in *"$nl"*) continue ;; esac
    if s=$(stat -Lc '%f %u %g %s' "$f" 2>&1); then
      printf '%s %s\n' "$s" "$f"
    elif [ -e "$f" ] || [ -L "$f" ]; then
      printf '! %s: %s\n' "${{s##*: }}" "$f"
    fi
  done
}}
links() {{
  readlink -f "$1"; shift
  for f in "$@"; do
    if [ -L "$f" ]; then printf '%s\n%s\n' "$f" "$(readlink -f "$f")"; fi
  done
}}
header() {{
  file=$1; printf '%s\n' "${{file##*/}}"
  set -- $(head -c 8 "$file" 2>/dev/null | od -An -v -tu1)
  printf '%s\n' "$*"
  [ $# = 8 ] && [ "$5$6$7$8" = 0000 ] || return 0
  n=$(($1 + $2 * 256 + $3 * 65536 + $4 * 16777216))
  [ "$n" -gt {_LARGEST_HEADER} ] || tail -c +9 "$file" | head -c "$n"
}}
cache() {{
  printf 'hub %s\nrepository %s\ncommit %s\n' "$hub" "$repository" "$commit"
  [ -d "$repository" ] || return 1
  for f in "$repository"/refs/*; do
    if [ -f "$f" ]; then printf 'revision %s\n' "${{f##*/}}"; fi
  done
  for f in "$repository"/snapshots/*; do
    if [ -d "$f" ]; then printf 'revision %s\n' "${{f##*/}}"; fi
  done
  for f in "$repository"/blobs/*.incomplete; do
    if [ -f "$f" ]; then printf 'unfinished %s\n' "$f"; fi
  done
}}
while [ $# -ge 4 ]; do
  role=$1 source=$2 revision=${{3:-main}} hub=$4; shift 4
  hub=${{hub:-${{HF_HUB_CACHE:-${{HF_HOME:-${{XDG_CACHE_HOME:-$HOME/.cache}}/huggingface}}/hub}}}}
  case $source in
    /*) directory=$source; fact "$role.directories" entries "$directory" ;;
    *)
      repository=$hub/models--$(printf %s "$source" | sed 's|/|--|g') commit=
      if [ -f "$repository/refs/$revision" ]; then
        commit=$(head -c 100 "$repository/refs/$revision")
      elif [ -d "$repository/snapshots/$revision" ]; then
        commit=$revision
      fi
      case $commit in */*) commit= ;; esac
      fact "$role.cache" cache
      [ "$code" = 0 ] && [ -n "$commit" ] || continue
      directory=$repository/snapshots/$commit
      fact "$role.directories" entries "$directory" "$repository/snapshots" "$repository" \
        "$repository/blobs" "$hub" ;;
  esac
  fact "$role.access" test -d "$directory" -a -r "$directory" -a -x "$directory"
  [ "$code" = 0 ] || continue
  fact "$role.files" entries "$directory"/*
  fact "$role.links" links "$directory" "$directory"/*
  fact "$role.config" head -c 4000000 "$directory/config.json"
  fact "$role.index" head -c {_LARGEST_HEADER} "$directory/model.safetensors.index.json"
  number=0
  for weights in "$directory"/*.safetensors; do
    [ -e "$weights" ] || continue
    number=$((number + 1))
    fact "$role.header.$number" header "$weights"
  done
done
fact end true
"""


@dataclass(frozen=True, slots=True)
class Source:
    """One of the models of a service, as its profile names it."""

    role: Role
    place: str
    """An absolute path, or a Hugging Face id."""
    revision: str | None = None
    cache: str | None = None
    """The folder `hub` of the Hugging Face cache; None: where the login's environment has it."""

    @property
    def is_path(self) -> bool:
        return self.place.startswith("/")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory with its rights, behind symbolic links."""

    path: str
    mode: int
    uid: int
    gid: int
    size: int
    problem: str | None = None
    """Why it cannot be looked at, as the host says it; the numbers are 0 then."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


@dataclass(frozen=True, slots=True)
class Header:
    """The beginning of a safetensors file: the length of its JSON, eight bytes, then the JSON."""

    start: bytes
    text: str
    """Empty where the length makes no sense."""

    @property
    def length(self) -> int:
        return int.from_bytes(self.start, "little")


@dataclass(frozen=True, slots=True)
class Cache:
    """What the Hugging Face cache of a host knows of a repository."""

    hub: str
    present: bool
    commit: str | None
    """That the revision stands for."""
    revisions: tuple[str, ...]
    """Branches, tags and commits that are there."""
    unfinished: tuple[str, ...]
    """Files of a download that was broken off, or still runs."""


@dataclass(frozen=True, slots=True)
class WeightsFacts:
    source: Source
    cache: Cache | None
    """None for a path."""
    directories: tuple[Entry, ...]
    """The one that holds config.json, then those of the cache above it; empty if there is none."""
    accessible: bool
    """Whether the login may list it."""
    files: tuple[Entry, ...]
    links: Mapping[str, str]
    """Each symbolic link of the directory, by path, and where it leads in the end."""
    resolved: str
    """The directory itself, behind symbolic links."""
    config: str | None
    index: str | None
    headers: Mapping[str, Header]
    """By name of the safetensors file."""

    @property
    def directory(self) -> str:
        return self.directories[0].path if self.directories else self.source.place


def read_weights(shell: Shell, sources: Sequence[Source]) -> dict[Role, WeightsFacts]:
    """What is there, in one round trip; nothing is judged.

    Raises HostUnreachable, and DdtreeError for a host whose shell cannot look.
    """
    words = [word for s in sources for word in (s.role, s.place, s.revision or "", s.cache or "")]
    done = shell.run(
        ["sh", "-s", "--", *words], stdin=probe.PRELUDE + _SCRIPT, timeout_s=_TIMEOUT_S
    )
    answers = probe.answers(done.out)
    if "end" not in answers:
        said = " ".join(probe.printable(done.err or done.out).split())
        raise DdtreeError(
            f"cannot look at the weights: {said[:200]}",
            where=f"host {shell.name}",
            mend="the login needs an ordinary shell",
        )
    return {source.role: interpret(source, answers) for source in sources}


def interpret(source: Source, answers: Mapping[str, Answer]) -> WeightsFacts:
    """Pure: the script's answers to facts."""

    def lines(name: str) -> list[str]:
        answer = answers.get(f"{source.role}.{name}")
        return answer.text.splitlines() if answer else []

    def content(name: str) -> str | None:
        answer = answers.get(f"{source.role}.{name}")
        return answer.text if answer is not None and answer.exit_code == 0 else None

    access = answers.get(f"{source.role}.access")
    resolved, *pairs = lines("links") or [""]
    return WeightsFacts(
        source=source,
        cache=None if source.is_path else _cache(source, answers),
        directories=tuple(map(_entry, lines("directories"))),
        accessible=access is not None and access.exit_code == 0,
        files=tuple(map(_entry, lines("files"))),
        links=dict(zip(pairs[::2], pairs[1::2], strict=False)),
        resolved=resolved,
        config=content("config"),
        index=content("index"),
        headers=dict(
            _header(answer.text)
            for name, answer in answers.items()
            if name.startswith(f"{source.role}.header.")
        ),
    )


def _cache(source: Source, answers: Mapping[str, Answer]) -> Cache:
    answer = answers[f"{source.role}.cache"]
    found: dict[str, list[str]] = {}
    for line in answer.text.splitlines():
        kind, _, value = line.partition(" ")
        found.setdefault(kind, []).append(value)
    return Cache(
        hub=found["hub"][0],
        present=answer.exit_code == 0,
        commit=found["commit"][0] or None,
        revisions=tuple(dict.fromkeys(found.get("revision", ()))),
        unfinished=tuple(found.get("unfinished", ())),
    )


def _entry(line: str) -> Entry:
    """`MODE UID GID SIZE PATH`, the mode in hexadecimal, or `! PROBLEM: PATH`."""
    if line.startswith("! "):
        problem, _, path = line[2:].partition(": ")
        return Entry(path, 0, 0, 0, 0, problem)
    mode, uid, gid, size, path = line.split(" ", 4)
    return Entry(path, int(mode, 16), int(uid), int(gid), int(size))


def _header(text: str) -> tuple[str, Header]:
    name, _, rest = text.partition("\n")
    numbers, _, body = rest.partition("\n")
    return name, Header(bytes(map(int, numbers.split())), body)
