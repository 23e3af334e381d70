"""What a caller may choose about a schema, and what the answer says was made of each keyword."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Policy(Enum):
    """What becomes of a keyword that the engine can't enforce."""

    STRICT = "strict"  # the schema is refused, each such keyword named
    APPROXIMATE = "approximate"  # the keyword is left out, and the report says so


class Whitespace(Enum):
    """Which white space the output may have between JSON's parts. Strings are not concerned."""

    BOUNDED = "bounded"  # up to two line ends and an indentation of 64, or 16 spaces: endless padding doesn't fit
    COMPACT = "compact"  # none
    NATURAL = "natural"  # one space after each comma and colon, as Python's json.dumps writes it


class PropertyOrder(Enum):
    """In which order an object's properties may be written."""

    ANY = "any"  # as JSON Schema has it, where an object is not too large for that
    DECLARED = "declared"  # that of the schema's text


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """How to read a schema and spell its instances."""

    policy: Policy = Policy.STRICT
    whitespace: Whitespace = Whitespace.BOUNDED
    formats_are_annotations: bool = False
    property_order: PropertyOrder = PropertyOrder.ANY


class Verdict(Enum):
    """What the engine makes of one keyword."""

    ENFORCED = "enforced"  # exactly the keyword's meaning
    NARROWED = "narrowed"  # never an invalid output, but some valid spelling or order is not produced
    APPROXIMATED = "approximated"  # wider than the keyword, or not applied: the output may violate it
    REFUSED = "refused"  # can't be enforced, and the policy is STRICT
    ANNOTATION = "annotation"  # asserts nothing: titles, unknown keywords, unknown formats


@dataclass(frozen=True, slots=True)
class KeywordReport:
    """One keyword at one place. `pointer` is the JSON pointer of the keyword itself; `detail` is one sentence or ""."""

    pointer: str
    keyword: str
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PreparedSchema:
    """`engine_json` is the text for llguidance's `%json`, its x-guidance options in front."""

    engine_json: str
    report: tuple[KeywordReport, ...]


@dataclass(frozen=True, slots=True)
class PreparedLark:
    """`text` is a whole Lark grammar with a rule `start`, still without `no_forcing`."""

    text: str
    report: tuple[KeywordReport, ...]
