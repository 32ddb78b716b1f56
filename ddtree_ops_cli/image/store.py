"""The project's images on a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DdtreeError
from ..services.container import ENGINE_LABEL, PATCH_SET_LABEL
from .leftovers import BUILD, STAGE_LABEL

if TYPE_CHECKING:
    from ..hosts.docker_api import DockerApi


@dataclass(frozen=True, slots=True)
class Owned:
    """An image of the project: one with its labels."""

    identity: str
    tags: tuple[str, ...]
    engine: str
    patch_set: str | None
    size_bytes: int
    in_use: bool
    """By a container, running or not."""


def owned(api: DockerApi) -> tuple[Owned, ...]:
    """Newest first. Raises what `DockerApi.asked` raises."""
    with api.asked("list its images"):
        images = api.images(filters={"label": ENGINE_LABEL})
        used = {one["ImageID"] for one in api.containers(all=True)}
    return tuple(
        Owned(
            identity=image["Id"],
            tags=tuple(
                sorted(tag for tag in image.get("RepoTags") or () if tag != "<none>:<none>")
            ),
            engine=image["Labels"][ENGINE_LABEL],
            patch_set=image["Labels"].get(PATCH_SET_LABEL),
            size_bytes=int(image["Size"]),
            in_use=image["Id"] in used,
        )
        for image in sorted(images, key=lambda image: -int(image["Created"]))
        # A base may be an image of the project itself, and its labels go on to the layers on it.
        if image["Labels"].get(STAGE_LABEL) != BUILD
    )


def prunable(images: Sequence[Owned]) -> tuple[Owned, ...]:
    """Pure: those that nothing names and nothing uses."""
    return tuple(image for image in images if not image.tags and not image.in_use)


@dataclass(frozen=True, slots=True)
class Cached:
    """The last layer of a stage of a build: the next build goes on from it."""

    identity: str
    size_bytes: int
    """With the base that it lies on."""


def cached(api: DockerApi) -> tuple[Cached, ...]:
    """Raises what `DockerApi.asked` raises."""
    wanted: dict[str, Any] = {"label": f"{STAGE_LABEL}={BUILD}", "dangling": True}
    with api.asked("list its images"):
        images = api.images(filters=wanted)
    return tuple(Cached(image["Id"], int(image["Size"])) for image in images)


def remove(api: DockerApi, identities: Sequence[str]) -> None:
    """What was removed with one before is no error."""
    from docker.errors import NotFound

    for identity in identities:
        try:
            with api.asked(f"remove image {identity}"):
                api.remove_image(identity)
        except DdtreeError as error:
            if not isinstance(error.__cause__, NotFound):
                raise
