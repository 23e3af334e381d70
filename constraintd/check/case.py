"""A grammar to check and the texts to check it on: read from a cases file, as constraints of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from constraintd.v1 import grammar_pb2, session_pb2

Part: TypeAlias = str | int
"""Text, or a token id."""
JSON_KINDS = ("json_schema", "json_object", "choice", "structural_tag")
KINDS = (*JSON_KINDS, "regex", "lark", "gbnf")


class BadCase(Exception):
    """A case that can't be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a cases file."""

    id: str
    constraint: session_pb2.Constraint
    passing: tuple[tuple[Part, ...], ...]
    failing: tuple[tuple[Part, ...], ...]
    expect_refusal: bool

    @property
    def grammar(self) -> grammar_pb2.Grammar:
        """Its grammar, whether lazy or not."""
        lazy = self.constraint.WhichOneof("kind") == "lazy"
        return self.constraint.lazy.grammar if lazy else self.constraint.grammar


def read_cases(lines: Sequence[str], options: grammar_pb2.JsonOptions) -> Iterator[Case]:
    """The cases of a file's lines. Raises BadCase with the line's number."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield read_case(json.loads(line), options)
        except (BadCase, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadCase(f"line {number}: {type(error).__name__}: {error}") from None


def read_case(row: Mapping[str, Any], options: grammar_pb2.JsonOptions) -> Case:
    """One case from its JSON object. Raises BadCase, KeyError, TypeError."""
    grammar = make_grammar(row["kind"], row["grammar"], start=row.get("start") or "", options=options)
    constraint = session_pb2.Constraint(grammar=grammar)
    if row.get("triggers"):
        lazy = session_pb2.LazyGrammar(grammar=grammar, triggers=[_trigger(trigger) for trigger in row["triggers"]])
        constraint = session_pb2.Constraint(lazy=lazy)
    return Case(
        str(row["id"]),
        constraint,
        tuple(_parts(text) for text in row.get("passing") or ()),
        tuple(_parts(text) for text in row.get("failing") or ()),
        row.get("expect") == "refuse",
    )


def make_grammar(kind: str, source: Any, *, start: str, options: grammar_pb2.JsonOptions) -> grammar_pb2.Grammar:
    """A grammar message: `source` is its text, or for JSON kinds any JSON value. Raises BadCase for an unknown kind."""
    grammar = grammar_pb2.Grammar(json_options=options)
    if kind not in KINDS:
        raise BadCase(f"kind {kind!r} is none of {', '.join(KINDS)}")
    if kind == "json_object":
        grammar.json_object.SetInParent()
    elif kind == "choice":
        texts = json.loads(source) if isinstance(source, str) else source
        grammar.choice.texts.extend(text.encode() for text in texts)
        grammar.choice.SetInParent()
    elif kind == "gbnf":
        grammar.gbnf.text = source.encode()
        grammar.gbnf.root = start.encode()
    elif kind in ("json_schema", "structural_tag"):
        setattr(grammar, kind, source.encode() if isinstance(source, str) else _json(source))
    else:
        setattr(grammar, kind, source.encode("utf-8", "surrogatepass"))
    return grammar


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _trigger(row: Mapping[str, Any]) -> session_pb2.Trigger:
    trigger = session_pb2.Trigger(at_start=row.get("at_start", False), exclusive=row.get("exclusive", False))
    kind = row["type"]
    if kind == "token":
        trigger.token = row["value"]
    elif kind in ("word", "pattern", "pattern_full"):
        setattr(trigger, kind, row["value"].encode())
    else:
        raise BadCase(f"trigger type {kind!r} is none of word, pattern, pattern_full, token")
    return trigger


def _parts(text: str | Mapping[str, Any]) -> tuple[Part, ...]:
    if isinstance(text, str):
        return (text,)
    parts = tuple(part if isinstance(part, str) else part["token"] for part in text["parts"])
    if not all(isinstance(part, str | int) for part in parts):
        raise BadCase('a part is text or {"token": id}')
    return parts
