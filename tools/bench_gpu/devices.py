"""What nvidia-smi says about the GPUs of this machine, and who holds how much of them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.hosts import gpus
from ddtree_ops_cli.hosts.gpus import Holder

from .services import Device

_CLOCKS = (
    "--query-gpu=index,clocks.sm,clocks.mem,temperature.gpu,power.draw,power.limit,"
    "clocks_event_reasons.active --format=csv,noheader,nounits"
)
_LIMIT_S = 30


def devices() -> tuple[Device, ...]:
    """DdtreeError if nvidia-smi fails or sees no GPU."""
    found = tuple(
        Device(gpu.index, gpu.uuid, gpu.name, gpu.memory_total_mib or 0)
        for gpu in gpus.parse(_ask(gpus.QUERY), {})
    )
    if not found:
        raise DdtreeError("nvidia-smi lists no GPU", mend="run this on a GPU host")
    return found


def driver() -> str:
    return gpus.parse(_ask(gpus.QUERY), {})[0].driver


def used_gib() -> dict[str, float]:
    """By UUID, of everybody together."""
    return {gpu.uuid: (gpu.memory_used_mib or 0) / 1024 for gpu in gpus.parse(_ask(gpus.QUERY), {})}


def holders() -> Mapping[str, tuple[Holder, ...]]:
    """By UUID."""
    return gpus.parse_holders(_ask(gpus.HOLDERS_QUERY), "")


def clocks() -> list[str]:
    """One line a GPU: clocks, heat, power and why it throttles, for the record."""
    return _ask(_CLOCKS).splitlines()


def _ask(query: str) -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", *query.split()],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        code, said = done.returncode, done.stdout + done.stderr
    except FileNotFoundError:
        code, said = 127, ""
    except subprocess.TimeoutExpired:
        code, said = 124, ""
    if code:
        why = gpus.failure(code, said)
        raise DdtreeError(why.what, mend=why.mend)
    return done.stdout
