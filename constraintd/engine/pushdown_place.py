"""A place as bytes: the state's stacks by structure, in one order, so that equal places are equal bytes everywhere.

    magic, digest of (grammar, vocabulary, network)      24 bytes
    number of levels, then for each level its cells: (return node, index of the parent in the level below)
    number of stacks, then each: 0 for the finished one, else item + 1 and its cell, counted from the bottom up

Numbers are LEB128. Cells are shared as they are in the automaton, so 10,000 open brackets take some 40 KB and not their
square.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from constraintd.engine.pushdown_automaton import ACCEPTED, Automaton, pack, unpack
from constraintd.errors import InvalidField

MAGIC: Final = b"gbnf-pl1"
DIGEST_BYTES: Final = 16
_MAX_NUMBER_BYTES: Final = 9


def write_place(automaton: Automaton, state: int, digest: bytes) -> bytes:
    """The place of `state`. `digest` (16 bytes) names what the numbers mean."""
    items, tops = automaton.stack_items, automaton.stack_cells
    stacks = [(items[stack], tops[stack]) for stack in unpack(automaton.states[state])]
    levels = _levels(automaton, {cell for item, cell in stacks if item >= 0})
    position = {0: 0}
    below: dict[int, int] = {0: 0}
    out = bytearray(MAGIC + digest)
    _write(out, len(levels))
    for level in levels:
        ordered = sorted(level, key=lambda cell: (automaton.cell_nodes[cell], below[automaton.cell_parents[cell]]))
        _write(out, len(ordered))
        for cell in ordered:
            _write(out, automaton.cell_nodes[cell])
            _write(out, below[automaton.cell_parents[cell]])
        below = {cell: number for number, cell in enumerate(ordered)}
        for cell in ordered:
            position[cell] = len(position)
    _write(out, len(stacks))
    for item, cell in sorted((item + 1, position[cell] if item >= 0 else 0) for item, cell in stacks):
        _write(out, item)
        if item > 0:
            _write(out, cell)
    return bytes(out)


def read_place(automaton: Automaton, place: bytes, digest: bytes) -> int:
    """The state at `place`. Callers hold the automaton's lock.

    Raises InvalidField for bytes that aren't a place of this grammar and vocabulary, LimitExceeded for too large a one.
    """
    head = MAGIC + digest
    if not place.startswith(MAGIC):
        raise _refusal("it does not begin as a place does")
    if not place.startswith(head):
        raise _refusal("it belongs to another grammar, vocabulary or version; walk the tokens again")
    numbers = _numbers(place, len(head))
    try:
        state = _read(automaton, numbers)
    except StopIteration:
        raise _refusal("it ends too early") from None
    if next(numbers, None) is not None or write_place(automaton, state, digest) != place:
        raise _refusal("it is not in the one form that a place has")
    return state


def _read(automaton: Automaton, numbers: Iterator[int]) -> int:
    network = automaton.network
    cells = [0]
    below = [0]
    for _ in range(next(numbers)):
        level: list[int] = []
        for _ in range(next(numbers)):
            node, parent = next(numbers), next(numbers)
            if node >= network.size or parent >= len(below):
                raise _refusal("a stack cell is out of bounds")
            level.append(automaton.intern_cell(node, below[parent]))
        cells += level
        below = level
    stacks: set[int] = set()
    for _ in range(next(numbers)):
        item = next(numbers)
        if item == 0:
            stacks.add(ACCEPTED)
            continue
        cell = next(numbers)
        if cell >= len(cells) or not _is_item(automaton, item - 1):
            raise _refusal("a stack is out of bounds")
        stacks.add(automaton.intern_stack(item - 1, cells[cell]))
    return automaton.intern_state(pack(stacks))


def _is_item(automaton: Automaton, item: int) -> bool:
    network = automaton.network
    return item < len(network.items) or (item - len(network.items)) // network.size < len(network.byte_nodes.edges)


def _levels(automaton: Automaton, tops: set[int]) -> list[list[int]]:
    """All cells that these lead to, by height above the bottom, which is left out."""
    height = {0: 0}
    for top in tops:
        chain: list[int] = []
        cell = top
        while cell not in height:
            chain.append(cell)
            cell = automaton.cell_parents[cell]
        for above in reversed(chain):
            height[above] = height[automaton.cell_parents[above]] + 1
    levels: list[list[int]] = [[] for _ in range(max(height.values()))]
    for cell, level in height.items():
        if level:
            levels[level - 1].append(cell)
    return levels


def _write(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(data: bytes, at: int) -> Iterator[int]:
    while at < len(data):
        number = shift = 0
        while True:
            if at >= len(data) or shift >= 7 * _MAX_NUMBER_BYTES:
                raise _refusal("a number in it is broken")
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield number


def _refusal(why: str) -> InvalidField:
    return InvalidField("place", f"these bytes can't be restored: {why}")
