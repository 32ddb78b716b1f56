"""What `--speculative-algorithm DDTREE` means for SGLang's other settings, and what it refuses.

Runs once, while ServerArgs resolves itself, before any weight is read. A refusal is a ValueError of
one line: what, the flag or file, and what to do instead.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .drafter import refuse_foreign_drafter
from .patched import refuse_half_patched
from .tree import TreeShape

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)

DEFAULT_BUDGET = 16
DEFAULT_CAP = 8
MAX_BUDGET = 256
"""The paper finds little beyond a few hundred nodes, and the conv kernel unrolls all of them."""


def default_chain_seed(budget: int, block_size: int) -> int:
    """A quarter of the budget goes to the spine, as far as the block reaches.

    Measured on the lab pair of this project; the same rule as its reference engine.
    """
    return min(block_size - 1, budget // 4)


def tree_shape(server_args: ServerArgs) -> TreeShape:
    """The shape that resolved arguments ask for."""
    return TreeShape(
        budget=server_args.speculative_ddtree_budget,
        depth=server_args.speculative_dflash_block_size - 1,
        cap=server_args.speculative_ddtree_topk_cap,
        seed=server_args.speculative_ddtree_chain_seed,
    )


def verifies_tree(server_args: ServerArgs) -> bool:
    """False in shadow mode, where only the spine is verified."""
    return server_args.speculative_ddtree_mode == "tree"


def refuse_stray_flags(server_args: ServerArgs) -> None:
    """DDTREE's flags without DDTREE, which SGLang would ignore in silence. ValueError names one."""
    if (server_args.speculative_algorithm or "").upper() == "DDTREE":
        return
    for name, unset in (
        ("budget", None),
        ("topk_cap", None),
        ("chain_seed", None),
        ("mode", "tree"),
        ("allow_hybrid_unsafe", False),
        ("log_steps", None),
    ):
        if getattr(server_args, f"speculative_ddtree_{name}") != unset:
            raise ValueError(
                f"--speculative-ddtree-{name.replace('_', '-')} belongs to --speculative-algorithm "
                f"DDTREE, not to {server_args.speculative_algorithm or 'plain decoding'}; leave it "
                "out, or add --speculative-algorithm DDTREE"
            )


def handle_ddtree(server_args: ServerArgs) -> None:
    """Resolves DFLASH's arguments for a block, then widens the verify pass to the tree.

    Afterwards `speculative_num_draft_tokens` counts the rows that the target verifies and
    `speculative_dflash_block_size` those of the drafter.
    """
    from sglang.srt.arg_groups.speculative_hook import _handle_dflash

    refuse_half_patched()
    _refuse_bad_sizes(server_args)
    _refuse_shadow_without_log(server_args)
    asked = server_args.speculative_num_draft_tokens
    budget = server_args.speculative_ddtree_budget or DEFAULT_BUDGET
    if asked is not None and asked != budget + 1:
        raise ValueError(
            f"--speculative-num-draft-tokens {asked} contradicts a budget of {budget} nodes "
            "besides the root; leave it out and set --speculative-ddtree-budget"
        )
    server_args.speculative_num_draft_tokens = None
    _handle_dflash(server_args)
    block_size = server_args.speculative_num_draft_tokens
    server_args.speculative_dflash_block_size = block_size
    refuse_foreign_drafter(server_args, block_size)

    server_args.speculative_ddtree_budget = budget
    server_args.speculative_ddtree_topk_cap = server_args.speculative_ddtree_topk_cap or DEFAULT_CAP
    seed = server_args.speculative_ddtree_chain_seed
    if seed is None:
        seed = default_chain_seed(budget, block_size)
    server_args.speculative_ddtree_chain_seed = min(seed, block_size - 1, budget)
    _refuse_impossible_shape(tree_shape(server_args))
    _refuse_unsupported_settings(server_args)
    _save_states_aside(server_args)
    server_args.speculative_ddtree_state = "exact"
    if verifies_tree(server_args):
        _refuse_unsupported_backend(server_args)
        server_args.speculative_ddtree_state = _recurrent_state(server_args)
        server_args.speculative_num_draft_tokens = budget + 1
        # SGLang reads this only as "the draft is a tree": dense conv windows, parent links.
        server_args.speculative_eagle_topk = 2
        _refuse_short_track_interval(server_args)


