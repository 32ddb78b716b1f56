"""The command line of an engine. Pure.

The lab's server takes SGLang's own flag names, so one builder serves both.
"""

from __future__ import annotations

import sys

from .spec import ServiceSpec

SGLANG_VERSION = "0.5.17"
"""The release that the patch set is written for."""

# -P: a file of the folder that the operator stands in must not shadow a module of the engine.
LAB_ENGINE = (sys.executable, "-P", "-m", "ddtree_ops_cli.lab.server")


def engine_args(spec: ServiceSpec, *, listen: str | None = None) -> list[str]:
    """Flags of `sglang.launch_server` (sglang/srt/server_args.py) and of the DDTREE patch set.

    `listen` is the address inside a container, where `spec.bind` is the host's.
    """
    args = ["--model-path", spec.target, "--served-model-name", spec.served_name]
    if spec.target_revision is not None:
        args += ["--revision", spec.target_revision]
    args += ["--host", listen or spec.bind, "--port", str(spec.port), "--enable-metrics"]
    for flag, value in spec.engine:
        args += [f"--{flag}", value]
    if spec.algorithm != "none":
        assert spec.drafter is not None, "decide() refuses a drafting service without a drafter"
        args += ["--speculative-algorithm", spec.algorithm]
        args += ["--speculative-draft-model-path", spec.drafter]
    if spec.drafter_revision is not None:
        args += ["--speculative-draft-model-revision", spec.drafter_revision]
    if spec.tree is not None:
        args += ["--speculative-ddtree-budget", str(spec.tree.budget)]
        args += ["--speculative-ddtree-topk-cap", str(spec.tree.topk_cap)]
        args += ["--speculative-ddtree-mode", spec.tree.mode]
        if spec.tree.chain_seed is not None:
            args += ["--speculative-ddtree-chain-seed", str(spec.tree.chain_seed)]
        if spec.tree.allow_hybrid_unsafe:
            args += ["--speculative-ddtree-allow-hybrid-unsafe"]
    return [*args, *spec.extra_args]
