"""A byte-level BPE tokenizer of 4,096 entries, learned from the training text; a chat template."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .shapes import CONTEXT_LENGTH, SPECIAL_TOKENS, VOCAB_SIZE

# Words with their leading space, single digits, runs of symbols, line ends with their indentation.
SPLIT = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


def learn_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learn the merges; the four special tokens get the last four ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_TOKENS])
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise SystemExit(
            f"the training text gives {tokenizer.get_vocab_size()} tokens, {VOCAB_SIZE} are needed"
        )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    """Write the tokenizer, its settings, the chat template and generation_config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    end_of_text, im_start, im_end, mask = SPECIAL_TOKENS
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT_LENGTH,
        "eos_token": im_end,
        "pad_token": end_of_text,
        "additional_special_tokens": [im_start, mask],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    ids = {
        "eos_token_id": tokenizer.token_to_id(im_end),
        "pad_token_id": tokenizer.token_to_id(end_of_text),
        "do_sample": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    (directory / "generation_config.json").write_text(json.dumps(ids, indent=2) + "\n")
