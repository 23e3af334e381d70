"""GBNF grammars behind the Matcher protocol: an exact, byte-level pushdown matcher of this project's own.

    pushdown_network      the rules as nodes, items and calls         (immutable)
    pushdown_utf8         character sets as byte automata             (immutable)
    pushdown_automaton    stacks, states, transitions                 (pure, grows on demand)
    pushdown_walk         automaton x token trie -> mask              (NumPy)
    pushdown_masks        finished masks, shared by all sessions
    pushdown_place        a place as bytes

A matcher is a reference to the automaton and the number of its state.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from constraintd.engine.pushdown_automaton import DEAD, Automaton, pack, unpack
from constraintd.engine.pushdown_limits import PushdownLimits
from constraintd.engine.pushdown_masks import MaskCache
from constraintd.engine.pushdown_network import Network
from constraintd.engine.pushdown_place import DIGEST_BYTES, read_place, write_place
from constraintd.engine.pushdown_tokens import TokenNames, TokenSet
from constraintd.engine.pushdown_walk import TrieWalk
from constraintd.errors import InvalidGrammar, LimitExceeded, TokenNotAllowed
from constraintd.grammar.gbnf import parse_gbnf
from constraintd.mask.packed import Words, empty, of_ids
from constraintd.vocabulary.trie import TokenTrie, build_trie
from constraintd.vocabulary.vocabulary import Vocabulary

_BYTES_AT_ONCE: Final = 256
"""Bytes that are read before the automaton is asked whether it is crowded: each may make a dozen states."""

_PLACE_SHARE: Final = 8
"""One place may take this part of the stack cells of an automaton: else moving it to fresh ones would be all work."""

_PLACE_SCHEME: Final = b"constraintd pushdown 1\n"


@dataclass(frozen=True, slots=True)
class PushdownStatistics:
    """How large a grammar has grown."""

    positions: int
    states: int
    rows: int
    stacks: int
    cells: int
    byte_classes: int
    loop_sets: int
    masks: int
    mask_bytes: int
    renewals: int
    """How often the automaton was replaced by a fresh one."""


class PushdownEngine:
    """The engine for one vocabulary. Owns its token trie; safe to use from many threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.trie: TokenTrie = build_trie(vocabulary)
        self.names = TokenNames(vocabulary, self.trie)
        self.eog: Words = of_ids(vocabulary.eog_ids, vocabulary.logits_width)
        self.eog.flags.writeable = False

    def compile(
        self, grammar_id: str, source: str, *, root: str = "root", limits: PushdownLimits | None = None
    ) -> PushdownGrammar:
        """Compiles a GBNF text and makes its first mask.

        Raises InvalidGrammar with line:column; LimitExceeded, TooLarge for a grammar past `limits`.
        """
        limits = limits or PushdownLimits()
        rules = parse_gbnf(source, root=root, limits=limits.source)
        for element in rules.token_elements():  # of unused rules too, which the network leaves out
            self.names.resolve(element)
        network = Network(rules, max_positions=limits.positions)
        tokens = tuple(self.names.resolve(element) for element in network.tokens)
        grammar = PushdownGrammar(grammar_id, self, network, tokens, limits)
        words = empty(self.vocabulary.logits_width)
        grammar.start().fill_mask(words)
        if not words.any():
            rule = rules.rules[rules.root]
            raise InvalidGrammar(
                f"grammar.gbnf: no token of the vocabulary can begin a text of rule {rule.name!r}; look for bytes that "
                "the vocabulary has no token for",
                location=rule.location,
            )
        return grammar