def refuse_states_beyond_memory(
    server_args: ServerArgs,
    *,
    available: float,
    left: float,
    state: float,
    slots: int,
    slots_per_request: int,
) -> None:
    """The verify pass of a tree keeps one recurrent state per node of each running request.

    `available` and `left` GiB before and after those are set aside, `state` GiB of one state,
    `slots` for committed states as SGLang computed them. Raises ValueError where not even one
    request can run, with the largest budget for which one can.
    """
    if not verifies_tree(server_args):
        return
    if slots >= slots_per_request and left > (slots + 1) * state:
        return
    # SGLang's pools have a padding row each: slots + 1 states, and two times the nodes.
    nodes = int((_share_of_states(server_args) * available / state - slots_per_request - 1) // 2)
    asked = server_args.speculative_ddtree_budget
    largest = min(nodes - 1, MAX_BUDGET)
    # Where SGLang chose how many requests run, it tried one; rounding must not contradict it.
    if not (server_args.disable_radix_cache or server_args.max_mamba_cache_size is not None):
        largest = min(largest, asked - 1)
    if largest >= asked:
        mend = (
            f"with --max-running-requests 1 the largest budget that fits is {largest}; lower "
            "--max-running-requests or --speculative-ddtree-budget"
        )
    elif largest >= 1:
        mend = (
            f"the largest budget that fits is {largest}, with --max-running-requests 1; lower "
            "--speculative-ddtree-budget"
        )
    else:
        mend = "no budget fits; give the server more memory (--mem-fraction-static, a larger GPU)"
    raise ValueError(
        f"--speculative-ddtree-budget {asked} keeps {asked + 1} recurrent states of "
        f"{state * 1024:.3g} MiB per running request, more than fits in {available:.1f} GiB; {mend}"
    )


def _share_of_states(server_args: ServerArgs) -> float:
    """The part of memory that SGLang gives to recurrent states; the rest is for keys and values."""
    if server_args.disable_radix_cache or server_args.max_mamba_cache_size is not None:
        return 1.0
    ratio = server_args.mamba_full_memory_ratio
    return ratio / (1 + ratio)


def _refuse_bad_sizes(server_args: ServerArgs) -> None:
    budget = server_args.speculative_ddtree_budget
    if budget is not None and not 1 <= budget <= MAX_BUDGET:
        raise ValueError(f"--speculative-ddtree-budget must be 1 to {MAX_BUDGET}, got {budget}")
    cap = server_args.speculative_ddtree_topk_cap
    if cap is not None and cap < 1:
        raise ValueError(f"--speculative-ddtree-topk-cap must be at least 1, got {cap}")
    seed = server_args.speculative_ddtree_chain_seed
    if seed is not None and seed < 0:
        raise ValueError(f"--speculative-ddtree-chain-seed must be at least 0, got {seed}")


def _refuse_shadow_without_log(server_args: ServerArgs) -> None:
    """Nothing but the log says what the tree would have won."""
    if not verifies_tree(server_args) and server_args.speculative_ddtree_log_steps is None:
        raise ValueError(
            f"--speculative-ddtree-mode {server_args.speculative_ddtree_mode} builds trees to log "
            "what they would have won, and has no log; add --speculative-ddtree-log-steps FILE"
        )


def _refuse_impossible_shape(shape: TreeShape) -> None:
    if shape.depth < 1:
        raise ValueError(
            "the drafter's block_size is 1, which leaves nothing to draft; use a drafter with "
            "larger blocks or set --speculative-dflash-block-size"
        )
    if shape.cap > shape.largest_cap:
        raise ValueError(
            f"--speculative-ddtree-topk-cap {shape.cap} is too large for a block of "
            f"{shape.depth + 1}; the largest is {shape.largest_cap}"
        )
    if shape.budget > shape.capacity:
        raise ValueError(
            f"--speculative-ddtree-budget {shape.budget} is more than the {shape.capacity} nodes "
            f"that --speculative-ddtree-topk-cap {shape.cap} allows in a block of "
            f"{shape.depth + 1}; lower the budget or raise the cap"
        )


def _refuse_unsupported_settings(server_args: ServerArgs) -> None:
    from sglang.srt.arg_groups.overrides import resolved_view

    view = resolved_view(server_args)
    for unsupported, what, mend in (
        ((view.page_size or 1) > 1, f"--page-size {view.page_size}", "set --page-size 1"),
        (
            view.disaggregation_mode != "null",
            f"--disaggregation-mode {view.disaggregation_mode}",
            "serve prefill and decode from one server",
        ),
        (
            view.mamba_radix_cache_strategy == "extra_buffer_lazy",
            "--mamba-radix-cache-strategy extra_buffer_lazy",
            "use --mamba-radix-cache-strategy extra_buffer",
        ),
        (
            view.enable_linear_replayssm_spec,
            "--enable-linear-replayssm-spec, which replays a chain",
            "leave it out",
        ),
        (
            view.enable_deterministic_inference,
            "--enable-deterministic-inference, whose attention kernel reads the whole mask",
            "leave it out",
        ),
        (
            server_args.use_mla_backend(),
            "multi-head latent attention yet",
            "use --speculative-algorithm DFLASH",
        ),
        (view.enable_two_batch_overlap, "--enable-two-batch-overlap", "leave it out"),
        (view.dcp_size > 1, f"--dcp-size {view.dcp_size}", "leave it out"),
        (view.speculative_adaptive, "--speculative-adaptive", "leave it out"),
    ):
        if unsupported:
            raise ValueError(f"DDTREE does not support {what}; {mend}")


def _refuse_unsupported_backend(server_args: ServerArgs) -> None:
    from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view

    for backend in attention_backends_of(resolved_view(server_args)):
        if backend != "triton":
            raise ValueError(
                f"DDTREE has no tree mask for attention backend {backend}; "
                "set --attention-backend triton"
            )


def _save_states_aside(server_args: ServerArgs) -> None:
    """What prefix reuse keeps of a recurrent target must not be a state that a step still writes.

    Under overlap scheduling a finished request's own state is already a step ahead of its tokens,
    so SGLang keeps saved states aside (extra_buffer). It does so for the architectures that it
    lists, and the text-only Qwen3.5 classes are not among them.
    """
    from sglang.srt.arg_groups.overrides import resolved_view
    from sglang.srt.configs.hybrid_arch import mambaish_config

    view = resolved_view(server_args)
    if (
        view.disable_radix_cache
        or view.disable_overlap_schedule
        or mambaish_config(server_args.get_model_config()) is None
        or view.mamba_radix_cache_strategy == "extra_buffer"
    ):
        return
    if view.mamba_radix_cache_strategy != "auto":
        raise ValueError(
            f"--mamba-radix-cache-strategy {view.mamba_radix_cache_strategy} saves states that "
            "overlap scheduling still writes to; leave it out, or add --disable-overlap-schedule"
        )
    server_args.mamba_radix_cache_strategy = "extra_buffer"


def _refuse_short_track_interval(server_args: ServerArgs) -> None:
    """SGLang checks this for the chain, before the tree is known."""
    from sglang.srt.arg_groups.overrides import resolved_view

    view = resolved_view(server_args)
    rows = server_args.speculative_num_draft_tokens
    if view.mamba_radix_cache_strategy == "extra_buffer" and view.mamba_track_interval < rows:
        raise ValueError(
            f"--mamba-track-interval {view.mamba_track_interval} is shorter than the {rows} nodes "
            "of a tree; raise it, or lower --speculative-ddtree-budget"
        )


def _recurrent_state(server_args: ServerArgs) -> str:
    """`exact` where each node starts from its parent's recurrent state, else `unsafe`."""
    from sglang.srt.configs.hybrid_arch import hybrid_gdn_config, mambaish_config

    config = server_args.get_model_config()
    if mambaish_config(config) is None or hybrid_gdn_config(config) is not None:
        if server_args.speculative_ddtree_allow_hybrid_unsafe:
            logger.info(
                "DDTREE: --speculative-ddtree-allow-hybrid-unsafe has no effect here, the "
                "recurrent state of this target is exact."
            )
        return "exact"
    kind = (config.hf_config.architectures or ["this target"])[0]
    if not server_args.speculative_ddtree_allow_hybrid_unsafe:
        raise ValueError(
            f"DDTREE is exact on attention and on gated DeltaNet (Triton); the recurrent layers of "
            f"{kind} are not known to start a node from its parent's state. Serve it with "
            "--speculative-algorithm DFLASH, or, to experiment with wrong states, add "
            "--speculative-ddtree-allow-hybrid-unsafe"
        )
    logger.warning("DDTREE: the recurrent state of %s may leak between sibling nodes.", kind)
    return "unsafe"
