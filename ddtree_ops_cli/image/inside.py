"""The doctor in an image: in a container that is gone afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from docker.errors import NotFound

from ..doctor.export import script
from ..doctor.visit import Diagnosis, diagnosed, parsed
from ..errors import DdtreeError, PatchMismatch
from ..hosts.docker_api import DockerApi
from ..hosts.facts import read_facts
from ..hosts.unknown import Unknown
from ..services.container import PATCH_SET_LABEL
from .context import archive_of
from .leftovers import LOOK_S, doctor_labels, sweep
from .plan import chosen_gpu, device_request, meant_gpu
from .transfer import sought
from .wheel import requirements

if TYPE_CHECKING:
    from ..hosts.connection import Connection

_FILE = "ddtree-doctor.py"
_SHM_BYTES = 16 << 30
_PACKAGES_LABEL = "dev.ddtree.packages"


def look_inside(
    api: DockerApi,
    image: str,
    intent: Mapping[str, Any],
    *,
    version: str,
    device: Mapping[str, Any] | None,
    tell: Callable[[str], None],
) -> Diagnosis:
    """Run the doctor in an image; `device` is a DeviceRequest of Docker's, for one GPU.

    The container has no network and the image's own user, and is gone afterwards; `tell` hears of
    it where it could not be removed. Raises what `DockerApi.asked` raises, and DdtreeError if the
    image cannot run it.
    """
    meant = {**intent, "container": True}
    body = {
        "Image": image,
        "Entrypoint": ["python3"],
        "Cmd": [f"/tmp/{_FILE}", "--json"],
        "Labels": doctor_labels(),
        "HostConfig": {
            "NetworkMode": "none",
            "ShmSize": _SHM_BYTES,
            **({"DeviceRequests": [dict(device)]} if device else {}),
        },
    }
    source = script(meant, version=version).encode()
    name = f"ddtree-doctor-{uuid4().hex[:12]}"
    with _removed(api, name, tell):
        with api.asked(f"make a container of image {image}"):
            api.created(body, name)
        with api.asked("run the doctor in the image"):
            api.put_archive(name, "/tmp", archive_of(_FILE, source))
            api.start(name)
            api.wait(name, timeout=LOOK_S)
            out = api.logs(name, stdout=True, stderr=False)
            err = api.logs(name, stdout=False, stderr=True)
    place = f"image {image} on {api.where}"
    facts = parsed(out.decode(errors="replace"), err.decode(errors="replace"), where=place)
    return diagnosed(place, facts)


@contextmanager
def _removed(api: DockerApi, name: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Remove a container at the end, whatever ended the body; what the body raised goes on."""
    try:
        yield
    finally:
        try:
            with api.asked(f"remove container {name}"):
                api.remove_container(name, force=True, v=True)
        except DdtreeError as error:
            if not isinstance(error.__cause__, NotFound):
                tell(
                    f"{api.where}: container {name} may be left; the next `ddtree build`, `doctor` "
                    "or `image prune` of that host removes it"
                )


def on_host(
    connection: Connection,
    reference: str,
    intent: Mapping[str, Any],
    *,
    version: str,
    tell: Callable[[str], None],
) -> Diagnosis | None:
    """The doctor in an image of a host, with one of its idle GPUs if there is one.

    None if the host has no such image.
    """
    facts = read_facts(connection, ("engine", "gpus"))
    engine = facts.engine
    if isinstance(engine, Unknown):
        raise DdtreeError(engine.what, where=f"host {connection.name}", mend=engine.mend)
    api = DockerApi(connection)
    found = sought(api, reference)
    if found is None:
        return None
    sweep(api, tell, building=False)
    gpus = () if isinstance(facts.gpus, Unknown) else facts.gpus
    gpu = chosen_gpu(gpus, engine)
    meant = {**intent, **meant_gpu(gpu, gpus, engine)}
    labels = found["Config"].get("Labels") or {}
    if patch_set := labels.get(PATCH_SET_LABEL):
        meant["patch_set"] = patch_set
    if labels.get(_PACKAGES_LABEL) == "locked":
        meant["lock"] = requirements()
    device = device_request(gpu, engine) if gpu else None
    return look_inside(api, reference, meant, version=version, device=device, tell=tell)


def refuse_blocked(diagnosis: Diagnosis, accepted: tuple[str, ...]) -> None:
    """PatchMismatch that names the blocking checks that failed and were not accepted."""
    failed = [f for f in diagnosis.failed_blocking if f.check.id not in accepted]
    if failed:
        first, more = failed[0], ", ".join(f.check.id for f in failed[1:])
        also = f" (and {more})" if more else ""
        raise PatchMismatch(
            f"the image is not tagged: {first.check.id}: {first.found[0]}{also}",
            where=diagnosis.place,
            mend=first.check.mend,
        )