class PushdownGrammar:
    """A compiled grammar, shared by all its sessions and safe to use from many threads.

    Owns the automaton, which grows as sessions go, and the masks. When the automaton has grown past half its limits,
    the next session that needs more gets a fresh one; the others follow with their next call.
    """

    def __init__(
        self,
        grammar_id: str,
        engine: PushdownEngine,
        network: Network,
        tokens: tuple[TokenSet, ...],
        limits: PushdownLimits,
    ) -> None:
        self._grammar_id = grammar_id
        self._engine = engine
        self._network = network
        self._tokens = tokens
        self._limits = limits
        self._renewals = 0
        self._classes = network.byte_nodes.classes()
        self.digest = self._fingerprint()
        self.shelf = self._fresh()

    @property
    def grammar_id(self) -> str:
        """See CompiledGrammar."""
        return self._grammar_id

    @property
    def vocabulary_id(self) -> str:
        """See CompiledGrammar."""
        return self._engine.vocabulary.fingerprint

    @property
    def engine(self) -> PushdownEngine:
        """The engine that compiled it."""
        return self._engine

    @property
    def tokens(self) -> tuple[TokenSet, ...]:
        """What the network's token elements match."""
        return self._tokens

    def start(self) -> PushdownMatcher:
        """See CompiledGrammar."""
        shelf = self.shelf
        return PushdownMatcher(self, shelf, shelf.automaton.start)

    def at(self, place: bytes) -> PushdownMatcher:
        """A matcher at a place that `PushdownMatcher.place` wrote, in this process or another.

        Raises InvalidField for bytes that are no place of this grammar and vocabulary, LimitExceeded for too large
        a one.
        """
        shelf = self.current()
        with shelf.automaton.lock:
            return PushdownMatcher(self, shelf, read_place(shelf.automaton, place, self.digest))

    def current(self) -> Shelf:
        """The shelf for an operation that may grow it: the present one, or a fresh one if that is crowded."""
        shelf = self.shelf
        if not shelf.automaton.is_crowded():
            return shelf
        with shelf.automaton.lock:
            if self.shelf is shelf:
                self._renew()
        return self.shelf

    def forget(self) -> None:
        """Drops all states and masks. Sessions keep their places."""
        with self.shelf.automaton.lock:
            self._renew()

    def byte_size(self) -> int:
        """About how many bytes the grammar takes, the vocabulary's trie aside."""
        shelf = self.shelf
        return 600 * self._network.size + shelf.automaton.byte_size() + shelf.masks.byte_size + shelf.walk.byte_size()

    def statistics(self) -> PushdownStatistics:
        """How large it has grown."""
        shelf = self.shelf
        automaton = shelf.automaton
        return PushdownStatistics(
            positions=self._network.size,
            states=len(automaton.states),
            rows=int(np.count_nonzero(automaton.ready)),
            stacks=len(automaton.stack_items),
            cells=len(automaton.cell_nodes),
            byte_classes=automaton.width,
            loop_sets=len(shelf.walk.loops.sets),
            masks=len(shelf.masks.kept),
            mask_bytes=shelf.masks.byte_size,
            renewals=self._renewals,
        )

    def _renew(self) -> None:
        self.shelf = self._fresh()
        self._renewals += 1

    def _fresh(self) -> Shelf:
        automaton = Automaton(self._network, self._classes, self._limits.automaton)
        walk = TrieWalk(self._engine.trie, self._engine.vocabulary, automaton)
        return Shelf(automaton, MaskCache(self._limits.mask_cache_bytes), walk)

    def _fingerprint(self) -> bytes:
        """What the numbers in a place depend on, hashed."""
        network = self._network
        digest = hashlib.sha256(_PLACE_SCHEME)
        for part in (self._grammar_id, self.vocabulary_id, str(network.size), str(network.start)):
            digest.update(part.encode() + b"\n")
        digest.update(repr(network.byte_nodes.edges).encode())
        for item in network.items:
            digest.update(b"%d %d %d\n" % (item.byte_node, item.token, item.target))
        digest.update(repr(self._tokens).encode())
        return digest.digest()[:DIGEST_BYTES]


@dataclass(frozen=True, slots=True, eq=False)
class Shelf:
    """One automaton and what belongs to its state numbers."""

    automaton: Automaton
    masks: MaskCache
    walk: TrieWalk


