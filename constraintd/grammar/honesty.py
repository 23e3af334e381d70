"""What a grammar's answer says beside its masks: what is enforced of it, and whether a finished text satisfies it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from constraintd.engine.llguidance_ import LlguidanceGrammar
from constraintd.engine.matcher import CompiledGrammar
from constraintd.errors import ConstraintdError
from constraintd.grammar.json_schema.linear_search import LinearSearch
from constraintd.grammar.json_schema.report import KeywordReport
from constraintd.grammar.json_schema.validator import SchemaValidator
from constraintd.grammar.source import Grammar, GrammarKind

_SEARCH = LinearSearch()


def report_of(grammar: CompiledGrammar) -> Sequence[KeywordReport]:
    """What is made of each keyword of a JSON Schema that compiled; empty for other kinds."""
    return grammar.report if isinstance(grammar, LlguidanceGrammar) else ()


def verifier_of(grammar: Grammar) -> Callable[[bytes], str | None] | None:
    """An independent check of a text against the schema as it was given; None for kinds that have no schema.

    The check gives what is wrong and where, or None.
    """
    if grammar.kind is not GrammarKind.JSON_SCHEMA:
        return None
    validator = SchemaValidator(grammar.texts[0], grammar.options, _SEARCH)
    alone = threading.Lock()  # it counts its work, and all sessions of a grammar share it

    def check(text: bytes) -> str | None:
        try:
            with alone:
                violation = validator.check(text)
        except ConstraintdError as error:
            return f"could not be checked: {error.message}"
        return None if violation is None else f"{violation.pointer or '/'}: {violation.message}"

    return check
