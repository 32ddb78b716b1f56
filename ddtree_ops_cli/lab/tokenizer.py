"""Text to tokens and back: `tokenizer.json`, the chat template, and text that grows by tokens.

Files and their meaning follow transformers: `tokenizer.json` (the `tokenizers` library reads it),
`tokenizer_config.json` for the names of the special tokens, and the chat template either in
`chat_template.jinja` or inside `tokenizer_config.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import DdtreeError

if TYPE_CHECKING:
    from jinja2 import Template
    from tokenizers import Tokenizer as Vocabulary  # type: ignore[import-untyped]

CONTEXT_TOKENS = 5
"""Prompt tokens that a growing text looks back on, for vocabularies whose words join up."""

UNFINISHED = "\ufffd"
"""What the bytes of an unfinished character decode to."""


class TemplateError(Exception):
    """The chat template refuses these messages, or there is none; the words are for the client."""


class Tokenizer:
    """The tokenizer of one model directory. Safe to share between threads once loaded."""

    def __init__(
        self, vocabulary: Vocabulary, template: Template | None, special: Mapping[str, str]
    ) -> None:
        self._vocabulary = vocabulary
        self._template = template
        self._special = special
        eos = special.get("eos_token")
        self.eos_token_id: int | None = vocabulary.token_to_id(eos) if eos else None

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Read the tokenizer of a model directory; DdtreeError names the file that is at fault."""
        from tokenizers import Tokenizer as Vocabulary

        file = directory / "tokenizer.json"
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise DdtreeError(
                f"cannot read the tokenizer: {error.strerror}",
                where=str(file),
                mend="a model directory holds config.json, tokenizer.json and *.safetensors",
            ) from error
        try:
            vocabulary = Vocabulary.from_str(text)
        except Exception as error:  # the Rust library raises no narrower type
            raise DdtreeError(
                f"not a tokenizer: {error}", where=str(file), mend="copy the file again"
            ) from error
        config = _json(directory / "tokenizer_config.json")
        special = {
            name: token if isinstance(token, str) else token.get("content", "")
            for name, token in config.items()
            if name.endswith("_token") and isinstance(token, str | dict)
        }
        return cls(vocabulary, _template(directory, config), special)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = self._vocabulary.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text: str = self._vocabulary.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def chat(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> list[int]:
        """Tokens of a conversation up to where the assistant speaks.

        `options` are passed to the template (`chat_template_kwargs`). Raises TemplateError.
        """
        import jinja2

        if self._template is None:
            raise TemplateError("this model has no chat template: use /v1/completions or /generate")
        try:
            text = self._template.render(
                messages=messages, add_generation_prompt=True, **self._special, **options
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise TemplateError(f"the chat template refuses the messages: {error}") from error
        # The template writes the special tokens itself.
        return self.encode(text, add_special_tokens=False)


class GrowingText:
    """The text of an answer while its tokens arrive.

    A token may hold part of a character, or join with its neighbour, so text is settled only
    where the decoded bytes are whole: the tokens since the last settled place are decoded twice,
    with and without the newest, as SGLang's detokenizer does (srt/managers/detokenizer_manager.py).
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], *, skip_special_tokens: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids = list(prompt[-CONTEXT_TOKENS:])
        self._context = 0
        self._settled = len(self._ids)
        self.text = ""
        """What is settled so far."""

    def push(self, token: int) -> None:
        self._ids.append(token)
        fresh = self._fresh()
        if fresh and not fresh.endswith(UNFINISHED):
            self.text += fresh
            self._context, self._settled = self._settled, len(self._ids)

    def finish(self) -> str:
        """The whole text, an unfinished character included."""
        self.text += self._fresh()
        self._context = self._settled = len(self._ids)
        return self.text

    def _fresh(self) -> str:
        decode = self._tokenizer.decode
        known = decode(self._ids[self._context : self._settled], skip_special_tokens=self._skip)
        return decode(self._ids[self._context :], skip_special_tokens=self._skip)[len(known) :]


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DdtreeError(f"not JSON: {error}", where=str(file), mend="copy it again") from error
    return found if isinstance(found, dict) else {}


def _template(directory: Path, config: Mapping[str, Any]) -> Template | None:
    file = directory / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(source, list):  # several named templates
        source = next((one["template"] for one in source if one.get("name") == "default"), None)
    if not isinstance(source, str):
        return None
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # A template comes with the model, from strangers: no attribute access, no changing of values.
    # The options and names are those that transformers gives to templates.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise DdtreeError(
            f"the chat template does not parse: {error}", where=str(directory)
        ) from error


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    import jinja2

    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
