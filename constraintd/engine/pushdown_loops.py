"""Where a state leads on and on the same way, so that whole subtrees of the token trie are legal without a look.

For a state: the set of symbols (ASCII bytes, and lead bytes with every character that they begin) that all lead to one
next state, and for how many characters that holds. Inside a JSON string the next state is the state itself, and it
holds for ever; inside `[^"]{0,400}` every character leads one state further, and it holds as long as those states last.
A trie node whose symbols are in the set, and whose tokens are not longer than that, has only legal tokens.

Bought by this, on 131,072 tokens: 0.5 ms instead of 40 ms a mask inside a string, and 3 ms instead of 50 ms inside a
bounded one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from constraintd.engine.pushdown_automaton import DEAD, Automaton
from constraintd.engine.pushdown_limits import Deadline

ENDLESS: Final = 2**30
"""The run of a state that leads back to itself."""

_LONGEST_RUN: Final = 16
"""How many states of a chain are looked at: a token of more characters is rare, and walked."""

_WIDE: Final = 16
"""Sets with fewer symbols aren't worth the rows that a chain takes; the walk does them."""

_SPARE_ROWS: Final = 256
"""Rows a mask may make only to look ahead. Enough for the first mask of a bounded string of any characters (some 140);
in an ambiguous grammar, where every character leads to a new state, looking ahead would cost more than walking."""

_NOWHERE: Final = -1
_LEADS: Final = (  # first lead byte, last one, range of the byte behind it, bytes after that (RFC 3629, section 4)
    (0xC2, 0xDF, 0x80, 0xBF, 0),
    (0xE0, 0xE0, 0xA0, 0xBF, 1),
    (0xE1, 0xEC, 0x80, 0xBF, 1),
    (0xED, 0xED, 0x80, 0x9F, 1),
    (0xEE, 0xEF, 0x80, 0xBF, 1),
    (0xF0, 0xF0, 0x90, 0xBF, 2),
    (0xF1, 0xF3, 0x80, 0xBF, 2),
    (0xF4, 0xF4, 0x80, 0x8F, 2),
)


class Loops:
    """What is known of one automaton's states. Callers hold the automaton's lock."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self.sets: list[int] = [0]
        """Distinct symbol sets by number, as 256-bit integers; number 0 is the empty one."""
        self.set_of: NDArray[np.int32] = np.full(len(automaton.delta), -1, dtype=np.int32)
        """[states] the number of the state's set, -1 while unknown."""
        self.run_of: NDArray[np.int32] = np.zeros(len(automaton.delta), dtype=np.int32)
        """[states] for how many characters the set holds."""
        self._set_index: dict[int, int] = {0: 0}
        self._steps: dict[int, tuple[int, int]] = {}  # state: its set, and the state that it leads to
        self._spare = _SPARE_ROWS
        classes: list[int] = automaton.class_of.tolist()
        self._ascii = [0] * automaton.width  # by class: its ASCII bytes
        for byte in range(0x80):
            self._ascii[classes[byte]] |= 1 << byte
        leads: dict[tuple[int, int, int, int], int] = {}
        for first, last, low, high, more in _LEADS:
            for byte in range(first, last + 1):
                key = (classes[byte], low, high, more)
                leads[key] = leads.get(key, 0) | 1 << byte
        self._leads = [(*key, symbols) for key, symbols in leads.items()]

    def begin_mask(self) -> None:
        """To be called before each mask: it may make so many rows again."""
        self._spare = _SPARE_ROWS

    def find(self, state: int, deadline: Deadline) -> None:
        """Fills in the state's set and run; makes the rows that it looks at. Raises LimitExceeded."""
        symbols, behind = self._step(state, deadline)
        run = 1
        if behind == state:
            run = ENDLESS
        elif symbols.bit_count() >= _WIDE or symbols >> 0x80:
            here = behind
            while run < _LONGEST_RUN and self._may_fill(here):
                there, behind = self._step(here, deadline)
                if symbols & ~there:
                    break
                if behind == here:
                    run = ENDLESS
                    break
                here = behind
                run += 1
        else:
            symbols = 0
        number = self._set_index.get(symbols)
        if number is None:
            number = self._set_index[symbols] = len(self.sets)
            self.sets.append(symbols)
        self.run_of[state] = run
        self.set_of[state] = number

    def _step(self, state: int, deadline: Deadline) -> tuple[int, int]:
        """The largest set of symbols that lead from `state` to one state, and that state; itself, if many lead back."""
        known = self._steps.get(state)
        if known is not None:
            return known
        automaton = self._automaton
        automaton.fill(state, deadline)
        row = automaton.delta[state].tolist()
        votes: dict[int, int] = {}
        for number, behind in enumerate(row):
            if behind != DEAD and self._ascii[number]:
                votes[behind] = votes.get(behind, 0) | self._ascii[number]
        landings: dict[tuple[int, int, int, int], int] = {}
        for number, low, high, more, symbols in self._leads:
            if row[number] == DEAD:
                continue
            # Without spare rows the set stays smaller than it could be, which is still true.
            behind = self._landing(row[number], low, high, more, landings, deadline)
            if behind != _NOWHERE:
                votes[behind] = votes.get(behind, 0) | symbols
        best = max(votes, key=lambda each: votes[each].bit_count(), default=DEAD)
        if votes.get(state, 0).bit_count() >= min(_WIDE, votes.get(best, 0).bit_count()):
            best = state
        known = (votes.get(best, 0), best)
        if self._spare > 0:
            self._steps[state] = known
        return known

    def _may_fill(self, state: int) -> bool:
        """Whether the row of a state that the walk itself may never reach is there, or may be made."""
        if self._automaton.ready[state]:
            return True
        self._spare -= 1
        return self._spare > 0

    def _landing(
        self,
        state: int,
        low: int,
        high: int,
        more: int,
        known: dict[tuple[int, int, int, int], int],
        deadline: Deadline,
    ) -> int:
        """Where every way to finish the character that `state` is in leads; _NOWHERE if to more than one state."""
        key = (state, low, high, more)
        if key in known:
            return known[key]
        if not self._may_fill(state):
            return _NOWHERE
        automaton = self._automaton
        automaton.fill(state, deadline)
        behind: set[int] = set(automaton.delta[state].take(automaton.class_of[low : high + 1]).tolist())
        if more > 0 and DEAD not in behind:
            behind = {self._landing(other, 0x80, 0xBF, more - 1, known, deadline) for other in behind}
        result = behind.pop() if len(behind) == 1 else _NOWHERE
        result = _NOWHERE if result == DEAD else result
        known[key] = result
        return result
