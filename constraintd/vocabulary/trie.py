"""The token trie: every text token's bytes as a path from the root, in arrays that NumPy walks breadth-first.

Nodes are numbered level by level, so a node's children stand side by side; tokens are put in the order of their bytes,
so those below a node stand side by side too and are one range. Every node also knows its *symbols*, what its own byte
and all below it are made of, read as UTF-8 from a character's beginning, and its *height*, the characters of the
longest way down: where those are all that matters, a walk stops (engine/pushdown_loops).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from constraintd.vocabulary.vocabulary import Vocabulary

_BOUNDARY: Final = 0
_NOTHING: Final = 8
"""Where a byte that continues no character leads: nothing more is said about what follows."""

_STRAY: Final = 0xFF
"""The symbol of a byte that continues no character. No UTF-8 text has this byte, so no state loops on it."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenTrie:
    """All arrays are read-only. N nodes (0 is the root), T tokens, S distinct symbol sets."""

    byte: NDArray[np.uint8]  # [N] the byte that leads here; 0 for the root
    first_child: NDArray[np.int32]  # [N] children are first_child .. first_child + child_count - 1
    child_count: NDArray[np.int32]  # [N]
    first_token: NDArray[np.int32]  # [N] position in `order` of the first token at or below the node
    own_end: NDArray[np.int32]  # [N] tokens first_token .. own_end - 1 end right here
    token_end: NDArray[np.int32]  # [N] tokens first_token .. token_end - 1 are at or below
    symbols: NDArray[np.int32]  # [N] number of the node's symbol set
    height: NDArray[np.int32]  # [N] most characters that begin at the node or below, on the way to one token
    symbol_sets: NDArray[np.uint64]  # [S, 4] each 256 bits: bit b of word w is symbol 64 w + b
    order: NDArray[np.int32]  # [T] token ids in the order of their bytes

    @property
    def node_count(self) -> int:
        """Nodes, the root included."""
        return len(self.byte)

    def byte_size(self) -> int:
        """Bytes that the arrays take."""
        return sum(getattr(self, name).nbytes for name in self.__slots__)


def build_trie(vocabulary: Vocabulary) -> TokenTrie:
    """The trie of the vocabulary's text tokens below its logits width, EOG ids left out.

    Tokens without bytes and tokens that begin with NUL are left out as well: GBNF never matches them (llama.cpp).
    About a second for 131,072 tokens.
    """
    eog = set(vocabulary.eog_ids)
    table = vocabulary.token_bytes[: vocabulary.logits_width]
    ids = [token for token, data in enumerate(table) if data and data[0] != 0 and token not in eog]
    ids.sort(key=table.__getitem__)
    tokens = [table[token] for token in ids]
    lengths = np.fromiter(map(len, tokens), dtype=np.int64, count=len(tokens))
    offsets = np.cumsum(lengths) - lengths
    data = np.frombuffer(b"".join(tokens), dtype=np.uint8)
    levels = _levels(lengths, offsets, data)
    parts = {name: np.concatenate([level[name] for level in levels]) for name in levels[0]}
    symbols, symbol_sets = _symbols(levels)
    trie = TokenTrie(
        byte=parts["byte"].astype(np.uint8),
        first_child=parts["first_child"].astype(np.int32),
        child_count=parts["child_count"].astype(np.int32),
        first_token=parts["first_token"].astype(np.int32),
        own_end=parts["own_end"].astype(np.int32),
        token_end=parts["token_end"].astype(np.int32),
        symbols=symbols,
        height=_heights(levels),
        symbol_sets=symbol_sets,
        order=np.array(ids, dtype=np.int32),
    )
    for name in trie.__slots__:
        getattr(trie, name).flags.writeable = False
    return trie


_Level = dict[str, NDArray[np.int64]]


