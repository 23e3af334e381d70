"""Grammars, and what stands for a constraint, built from Python values. Nothing is checked here that the daemon
checks better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from constraintd.v1 import grammar_pb2, session_pb2

from .json_document import document_bytes, utf8
from .json_options import JsonWhitespace, PropertyOrder, SchemaPolicy, json_options

Grammar: TypeAlias = grammar_pb2.Grammar
"""A grammar's source, as the protocol has it."""

CompileLimits: TypeAlias = grammar_pb2.CompileLimits
"""What trying a new grammar may take, as the protocol has it."""

ConstraintLike: TypeAlias = session_pb2.Constraint | Grammar | str | None
"""A constraint, a grammar, the id of a compiled grammar, or None for "unconstrained"."""


def json_schema(
    schema: str | bytes | Mapping[str, Any] | bool,
    *,
    policy: SchemaPolicy = "strict",
    whitespace: JsonWhitespace = "bounded",
    formats_are_annotations: bool = False,
    property_order: PropertyOrder = "any",
) -> Grammar:
    """JSON that satisfies a JSON Schema: its text, or the document itself, whose member order is kept.

    `policy` says what becomes of keywords that can't be enforced: "strict" refuses the schema and names them,
    "approximate" takes it without them; `ConstraintClient.compile_report` tells which. Known formats are asserted
    unless `formats_are_annotations`. `property_order` "declared" has properties written in the schema's order alone.

    Raises TypeError or ValueError if a document can't be written as JSON, ValueError for an unknown option.
    """
    options = json_options(policy, whitespace, formats_are_annotations, property_order)
    return Grammar(json_schema=document_bytes(schema), json_options=options)


def json_object(
    *,
    policy: SchemaPolicy = "strict",
    whitespace: JsonWhitespace = "bounded",
    formats_are_annotations: bool = False,
) -> Grammar:
    """Any JSON object. Options are those of `json_schema`; only `whitespace` changes anything."""
    options = json_options(policy, whitespace, formats_are_annotations)
    return Grammar(json_object=grammar_pb2.JsonObject(), json_options=options)


def regex(pattern: str | bytes) -> Grammar:
    """A regular expression that the whole text matches."""
    return Grammar(regex=utf8(pattern))


def lark(source: str | bytes) -> Grammar:
    """A Lark grammar in llguidance's dialect, with the start rule `start`."""
    return Grammar(lark=utf8(source))


def gbnf(text: str | bytes, root: str | bytes = "root") -> Grammar:
    """A grammar in llama.cpp's language, token elements included; `root` is the rule to begin with."""
    return Grammar(gbnf=grammar_pb2.Gbnf(text=utf8(text), root=utf8(root)))


def structural_tag(
    document: str | bytes | Mapping[str, Any],
    *,
    policy: SchemaPolicy = "strict",
    whitespace: JsonWhitespace = "bounded",
    formats_are_annotations: bool = False,
) -> Grammar:
    """Free text with tagged parts: {"structures", "triggers"}, or {"type": "structural_tag", "format"}.

    The options are for the schemas inside; they and the errors are those of `json_schema`.
    """
    options = json_options(policy, whitespace, formats_are_annotations)
    return Grammar(structural_tag=document_bytes(document), json_options=options)


def choice(texts: Iterable[str | bytes]) -> Grammar:
    """Exactly one of these texts."""
    if isinstance(texts, str | bytes):
        raise TypeError("choice takes a list of texts, not one text")
    return Grammar(choice=grammar_pb2.Choice(texts=[utf8(text) for text in texts]))


def compile_limits(*, seconds: float = 0.0, memory_bytes: int = 0, step_seconds: float = 0.0) -> CompileLimits:
    """What trying a new grammar may take before it is refused; 0 is the server's default.

    `seconds` in all, `memory_bytes`, and `step_seconds` for its slowest step (a mask or an advance). Each is cut to the
    server's own cap, and counted in whole milliseconds, rounded up.
    """
    return CompileLimits(
        time_ms=math.ceil(seconds * 1000), memory_bytes=memory_bytes, step_ms=math.ceil(step_seconds * 1000)
    )


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
    raise TypeError(f"a constraint is a Constraint, a Grammar, a grammar id or None, not {type(what).__name__}")
