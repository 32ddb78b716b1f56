"""Makes DDTREE known to SGLang, through SGLang's own registry of algorithms.

`spec_info` imports this module at its end, in every process; heavier modules load when used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

if TYPE_CHECKING:
    import torch
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.dflash_info import DFlashVerifyInput


class DDTreeAlgorithm(CustomSpecAlgo):
    """DFLASH in all but the verify pass."""

    def is_dflash_family(self) -> bool:
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    def supports_grammar_overlap(self) -> bool:
        return True

    # The next three the registry does not ask for, and the scheduler calls them all the same.
    def need_topk(self) -> bool:
        return False

    def carries_draft_hidden_states(self) -> bool:
        return False

    def create_future_map(self, *args: Any, **kwargs: Any) -> Any:
        # The enum's method needs nothing of the enum.
        return SpeculativeAlgorithm.create_future_map(self, *args, **kwargs)

    def handle_server_args(self, server_args: ServerArgs) -> None:
        from .arguments import handle_ddtree

        handle_ddtree(server_args)

    def get_num_tokens_per_req_for_target_verify(
        self, num_draft_tokens: int, is_draft_worker: bool
    ) -> int:
        """Rows of one request: the block for the drafter, the tree for the target."""
        if not is_draft_worker:
            return num_draft_tokens
        from sglang.srt.runtime_context import get_spec

        return int(get_spec().speculative_dflash_block_size)

    def dummy_verify_input(
        self, server_args: ServerArgs, custom_mask: torch.Tensor | None
    ) -> DFlashVerifyInput | None:
        """What CUDA graphs are captured with; None where the target verifies a chain."""
        from .arguments import tree_shape, verifies_tree
        from .verify_input import TreeVerifyInput

        if not verifies_tree(server_args):
            return None
        return TreeVerifyInput.for_capture(tree_shape(server_args), custom_mask)


@SpeculativeAlgorithm.register("DDTREE", supports_overlap=True, spec_class=DDTreeAlgorithm)
def _worker_class(_server_args: ServerArgs) -> type:
    from .worker import DDTreeWorker

    return DDTreeWorker
