"""Left recursion in GBNF rules: found through nullable rules, refused with the chain of rules, or made a loop.

A pushdown matcher that expands what may come next would push for ever on a rule that begins with itself. One shape is
harmless: where all that follows the recursive reference may be empty (`a ::= a "x"? | "y"`), so that the rule only
repeats a trailing option. XGrammar's public cases use it. Those rules are rewritten bottom-up (the left-corner
transform, Rosenkrantz and Lewis, SWAT 1970): first something that isn't recursive, then the remainders, on the way up.
All other left recursion is an error, as in llama.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from constraintd.errors import InvalidGrammar
from constraintd.grammar.gbnf_rules import Alternative, Literal, Reference, Rule, Rules, Term

_MAX_REWRITTEN = 64
"""Most rules that may be recursive through each other and still be rewritten: the result has their square."""


@dataclass(frozen=True, slots=True)
class _Corner:
    """A reference that a rule can reach before any character."""

    target: int
    alternative: int
    place: int
    """Index of the term in its alternative."""


def without_left_recursion(rules: Rules) -> Rules:
    """The same language without left recursion. Raises InvalidGrammar with the chain for recursion that is refused."""
    nullable = nullable_rules(rules.rules)
    corners = [list(_corners(rule, nullable)) for rule in rules.rules]
    cycles = [part for part in components(corners_of(corners)) if _is_cycle(part, corners)]
    if not cycles:
        return rules
    rewritten = list(rules.rules)
    for part in cycles:
        if not _is_trailing_option(part, rules, corners, nullable):
            raise _refusal(part, rules, corners)
        _unroll(part, rewritten)
    result = Rules(tuple(rewritten), rules.root)
    _check_growth(result, rules, cycles)
    return result


def nullable_rules(rules: Sequence[Rule]) -> list[bool]:
    """For every rule, whether the empty text is one of its texts."""
    users: list[list[tuple[int, int]]] = [[] for _ in rules]
    missing: list[list[int]] = []
    ready: list[int] = []
    result = [False] * len(rules)
    for index, rule in enumerate(rules):
        counts = []
        for number, alternative in enumerate(rule.alternatives):
            needed = [term for term in alternative if term.least > 0]
            open_ = [term.element.rule for term in needed if isinstance(term.element, Reference)]
            solid = any(not isinstance(term.element, Reference) and term.element != Literal("") for term in needed)
            counts.append(-1 if solid else len(open_))
            if solid:
                continue
            for target in open_:
                users[target].append((index, number))
            if not open_ and not result[index]:
                result[index] = True
                ready.append(index)
        missing.append(counts)
    while ready:
        for user, number in users[ready.pop()]:
            missing[user][number] -= 1
            if missing[user][number] == 0 and not result[user]:
                result[user] = True
                ready.append(user)
    return result


def components(edges: Sequence[Iterable[int]]) -> list[list[int]]:
    """Strongly connected components (Tarjan, SIAM J. Comput. 1, 1972), each ascending, without Python's recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    on_path: set[int] = set()
    path: list[int] = []
    found: list[list[int]] = []
    for begin in range(len(edges)):
        if begin in order:
            continue
        work: list[tuple[int, Iterator[int]]] = [(begin, iter(edges[begin]))]
        order[begin] = low[begin] = len(order)
        path.append(begin)
        on_path.add(begin)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in order:
                    order[target] = low[target] = len(order)
                    path.append(target)
                    on_path.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_path:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(path.pop())
                    on_path.difference_update(part)
                    found.append(sorted(part))
    return found


def corners_of(corners: Sequence[Sequence[_Corner]]) -> list[list[int]]:
    """The graph of the corners: for every rule, the rules that it can begin with."""
    return [[corner.target for corner in of_rule] for of_rule in corners]


def _corners(rule: Rule, nullable: Sequence[bool]) -> Iterator[_Corner]:
    for number, alternative in enumerate(rule.alternatives):
        for place, term in enumerate(alternative):
            if isinstance(term.element, Reference) and term.most != 0:
                yield _Corner(term.element.rule, number, place)
            if not _may_be_empty(term, nullable):
                break