class PushdownMatcher:
    """One session's place: a shelf and the number of a state. A fork copies the two."""

    __slots__ = ("_grammar", "_shelf", "_state")

    def __init__(self, grammar: PushdownGrammar, shelf: Shelf, state: int) -> None:
        self._grammar = grammar
        self._shelf = shelf
        self._state = state

    def fill_mask(self, words: Words) -> None:
        """See Matcher. About 1 us for a state that any session of the grammar asked about before."""
        kept = self._shelf.masks.kept.get(self._state)
        if kept is None:
            words[:] = self._cold_mask()
        else:
            kept.used = True
            words[:] = kept.words  # half the time of np.copyto

    def consume(self, token: int) -> None:
        """See Matcher. Raises TokenNotAllowed for a token whose bit was not set; the place is unchanged."""
        self._move()
        vocabulary = self._grammar.engine.vocabulary
        data = vocabulary.bytes_of(token)
        is_text = bool(data) and data[0] != 0 and token < vocabulary.logits_width and token not in vocabulary.eog_ids
        state = self._behind_text(data) if is_text else DEAD
        if self._grammar.tokens:
            state = self._consume_whole(token, state)
        if state == DEAD:
            raise TokenNotAllowed(f"token {token} is not legal here; take one whose bit is set", illegal_index=0)
        self._state = state

    def consume_bytes(self, data: bytes) -> bool:
        """Advances over bytes that are no whole token, as text does; False, the place unchanged, if they are refused.

        Raises LimitExceeded.
        """
        before = self._shelf, self._state
        for at in range(0, len(data), _BYTES_AT_ONCE):
            self._move()
            state = self._shelf.automaton.run(self._state, data[at : at + _BYTES_AT_ONCE])
            if state == DEAD:
                self._shelf, self._state = before
                return False
            self._state = state
        return True

    def is_accepting(self) -> bool:
        """See Matcher."""
        return self._shelf.automaton.is_accepting(self._state)

    def legal_bytes(self) -> NDArray[np.bool_]:
        """See ByteMatcher. About 3 us: a row of the automaton, which every session that was here has filled."""
        self._move()
        automaton = self._shelf.automaton
        automaton.step(self._state, 0)
        behind: NDArray[np.bool_] = automaton.delta[self._state][automaton.class_of] != DEAD
        return behind

    def is_exhausted(self) -> bool:
        """Whether what was consumed is a whole text of the grammar and nothing can follow it."""
        return self._shelf.automaton.is_exhausted(self._state)

    def fork(self) -> PushdownMatcher:
        """See Matcher."""
        return PushdownMatcher(self._grammar, self._shelf, self._state)

    def place(self) -> bytes:
        """The place by its structure: the same place gives the same bytes in every process. For PushdownGrammar.at."""
        return write_place(self._shelf.automaton, self._state, self._grammar.digest)

    def _move(self) -> None:
        """Goes on to the grammar's current shelf, if that is another."""
        shelf = self._grammar.current()
        if shelf is self._shelf:
            return
        place = self.place()
        automaton = shelf.automaton
        with automaton.lock:
            before = len(automaton.cell_nodes)
            state = read_place(automaton, place, self._grammar.digest)
            depth, limit = len(automaton.cell_nodes) - before, automaton.limits.stacks // _PLACE_SHARE
        if depth > limit:
            raise LimitExceeded(
                f"rules are nested in each other over {limit} deep here; the grammar takes no deeper text", limit=limit
            )
        self._shelf, self._state = shelf, state

    def _cold_mask(self) -> Words:
        self._move()
        grammar, shelf, state = self._grammar, self._shelf, self._state
        automaton = shelf.automaton
        with automaton.lock:
            kept = shelf.masks.kept.get(state)  # another session may have made it meanwhile
            if kept is not None:
                return kept.words
            words = empty(grammar.engine.vocabulary.logits_width)
            shelf.walk.fill(words, state)
            for index, _ in automaton.token_moves(state):
                grammar.engine.names.add(grammar.tokens[index], words)
            if automaton.is_accepting(state):
                words |= grammar.engine.eog
            words.flags.writeable = False
            return shelf.masks.put(state, words)

    def _behind_text(self, data: bytes) -> int:
        """The state behind a token's bytes, on the shelf that the matcher is on afterwards."""
        if len(data) <= _BYTES_AT_ONCE:
            return self._shelf.automaton.run(self._state, data)
        ahead = self.fork()
        if not ahead.consume_bytes(data):
            return DEAD
        while ahead._shelf is not self._shelf:
            self._move()
            ahead._move()
        return ahead._state

    def _consume_whole(self, token: int, by_text: int) -> int:
        """The state behind a token that an element may take whole, joined with what its bytes lead to."""
        automaton = self._shelf.automaton
        with automaton.lock:
            found = set(unpack(automaton.states[by_text]))
            for index, stacks in automaton.token_moves(self._state):
                if self._grammar.engine.names.matches(self._grammar.tokens[index], token):
                    found.update(unpack(stacks))
            return automaton.intern_state(pack(found))
