"""What a request with tools gets at its end: its answer taken apart into content and calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from constraintd_client import Finish, TokenTable

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd.v1 import session_pb2
from constraintd_runner.final_text import Piece, final_pieces, mark, marked_text, unmark
from constraintd_runner.reasoning import reasons_after, split_reasoning
from constraintd_runner.special import SpecialTokens
from constraintd_runner.tool_calls import (
    HERMES,
    LLAMA3_JSON,
    LLAMA3_OPENINGS,
    MISTRAL,
    MISTRAL_ARGS,
    CallFormat,
    parse_tool_calls,
)

_FORMATS: Final = {
    session_pb2.TOOL_CALL_FORMAT_HERMES: HERMES,
    session_pb2.TOOL_CALL_FORMAT_LLAMA3_JSON: LLAMA3_JSON,
    session_pb2.TOOL_CALL_FORMAT_MISTRAL: MISTRAL,
    session_pb2.TOOL_CALL_FORMAT_MISTRAL_ARGS: MISTRAL_ARGS,
}


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """How to take one request's answer apart."""

    table: TokenTable
    call_format: CallFormat | None
    """None: the answer may have no calls, so none are looked for."""
    calls_alone: bool
    """The answer is calls and nothing else, so other text is a call that was cut off."""
    reasoning: session_pb2.ReasoningEnd | None
    """If given, the answer begins behind the first such end; what is before is content."""

    def read(self, tokens: Sequence[int], finish: Finish) -> pb.ToolAnswer:
        """Content and calls of the accepted tokens, special ones by their spelling."""
        pieces: Sequence[Piece] = final_pieces(tokens, finish, self.table)
        thoughts = ""
        if self.reasoning is not None:
            before, pieces = split_reasoning(pieces, self.reasoning, self.table)
            thoughts = unmark(marked_text(before))
        text = marked_text(pieces)
        if self.call_format is None:
            return pb.ToolAnswer(content=thoughts + unmark(text))
        answer = parse_tool_calls(text, self.call_format)
        content, malformed = answer.content, answer.malformed.text if answer.malformed else ""
        if self.calls_alone and not malformed:
            content, malformed = "", content.strip()
        return pb.ToolAnswer(
            content=thoughts + unmark(content),
            calls=[
                pb.ToolCall(id=call.id, name=unmark(call.name), arguments=unmark(call.arguments_json))
                for call in answer.calls
            ],
            malformed=unmark(malformed),
        )


def tools_of(constraint: session_pb2.Constraint) -> session_pb2.ToolCalls | None:
    """The constraint's tool_calls, of several in an all_of the first; None if it has none."""
    parts = constraint.all_of.constraints if constraint.WhichOneof("kind") == "all_of" else [constraint]
    return next((part.tool_calls for part in parts if part.WhichOneof("kind") == "tool_calls"), None)


def answer_reader(
    constraint: session_pb2.Constraint,
    reasoning_end: session_pb2.ReasoningEnd | None,
    prompt: Sequence[int],
    table: TokenTable,
    special: SpecialTokens,
) -> AnswerReader | None:
    """The reader for a request that the daemon has taken; None if its constraint has no tool_calls. Of several in an
    all_of, the first one says how calls are written. `special`: the table's.
    """
    tools = tools_of(constraint)
    if tools is None:
        return None
    choice = _choice_of(tools)
    still_reasons = reasoning_end is not None and reasons_after(prompt, reasoning_end, table)
    return AnswerReader(
        table,
        call_format=None if choice == "none" else _call_format(tools, choice == "auto", special),
        calls_alone=choice not in ("auto", "none"),
        reasoning=reasoning_end if still_reasons else None,
    )


def _choice_of(tools: session_pb2.ToolCalls) -> str:
    """ "auto", "none", or another word where the answer is calls alone. The daemon has checked it."""
    choice = tools.tool_choice.decode().strip() or "auto"
    value = json.loads(choice) if choice[0] in '"{' else choice
    return value if isinstance(value, str) else "named"


def _call_format(tools: session_pb2.ToolCalls, is_lazy: bool, special: SpecialTokens) -> CallFormat:
    """The format with its markers as they stand in a marked text.

    In free text (`is_lazy`) only what wakes the daemon's grammar begins a call: what else looks like one was never
    held to the tool's schema, and stays text. A marker that is more than one special token is looked for there in the
    text alone.
    """
    form = _FORMATS[tools.format] if tools.WhichOneof("wire_format") == "format" else _template(tools.template)
    begin = form.begin if is_lazy and form.begin not in special.ids else mark(form.begin, special)
    if is_lazy and form.opening:
        form = replace(form, opening="|".join(map(re.escape, LLAMA3_OPENINGS)))
    return replace(
        form,
        begin=begin,
        end=mark(form.end, special),
        arguments_mark=mark(form.arguments_mark, special),
        id_mark=mark(form.id_mark, special),
    )


def _template(template: session_pb2.ToolCallTemplate) -> CallFormat:
    return CallFormat(
        template.begin.decode(),
        template.end.decode(),
        name_key=template.name_key.decode() or "name",
        arguments_key=template.arguments_key.decode() or "arguments",
        separator=template.separator.decode(),
    )
