"""Chats to token ids, by the model's own Jinja template.

The template writes special tokens as text, and a message could spell them too: "<|im_end|>" inside a message must not
end it. What a template wrote and what it was given can't be told apart in its output, so messages are disguised before:
every special token that a message spells (and a beginning or end of one at its edges, which could join with what the
template writes beside it) is replaced by a number that nobody can guess. The rendered text then has only the template's
special tokens; it is split at those, and the numbers between them turn back into what they stood for, as plain text.

Templates test, trim and join messages; a number passes through all of that. One that cuts a message at a fixed length
may leave half a number in the prompt, which is noise, but never a special token. The same goes for all texts inside of
tools and tool calls, which templates mostly write as JSON; a special token whose spelling JSON would escape comes back
unescaped.

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
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from constraintd_runner.special import SpecialTokens
from constraintd_runner.tokenizer import TextTokenizer

if TYPE_CHECKING:
    import jinja2

_NONCE_DIGITS: Final = 32
_INDEX_DIGITS: Final = 6
# Members of messages, calls and tools, and the keywords of a schema that templates spell out.
_ASKED_FOR: Final = frozenset(
    [
        *("role", "content", "name", "tool_calls", "tool_call_id", "id", "type", "function", "arguments"),
        *("description", "parameters", "properties", "required", "items", "additionalProperties"),
        *("enum", "const", "default", "anyOf", "oneOf", "allOf", "$ref", "$defs"),
    ]
)

Json: TypeAlias = Any
"""What `json.loads` gives."""


class ChatTemplateError(ValueError):
    """The template refused the chat, or is itself not valid."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message: who speaks, and what was said. Templates see the other members only where they are not empty."""

    role: str
    content: str
    tool_calls: tuple[Json, ...] = ()
    """Calls that it made, in OpenAI's form, their arguments as objects."""
    tool_call_id: str = ""
    """The call that it answers."""
    name: str = ""
    """The speaker's name, or the function's whose result it is."""

    def members(self) -> dict[str, Json]:
        """The message as templates see it."""
        optional = {"tool_calls": list(self.tool_calls), "tool_call_id": self.tool_call_id, "name": self.name}
        return {"role": self.role, "content": self.content} | {key: value for key, value in optional.items() if value}


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

    def render(self, turns: Sequence[ChatTurn], tools: Sequence[Json] = ()) -> str:
        """The chat as text that ends where the assistant's answer begins. Raises ChatTemplateError.

        `tools`: in OpenAI's form; a template that asks for none leaves them out.
        """
        return self._render([turn.members() for turn in turns], list(tools))

    def _render(self, messages: Json, tools: Json) -> str:
        try:
            # No tools are None: templates test for that as often as for an empty list.
            return self._template.render(
                messages=messages, tools=tools or None, documents=None, add_generation_prompt=True, **self._variables
            )
        except Exception as error:
            # Templates fail with Jinja's own errors, and with TypeError and the like out of their expressions.
            raise ChatTemplateError(f"the model's chat template refused the chat: {error}") from error

    def encode(self, turns: Sequence[ChatTurn], tokenizer: TextTokenizer, tools: Sequence[Json] = ()) -> list[int]:
        """The chat's token ids; special tokens are the template's own and nobody else's. Raises ChatTemplateError."""
        special = tokenizer.special
        disguise = Disguise(special)
        messages = disguise.hide_all([turn.members() for turn in turns])
        rendered = self._render(messages, disguise.hide_all(list(tools)))
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

    def hide_all(self, value: Json) -> Json:
        """The value with every text in it hidden; of an object's names, all that templates don't ask for."""
        match value:
            case str():
                return self.hide(value)
            case list():
                return [self.hide_all(item) for item in value]
            case dict():
                return {
                    name if name in _ASKED_FOR else self.hide(name): self.hide_all(item) for name, item in value.items()
                }
        return value

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
