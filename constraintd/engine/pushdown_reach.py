"""What a node can become without consuming anything, worked out once a node, whatever it is nested in.

Calls go down, ends of called rules come back up, loops close; what is left are items on stack cells, counted from the
cell that the node stands on. Putting a node on a real cell is then a walk over two short tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from constraintd.engine.pushdown_limits import Deadline, too_many
from constraintd.engine.pushdown_network import TAIL, Network


@dataclass(frozen=True, slots=True)
class Reach:
    """Stacks relative to the cell that the node stands on, which is number 0."""

    cells: tuple[tuple[int, int], ...]
    """Cells 1, 2, ...: the number of the parent, which comes before, and the return node."""

    items: tuple[tuple[int, int], ...]
    """Stacks: the number of the cell, and the item."""

    ends: bool
    """Whether the rule that the node stands in can end here."""


def reach_of(network: Network, begin: int, deadline: Deadline, *, limit: int) -> Reach:
    """The reach of a node. Raises LimitExceeded for more than `limit` pairs of node and cell, or past the deadline."""
    numbers: dict[tuple[int, int], int] = {}
    cells: list[tuple[int, int]] = [(-1, -1)]
    items: dict[tuple[int, int], None] = {}
    ends = False
    seen = {(begin, 0)}
    todo = [(begin, 0)]
    while todo:
        here, below = todo.pop()
        deadline.check()
        expansion = network.expansion(here)
        items.update(dict.fromkeys((below, item) for item in expansion.items))
        following: list[tuple[int, int]] = []
        for start, after in expansion.calls:
            if after == TAIL:
                following.append((start, below))
                continue
            key = (below, after)
            if key not in numbers:
                numbers[key] = len(cells)
                cells.append(key)
            following.append((start, numbers[key]))
        if expansion.ends:
            if below == 0:
                ends = True
            else:
                parent, after = cells[below]
                following.append((after, parent))
        for pair in following:
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
        if len(seen) > limit:
            raise too_many("positions", limit)
    return Reach(tuple(cells[1:]), tuple(items), ends)
