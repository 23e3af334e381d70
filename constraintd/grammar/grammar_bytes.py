"""A grammar's source as bytes, for stores and envelopes."""

from __future__ import annotations

from constraintd.encoding import Reader, Writer
from constraintd.errors import InvalidEnvelope
from constraintd.grammar.json_schema.report import Policy, PropertyOrder, SchemaOptions, Whitespace
from constraintd.grammar.source import Grammar, GrammarKind, parse_grammar


def grammar_bytes(grammar: Grammar) -> bytes:
    """The grammar in the canonical encoding."""
    writer = Writer()
    writer.text(grammar.grammar_id)
    writer.text(grammar.kind.value)
    options = grammar.options
    for choice in (options.policy.value, options.whitespace.value, options.property_order.value):
        writer.text(choice)
    writer.flag(options.formats_are_annotations)
    writer.unsigned(len(grammar.texts))
    for text in grammar.texts:
        writer.text(text)
    return writer.getvalue()


def grammar_of_bytes(data: bytes, *, max_bytes: int) -> Grammar:
    """What `grammar_bytes` wrote, read and checked like any grammar, its id included.

    Raises InvalidEnvelope, and what `parse_grammar` raises.
    """
    reader = Reader(data, "grammar")
    grammar_id = reader.text()
    try:
        kind = GrammarKind(reader.text())
        policy, whitespace, order = Policy(reader.text()), Whitespace(reader.text()), PropertyOrder(reader.text())
    except ValueError as error:
        raise reader.error(f"{error}: a kind or an option that is not known here") from None
    options = SchemaOptions(policy, whitespace, reader.flag(), order)
    texts = [reader.text().encode() for _ in range(reader.count())]
    reader.end()
    grammar = parse_grammar(kind, texts, max_bytes=max_bytes, options=options)
    if grammar.grammar_id != grammar_id:
        raise InvalidEnvelope(
            f"grammar: its text has the id {grammar.grammar_id}, it was kept as {grammar_id[:80]}", location="grammar"
        )
    return grammar
