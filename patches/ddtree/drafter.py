"""Which drafters DDTREE refuses: those of another target, told from their config.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs


def refuse_foreign_drafter(server_args: ServerArgs, block_size: int) -> None:
    """Raises ValueError of one line: what differs, whose config.json, what to do instead.

    A drafter whose weights contradict its own config.json is refused by SGLang when it loads them.
    """
    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
    from sglang.srt.utils.hf_transformers_utils import get_config

    path = server_args.speculative_draft_model_path
    drafter = get_config(
        path,
        trust_remote_code=server_args.trust_remote_code,
        revision=server_args.speculative_draft_model_revision,
        model_override_args=json.loads(server_args.json_model_override_args),
    )
    declared = parse_dflash_draft_config(draft_hf_config=drafter)
    target = server_args.get_model_config().hf_text_config
    mine = drafter.get_text_config()

    def differ(what: str, drafters: Any, targets: Any) -> ValueError:
        return ValueError(
            f"the drafter {path} (config.json) has {what} {drafters}, the target "
            f"{server_args.model_path} has {targets}; use the drafter that was trained for this "
            "target"
        )

    if mine.vocab_size != target.vocab_size:
        raise differ("a vocabulary of", mine.vocab_size, target.vocab_size)
    if mine.hidden_size != target.hidden_size:
        raise differ("a hidden size of", mine.hidden_size, target.hidden_size)
    layers = target.num_hidden_layers
    if declared.num_target_layers not in (None, layers):
        raise differ("num_target_layers", declared.num_target_layers, layers)
    if any(not 0 <= layer < layers for layer in declared.target_layer_ids or ()):
        raise differ("target_layer_ids", declared.target_layer_ids, f"{layers} layers")
    if declared.block_size not in (None, block_size):
        raise ValueError(
            f"--speculative-dflash-block-size {block_size} differs from the drafter's block_size "
            f"{declared.block_size} ({path}, config.json); leave it out"
        )
