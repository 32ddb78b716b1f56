"""Forget services that were stopped long ago: our own, by their labels, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import LockHeld
from ..output.console import warn
from ..output.progress import step
from ..services.runtimes import Instance, Runtime
from .audit import at_work

_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Pruned:
    forgotten: tuple[Instance, ...]
    """Or to be forgotten, in a dry run."""
    spared: tuple[tuple[Instance, str], ...]
    """Each with the reason."""


def reasons_to_spare(
    kept: Sequence[Instance], *, older_than_s: float, now: float, latest_too: bool
) -> list[str]:
    """Of each kept service, `now` by the host's clock; "" for one to forget. Pure.

    One that was stopped later than now, before that clock was set back, is as if stopped now. The
    latest of each GPU is what a rollback needs: it is spared unless `latest_too`.
    """
    latest: dict[int, Instance] = {}
    for instance in kept:
        known = latest.get(instance.labels.gpu)
        if known is None or (instance.stopped_at or 0) > (known.stopped_at or 0):
            latest[instance.labels.gpu] = instance

    def reason(instance: Instance) -> str:
        if not latest_too and latest[instance.labels.gpu] is instance:
            return f"the latest of GPU {instance.labels.gpu} (--latest-too)"
        if max(0.0, now - (instance.stopped_at or 0)) < older_than_s:
            return f"stopped less than {older_than_s / 3600:g} h ago (--older-than)"
        return ""

    return [reason(instance) for instance in kept]


def prune(
    runtime: Runtime, *, older_than_s: float, latest_too: bool, purpose: str, dry_run: bool
) -> Pruned:
    """A GPU at which somebody works is left alone, with a warning."""
    kept = runtime.kept()
    reasons = reasons_to_spare(
        kept, older_than_s=older_than_s, now=runtime.clock.now, latest_too=latest_too
    )
    chosen = [instance for instance, reason in zip(kept, reasons, strict=True) if not reason]
    forgotten: list[Instance] = [] if not dry_run else chosen
    for gpu in sorted({i.labels.gpu for i in chosen}) if not dry_run else ():
        mine = [i for i in chosen if i.labels.gpu == gpu]
        try:
            with at_work(runtime, gpu, purpose=purpose) as journal:
                # A rollback may have been faster.
                still = {i.identity for i in runtime.kept()}
                ours = [i for i in mine if i.identity in still]
                names = ", ".join(i.identity for i in ours)
                journal.begin(command=purpose, playbook="prune", gpu=gpu, detail=names)
                for instance in ours:
                    with step(f"forget {instance.title} ({instance.identity})"):
                        runtime.remove(instance, grace_s=_GRACE_S)
                    forgotten.append(instance)
                journal.end("done", f"forgot {names}")
        except LockHeld as held:
            warn(f"GPU {gpu} is left alone: {held}")
    spared = zip(kept, reasons, strict=True)
    return Pruned(
        tuple(forgotten), tuple((i, why or "in use") for i, why in spared if i not in forgotten)
    )
