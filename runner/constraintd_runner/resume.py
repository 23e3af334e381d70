"""A session that was taken over, seen from a caller who has had a part of it already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from constraintd_client.session_changes import Resumed
from numpy.typing import NDArray

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd_runner.errors import ContextExceeded, InvalidRequest, OtherVocabulary
from constraintd_runner.text import SettledText

_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Unseen:
    """What the caller has not seen yet."""

    tokens: tuple[int, ...]
    text: str


def unseen_by(request: pb.ResumeGenerationRequest, resumed: Resumed, text: SettledText) -> Unseen:
    """The settled rest behind what the caller has seen; `text` then stands at its end, with all tokens accepted.

    Raises InvalidRequest for a caller who has seen more than there is, or stands in the middle of a character: nothing
    that could be sent would go on from there.
    """
    if request.seen_tokens > len(resumed.tokens):
        raise InvalidRequest(
            f"the session has {len(resumed.tokens)} tokens, and you have seen {request.seen_tokens}: it was rolled "
            "back, or its store has lost some; begin again with what it has",
            field="seen_tokens",
            expected_position=str(len(resumed.tokens)),
        )
    for token in resumed.tokens:
        text.accept(token)
    directive = resumed.session.directive
    settled = text.settle(directive.settled_bytes)
    if directive.finish is not None:
        settled += text.finish(directive.finish.cut_offset)
    shown = settled.encode()
    if request.seen_text_bytes > len(shown):
        raise InvalidRequest(
            f"the session has {len(shown)} bytes of settled text, and you have seen {request.seen_text_bytes}: it was "
            "rolled back, or its store has lost some; begin again with what it has",
            field="seen_text_bytes",
            expected_bytes=str(len(shown)),
        )
    try:
        rest = shown[request.seen_text_bytes :].decode()
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"byte {request.seen_text_bytes} of the text is in the middle of a character; count whole ones",
            field="seen_text_bytes",
        ) from None
    return Unseen(resumed.tokens[request.seen_tokens :], rest)


def check_fits(resumed: Resumed, vocabulary_id: str, context_length: int) -> None:
    """Raises OtherVocabulary or ContextExceeded where this runner's model can't go on with the session to its end."""
    if resumed.vocabulary_id != vocabulary_id:
        raise OtherVocabulary(
            f"the session is of vocabulary {resumed.vocabulary_id}, and this runner's model has {vocabulary_id}; "
            "resume it at a runner of its own model"
        )
    if resumed.session.directive.mask is None:
        return
    fed = sum(len(turn.prompt_tokens) for turn in resumed.turns) + len(resumed.tokens)
    needed = fed + token_limit(resumed) - len(resumed.tokens)
    if needed > context_length:
        bounded = token_limit(resumed) < _NO_LIMIT
        raise ContextExceeded(
            f"prompt and tokens are {fed}, and the session may go on to {needed if bounded else 'any number'}; the "
            f"context holds {context_length}: resume it at a runner with a longer one, or lower its max_tokens first",
            limit=str(context_length),
            actual=str(needed if bounded else fed),
        )


def token_limit(resumed: Resumed) -> int:
    """The position at which the session ends at the latest."""
    sampler = resumed.session.sampler
    if sampler is None or not sampler.HasField("max_tokens"):
        return _NO_LIMIT
    return resumed.turns[-1].position + sampler.max_tokens


def model_input(resumed: Resumed) -> NDArray[np.int64]:
    """What the model has to be fed before the next token: ids [n >= 1]. Raises InvalidRequest if that is nothing."""
    fed = resumed.model_input()
    if not fed:
        raise InvalidRequest("the session has neither prompt nor tokens for a model to begin from", field="session_id")
    return np.array(fed, dtype=np.int64)


def exact_passes(resumed: Resumed) -> Sequence[int]:
    """Lengths of the forward passes that an uninterrupted runner has run at this position; they sum up to the input.

    The record ends before the last Step, and what was fed since is tokens one by one. Raises InvalidRequest where there
    is no whole record.
    """
    fed = len(resumed.model_input())
    if not resumed.tokens:
        return (fed,)
    since = fed - sum(resumed.passes)
    last_turn = len(resumed.tokens) - resumed.turns[-1].position
    if not resumed.passes or since < 0 or since > last_turn:
        raise InvalidRequest(
            "the forward passes that made these tokens are not known, since not every runner has reported them; resume "
            "without `exact`",
            field="exact",
        )
    return (*resumed.passes, *[1] * since)
