"""What is to run on a host, as the checks ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..profiles.load import Loaded
    from ..profiles.schema import ServiceProfile


def intent_of(service: Loaded[ServiceProfile]) -> dict[str, Any]:
    """Pure: from a service profile. Keys as `portable.checks.Facts.intent` names them."""
    engine = service.value.engine
    words = engine.extra_args
    found: dict[str, Any] = {"algorithm": service.value.algorithm}
    if engine.attention_backend is not None:
        found["attention_backend"] = engine.attention_backend
    if "--quantization" in words[:-1]:
        found["quantization"] = words[words.index("--quantization") + 1]
    return found
