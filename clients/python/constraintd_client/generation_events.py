"""A generation's request and events as values. The sync and the asyncio client share this translation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from constraintd.runner.v1 import generation_service_pb2

from .chat import Prompt as Prompt  # also exported from here
from .chat import Tools, chat_prompt
from .constraints import ReasoningEnd
from .directive import Finish, finish_of
from .errors import ConstraintdError, IncompleteGeneration
from .grammars import ConstraintLike
from .grammars import constraint as constraint_message
from .json_document import utf8
from .resuming import Seen
from .samplers import SamplerConfig
from .tools import ToolAnswer, tool_answer_of


@dataclass(frozen=True, slots=True)
class Started:
    """The session is open and the prompt is in; of a resumed generation: it is this runner's now."""

    session_id: bytes
    """The session's id at the daemon."""
    seed: int
    """The seed in force."""
    prompt_tokens: int
    """Prompt length in tokens."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and the natural logarithm of its probability."""

    token_id: int
    logprob: float
    """At most 0."""


@dataclass(frozen=True, slots=True)
class PositionLogprobs:
    """The log probabilities at one position, after the mask and before penalties and stages."""

    taken: TokenLogprob
    """The token that was taken."""
    top: tuple[TokenLogprob, ...]
    """The most probable ones, descending, ties by the lowest id; fewer where fewer are legal."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What has been generated since the last Delta."""

    token_ids: tuple[int, ...]
    """Tokens, in order; their text may come in a later Delta."""
    text: str
    """Newly settled text."""
    logprobs: tuple[PositionLogprobs, ...] = ()
    """One a token, for a generation that was asked for them."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a generation took; times in microseconds."""

    prompt_tokens: int
    completion_tokens: int
    """Tokens generated, the terminal one included."""
    prefill_us: int
    decode_us: int
    mask_wait_us: int
    """Time that the decode loop stood still for this session's masks."""
    mask_wait_us_p50: float
    """Median of those stand-stills, a token."""
    mask_wait_us_p99: float
    """Their 99th percentile."""
    wire_bytes: int
    """Bytes of this session's Steps and Directives."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a generation that did not fail."""

    finish: Finish
    usage: Usage
    tool_answer: ToolAnswer | None = None
    """The answer taken apart, for a constraint that has `tool_calls`."""


Event: TypeAlias = Started | Delta | Finished


def generate_request(
    prompt: Prompt,
    constraint: ConstraintLike,
    sampler: SamplerConfig | None,
    reasoning_end: ReasoningEnd | None = None,
    logprobs: int | None = None,
    tools: Tools | None = None,
    *,
    resumable: bool = False,
    session_id: bytes | None = None,
) -> generation_service_pb2.GenerateRequest:
    """The request. Raises TypeError for a prompt that mixes messages and tokens, is neither, or has tools and is no
    chat; TypeError or ValueError for a message's member that can't be sent. A resumable one gets a random session id,
    if none is given.
    """
    request = generation_service_pb2.GenerateRequest(
        constraint=constraint_message(constraint),
        sampler=sampler,
        reasoning_end=reasoning_end,
        logprobs=logprobs,
        resumable=resumable,
        session_id=os.urandom(16) if resumable and session_id is None else session_id,
    )
    messages = [] if isinstance(prompt, str | bytes) else [each for each in prompt if isinstance(each, Mapping)]
    if tools is not None and not messages:
        raise TypeError("tools are for a chat's template; give the prompt as a list of messages, or leave them out")
    if isinstance(prompt, str | bytes):
        request.text = utf8(prompt)
    elif messages and len(messages) == len(prompt):
        request.chat.CopyFrom(chat_prompt(messages, tools))
    elif messages:
        raise TypeError("a prompt is text, a list of chat messages or a list of token ids, not a mixture")
    else:
        token_ids = [token for token in prompt if not isinstance(token, Mapping)]
        request.tokens.CopyFrom(generation_service_pb2.TokenPrompt(ids=token_ids))
    return request


