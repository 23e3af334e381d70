"""Chats to token ids, by the model's own Jinja template.

The template writes special tokens as text, and a message could spell them too: "<|im_end|>" inside a message must not
end it. What a template wrote and what it was given can't be told apart in its output, so messages are disguised before:
every special token that a message spells (and a beginning or end of one at its edges, which could join with what the
template writes beside it) is replaced by a number that nobody can guess. The rendered text then has only the template's
special tokens; it is split at those, and the numbers between them turn back into what they stood for, as plain text.

Templates test, trim and join messages; a number passes through all of that. One that cuts a message at a fixed length
may leave half a number in the prompt, which is noise, but never a special token.

Where nothing was disguised, which is nearly always, the whole text goes through the tokenizer at once, as the reference
implementation (`apply_chat_template` of transformers) has it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from constraintd_runner.special import SpecialTokens
from constraintd_runner.tokenizer import TextTokenizer

if TYPE_CHECKING:
    import jinja2

_NONCE_DIGITS: Final = 32
_INDEX_DIGITS: Final = 6


class ChatTemplateError(ValueError):
    """The template refused the chat, or is itself not valid."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message: who speaks, and what was said."""

    role: str
    content: str


class ChatTemplate:
    """A model's chat template, compiled. Safe to use from several threads."""

    def __init__(self, source: str, variables: Mapping[str, str]) -> None:
        """`variables`: what templates call `bos_token`, `eos_token` and the like. Raises ChatTemplateError."""
        import jinja2

        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ChatTemplateError(f"the model's chat template is not valid: {error}") from error
        self._variables = dict(variables)

    def render(self, turns: Sequence[ChatTurn]) -> str:
        """The chat as text that ends where the assistant's answer begins. Raises ChatTemplateError."""
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        try:
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=True, **self._variables
            )
        except Exception as error:
            # Templates fail with Jinja's own errors, and with TypeError and the like out of their expressions.
            raise ChatTemplateError(f"the model's chat template refused the chat: {error}") from error

    def encode(self, turns: Sequence[ChatTurn], tokenizer: TextTokenizer) -> list[int]:
        """The chat's token ids; special tokens are the template's own and nobody else's. Raises ChatTemplateError."""
        special = tokenizer.special
        disguise = Disguise(special)
        rendered = self.render([ChatTurn(disguise.hide(turn.role), disguise.hide(turn.content)) for turn in turns])
        if not disguise.hidden:
            ids = tokenizer.encode_rendered(rendered)
            known = set(special.ids.values())
            # A normalizer may turn other characters into a special token's; then it is not the template's.
            if [token for token in ids if token in known] == special.found_in(rendered):
                return ids
        return special.encode_around(rendered, lambda text: tokenizer.encode(disguise.reveal(text)))


class Disguise:
    """Hides spelled special tokens in one chat's messages behind numbers, and turns the numbers back."""

    def __init__(self, special: SpecialTokens) -> None:
        self._special = special
        self._nonce = "".join(secrets.choice("0123456789") for _ in range(_NONCE_DIGITS))
        self._marks = re.compile(f"{self._nonce}([0-9]{{{_INDEX_DIGITS}}})")
        self.hidden: list[str] = []

    def hide(self, text: str) -> str:
        """The text with numbers in place of special tokens and of their parts at either edge (white space aside)."""
        text = self._special.pattern.sub(lambda found: self._mark(found.group()), text)
        end = len(text.rstrip())
        if size := self._special.begun_at_end(text[:end]):
            text = text[: end - size] + self._mark(text[end - size : end]) + text[end:]
        start = len(text) - len(text.lstrip())
        if size := self._special.ended_at_start(text[start:]):
            text = text[:start] + self._mark(text[start : start + size]) + text[start + size :]
        return text

    def reveal(self, text: str) -> str:
        """The text with what the numbers stood for."""
        return self._marks.sub(lambda found: self.hidden[int(found.group(1))], text)

    def _mark(self, text: str) -> str:
        self.hidden.append(text)
        return f"{self._nonce}{len(self.hidden) - 1:0{_INDEX_DIGITS}}"


def _environment() -> jinja2.Environment:
    """Jinja as chat templates expect it (see transformers' chat_template_utils), in a sandbox without side effects."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own would escape <, > and & for HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise ChatTemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
