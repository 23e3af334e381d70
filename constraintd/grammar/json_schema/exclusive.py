"""`oneOf` as a disjunction: which branches might overlap, and each branch without what the others allow."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Final

from constraintd.grammar.json_schema.core import Budget, Core, Resolve, all_of, values_of
from constraintd.grammar.json_schema.disjointness import disjoint

# Past this many branches their complements are no longer written into each other.
_MAX_BRANCHES: Final = 12


def possible_overlaps(options: list[Core], resolve: Resolve, budget: Budget) -> set[tuple[int, int]]:
    """The pairs of branches that are not proven disjoint; with the budget spent, at least the first unproven one."""
    listed = {index for index, option in enumerate(options) if isinstance(option, dict) and "enum" in option}
    if (len(options) - len(listed)) * len(options) > budget.left:
        return {(0, 1)}
    found: set[tuple[int, int]] = set()
    for pair in sorted(_sharing_a_value(options, listed) | _with_another_kind(len(options), listed)):
        if budget.left < 0 or not disjoint(options[pair[0]], options[pair[1]], resolve, budget):
            found.add(pair)
        if budget.left < 0:
            break
    return found


def _sharing_a_value(options: list[Core], listed: set[int]) -> set[tuple[int, int]]:
    """Of the branches with an enum, the pairs with a value in common: thousands of consts take no pairwise look."""
    owners: dict[str, list[int]] = {}
    found: set[tuple[int, int]] = set()
    for index in sorted(listed):
        option = options[index]
        assert isinstance(option, dict)
        for identity in values_of(option["enum"]).identities:
            earlier = owners.setdefault(identity, [])
            found.update((other, index) for other in earlier[-_MAX_BRANCHES:])
            earlier.append(index)
    return found


def _with_another_kind(size: int, listed: set[int]) -> set[tuple[int, int]]:
    others = [index for index in range(size) if index not in listed]
    return {(min(one, two), max(one, two)) for one in others for two in listed} | set(combinations(others, 2))


def made_exclusive(
    options: list[Core], overlaps: set[tuple[int, int]], negated: Callable[[Core], Core | None]
) -> list[Core] | None:
    """Each branch without what the branches it may overlap with allow; None if that can't be written."""
    if not overlaps:
        return options
    if len(options) > _MAX_BRANCHES:
        return None
    result: list[Core] = []
    for index, option in enumerate(options):
        parts = [option]
        for pair in sorted(overlaps):
            if index in pair:
                other = negated(options[pair[0] if pair[1] == index else pair[1]])
                if other is None:
                    return None
                parts.append(other)
        result.append(all_of(parts))
    return result
