"""One hostile grammar, and short ways to write one."""

from __future__ import annotations

import json
from dataclasses import dataclass

from constraintd.v1 import grammar_pb2


@dataclass(frozen=True, slots=True)
class Hostile:
    """One of the corpus. `texts` as they go on the wire: one, or a choice's."""

    name: str
    kind: str
    texts: tuple[bytes, ...]

    def message(self) -> grammar_pb2.Grammar:
        """The grammar as the protocol has it. Schemas may be approximated, so that more of them reach an engine."""
        match self.kind:
            case "choice":
                return grammar_pb2.Grammar(choice=grammar_pb2.Choice(texts=self.texts))
            case "json_object":
                return grammar_pb2.Grammar(json_object=grammar_pb2.JsonObject())
            case "gbnf":
                return grammar_pb2.Grammar(gbnf=grammar_pb2.Gbnf(text=self.texts[0]))
            case "json_schema":
                options = grammar_pb2.JsonOptions(policy=grammar_pb2.SCHEMA_POLICY_APPROXIMATE)
                return grammar_pb2.Grammar(json_schema=self.texts[0], json_options=options)
            case _:
                return grammar_pb2.Grammar(**{self.kind: self.texts[0]})  # type: ignore[arg-type]


def schema(name: str, document: object) -> Hostile:
    """A JSON Schema."""
    return Hostile(name, "json_schema", (json.dumps(document, separators=(",", ":")).encode(),))


def text_of(kind: str, name: str, text: str | bytes) -> Hostile:
    """A grammar of one text, as UTF-8 or as these very bytes."""
    return Hostile(name, kind, (text.encode() if isinstance(text, str) else text,))


def nested(depth: int, before: str, core: str, after: str) -> bytes:
    """`core` within `depth` pairs of `before` and `after`."""
    return (before * depth + core + after * depth).encode()
