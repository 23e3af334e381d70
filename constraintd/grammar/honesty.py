"""What a grammar's answer says beside its masks: what is enforced of it, and whether a finished text satisfies it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from constraintd.engine.llguidance_ import LlguidanceGrammar
from constraintd.engine.matcher import CompiledGrammar
from constraintd.errors import ConstraintdError
from constraintd.grammar.json_schema.linear_search import LinearSearch
from constraintd.grammar.json_schema.report import KeywordReport
from constraintd.grammar.json_schema.validator import SchemaValidator
from constraintd.grammar.source import Grammar, GrammarKind

_SEARCH = LinearSearch()
_LONG_CHARACTERS: Final = 64 << 10


def report_of(grammar: CompiledGrammar) -> Sequence[KeywordReport]:
    """What is made of each keyword of a JSON Schema that compiled; empty for other kinds."""
    return grammar.report if isinstance(grammar, LlguidanceGrammar) else ()


def is_long_schema(grammar: Grammar) -> bool:
    """Whether reading it takes more than a moment, 10 ms a MB during which no other thread runs."""
    return grammar.kind is GrammarKind.JSON_SCHEMA and len(grammar.texts[0]) > _LONG_CHARACTERS


def verifier_of(grammar: Grammar) -> Callable[[bytes], str | None] | None:
    """An independent check of a text against the schema as it was given; None for kinds that have no schema.

    The check gives what is wrong and where, or None. A long schema is read at its first check: most of its sessions
    never finish.
    """
    if grammar.kind is not GrammarKind.JSON_SCHEMA:
        return None
    read = cache(lambda: SchemaValidator(grammar.texts[0], grammar.options, _SEARCH))
    if not is_long_schema(grammar):
        read()
    alone = threading.Lock()  # it counts its work, and all sessions of a grammar share it

    def check(text: bytes) -> str | None:
        try:
            with alone:
                violation = read().check(text)
        except ConstraintdError as error:
            return f"could not be checked: {error.message}"
        return None if violation is None else f"{violation.pointer or '/'}: {violation.message}"

    return check
