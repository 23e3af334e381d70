"""Grammars and constraints, built from Python values. Nothing is checked here that the daemon checks
better.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from constraintd.v1 import grammar_pb2, session_pb2

Grammar: TypeAlias = grammar_pb2.Grammar
"""A grammar's source, as the protocol has it."""

ConstraintLike: TypeAlias = session_pb2.Constraint | Grammar | str | None
"""A constraint, a grammar, the id of a compiled grammar, or None for "unconstrained"."""


def json_schema(schema: str | bytes | Mapping[str, Any] | bool) -> Grammar:
    """JSON that satisfies a JSON Schema: its text, or the document itself, whose member order is kept.

    Raises TypeError or ValueError if a document can't be written as JSON.
    """
    if not isinstance(schema, str | bytes):
        schema = json.dumps(schema, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Grammar(json_schema=_utf8(schema))


def json_object() -> Grammar:
    """Any JSON object."""
    return Grammar(json_object=grammar_pb2.JsonObject())


def regex(pattern: str | bytes) -> Grammar:
    """A regular expression that the whole text matches."""
    return Grammar(regex=_utf8(pattern))


def lark(source: str | bytes) -> Grammar:
    """A Lark grammar in llguidance's dialect, with the start rule `start`."""
    return Grammar(lark=_utf8(source))


def choice(texts: Iterable[str | bytes]) -> Grammar:
    """Exactly one of these texts."""
    if isinstance(texts, str | bytes):
        raise TypeError("choice takes a list of texts, not one text")
    return Grammar(choice=grammar_pb2.Choice(texts=[_utf8(text) for text in texts]))


def constraint(what: ConstraintLike) -> session_pb2.Constraint:
    """What a session's text must satisfy: a grammar, the id of a compiled one, or None for
    "unconstrained".
    """
    if isinstance(what, session_pb2.Constraint):
        return what
    if isinstance(what, Grammar):
        return session_pb2.Constraint(grammar=what)
    if isinstance(what, str):
        return session_pb2.Constraint(grammar_id=what)
    if what is None:
        return session_pb2.Constraint(unconstrained=session_pb2.Unconstrained())
    raise TypeError(f"a constraint is a Grammar, a grammar id or None, not {type(what).__name__}")


def _utf8(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
