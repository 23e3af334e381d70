"""GBNF, the grammar language of llama.cpp, parsed to immutable rules.

    name ::= alternatives          | ( ) "literal" [class] [^class] . * + ? {m} {m,} {m,n} # comment
    <[7]> <think> !<[7]>           one whole token, by id or by spelling, or any but that one

Where this is stricter than llama.cpp: a second definition of a name, `[]`, `[^]`, upside-down ranges and counts, and
counts past a limit are errors; where wider: names may hold `_`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from constraintd.errors import InvalidGrammar, TooLarge
from constraintd.grammar.gbnf_lexer import ANY_CHARACTER, Lexer
from constraintd.grammar.gbnf_recursion import without_left_recursion
from constraintd.grammar.gbnf_rules import Alternative, GbnfLimits, Reference, Rule, Rules, Term

_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse_gbnf(text: str, *, root: str = "root", limits: GbnfLimits | None = None) -> Rules:
    """The rules of a GBNF text; `root` names the rule to start from.

    Raises InvalidGrammar with `location` line:column for whatever is wrong with the text: syntax, an undefined rule,
    two definitions of one, no rule named `root`, a repetition over the limits, left recursion (with its chain).
    Raises TooLarge for a text over the limit.
    """
    limits = limits or GbnfLimits()
    if len(text) > limits.source_characters:
        raise TooLarge("grammar.gbnf", limit=limits.source_characters, actual=len(text), unit="characters")
    return without_left_recursion(_Parser(text, limits).parse(root))


@dataclass(slots=True)
class _Open:
    """A rule or group that is being read: what is done of it, and the product of counts inside."""

    index: int
    name: str
    at: int
    alternatives: list[Alternative] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    product: int = 1
    last_product: int = 1
    """The product of the term read last, for the quantifier that may follow it."""

    def add(self, term: Term, product: int = 1) -> None:
        self.product = max(self.product, product)
        self.last_product = product
        self.terms.append(term)

    def end_alternative(self) -> None:
        self.alternatives.append(tuple(self.terms))
        self.terms = []


class _Parser:
    """One pass over the text. Open groups are a list, not calls, so nesting takes memory and never the stack."""

    def __init__(self, text: str, limits: GbnfLimits) -> None:
        self._lexer = Lexer(text)
        self._limits = limits
        self._rules: list[Rule | None] = []
        self._index: dict[str, int] = {}
        self._defined: dict[str, str] = {}
        self._used: dict[str, int] = {}

    def parse(self, root: str) -> Rules:
        lexer = self._lexer
        lexer.space(lines=True)
        while lexer.peek():
            self._rule()
            lexer.space(lines=True)
        for name, offset in self._used.items():
            if name not in self._defined:
                lexer.fail(f"rule {name!r} is used but nowhere defined{self._did_you_mean(name)}: first used", offset)
        if root not in self._defined:
            raise InvalidGrammar(
                f"grammar.gbnf: no rule is named {root!r}, which a text has to begin with{self._did_you_mean(root)}; "
                "define it or name another root",
                location="1:1",
            )
        return Rules(tuple(rule for rule in self._rules if rule is not None), self._index[root])

    def _did_you_mean(self, name: str) -> str:
        # The comparison is quadratic in the names' lengths and linear in their number.
        known = [other for other in list(self._defined)[:1000] if len(other) <= 100]
        close = difflib.get_close_matches(name[:100], known, n=1)
        return f" (did you mean {close[0]!r}?)" if close else ""

    def _index_of(self, name: str) -> int:
        if name not in self._index:
            self._index[name] = len(self._rules)
            self._rules.append(None)
        return self._index[name]

    def _rule(self) -> None:
        lexer = self._lexer
        began = lexer.at
        name = lexer.name()
        if name is None:
            lexer.expected("a rule's name")
        if name in self._defined:
            first = self._defined[name]
            line = first.partition(":")[0]
            lexer.fail(f"rule {name!r} is defined on line {line} already (at {first}); keep one: again", began)
        self._defined[name] = lexer.place(began)
        lexer.space(lines=False)
        if not lexer.take("::="):
            lexer.expected(f"'::=' after the rule's name {name!r}")
        lexer.space(lines=True)
        self._body(_Open(self._index_of(name), name, began))

    def _body(self, rule: _Open) -> None:
        """Everything behind `::=`, up to the line's end or the text's."""
        lexer = self._lexer
        stack = [rule]
        while True:
            top = stack[-1]
            nested = len(stack) > 1
            character = lexer.peek()
            if character == '"':
                top.add(Term(lexer.literal()))
            elif character == "[":
                top.add(Term(lexer.characters()))
            elif character == ".":
                lexer.at += 1
                top.add(Term(ANY_CHARACTER))
            elif character and character in "<!":
                top.add(Term(lexer.token_element()))
            elif character and character in "*+?{":
                self._quantify(top, nested=nested)
            elif character == "|":
                lexer.at += 1
                top.end_alternative()
                lexer.space(lines=True)
                continue
            elif character == "(":
                self._rules.append(None)
                name = f"{rule.name}({lexer.place()})"
                stack.append(_Open(len(self._rules) - 1, name, lexer.at))
                lexer.at += 1
                lexer.space(lines=True)
                continue
            elif character == ")" and nested:
                lexer.at += 1
                self._close(stack.pop(), named=False)
                stack[-1].add(Term(Reference(top.index)), top.product)
            elif not self._reference(top):
                break
            lexer.space(lines=len(stack) > 1)
        if nested:
            opened = lexer.place(top.at)
            lexer.expected(f"')' for the '(' at {opened}, or more of that group")
        if character and character not in "\r\n":
            lexer.expected("more of the rule, or the end of the line")
        self._close(rule, named=True)

    def _reference(self, top: _Open) -> bool:
        began = self._lexer.at
        name = self._lexer.name()
        if name is None:
            return False
        self._used.setdefault(name, began)
        top.add(Term(Reference(self._index_of(name))))
        return True

    def _close(self, group: _Open, *, named: bool) -> None:
        group.end_alternative()
        place = self._lexer.place(group.at)
        self._rules[group.index] = Rule(group.name, named, place, tuple(group.alternatives))

    def _quantify(self, top: _Open, *, nested: bool) -> None:
        """A quantifier applies to the term before it; on a term that has one already, to both together."""
        lexer = self._lexer
        began = lexer.at
        if not top.terms:
            lexer.fail(f"{lexer.peek()!r} has nothing before it to repeat: found")
        least, most = self._bounds(nested=nested)
        product = top.last_product * max(1, least if most is None else most)
        if product > self._limits.repetition_product:
            limit = self._limits.repetition_product
            lexer.fail(f"repetitions nested here multiply to {product}, over the limit of {limit}: found", began)
        term = top.terms.pop()
        if not term.once:
            name = f"{top.name.partition('(')[0]}({lexer.place(began)})"
            self._rules.append(Rule(name, False, lexer.place(began), ((term,),)))
            term = Term(Reference(len(self._rules) - 1))
        top.add(Term(term.element, least, most), product)

    def _bounds(self, *, nested: bool) -> tuple[int, int | None]:
        lexer = self._lexer
        began = lexer.at
        character = lexer.peek()
        lexer.at += 1
        if character in _QUANTIFIERS:
            return _QUANTIFIERS[character]
        lexer.space(lines=nested)
        least = lexer.count(self._limits.repetition)
        if least is None:
            lexer.expected("the least count, as in {2} or {0,3}")
        lexer.space(lines=nested)
        most: int | None = least
        if lexer.take(","):
            lexer.space(lines=nested)
            most = lexer.count(self._limits.repetition)
            lexer.space(lines=nested)
        if not lexer.take("}"):
            lexer.expected("'}' at the repetition's end")
        if most is not None and most < least:
            lexer.fail(f"the repetition {{{least},{most}}} ends below its beginning: found", began)
        return least, most
