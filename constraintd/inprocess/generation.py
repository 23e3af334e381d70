"""generate_constrained: from a prompt to its completion, one constrained token at a time."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from constraintd.errors import ConstraintdError
from constraintd.inprocess.constrained_sampler import ConstrainedSampler
from constraintd.inprocess.errors import ConstraintError, GenerateConstraintError, GenerateRuntimeError
from constraintd.inprocess.rows import Row
from constraintd.vocabulary.vocabulary import Vocabulary


class Model(Protocol):
    """A language model; keys and values of the tokens it has seen are its own business."""

    def prefill(self, tokens: Sequence[int]) -> Row:
        """Begins a new text with these tokens (at least one). The raw logits of what follows, [logits_width]."""
        ...

    def decode(self, token: int) -> Row:
        """Goes on by one token. The raw logits of what follows, [logits_width]."""
        ...


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """How long a generation may get; how its tokens are picked is the inner sampler's."""

    max_tokens: int
    """Tokens that are sampled at most, an EOG included."""

    def __post_init__(self) -> None:
        """Raises ValueError for a negative number."""
        if self.max_tokens < 0:
            raise ValueError(f"max_tokens is {self.max_tokens}; expected 0 or more")


def _ignore(token: int, text: str) -> None:
    """For callers that wait for the whole text."""


def generate_constrained(
    model: Model,
    vocabulary: Vocabulary,
    prompt: str,
    config: GenerationConfig,
    constrained: ConstrainedSampler,
    on_token: Callable[[int, str], None] = _ignore,
) -> str:
    """The completion of `prompt`, without the prompt and without the EOG that ended it.

    `vocabulary` is the tokenizer: its encoder turns the prompt into tokens, its bytes turn tokens into text. An empty
    prompt becomes the vocabulary's BOS; before any other none is put. At most `max_tokens` are sampled; for 0 there is
    no forward pass.

    `on_token` gets each token of the completion (the EOG is none) with the text that it finishes: the bytes of an
    unfinished character wait for the tokens that end it. What never becomes UTF-8 is U+FFFD; one that is still
    unfinished at the end stands only in the returned text.

    `constrained` should be fresh or reset: it goes on from the history that it has.

    Raises GenerateRuntimeError where tokenising, the model or the inner sampler fails, and GenerateConstraintError
    where the constraint leaves no token, or its engine gives up; the text so far is then dropped. What `on_token`
    raises goes through.

    Source: generate_constrained of kopitiam-runtime.
    """
    tokens = _encode(vocabulary, prompt)
    text: list[str] = []
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for position in range(config.max_tokens):
        token = _sample(constrained, _forward(model, tokens, position, vocabulary.logits_width))
        if token in vocabulary.eog_ids:
            break
        piece = decoder.decode(vocabulary.bytes_of(token))
        text.append(piece)
        on_token(token, piece)
        tokens = [token]
    return "".join(text) + decoder.decode(b"", final=True)


def _encode(vocabulary: Vocabulary, prompt: str) -> list[int]:
    """The prompt's tokens, at least one. Raises GenerateRuntimeError."""
    if not prompt:
        if vocabulary.bos_id is None:
            raise GenerateRuntimeError("the prompt is empty and the vocabulary has no BOS id to begin from; give text")
        return [vocabulary.bos_id]
    if vocabulary.encoder is None:
        raise GenerateRuntimeError("the vocabulary has no text encoder, so no prompt can be read; load one that has")
    try:
        tokens = vocabulary.encoder.encode(prompt)
    except Exception as error:
        raise GenerateRuntimeError(f"the prompt could not be turned into tokens: {error}") from error
    if not tokens:
        raise GenerateRuntimeError("the encoder made no token of the prompt; give text that it knows")
    return tokens


def _forward(model: Model, tokens: Sequence[int], position: int, width: int) -> Row:
    """The logits at this position, [width]. Raises GenerateRuntimeError."""
    try:
        logits = model.prefill(tokens) if position == 0 else model.decode(tokens[0])
    except Exception as error:
        raise GenerateRuntimeError(f"the model's forward pass failed at position {position}: {error}") from error
    if np.shape(logits) != (width,):
        raise GenerateRuntimeError(
            f"the model's logits have shape {np.shape(logits)}, the vocabulary says ({width},); "
            "use the vocabulary that was made for this model"
        )
    return logits


def _sample(constrained: ConstrainedSampler, logits: Row) -> int:
    try:
        return constrained.try_sample(logits)
    except (ConstraintError, ConstraintdError) as error:
        raise GenerateConstraintError(str(error)) from error
    except Exception as error:
        raise GenerateRuntimeError(f"sampling failed: {error}") from error