class Transcript:
    """What has come of one generation so far; fed in order, by the one thread or task that iterates."""

    def __init__(self, before: Seen | None = None) -> None:
        """`before`: what the caller had seen of the generation already."""
        self._seen = before or Seen()
        self._started: Started | None = None
        self._finished: Finished | None = None
        self._token_ids: list[int] = []
        self._texts: list[str] = []
        self._logprobs: list[PositionLogprobs] = []

    @property
    def text(self) -> str:
        """All settled text so far; final once `finish` is there."""
        return "".join(self._texts)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens so far."""
        return tuple(self._token_ids)

    @property
    def logprobs(self) -> tuple[PositionLogprobs, ...]:
        """The log probabilities so far, one a token; empty if they were not asked for."""
        return tuple(self._logprobs)

    @property
    def finish(self) -> Finish | None:
        """Why and where it ended; None before the end."""
        return self._finished.finish if self._finished else None

    @property
    def usage(self) -> Usage | None:
        """What it took; None before the end."""
        return self._finished.usage if self._finished else None

    @property
    def tool_answer(self) -> ToolAnswer | None:
        """Content and calls, for a constraint that has `tool_calls`; None before the end, and for others."""
        return self._finished.tool_answer if self._finished else None

    @property
    def session_id(self) -> bytes | None:
        """The session's id at the daemon; None before Started."""
        return self._started.session_id if self._started else None

    @property
    def seed(self) -> int | None:
        """The seed in force; None before Started."""
        return self._started.seed if self._started else None

    def _accept(self, message: generation_service_pb2.GenerateResponse) -> Event | None:
        """Takes the next message in; None for an event that is newer than this client."""
        match message.WhichOneof("event"):
            case "started":
                if self._started is not None:
                    return None  # it was resumed
                started = message.started
                self._started = Started(started.session_id, started.seed, started.prompt_tokens)
                return self._started
            case "delta":
                positions = tuple(_position_logprobs_of(position) for position in message.delta.logprobs)
                delta = Delta(tuple(message.delta.token_ids), message.delta.text, positions)
                self._token_ids.extend(delta.token_ids)
                self._logprobs.extend(positions)
                self._texts.append(delta.text)
                self._seen = Seen(
                    self._seen.tokens + len(delta.token_ids), self._seen.text_bytes + len(delta.text.encode())
                )
                return delta
            case "finished":
                finished = message.finished
                answer = tool_answer_of(finished.tool_answer) if finished.HasField("tool_answer") else None
                self._finished = Finished(finish_of(finished.finish), _usage_of(finished.usage), answer)
                return self._finished
        return None

    def _failed(self, error: ConstraintdError) -> ConstraintdError:
        """The error, with the text so far as its fragment."""
        error.fragment = self.text
        return error

    def _ended(self) -> None:
        """The stream ended OK. Raises IncompleteGeneration, with the fragment, if Finished had not come."""
        if self._finished is None:
            raise self._failed(IncompleteGeneration("the runner's stream ended without Finished"))


def _position_logprobs_of(message: generation_service_pb2.PositionLogprobs) -> PositionLogprobs:
    return PositionLogprobs(_logprob_of(message.taken), tuple(_logprob_of(token) for token in message.top))


def _logprob_of(message: generation_service_pb2.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(message.token_id, message.logprob)


def _usage_of(message: generation_service_pb2.Usage) -> Usage:
    return Usage(
        prompt_tokens=message.prompt_tokens,
        completion_tokens=message.completion_tokens,
        prefill_us=message.prefill_us,
        decode_us=message.decode_us,
        mask_wait_us=message.mask_wait_us,
        mask_wait_us_p50=message.mask_wait_us_p50,
        mask_wait_us_p99=message.mask_wait_us_p99,
        wire_bytes=message.wire_bytes,
    )
