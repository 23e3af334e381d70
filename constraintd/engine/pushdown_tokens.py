"""Token elements of GBNF, `<[7]>`, `<think>`, `!<[7]>`: which ids they match in one vocabulary.

A spelling is that of a special token or, where none has it, the bytes of a text token. A negated element matches every
other real id, specials included, but never EOG and never what GBNF always masks (text that begins with NUL).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from constraintd.errors import InvalidGrammar
from constraintd.grammar.gbnf_rules import TokenElement
from constraintd.mask.packed import Words, has, of_ids
from constraintd.vocabulary.trie import TokenTrie
from constraintd.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TokenSet:
    """What a token element matches: these ids, or with `negated` all others that it may match."""

    ids: tuple[int, ...]
    negated: bool


class TokenNames:
    """Token elements resolved in one vocabulary. Immutable."""

    def __init__(self, vocabulary: Vocabulary, trie: TokenTrie) -> None:
        self._vocabulary = vocabulary
        self._trie = trie
        width = vocabulary.logits_width
        # The lowest id wins where two special tokens are spelled alike.
        self._spellings: Mapping[str, int] = {name: token for token, name in reversed(list(vocabulary.special.items()))}
        nul = [token for token, data in enumerate(vocabulary.token_bytes[:width]) if data.startswith(b"\0")]
        self._others = vocabulary.real_ids & ~of_ids(vocabulary.eog_ids, width) & ~of_ids(nul, width)

    def resolve(self, element: TokenElement) -> TokenSet:
        """The ids of an element. Raises InvalidGrammar for one that names no token, or that no text can hold."""
        name = element.spelling or f"id {element.token_id}"
        if element.spelling is None:
            ids = [-1 if element.token_id is None else element.token_id]
        elif element.spelling in self._spellings:
            ids = [self._spellings[element.spelling]]
        else:
            ids = self._ids_of(element.spelling.encode())
        known = [token for token in ids if has(self._vocabulary.real_ids, token)]
        line, _, column = element.location.partition(":")
        where = f"at line {line} column {column}"
        if not known:
            raise InvalidGrammar(
                f"grammar.gbnf: token {name} {where} is not one token of this vocabulary; write text in quotes, or "
                "name a token by its id as in <[7]>",
                location=element.location,
            )
        if not element.negated and not any(has(self._others, token) for token in known):
            raise InvalidGrammar(
                f"grammar.gbnf: token {name} {where} is never part of a text, since it ends the generation or begins "
                "with NUL; leave it out: an end is legal wherever the grammar is complete",
                location=element.location,
            )
        return TokenSet(tuple(known), element.negated)

    def matches(self, tokens: TokenSet, token: int) -> bool:
        """Whether an element takes this token."""
        return has(self._others, token) and (token in tokens.ids) != tokens.negated

    def add(self, tokens: TokenSet, words: Words) -> None:
        """Sets the bits of all tokens that an element takes."""
        named = of_ids(tokens.ids, 32 * len(words))
        words |= self._others & (~named if tokens.negated else named)

    def _ids_of(self, data: bytes) -> list[int]:
        """The text tokens with exactly these bytes: one, or its duplicates."""
        order, table = self._trie.order, self._vocabulary.token_bytes
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            if table[int(order[middle])] < data:
                low = middle + 1
            else:
                high = middle
        found = []
        while low < len(order) and table[int(order[low])] == data:
            found.append(int(order[low]))
            low += 1
        # The trie leaves EOG out; found here, it gets the error that says so.
        return sorted(found) or [eog for eog in self._vocabulary.eog_ids if self._vocabulary.bytes_of(eog) == data]