def _levels(lengths: NDArray[np.int64], offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> list[_Level]:
    """The nodes by depth, the root first. `parent` counts within the level above, all else is final."""
    one = np.zeros(1, dtype=np.int64)
    levels: list[_Level] = [
        {
            "byte": one,
            "parent": one,
            "first_token": one,
            "own_end": one,
            "token_end": one + len(lengths),
            "first_child": one,
            "child_count": one,
        }
    ]
    active = np.arange(len(lengths))  # tokens that go deeper than the level, in order
    parent = np.zeros(len(lengths), dtype=np.int64)  # their node in that level
    base = 1  # number of the next level's first node
    depth = 0
    while True:
        deeper = lengths[active] > depth
        active, parent = active[deeper], parent[deeper]
        if not len(active):
            break
        byte = data[offsets[active] + depth].astype(np.int64)
        key = parent * 256 + byte
        begins = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        node_of = np.cumsum(np.concatenate([[0], (key[1:] != key[:-1]).astype(np.int64)]))
        ends_here = (lengths[active] == depth + 1).astype(np.int64)
        above = levels[-1]
        count = np.bincount(parent[begins], minlength=len(above["byte"]))
        above["child_count"] = count
        above["first_child"] = base + np.cumsum(count) - count
        first = active[begins]
        levels.append(
            {
                "byte": byte[begins],
                "parent": parent[begins],
                "first_token": first,
                "own_end": first + np.add.reduceat(ends_here, begins),
                "token_end": active[np.concatenate([begins[1:], [len(active)]]) - 1] + 1,
                "first_child": np.zeros(len(begins), dtype=np.int64),
                "child_count": np.zeros(len(begins), dtype=np.int64),
            }
        )
        base += len(begins)
        parent = node_of
        depth += 1
    return levels


def _utf8_steps() -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """For every byte and reading state: the next state, and the symbol set (256 bits) that the byte adds.

    [256, 8] int64 and [256, 8, 4] uint64. States: 0 at a character's beginning; 1, 2, 3 as many bytes to go; 4 to 7
    behind E0, ED, F0 and F4, whose second byte is restricted (RFC 3629, section 4).
    """
    steps = np.full((256, 8), _NOTHING, dtype=np.int64)
    added = np.zeros((256, 8, 4), dtype=np.uint64)
    added[:, 1:, _STRAY // 64] = np.uint64(1 << _STRAY % 64)
    for byte in range(256):
        added[byte, _BOUNDARY, byte // 64] = np.uint64(1 << byte % 64)
    steps[:0x80, _BOUNDARY] = _BOUNDARY
    steps[0xC2:0xE0, _BOUNDARY] = 1
    steps[0xE0:0xF0, _BOUNDARY] = 2
    steps[0xF0:0xF5, _BOUNDARY] = 3
    for byte, state in ((0xE0, 4), (0xED, 5), (0xF0, 6), (0xF4, 7)):
        steps[byte, _BOUNDARY] = state
    ranges = {
        1: (0x80, 0xBF, 0),
        2: (0x80, 0xBF, 1),
        3: (0x80, 0xBF, 2),
        4: (0xA0, 0xBF, 1),
        5: (0x80, 0x9F, 1),
        6: (0x90, 0xBF, 2),
        7: (0x80, 0x8F, 2),
    }
    for state, (low, high, following) in ranges.items():
        steps[low : high + 1, state] = following
        added[low : high + 1, state] = 0
    return steps, added


def _symbols(levels: list[_Level]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Every node's symbol set, deepest level first: by reading state, as the state above is not known yet."""
    steps, added = _utf8_steps()
    found: list[NDArray[np.uint64]] = []
    below = np.zeros((0, _NOTHING + 1, 4), dtype=np.uint64)  # by node, reading state at the node, word
    for depth in range(len(levels) - 1, 0, -1):
        level = levels[depth]
        byte = level["byte"]
        if len(below) != len(byte):
            below = np.zeros((len(byte), _NOTHING + 1, 4), dtype=np.uint64)
        sets = added[byte] | below[np.arange(len(byte))[:, None], steps[byte]]  # [n, 8, 4]
        found.append(sets[:, _BOUNDARY])
        parent = level["parent"]
        begins = np.flatnonzero(np.concatenate([[True], parent[1:] != parent[:-1]]))
        below = np.zeros((len(levels[depth - 1]["byte"]), _NOTHING + 1, 4), dtype=np.uint64)
        below[parent[begins], :_NOTHING] = np.bitwise_or.reduceat(sets, begins, axis=0)
    found.append(np.zeros((1, 4), dtype=np.uint64))  # the root is never asked
    every = np.concatenate(found[::-1])
    # Grouped by their bytes in a dictionary: a third of the time that np.unique takes over rows.
    numbers: dict[bytes, int] = {}
    raw = every.tobytes()
    row = every.shape[1] * every.itemsize
    number = [numbers.setdefault(raw[at : at + row], len(numbers)) for at in range(0, len(raw), row)]
    distinct = np.frombuffer(b"".join(numbers), dtype=np.uint64).reshape(-1, every.shape[1]).copy()
    return np.array(number, dtype=np.int32), distinct


def _heights(levels: list[_Level]) -> NDArray[np.int32]:
    found: list[NDArray[np.int64]] = []
    below = np.zeros(len(levels[-1]["byte"]), dtype=np.int64)
    for depth in range(len(levels) - 1, 0, -1):
        level = levels[depth]
        height = below + ((level["byte"] & 0xC0) != 0x80)
        found.append(height)
        below = np.zeros(len(levels[depth - 1]["byte"]), dtype=np.int64)
        np.maximum.at(below, level["parent"], height)
    found.append(below)
    return np.concatenate(found[::-1]).astype(np.int32)
