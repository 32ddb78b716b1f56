"""An image from one host to another without a registry: streamed through this machine.

    docker save on A  ->  this machine, which counts and hashes  ->  docker load on B

The image travels by its identity, not by a name, so what is cut off in the middle leaves nothing
tagged; it is tagged on B when what B's Docker made of it has the layers and the configuration that
it has on A. Docker checks each layer against its hash itself.

The identity may be another on B: Docker's older store names an image by the hash of its
configuration, containerd's (the default of new installations since Docker 29) by that of its
manifest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DdtreeError
from ..hosts.probe import printable
from .plan import refuse_full_disk, refuse_other_architecture

if TYPE_CHECKING:
    from ..hosts.docker_api import DockerApi
    from ..hosts.facts import HostFacts

_CHUNK = 1 << 20
_CONFIG = (
    "Cmd",
    "Entrypoint",
    "Env",
    "ExposedPorts",
    "Healthcheck",
    "Labels",
    "User",
    "WorkingDir",
)
CONTEXT_LABEL = "dev.ddtree.context"
_COPIES = 2
"""Of an image: what has arrived, and what Docker unpacks from it."""
_LOADED = re.compile(r"Loaded image(?: ID)?: (sha256:[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What a copy will do."""

    reference: str
    identity: str
    """On the host that has it."""
    contents: Mapping[str, Any]
    size_bytes: int
    there: str | None
    """Its identity on the other host, if that has it already."""

    @property
    def told(self) -> str:
        if self.there:
            return f"{self.reference} is there already; would tag it"
        size = self.size_bytes / 1e6
        return f"would send {self.reference} ({self.identity}), about {size:.0f} MB"

    def document(self) -> dict[str, Any]:
        return {
            "reference": self.reference,
            "image": self.identity,
            "size_bytes": self.size_bytes,
            "there_already": self.there is not None,
        }


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy did."""

    reference: str
    identity: str
    """On the host that got it."""
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


def planned(source: DockerApi, target: DockerApi, reference: str, facts: HostFacts) -> CopyPlan:
    """`facts` are the target's engine, disks and system.

    Raises DdtreeError if the source lacks the image, or the target cannot have it: another
    architecture, no space; and what `DockerApi.asked` raises.
    """
    found = described(source, reference)
    identity, size = str(found["Id"]), int(found.get("Size") or 0)
    refuse_other_architecture(facts, f"image {reference}", found, where=target.where)
    there = _twin(target, reference, found)
    if there is None:
        refuse_full_disk(facts, _COPIES * size, to="the copy", where=target.where)
    return CopyPlan(reference, identity, contents(found), size, there)


def copy(
    source: DockerApi, target: DockerApi, plan: CopyPlan, *, say: Callable[[str], None]
) -> Copied:
    """Copy an image and tag it there as it is tagged here. Raises what `DockerApi.asked` raises."""
    reference = plan.reference
    if plan.there:
        tag(target, plan.there, reference)
        return Copied(reference, plan.there, 0, None)
    stream = _Counted(source, plan.identity, plan.size_bytes, say)
    answers: list[dict[str, Any]] = []
    with target.asked("load the image"):
        load: Any = target.load_image
        answers += load(stream.blocks(), quiet=True) or []
    said = " ".join(str(answer.get("stream", "")) for answer in answers)
    loaded = _LOADED.search(said)
    errors = [str(answer["error"]) for answer in answers if "error" in answer]
    arrived = sought(target, loaded[1]) if loaded and not errors else None
    if arrived is None or contents(arrived) != plan.contents:
        word = errors[0] if errors else said.strip() or "no word"
        raise DdtreeError(
            f"the image did not arrive whole ({printable(word)})",
            where=target.where,
            mend="nothing was tagged there; run the copy again",
        )
    tag(target, arrived["Id"], reference)
    return Copied(reference, str(arrived["Id"]), stream.sent, stream.digest.hexdigest())


def contents(image: Mapping[str, Any]) -> dict[str, Any]:
    """Pure: what an image is wherever it lies, of Docker's description of it."""
    config = image.get("Config") or {}
    return {
        "layers": list((image.get("RootFS") or {}).get("Layers") or []),
        "architecture": image.get("Architecture"),
        **{name: config.get(name) or None for name in _CONFIG},
    }


def _twin(api: DockerApi, reference: str, image: Mapping[str, Any]) -> str | None:
    """The identity of the same image on another host, if it is there under a name that it may have.

    Its own identity, its reference, or the label of the build context that made it.
    """
    labels = (image.get("Config") or {}).get("Labels") or {}
    likely = [str(image["Id"]), reference]
    if context := labels.get(CONTEXT_LABEL):
        with api.asked("list its images"):
            same = api.images(filters={"label": f"{CONTEXT_LABEL}={context}"})
        likely += [str(one["Id"]) for one in same]
    wanted = contents(image)
    for name in likely:
        other = sought(api, name)
        if other is not None and contents(other) == wanted:
            return str(other["Id"])
    return None


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
