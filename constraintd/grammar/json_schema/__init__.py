"""JSON Schema in front of the engine: what is enforced is said keyword by keyword, and nothing is dropped silently."""

from constraintd.grammar.json_schema.prepare import prepare_lark, prepare_schema
from constraintd.grammar.json_schema.report import (
    KeywordReport,
    Policy,
    PreparedLark,
    PreparedSchema,
    SchemaOptions,
    Verdict,
    Whitespace,
)
from constraintd.grammar.json_schema.validator import SchemaValidator, Violation

__all__ = [
    "KeywordReport",
    "Policy",
    "PreparedLark",
    "PreparedSchema",
    "SchemaOptions",
    "SchemaValidator",
    "Verdict",
    "Violation",
    "Whitespace",
    "prepare_lark",
    "prepare_schema",
]
