"""Where a model's reasoning ends, and whether its prompt has ended it already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.errors import InvalidField
from constraintd.v1 import session_pb2
from constraintd.vocabulary.vocabulary import Vocabulary

_MAX_ENDS = 16


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A session that reasons first: what ends it. Constraints begin with what comes after."""

    triggers: tuple[Trigger, ...]


def reasoning_of(message: session_pb2.ReasoningEnd, prompt: Sequence[int], vocabulary: Vocabulary) -> Reasoning | None:
    """What ends the reasoning, or None where the prompt shows that it is over, or never began.

    Raises InvalidField for no end, too many, and texts that are not UTF-8.
    """
    ends = [(text, "texts") for text in message.texts]
    if not ends and not message.tokens:
        raise InvalidField("reasoning_end", "names no end; set texts or tokens, or leave reasoning_end out")
    if len(ends) + len(message.tokens) > _MAX_ENDS:
        raise InvalidField("reasoning_end", f"names more than {_MAX_ENDS} ends; name fewer")
    triggers = [
        Trigger(TriggerKind.WORD, text=_text(text, f"reasoning_end.texts[{index}]"), exclusive=True)
        for index, text in enumerate(message.texts)
    ]
    triggers += [Trigger(TriggerKind.TOKEN, token=token, exclusive=True) for token in message.tokens]
    if _is_over(message, prompt, vocabulary):
        return None
    return Reasoning(tuple(triggers))


def _is_over(message: session_pb2.ReasoningEnd, prompt: Sequence[int], vocabulary: Vocabulary) -> bool:
    """Looks at the prompt's text, specials by their spelling, since templates write both forms."""
    spelled = [vocabulary.special[t].encode() if t in vocabulary.special else vocabulary.bytes_of(t) for t in prompt]
    text = b"".join(spelled)
    last_end = max((text.rfind(end) for end in message.texts), default=-1)
    offset = 0
    for token, piece in zip(prompt, spelled, strict=True):
        if token in message.tokens:
            last_end = max(last_end, offset)
        offset += len(piece)
    if not message.begin:
        return last_end >= 0
    return text.rfind(message.begin) <= last_end if last_end >= 0 else text.rfind(message.begin) < 0


def _text(text: bytes, where: str) -> str:
    if not text:
        raise InvalidField(where, "is empty; name the text that ends the reasoning")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidField(where, f"not UTF-8 at byte {error.start}") from None
