"""Masks on float arrays, at every width that there may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import allowed, same, true
from clients.conformance.harness.talk import UNCONSTRAINED, Talk

WIDTHS: Final = (1, 2, 31, 32, 33, 63, 64, 65, 100, 300, 4097)
KINDS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "one token": lambda token, width: token == width - 1,
    "the first token": lambda token, _width: token == 0,
    "every token": lambda _token, _width: True,
    "all but one": lambda token, width: token != width // 2,
    "every third": lambda token, _width: token % 3 == 0,
    "whole words": lambda token, _width: token // 32 % 2 == 0,
}


def packed(legal: Sequence[int], width: int) -> str:
    """A mask as it is sent, in hex."""
    words = bytearray(4 * ((width + 31) // 32))
    for token in legal:
        words[token // 8] |= 1 << (token % 8)
    return words.hex()


@case()
def a_mask_forbids_what_it_does_not_name(talk: Talk) -> None:
    """Forbidden logits become -inf, all others stay as they are, at widths that are whole words and that are not."""
    for width in WIDTHS:
        for kind, bit in KINDS.items():
            what = f"{kind} at width {width}"
            legal = [token for token in range(width) if bit(token, width)]
            # One logit is -inf already: it stays so, whatever the mask says.
            logits: list[float | str] = [float(token % 17) - 8.5 for token in range(width)]
            logits[width // 3] = "-inf"
            answer = talk.ok("mask", logits=logits, mask=packed(legal, width))
            wanted = [logits[token] if bit(token, width) else "-inf" for token in range(width)]
            same(_floats(answer["logits"]), _floats(wanted), what)
            same(answer["allowed"], legal, f"{what}: the allowed tokens")


@case()
def a_mask_of_another_width_is_refused(talk: Talk) -> None:
    """A mask with too few or too many words for the logits is refused by the client itself, never stretched."""
    for words in (0, 1, 3):
        talk.refused({"kind": "argument"}, "mask", logits=[1.0] * 40, mask="ffffffff" * words)


@case()
def an_unconstrained_mask_names_the_real_tokens(talk: Talk) -> None:
    """Without a constraint every token of the vocabulary is legal: neither its holes nor what lies past it."""
    talk.begin()
    answer = talk.open("s", UNCONSTRAINED)
    same(allowed(answer["directive"]), [token for token in range(263) if token != 259], "the allowed tokens")
    true(len(answer["directive"]["mask"]) == 2 * 40, "the mask does not have 10 words for 300 logits")


def _floats(values: list[Any]) -> list[Any]:
    """JSON of some languages writes 1.0 as 1."""
    return [value if isinstance(value, str) else float(value) for value in values]
