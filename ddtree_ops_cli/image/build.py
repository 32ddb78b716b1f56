"""Build the image on a host, by its own Docker; tag it once the doctor is content."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import DdtreeError
from ..hosts.docker_api import DockerApi
from ..hosts.facts import read_facts
from ..hosts.probe import printable
from ..hosts.unknown import Unknown
from ..services.sglang_args import SGLANG_VERSION
from .context import Context, write_tar
from .inside import look_inside, refuse_blocked
from .leftovers import sweep
from .plan import BuildPlan, plan
from .recipe import Recipe
from .transfer import sought, tag
from .wheel import requirements

if TYPE_CHECKING:
    from ..hosts.connection import Connection

Say = Callable[[str], None]

_STEP = re.compile(r"^Step (\d+/\d+) : (.*)")
_LAST_LINES = 8
_FACTS = ("system", "engine", "disks", "gpus")


class BuildFailed(DdtreeError):
    """A step of the Dockerfile failed."""

    def __init__(self, what: str, last: Sequence[str], *, where: str, mend: str | None) -> None:
        super().__init__(what, where=where, mend=mend)
        self.last = tuple(last)
        """Lines that Docker said before, the last ones."""


def prepared(
    connection: Connection, recipe: Recipe, context: Context, *, version: str, wheel: str
) -> BuildPlan:
    """Look at the host, decide; `wheel` is the name of SGLang's in the context.

    Raises as `plan` does, and HostUnreachable.
    """
    facts = read_facts(connection, _FACTS)
    base = None
    if not isinstance(facts.engine, Unknown):
        base = sought(DockerApi(connection), recipe.base)
    labels = {
        "SGLANG_VERSION": SGLANG_VERSION,
        "PATCH_SET": context.patch_set,
        "VERSION": version,
        "REVISION": revision(),
    }
    return plan(
        connection.name,
        recipe,
        digest=context.digest,
        size=context.size,
        files=len(context.files),
        labels=labels,
        facts=facts,
        base=base,
        lock=requirements() if recipe.packages == "locked" else {},
        wheel=wheel,
    )


def revision() -> str:
    """The commit of the source that this runs from; empty where it was installed from a wheel."""
    folder = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def build(
    api: DockerApi,
    wanted: BuildPlan,
    context: Context,
    *,
    log: IO[str],
    say: Say,
    tell: Say,
) -> str:
    """Send, build, try, tag; the new image's identity. For who holds the host's lock for builds.

    Docker's words go to `log`, progress to `say`, what a person must know to `tell`. BuildFailed if
    a step of the Dockerfile fails, PatchMismatch if the doctor finds a blocking fault; nothing is
    tagged then, and no container is left.
    """
    sweep(api, tell, building=True)
    identity = _built(api, wanted, context, log=log, say=say)
    say("the doctor looks at it")
    try:
        diagnosis = look_inside(
            api,
            identity,
            wanted.intent,
            version=wanted.arguments["VERSION"],
            device=wanted.device,
            tell=tell,
        )
        refuse_blocked(diagnosis, wanted.recipe.accepted)
    except BaseException:
        with contextlib.suppress(DdtreeError):
            _discard(api, identity)
        raise
    tag(api, identity, wanted.recipe.tag)
    return identity


def _discard(api: DockerApi, identity: str) -> None:
    """Remove an image that nothing names; equal inputs may have made one that a service uses.

    Its layers stay as Docker's cache: the next build goes on from there.
    """
    with api.asked("remove the image that failed"):
        if not api.image(identity).get("RepoTags"):
            api.remove_image(identity, noprune=True)


def _built(api: DockerApi, plan: BuildPlan, context: Context, *, log: IO[str], say: Say) -> str:
    where = f"host {plan.host}"
    last: deque[str] = deque(maxlen=_LAST_LINES)
    at = "its beginning"
    identity = None
    with _sent(context, say) as tar, api.asked("build the image"):
        answers: Iterator[Mapping[str, Any]] = api.build(
            fileobj=tar,
            custom_context=True,
            encoding="gzip",
            buildargs=dict(plan.arguments),
            rm=True,
            forcerm=True,
            decode=True,
            timeout=None,
        )
        for answer in answers:
            if "error" in answer:
                log.write(f"{answer['error']}\n")
                raise BuildFailed(
                    f"the build failed at {at}: {_line(answer['error'])}",
                    last,
                    where=where,
                    mend=f"see whether the host can pull {plan.recipe.base}, or take another --base"
                    if " (FROM " in at
                    else None,
                )
            identity = answer.get("aux", {}).get("ID", identity)
            for line in str(answer.get("stream") or answer.get("status") or "").splitlines():
                log.write(line + "\n")
                if step := _STEP.match(line):
                    at = f"step {step[1]} ({_line(step[2])[:60]})"
                    last.clear()
                    say(f"step {step[1]}: {_line(step[2])[:70]}")
                elif line.strip():
                    last.append(_line(line))
    if identity is None:
        raise DdtreeError("Docker ended the build and named no image", where=where)
    return str(identity)


@contextmanager
def _sent(context: Context, say: Say) -> Iterator[IO[bytes]]:
    """The context as a stream that says how much of it was read."""
    with tempfile.TemporaryFile() as packed:
        write_tar(context, packed)
        size = packed.tell()
        packed.seek(0)
        yield _Told(packed, size, say)  # type: ignore[misc]


class _Told:
    """A file that tells how far it was read."""

    def __init__(self, file: IO[bytes], size: int, say: Say) -> None:
        self._file, self._size, self._say, self._read = file, size, say, 0

    def read(self, count: int = -1) -> bytes:
        block = self._file.read(count)
        self._read += len(block)
        self._say(f"sent {self._read / 1e6:.0f} of {self._size / 1e6:.0f} MB")
        return block

    def __iter__(self) -> Iterator[bytes]:
        while block := self.read(1 << 20):
            yield block

    def fileno(self) -> int:
        return self._file.fileno()

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)


def _line(text: str) -> str:
    """Without what a terminal would obey."""
    return " ".join(printable(str(text)).split())


@contextmanager
def logged(file: Path) -> Iterator[IO[str]]:
    """A log that is whole to its last line whatever ends this process, and says how it ended."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", buffering=1) as log:
        try:
            yield log
        except BaseException as error:
            # A full disk here must not hide what happened there.
            with contextlib.suppress(OSError):
                log.write(f"ended by {type(error).__name__}: {error}\n")
            raise
