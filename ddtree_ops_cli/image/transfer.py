"""An image from one host to another without a registry: streamed through this machine.

    docker save on A  ->  this machine, which counts and hashes  ->  docker load on B

The image travels by its identity, not by a name, so what is cut off in the middle leaves nothing
tagged; it is tagged on B when B's Docker names the very identity that A has. Docker checks each
layer against that identity itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DdtreeError

if TYPE_CHECKING:
    from ..hosts.docker_api import DockerApi

_CHUNK = 1 << 20
_LOADED = re.compile(r"Loaded image(?: ID)?: (sha256:[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What a copy will do."""

    reference: str
    identity: str
    size_bytes: int
    there_already: bool

    @property
    def told(self) -> str:
        if self.there_already:
            return f"{self.reference} is there already; would tag it"
        size = self.size_bytes / 1e6
        return f"would send {self.reference} ({self.identity}), about {size:.0f} MB"

    def document(self) -> dict[str, Any]:
        return {
            "reference": self.reference,
            "image": self.identity,
            "size_bytes": self.size_bytes,
            "there_already": self.there_already,
        }


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy did."""

    reference: str
    identity: str
    sent_bytes: int
    """0: the other host had the image already."""
    sha256: str | None
    """Of the stream."""


def described(api: DockerApi, reference: str) -> dict[str, Any]:
    """Docker's description of an image. DdtreeError if the host has none of that name."""
    found = sought(api, reference)
    if found is None:
        raise DdtreeError(
            f"image {reference} is not there",
            where=api.where,
            mend="`ddtree build` makes it, `ddtree image copy` brings it from another host",
        )
    return found


def sought(api: DockerApi, reference: str) -> dict[str, Any] | None:
    """Docker's description of an image, or None if the host has none of that name."""
    from docker.errors import NotFound

    try:
        with api.asked(f"show image {reference}"):
            return api.image(reference)
    except DdtreeError as error:
        if isinstance(error.__cause__, NotFound):
            return None
        raise


def planned(source: DockerApi, target: DockerApi, reference: str) -> CopyPlan:
    """Raises DdtreeError if the source lacks the image, and what `DockerApi.asked` raises."""
    found = described(source, reference)
    identity = str(found["Id"])
    return CopyPlan(reference, identity, int(found.get("Size") or 0), has(target, identity))


def copy(
    source: DockerApi, target: DockerApi, plan: CopyPlan, *, say: Callable[[str], None]
) -> Copied:
    """Copy an image and tag it there as it is tagged here. Raises what `DockerApi.asked` raises."""
    reference, identity, size = plan.reference, plan.identity, plan.size_bytes
    if plan.there_already:
        tag(target, identity, reference)
        return Copied(reference, identity, 0, None)
    stream = _Counted(source, identity, size, say)
    answers: list[dict[str, Any]] = []
    with target.asked("load the image"):
        load: Any = target.load_image
        answers += load(stream.blocks(), quiet=True) or []
    said = " ".join(str(answer.get("stream", "")) for answer in answers)
    loaded = _LOADED.search(said)
    errors = [str(answer["error"]) for answer in answers if "error" in answer]
    if errors or loaded is None or loaded[1] != identity or not has(target, identity):
        word = errors[0] if errors else said.strip() or "no word"
        raise DdtreeError(
            f"the image did not arrive whole ({word})",
            where=target.where,
            mend="nothing was tagged there; run the copy again",
        )
    tag(target, identity, reference)
    return Copied(reference, identity, stream.sent, stream.digest.hexdigest())


def has(api: DockerApi, identity: str) -> bool:
    """Whether a host has an image, by its identity."""
    with api.asked("list its images"):
        return any(image["Id"] == identity for image in api.images(all=True))


def tag(api: DockerApi, identity: str, reference: str) -> None:
    repository, colon, name = reference.rpartition(":")
    if not colon or "/" in name:
        repository, name = reference, "latest"
    with api.asked(f"tag {reference}"):
        api.tag(identity, repository, name)


class _Counted:
    """The stream of `docker save`, counted and hashed on its way."""

    def __init__(
        self, source: DockerApi, identity: str, size: int, say: Callable[[str], None]
    ) -> None:
        self._source, self._identity, self._size, self._say = source, identity, size, say
        self.sent = 0
        self.digest = hashlib.sha256()

    def blocks(self) -> Iterator[bytes]:
        with self._source.asked("save the image"):
            for block in self._source.get_image(self._identity, chunk_size=_CHUNK):
                self.sent += len(block)
                self.digest.update(block)
                self._say(f"{self.sent / 1e6:.0f} of about {self._size / 1e6:.0f} MB")
                yield block
