"""The project's images on a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..services.container import ENGINE_LABEL, PATCH_SET_LABEL

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
    )


def prunable(images: Sequence[Owned]) -> tuple[Owned, ...]:
    """Pure: those that nothing names and nothing uses."""
    return tuple(image for image in images if not image.tags and not image.in_use)


def remove(api: DockerApi, image: Owned) -> None:
    with api.asked(f"remove image {image.identity}"):
        api.remove_image(image.identity)
