"""The pure automaton: interned stacks, interned states, and the rows of their transitions, made on demand.

    cell    (return node, parent cell): what goes on when a called rule has ended; cell 0 is the bottom
    stack   (item, cell): something to consume, and what goes on behind it; stack 0 is the finished parse
    state   a set of stacks: every way in which the bytes so far can be read; state 0 has none, it is dead

A rule that has ended is popped when it is pushed: a call behind which nothing of its rule is left makes no cell, so
lists written by right recursion run in constant depth. Everything is a number, and equal things have equal numbers.
Sets of stacks are packed, and tables are arrays or dictionaries of atoms: the garbage collector never looks into those,
where it would go through lists of tuples in the middle of some mask.

Rows are kept by byte class (some 30 for a JSON grammar): an eighth of the memory of 256 columns, and of the cache lines
that a walk touches. An automaton only grows; one that has grown past its limit is replaced by a fresh one, to which
places move by their structure (pushdown_place).
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from array import array
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from constraintd.engine.pushdown_limits import AutomatonLimits, Deadline, too_many
from constraintd.engine.pushdown_network import Network
from constraintd.engine.pushdown_reach import Reach, reach_of
from constraintd.errors import LimitExceeded

DEAD: Final = 0
ACCEPTED: Final = 0
"""The stack with nothing left on it."""

_SHIFT: Final = 32
_PACKED: Final = 4
_FINISHED: Final = bytes(_PACKED)
"""ACCEPTED, packed: the lowest number, so it stands first."""


class Automaton:
    """All states met so far of one network. Growth goes through `lock`; finished rows are read without it."""

    def __init__(self, network: Network, classes: NDArray[np.uint8], limits: AutomatonLimits) -> None:
        self.network = network
        self.limits = limits
        self.lock = threading.RLock()
        self.class_of: Final = classes  # [256] uint8
        self._class_list: list[int] = classes.tolist()
        self.width: Final = int(classes.max()) + 1
        # As large as they may become, once: untouched pages of zeros take no memory, and growing by copying would
        # cost 10 ms in the middle of some mask.
        self.delta: NDArray[np.int32] = _small_pages(limits.states, self.width)
        """[states, classes] int32: the next state; only rows whose `ready` is set are filled."""
        self.ready: NDArray[np.bool_] = np.zeros(limits.states, dtype=np.bool_)
        self.states: dict[int, bytes] = {DEAD: b""}
        """Packed stacks by state: see `pack`."""
        self.stack_items = array("q", [-1])
        self.stack_cells = array("q", [0])
        self.cell_nodes = array("q", [-1])
        self.cell_parents = array("q", [0])
        self._state_index: dict[bytes, int] = {b"": DEAD}
        self._stack_index: dict[int, int] = {}
        self._cell_index: dict[int, int] = {}
        self._closures: dict[int, bytes] = {}
        self._reaches: dict[int, Reach] = {}
        self._item_edges: dict[int, tuple[tuple[int, int, int], ...]] = {}
        self._mask_classes: dict[int, list[int]] = {}
        self._class_masks = [1 << number for number in self._class_list]
        self.ready[DEAD] = True
        self.start = self.intern_state(self._closure(network.start, 0, Deadline(limits.step_seconds)))

    # --- reading ---

    def is_accepting(self, state: int) -> bool:
        """Whether some stack of the state is finished."""
        return self.states[state].startswith(_FINISHED)

    def is_exhausted(self, state: int) -> bool:
        """Whether the finished stack is all there is."""
        return self.states[state] == _FINISHED

    def step(self, state: int, byte: int) -> int:
        """The state behind one byte. Raises LimitExceeded."""
        if not self.ready[state]:
            with self.lock:
                self.fill(state, Deadline(self.limits.step_seconds))
        return self.delta.item(state, self._class_list[byte])

    def run(self, state: int, data: bytes) -> int:
        """The state behind all of these bytes. Raises LimitExceeded."""
        for byte in data:
            state = self.step(state, byte)
            if state == DEAD:
                break
        return state

    def is_crowded(self) -> bool:
        """Whether so little room is left that the next operation should begin on a fresh automaton."""
        limits = self.limits
        return (
            2 * len(self.states) > limits.states
            or 2 * max(len(self.stack_items), len(self.cell_nodes)) > limits.stacks
            or 2 * len(self._closures) > limits.stacks
        )

    def byte_size(self) -> int:
        """About how many bytes it holds."""
        entries = len(self.stack_items) + len(self.cell_nodes) + len(self._closures)
        return (300 + 4 * self.width) * len(self.states) + 150 * entries

    # --- growing; callers hold `lock` ---

    def intern_state(self, stacks: bytes) -> int:
        """The number of the state with these stacks, packed. Raises LimitExceeded."""
        known = self._state_index.get(stacks)
        if known is not None:
            return known
        if len(stacks) > _PACKED * self.limits.stacks_in_state:
            ways, limit = len(stacks) // _PACKED, self.limits.stacks_in_state
            raise LimitExceeded(
                f"the grammar can be read in {ways} ways here, over the limit of {limit}; it is too ambiguous",
                limit=limit,
            )
        number = len(self.states)
        if number >= self.limits.states:
            raise too_many("states", self.limits.states)
        self.states[number] = stacks
        self._state_index[stacks] = number
        return number

    def intern_stack(self, item: int, cell: int) -> int:
        """The number of a stack. Raises LimitExceeded."""
        key = item << _SHIFT | cell
        known = self._stack_index.get(key)
        if known is None:
            known = len(self.stack_items)
            if known >= self.limits.stacks:
                raise too_many("stacks", self.limits.stacks)
            self.stack_items.append(item)
            self.stack_cells.append(cell)
            self._stack_index[key] = known
        return known

    def intern_cell(self, node: int, parent: int) -> int:
        """The number of a cell. Raises LimitExceeded."""
        key = node << _SHIFT | parent
        known = self._cell_index.get(key)
        if known is None:
            known = len(self.cell_nodes)
            if known >= self.limits.stacks:
                raise too_many("stack cells", self.limits.stacks)
            self.cell_nodes.append(node)
            self.cell_parents.append(parent)
            self._cell_index[key] = known
        return known

    def token_moves(self, state: int) -> list[tuple[int, bytes]]:
        """What whole tokens do here: (index into the network's tokens, the stacks behind it). Raises LimitExceeded."""
        moves = []
        items = self.network.items
        for stack in unpack(self.states[state]):
            number, cell = self.stack_items[stack], self.stack_cells[stack]
            if 0 <= number < len(items) and items[number].token >= 0:
                deadline = Deadline(self.limits.step_seconds)
                moves.append((items[number].token, self._closure(items[number].target, cell, deadline)))
        return moves

    def fill(self, state: int, deadline: Deadline) -> None:
        """Makes the row of `state`. Raises LimitExceeded; the row is then not there."""
        if self.ready[state]:
            return
        deadline.check()
        moves: list[tuple[int, bytes]] = []
        for stack in unpack(self.states[state]):
            number, cell = self.stack_items[stack], self.stack_cells[stack]
            if number < 0:
                continue
            for mask, following, target in self._edges_of(number):
                if following >= 0:
                    moves.append((mask, pack([self.intern_stack(following, cell)])))
                else:
                    moves.append((mask, self._closure(target, cell, deadline)))
        row = [DEAD] * self.width
        for mask, stacks in _parts(moves, deadline):
            behind = self.intern_state(stacks)
            for number in self._classes_in(mask):
                row[number] = behind
        self.delta[state] = row
        self.ready[state] = True

    def _closure(self, node: int, cell: int, deadline: Deadline) -> bytes:
        """All stacks that a node on a cell can become without consuming anything, packed."""
        key = node << _SHIFT | cell
        known = self._closures.get(key)
        if known is not None:
            return known
        found: set[int] = set()
        here, below = node, cell
        while True:
            reach = self._reaches.get(here)
            if reach is None:
                reach = reach_of(self.network, here, deadline, limit=self.limits.stacks)
                self._reaches[here] = reach
            cells = [below]
            for parent, after in reach.cells:
                cells.append(self.intern_cell(after, cells[parent]))
            for number, item in reach.items:
                found.add(self.intern_stack(item, cells[number]))
            if not reach.ends:
                break
            if below == 0:
                found.add(ACCEPTED)
                break
            # The rule can end here: what goes on below is one more way. Each round is a cell lower.
            here, below = self.cell_nodes[below], self.cell_parents[below]
            deadline.check()
        result = pack(found)
        if len(self._closures) >= self.limits.stacks:
            raise too_many("positions", self.limits.stacks)
        self._closures[key] = result
        return result

    def _edges_of(self, number: int) -> tuple[tuple[int, int, int], ...]:
        """An item's byte edges: (mask of byte classes, the item inside the character or -1, the node behind it)."""
        known = self._item_edges.get(number)
        if known is not None:
            return known
        byte_node, target = self.byte_item(number)
        edges: list[tuple[int, int, int]] = []
        if byte_node >= 0:
            for first, last, following in self.network.byte_nodes.edges[byte_node]:
                mask = 0
                for byte in range(first, last + 1):
                    mask |= self._class_masks[byte]
                inner = -1 if following < 0 else self.inner_item(following, target)
                edges.append((mask, inner, target))
        result = self._item_edges[number] = tuple(edges)
        return result

    def byte_item(self, number: int) -> tuple[int, int]:
        """(byte node or -1, target node) of an item: one of the network's, or one inside a character."""
        items = self.network.items
        if number < len(items):
            return items[number].byte_node, items[number].target
        byte_node, target = divmod(number - len(items), self.network.size)
        return byte_node, target

    def inner_item(self, byte_node: int, target: int) -> int:
        """The number of the item inside a character: a pure function of both, so it means the same everywhere."""
        return len(self.network.items) + byte_node * self.network.size + target

    def _classes_in(self, mask: int) -> list[int]:
        known = self._mask_classes.get(mask)
        if known is None:
            known = [number for number in range(self.width) if mask >> number & 1]
            self._mask_classes[mask] = known
        return known


def _small_pages(rows: int, columns: int) -> NDArray[np.int32]:
    """Zeros that take memory as they are written to, 4 KB at a time.

    NumPy asks the kernel for huge pages, of which the first write to each clears 2 MB: 2 to 13 ms in the middle of some
    mask on a virtual machine whose host has yet to back them, where a small page takes 0.2 ms at most.
    """
    pages = mmap.mmap(-1, rows * columns * np.dtype(np.int32).itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype=np.int32).reshape(rows, columns)


def pack(stacks: Iterable[int]) -> bytes:
    """Distinct stacks as one value: ascending, 4 bytes each in this machine's order."""
    return array("I", sorted(stacks)).tobytes()


def unpack(stacks: bytes) -> Iterable[int]:
    """The stacks of a packed set, ascending."""
    return memoryview(stacks).cast("I")


def _parts(moves: list[tuple[int, bytes]], deadline: Deadline) -> list[tuple[int, bytes]]:
    """Moves by overlapping masks, as states by disjoint masks."""
    by_mask: dict[int, bytes | set[int]] = {}
    for mask, stacks in moves:
        present = by_mask.get(mask)
        if present is None:
            by_mask[mask] = stacks
        elif isinstance(present, set):
            present.update(unpack(stacks))
        else:
            by_mask[mask] = {*unpack(present), *unpack(stacks)}
    disjoint: list[tuple[int, bytes | set[int]]] = []
    for mask, stacks_ in by_mask.items():
        deadline.check()
        left = mask
        for index in range(len(disjoint)):
            other, there = disjoint[index]
            both = other & left
            if both:
                joined = {*_members(there), *_members(stacks_)}
                if both == other:
                    disjoint[index] = (other, joined)
                else:
                    disjoint[index] = (both, joined)
                    disjoint.append((other & ~both, there))
                left &= ~both
                if not left:
                    break
        if left:
            disjoint.append((left, stacks_))
    return [(mask, stacks if isinstance(stacks, bytes) else pack(stacks)) for mask, stacks in disjoint]


def _members(stacks: bytes | set[int]) -> Iterable[int]:
    return unpack(stacks) if isinstance(stacks, bytes) else stacks
