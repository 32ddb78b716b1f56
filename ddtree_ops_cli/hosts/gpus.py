"""The GPUs of a host, from nvidia-smi's CSV; each way in which it fails is named."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import DdtreeError
from .unknown import Unknown

_FIELDS = (
    "index,uuid,memory.total,memory.used,compute_cap,driver_version,mig.mode.current,"
    "ecc.mode.current,name"
)
QUERY = f"--query-gpu={_FIELDS} --format=csv,noheader,nounits"
HOLDERS_QUERY = (
    "--query-compute-apps=gpu_uuid,pid,used_memory,process_name --format=csv,noheader,nounits"
)

# Exit codes of nvidia-smi, section RETURN VALUE of its manual; 124 and 137 are `timeout`'s.
_FAILURES = {
    2: ("nvidia-smi does not know what it was asked", "update the driver: it is too old"),
    4: ("this user may not ask for the GPUs", "see the rights of /dev/nvidia* on the host"),
    6: ("nvidia-smi finds no GPU", "see `lspci | grep -i nvidia`, and the kernel log for Xid"),
    8: ("a GPU lacks its power cable", "connect it"),
    9: (
        "the NVIDIA driver is not loaded",
        "`sudo modprobe nvidia`; after a kernel update rebuild the driver (dkms)",
    ),
    12: ("the library of the NVIDIA driver (NVML) is missing", "install the driver anew"),
    14: ("a GPU's infoROM is corrupt", "see `nvidia-smi -q`; the GPU may need to be exchanged"),
    15: (
        "a GPU has fallen off the bus",
        "see the kernel log for Xid 79, reboot the host; if it comes again, look at power and slot",
    ),
    18: (
        "driver and library of NVIDIA differ in version, as after an update without a reboot",
        "reboot the host, or stop all that uses a GPU and reload the driver",
    ),
    124: (
        "nvidia-smi hangs",
        "see the kernel log for Xid; a GPU or its driver is stuck, and the host may need a reboot",
    ),
    127: ("nvidia-smi is not installed", "install the NVIDIA driver on the host"),
}
_FAILURES[137] = _FAILURES[124]


# docker/ID by cgroupfs, docker-ID.scope by systemd.
_CONTAINER = re.compile(r"(?<=docker[/-])[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that computes on a GPU."""

    pid: int
    user: str | None
    """None if the process is not to be seen, as one in another PID namespace."""
    name: str
    memory_mib: int | None
    container: str | None = None
    """The 64 digits of the container that it runs in, if it runs in one."""


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    uuid: str
    name: str
    memory_total_mib: int | None
    """None where a GPU shares the host's memory, or does not say."""
    memory_used_mib: int | None
    compute_capability: str | None
    """Such as 12.0."""
    driver: str
    mig: bool | None
    """None: this model cannot be partitioned."""
    ecc: bool | None
    holders: tuple[Holder, ...]


def failure(exit_code: int, text: str) -> Unknown:
    """What a failed nvidia-smi means; its own words follow."""
    known = _FAILURES.get(exit_code)
    said = " ".join(text.split())
    if known is None:
        return Unknown(f"nvidia-smi failed with exit code {exit_code}: {said}", None)
    what, mend = known
    if exit_code in (124, 127, 137):  # these words are the shell's
        said = ""
    return Unknown(f"{what} (exit code {exit_code}{f': {said}' if said else ''})", mend)


def parse(text: str, holders: Mapping[str, tuple[Holder, ...]]) -> tuple[Gpu, ...]:
    """Raises DdtreeError for a line that is not what was asked for."""
    found = []
    for row in _rows(text, 9):
        index, uuid, total, used, capability, driver, mig, ecc, name = row
        found.append(
            Gpu(
                index=_whole(index),
                uuid=uuid,
                name=name,
                memory_total_mib=_mib(total),
                memory_used_mib=_mib(used),
                compute_capability=None if _absent(capability) else capability,
                driver=driver,
                mig=_switch(mig),
                ecc=_switch(ecc),
                holders=holders.get(uuid, ()),
            )
        )
    return tuple(found)


def parse_holders(text: str, owners: str) -> dict[str, tuple[Holder, ...]]:
    """By UUID of the GPU; `owners` are lines of a PID, its user and its control groups."""
    known = {words[0]: words[1:] for line in owners.splitlines() if len(words := line.split()) > 1}
    found: dict[str, tuple[Holder, ...]] = {}
    for uuid, pid, memory, name in _rows(text, 4):
        user, *groups = known.get(pid, [None])
        container = _CONTAINER.search(" ".join(map(str, groups)))
        holder = Holder(_whole(pid), user, name, _mib(memory), container[0] if container else None)
        found[uuid] = (*found.get(uuid, ()), holder)
    return found


def _rows(text: str, columns: int) -> list[list[str]]:
    """The last column may contain commas: names are free text."""
    found = []
    for line in text.splitlines():
        row = next(csv.reader([line], skipinitialspace=True, quoting=csv.QUOTE_NONE), [])
        if not row or line.startswith("No running processes"):
            continue
        if len(row) < columns:
            raise DdtreeError(f"nvidia-smi answers what was not asked: {line}")
        found.append([*map(str.strip, row[: columns - 1]), ", ".join(row[columns - 1 :]).strip()])
    return found


def _absent(text: str) -> bool:
    """`[N/A]`, `[Not Supported]`, `[Unknown Error]`, `[GPU requires reset]`, `ERR!`."""
    return text.startswith("[") or text in ("N/A", "ERR!", "")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DdtreeError(f"nvidia-smi answers '{text}' where a number belongs") from None


def _mib(text: str) -> int | None:
    return None if _absent(text) else _whole(text)


def _switch(text: str) -> bool | None:
    return None if _absent(text) else text == "Enabled"
