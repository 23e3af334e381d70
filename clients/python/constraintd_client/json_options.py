"""How the daemon reads JSON Schemas and spells their instances, from keywords."""

from __future__ import annotations

from typing import Literal, TypeAlias

from constraintd.v1 import grammar_pb2

SchemaPolicy: TypeAlias = Literal["strict", "approximate"]
"""What becomes of keywords that can't be enforced: the schema is refused, or taken without them and reported."""

JsonWhitespace: TypeAlias = Literal["bounded", "compact", "natural"]
"""White space between JSON's parts: up to 64 characters anywhere, none, or one space after each comma and colon."""


PropertyOrder: TypeAlias = Literal["any", "declared"]
"""The order of an object's properties in the output: any, as JSON Schema has it, or that of the schema's text."""


_ORDERS = {"any": grammar_pb2.PROPERTY_ORDER_UNSPECIFIED, "declared": grammar_pb2.PROPERTY_ORDER_DECLARED}


def json_options(
    policy: SchemaPolicy,
    whitespace: JsonWhitespace,
    formats_are_annotations: bool,
    property_order: PropertyOrder = "any",
) -> grammar_pb2.JsonOptions | None:
    """The options; None where all are the daemon's defaults. Raises ValueError for a name that there is not."""
    if (policy, whitespace, formats_are_annotations, property_order) == ("strict", "bounded", False, "any"):
        return None
    return grammar_pb2.JsonOptions(
        policy=grammar_pb2.SchemaPolicy.Value(f"SCHEMA_POLICY_{policy.upper()}"),
        whitespace=grammar_pb2.JsonWhitespace.Value(f"JSON_WHITESPACE_{whitespace.upper()}"),
        formats_are_annotations=formats_are_annotations,
        property_order=_ORDERS[property_order],
    )
