"""The DDTREE worker: DFLASH's drafter, a tree instead of its chain.

A step is: draft a block (DFLASH's own code and graph), rank candidates, build the trees, verify all
nodes in one target pass, walk, keep the accepted path. Nothing in it waits for the device.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.managers.scheduler import GenerationBatchResult
from sglang.srt.model_executor.cuda_graph_config import Backend
from sglang.srt.runtime_context import get_exec
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.eagle_utils import eagle_sample
from sglang.srt.speculative.spec_utils import (
    GrammarTree,
    build_grammar_vocab_mask,
    commit_mamba_states_after_verify,
    prepare_mamba_track_for_verify,
)

from .accept import AcceptedPath, accepted_path
from .arguments import tree_shape, verifies_tree
from .sampler import CandidateSampler, vocabulary_shard
from .simulation import Simulation
from .steps_log import StepsLog, accepted_at_least
from .tree import DraftTree, build_tree, fill_tree_mask
from .verify_input import TreeVerifyInput


class DDTreeWorker(DFlashWorkerV2):
    """Drafts blocks and verifies trees; in shadow mode it verifies the chain beside the tree."""

    def __init__(
        self, server_args: ServerArgs, gpu_id: int, ps: Any, nccl_port: int, target_worker: Any
    ):
        if not hasattr(DFlashWorkerV2, "_verify_draft"):
            raise RuntimeError(
                "SGLang has the modules of DDTREE but not all of its patches (the seam of "
                "dflash_worker_v2.py is missing); apply the whole patch set"
            )
        if target_worker.model_runner.is_hybrid_swa:
            raise ValueError(
                "DDTREE does not support targets with sliding-window attention yet; use "
                "--speculative-algorithm DFLASH"
            )
        super().__init__(_chain_args(server_args), gpu_id, ps, nccl_port, target_worker)
        self.server_args = server_args
        self.speculative_num_draft_tokens = server_args.speculative_num_draft_tokens
        self._shape = tree_shape(server_args)
        self._verifies_tree = verifies_tree(server_args)
        self._simulation = Simulation.asked_for(self._shape) if self._verifies_tree else None
        target_model = target_worker.model_runner.model
        self._shard = vocabulary_shard(getattr(target_model, "lm_head", None), get_tp_group())
        self._candidates = self._candidate_sampler(max_batch=0)
        log = server_args.speculative_ddtree_log_steps
        self._log = None
        if log is not None and ps.tp_rank == 0:
            self._log = StepsLog(log, server_args.speculative_ddtree_mode)

    def _candidate_sampler(self, *, max_batch: int) -> CandidateSampler:
        return CandidateSampler(
            self._shard, block_size=self.block_size, cap=self._shape.cap, max_batch=max_batch
        )

    def _maybe_build_draft_sampler(self) -> CandidateSampler:
        """The tail of the draft graph: candidates instead of DFLASH's argmax."""
        decode = get_exec().graph.cuda_graph_config.decode
        assert decode.backend != Backend.DISABLED
        self._candidates = self._candidate_sampler(max_batch=max(decode.bs))
        return self._candidates

    def _draft_tree(
        self, batch: Any, draft_out: Any, roots: torch.Tensor, prefix_lens: torch.Tensor
    ) -> DraftTree:
        rows = len(prefix_lens) * self._shape.depth
        if self._draft_sampler is not None and draft_out.can_run_graph:
            log_probs = self._candidates.log_probs[:rows]
            tokens = self._candidates.tokens[:rows]
        else:
            log_probs, tokens = self._candidates.rank(draft_out.logits_output.hidden_states)
        return build_tree(
            log_probs,
            tokens,
            self._shape,
            roots=roots,
            prefix_lens=prefix_lens,
            pool_indices=batch.req_pool_indices,
            req_to_token=self.model_runner.req_to_token_pool.req_to_token,
        )

    def _verify_draft(self, **drafted: Any) -> GenerationBatchResult:
        """See DFlashWorkerV2._verify_draft, which verifies the chain of the same block."""
        batch, prefix_lens = drafted["batch"], drafted["prefix_lens"]
        tree = self._draft_tree(
            batch, drafted["draft_out"], drafted["block_ids"][:, 0], prefix_lens
        )
        if self._verifies_tree:
            return self._verify_tree(
                batch,
                drafted["draft_input"],
                tree,
                prefix_lens,
                drafted["on_publish"],
                drafted["grammar_barrier"],
            )
        prepare_mamba_track_for_verify(batch)
        result = super()._verify_draft(**drafted)
        if self._log is not None:
            accepted = result.accept_lens.to(torch.int64) - 1
            bonus = result.next_draft_input.bonus_tokens
            self._log.note("tree_at_least", accepted_at_least(tree, prefix_lens, accepted, bonus))
        return result

    def _update_target_mamba_state_after_verify(
        self, *, batch: Any, seq_lens_pre_verify: torch.Tensor, commit_lens: torch.Tensor
    ) -> None:
        """The chain's states in shadow mode. DFLASH's own code never saves one for prefix reuse: it
        compares the sequence lengths with a copy of themselves."""
        rows = torch.arange(len(commit_lens) * self.block_size, device=commit_lens.device)
        commit_mamba_states_after_verify(
            self.target_worker,
            batch,
            commit_lens,
            rows.view(-1, self.block_size),
            self.block_size,
        )

    def _verify_tree(
        self,
        batch: Any,
        draft_input: Any,
        tree: DraftTree,
        prefix_lens: torch.Tensor,
        on_publish: Any,
        grammar_barrier: Any,
    ) -> GenerationBatchResult:
        grammar_tree = None
        if batch.has_grammar:
            # Its copy to the host has to start ahead of the target's launch.
            grammar_tree = GrammarTree.from_device(tree.next_token, tree.next_sibling, tree.tokens)
        prepare_mamba_track_for_verify(batch)
        verify_input, forward_batch = self._prepare_verify(batch, draft_input, tree, prefix_lens)
        target_out = self.target_worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
        )
        logits_output = target_out.logits_output

        grammar_mask = None
        if grammar_tree is not None:
            grammar_mask = build_grammar_vocab_mask(
                reqs=batch.reqs,
                tree=grammar_tree,
                sampling_info=batch.sampling_info,
                device=logits_output.next_token_logits.device,
                barrier=grammar_barrier,
            )
        predict, accept_lens, accept_index = eagle_sample(
            verify_input, batch, logits_output, grammar_mask
        )
        if self._simulation is not None:
            accept_index = self._simulation.moved(accept_index, accept_lens)
        path = accepted_path(
            tree,
            self._shape,
            accept_index=accept_index,
            accept_lens=accept_lens,
            predict=predict,
            prefix_lens=prefix_lens,
        )
        commit_mamba_states_after_verify(
            self.target_worker, batch, accept_lens, accept_index, self._shape.nodes
        )
        # From the slots that were read before the pass: by now the scheduler may be writing to
        # req_to_token again.
        batch.token_to_kv_pool_allocator.get_kvcache().move_kv_cache(
            path.to_slots.view(-1), path.from_slots.view(-1)
        )
        if on_publish is not None:
            on_publish(path.new_seq_lens)
        self._feed_drafter(logits_output, path, accept_lens)
        if self._log is not None:
            self._log.note("off_spine", path.off_spine)
        return GenerationBatchResult(
            logits_output=logits_output,
            next_token_ids=path.tokens.view(-1),
            accept_lens=accept_lens,
            off_spine_drafts=path.off_spine,
            can_run_cuda_graph=target_out.can_run_cuda_graph,
            next_draft_input=self._make_next_draft_input_decode(
                bonus_tokens=path.bonus, new_seq_lens=path.new_seq_lens
            ),
            speculative_num_draft_tokens=self._shape.path,
            new_seq_lens=path.new_seq_lens,
        )

    def _prepare_verify(
        self, batch: Any, draft_input: Any, tree: DraftTree, prefix_lens: torch.Tensor
    ) -> tuple[TreeVerifyInput, Any]:
        """The verify input, its mask filled, and the forward batch of the target."""
        committed, committed_sum = batch.seq_lens_cpu, batch.seq_lens_sum
        # Attention backends plan on the host with upper bounds of the lengths, as for the chain.
        if committed is not None:
            bound = committed + self._shape.nodes
        else:
            bound = draft_input.reserved_seq_lens_cpu
        bound_sum = None if bound is None else int(bound.sum())
        mask = self._mask_buffer(len(prefix_lens), bound_sum)
        fill_tree_mask(tree, prefix_lens, self._shape, mask)
        verify_input = TreeVerifyInput.of(tree, self._shape, mask)

        batch.out_cache_loc = tree.slots.view(-1)
        batch.seq_lens_cpu, batch.seq_lens_sum = bound, bound_sum
        forward_batch, _ = verify_input.prepare_for_verify(batch, self.target_worker)
        batch.seq_lens_cpu, batch.seq_lens_sum = committed, committed_sum
        return verify_input, forward_batch

    def _mask_buffer(self, batch_size: int, lens_sum: int | None) -> torch.Tensor:
        """The mask that CUDA graphs were captured with, or one for this eager step."""
        if lens_sum is None:
            lens_sum = batch_size * self.model_runner.model_config.context_len
        nodes = self._shape.nodes
        cells = nodes * (lens_sum + batch_size * nodes)
        captured = self.model_runner.attn_backend.verify_mask
        if captured is not None and captured.fits(batch_size):
            # Replay copies the mask that it is given onto itself: no more of it than is read.
            return captured.buffer[:cells]
        return torch.empty((cells,), dtype=torch.uint8, device=self.device)

    def _feed_drafter(
        self, logits_output: Any, path: AcceptedPath, accept_lens: torch.Tensor
    ) -> None:
        """Gives the drafter the target's features of the accepted nodes, and of no others."""
        hidden = logits_output.hidden_states
        if hidden is None:
            raise RuntimeError("DDTREE needs the target's hidden states, but the pass has none")
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=hidden.index_select(0, path.rows.view(-1)),
            cache_loc=path.to_slots.view(-1),
            cache_loc_2d=path.to_slots,
            positions=path.positions.view(-1),
            commit_lens=accept_lens,
        )
        # Overlap scheduling would copy them to the host.
        logits_output.hidden_states = None

    def on_verify_complete_cpu(
        self, num_correct_drafts_per_req: list[int], batch_size: int = 0
    ) -> None:
        if self._log is not None:
            self._log.write(num_correct_drafts_per_req)


def _chain_args(server_args: ServerArgs) -> ServerArgs:
    """What the drafter is built with: its block is a chain, whatever the target verifies."""
    chain = deepcopy(server_args)
    chain.override(
        "ddtree.drafter",
        speculative_num_draft_tokens=server_args.speculative_dflash_block_size,
        speculative_eagle_topk=1,
    )
    # A cached property, copied with the tree's value.
    chain.__dict__.pop("max_speculative_num_draft_tokens", None)
    return chain
