"""How many draft tokens the target accepted, from what an answer reports about itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Draft tokens proposed and accepted over some verify steps."""

    verify_steps: int
    correct_drafts: int
    """Accepted draft tokens; the bonus token of each step is not one."""
    proposed_drafts: int
    off_spine: int | None
    """Accepted drafts that are not on the drafter's argmax chain; None: the engine does not say."""

    @property
    def accept_length(self) -> float:
        """Tokens per verify step, bonus token included.

        SGLang's own `spec_accept_length` divides all completion tokens by the verify steps, and so
        counts the token of the prefill: it flatters short outputs.
        """
        return 1 + self.correct_drafts / self.verify_steps

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Acceptance | None:
        """Acceptance of one request from its `meta_info`; None when no step was verified.

        That is so for plain decoding, and for a request that ended with its prefill.
        """
        steps = _count(meta, "spec_verify_ct")
        if not steps:
            return None
        return cls(
            verify_steps=steps,
            correct_drafts=_count(meta, "spec_num_correct_drafts") or 0,
            proposed_drafts=_count(meta, "spec_num_proposed_drafts") or 0,
            off_spine=_count(meta, "spec_num_off_spine_drafts"),
        )


def merged(parts: Iterable[Acceptance | None]) -> Acceptance | None:
    """The acceptance of several requests together, weighted by their verify steps.

    Requests without a verify step add nothing; None when none had one. `off_spine` is None as
    soon as one part does not know it, because a partial count would read as a small one.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    off_spine = [part.off_spine for part in known if part.off_spine is not None]
    return Acceptance(
        verify_steps=sum(part.verify_steps for part in known),
        correct_drafts=sum(part.correct_drafts for part in known),
        proposed_drafts=sum(part.proposed_drafts for part in known),
        off_spine=sum(off_spine) if len(off_spine) == len(known) else None,
    )


def _count(meta: Mapping[str, Any], key: str) -> int | None:
    value = meta.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
