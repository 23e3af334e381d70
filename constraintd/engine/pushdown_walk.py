"""Which text tokens a state allows: the token trie walked breadth-first beside the automaton, in NumPy.

The frontier is an array of nodes and one of states. Where every symbol at and below a node leads on and on the same way
(the inside of a string, say; pushdown_loops), all of those tokens are legal at once and the walk stops there: on a JSON
grammar and 131,072 tokens that leaves about a thousand nodes of 266,312 to look at.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from constraintd.engine.pushdown_automaton import DEAD, Automaton
from constraintd.engine.pushdown_limits import Deadline
from constraintd.engine.pushdown_loops import Loops
from constraintd.mask.packed import Words
from constraintd.vocabulary.trie import TokenTrie
from constraintd.vocabulary.vocabulary import Vocabulary

_MAX_LOOP_SETS: Final = 64
"""Loop sets for which whole subtrees are known, 1 byte a distinct symbol set of the vocabulary each; states of a
grammar with more are walked in full."""

Ranges = tuple[NDArray[np.int64], NDArray[np.int64]]
"""First and one past last positions in the trie's token order; disjoint, in no order."""


class TrieWalk:
    """Walks one trie with one automaton. Owns scratch memory, so callers hold the automaton's lock."""

    def __init__(self, trie: TokenTrie, vocabulary: Vocabulary, automaton: Automaton) -> None:
        self._trie = trie
        self._automaton = automaton
        self.loops = Loops(automaton)
        width = vocabulary.logits_width
        self._every = np.zeros((width + 31) // 32 * 32, dtype=np.uint8)
        self._every[trie.order] = 1
        self._bits = np.empty_like(self._every)
        self._whole = np.zeros((2, len(trie.symbol_sets)), dtype=np.bool_)  # [sets, S], grows
        self._whole_known = 1  # set 0 is empty

    def byte_size(self) -> int:
        """Bytes of its scratch memory."""
        return self._every.nbytes + self._bits.nbytes + self._whole.nbytes

    def fill(self, words: Words, state: int) -> None:
        """Writes the text tokens that `state` allows into `words`. Raises LimitExceeded."""
        firsts, ends = self._ranges(state)
        order = self._trie.order
        count = int((ends - firsts).sum())
        bits = self._bits
        # What is written goes by the smaller part: scattering all of 131,072 would take longer than most walks.
        if 2 * count <= len(order):
            bits.fill(0)
            bits[order[_positions(firsts, ends)]] = 1
        else:
            sorting = np.argsort(firsts)
            gap_firsts = np.concatenate([[0], ends[sorting]])
            gap_ends = np.concatenate([firsts[sorting], [len(order)]])
            np.copyto(bits, self._every)
            bits[order[_positions(gap_firsts, gap_ends)]] = 0
        words[:] = np.packbits(bits, bitorder="little").view("<u4")

    def _ranges(self, state: int) -> Ranges:
        trie, automaton, loops = self._trie, self._automaton, self.loops
        deadline = Deadline(automaton.limits.step_seconds)
        loops.begin_mask()
        nodes = np.zeros(1, dtype=np.int64)
        states = np.full(1, state, dtype=np.int64)
        firsts: list[NDArray[np.int32]] = []
        ends: list[NDArray[np.int32]] = []
        while len(nodes):
            deadline.check_now()
            self._prepare(states, deadline)
            counts = trie.child_count[nodes]
            upto = np.cumsum(counts)
            children = np.repeat(trie.first_child[nodes] - upto + counts, counts)
            children += np.arange(len(children), dtype=children.dtype)
            sets = loops.set_of[states]
            if sets.any():
                # Those of set 0 take part: nothing is whole by it.
                whole = self._whole[np.repeat(sets, counts), trie.symbols[children]]
                whole &= trie.height[children] <= np.repeat(loops.run_of[states], counts)
                found = children[whole]
                firsts.append(trie.first_token[found])
                ends.append(trie.token_end[found])
                keep = ~whole
                children, from_states = children[keep], np.repeat(states, counts)[keep]
            else:
                from_states = np.repeat(states, counts)
            behind = automaton.delta[from_states, automaton.class_of[trie.byte[children]]]
            alive = behind != DEAD
            nodes, states = children[alive], behind[alive]
            first, end = trie.first_token[nodes], trie.own_end[nodes]
            here = first != end
            firsts.append(first[here])
            ends.append(end[here])
            inner = trie.child_count[nodes] > 0
            nodes, states = nodes[inner], states[inner]
        return np.concatenate(firsts).astype(np.int64), np.concatenate(ends).astype(np.int64)

    def _prepare(self, states: NDArray[np.int64], deadline: Deadline) -> None:
        """Makes the rows, sets and runs of all these states."""
        loops = self.loops
        unknown = loops.set_of[states] < 0
        if not unknown.any():
            return
        for state in set(states[unknown].tolist()):
            loops.find(state, deadline)
        while self._whole_known < min(len(loops.sets), _MAX_LOOP_SETS):
            self._learn(loops.sets[self._whole_known])
        if len(loops.sets) > _MAX_LOOP_SETS:
            np.putmask(loops.set_of, loops.set_of >= _MAX_LOOP_SETS, 0)

    def _learn(self, symbols: int) -> None:
        words = np.frombuffer(symbols.to_bytes(32, "little"), dtype="<u8")
        outside = self._trie.symbol_sets & ~words  # [S, 4] uint64
        if self._whole_known >= len(self._whole):
            self._whole = np.concatenate([self._whole, np.zeros_like(self._whole)])
        np.logical_not(outside.any(axis=1), out=self._whole[self._whole_known])
        self._whole_known += 1


def _positions(firsts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """All positions of these ranges."""
    counts = ends - firsts
    upto = np.cumsum(counts)
    result = np.repeat(firsts - upto + counts, counts)
    result += np.arange(len(result))
    return result