def _may_be_empty(term: Term, nullable: Sequence[bool]) -> bool:
    if term.least == 0 or term.element == Literal(""):
        return True
    return isinstance(term.element, Reference) and nullable[term.element.rule]


def _is_cycle(part: list[int], corners: Sequence[Sequence[_Corner]]) -> bool:
    return len(part) > 1 or any(corner.target == part[0] for corner in corners[part[0]])


def _is_trailing_option(
    part: list[int], rules: Rules, corners: Sequence[Sequence[_Corner]], nullable: Sequence[bool]
) -> bool:
    members = set(part)
    if len(part) > _MAX_REWRITTEN:
        return False
    for index in part:
        for corner in corners[index]:
            if corner.target not in members:
                continue
            alternative = rules.rules[index].alternatives[corner.alternative]
            rest = alternative[1:]
            if corner.place > 0 or not alternative[0].once or not rest:
                return False
            if not all(_may_be_empty(term, nullable) for term in rest):
                return False
    return True


def _unroll(part: list[int], rules: list[Rule]) -> None:
    """Rewrites the rules of one component in place; the ways up from `low` to `high` become new rules."""
    members = set(part)
    ups: dict[tuple[int, int], int] = {}
    bases: dict[int, list[Alternative]] = {index: [] for index in part}
    callers: dict[int, list[tuple[int, Alternative]]] = {index: [] for index in part}
    for index in part:
        for alternative in rules[index].alternatives:
            first = alternative[0].element if alternative else None
            if isinstance(first, Reference) and first.rule in members:
                callers[first.rule].append((index, alternative[1:]))
            else:
                bases[index].append(alternative)
    for high in part:
        for low in part:
            ups[high, low] = len(rules)
            rules.append(Rule(f"{rules[high].name}(after {rules[low].name})", True, rules[high].location, ()))
    for (high, low), up in ups.items():
        ways: list[Alternative] = [()] if high == low else []
        ways += [(*rest, Term(Reference(ups[high, caller]))) for caller, rest in callers[low]]
        rules[up] = replace(rules[up], alternatives=tuple(ways))
    for high in part:
        begins = [(*base, Term(Reference(ups[high, low]))) for low in part for base in bases[low]]
        rules[high] = replace(rules[high], alternatives=tuple(begins))


def _check_growth(result: Rules, original: Rules, cycles: list[list[int]]) -> None:
    """After the rewriting, a rule may begin with itself only as its last term, where a matcher pushes nothing."""
    nullable = nullable_rules(result.rules)
    corners = [list(_corners(rule, nullable)) for rule in result.rules]
    for part in components(corners_of(corners)):
        members = set(part)
        for index in part:
            for corner in corners[index]:
                alternative = result.rules[index].alternatives[corner.alternative]
                last = corner.place == len(alternative) - 1 and alternative[corner.place].once
                if corner.target in members and not last:
                    first = [list(_corners(rule, nullable_rules(original.rules))) for rule in original.rules]
                    raise _refusal(cycles[0], original, first)


def _refusal(part: list[int], rules: Rules, corners: Sequence[Sequence[_Corner]]) -> InvalidGrammar:
    members = set(part)
    begin = next((index for index in part if rules.rules[index].named), part[0])
    came_from: dict[int, int] = {}
    level = [begin]
    while begin not in came_from:
        following: list[int] = []
        for index in level:
            for corner in corners[index]:
                if corner.target in members and corner.target not in came_from:
                    came_from[corner.target] = index
                    following.append(corner.target)
        level = following
    chain = [begin]
    while len(chain) == 1 or chain[-1] != begin:
        chain.append(came_from[chain[-1]])
    names = [rules.rules[index].name for index in reversed(chain) if rules.rules[index].named or index == begin]
    shown = names if len(names) <= 20 else [*names[:10], "...", *names[-9:]]
    location = rules.rules[begin].location
    line, _, column = location.partition(":")
    return InvalidGrammar(
        f"grammar.gbnf: left recursion: {' -> '.join(shown)}: rule {names[0]!r} begins with itself; put something "
        f"before the reference, or write the repetition as (...)*: defined at line {line} column {column}",
        location=location,
        chain=" -> ".join(shown),
    )
