"""From the user's JSON Schema to the text that the engine compiles, with a report of what became of every keyword."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from llguidance import LLMatcher

from constraintd.errors import InvalidGrammar, LimitExceeded
from constraintd.grammar.json_schema.any_order import AnyOrder
from constraintd.grammar.json_schema.core import NUMERIC, Core
from constraintd.grammar.json_schema.document import Document, load
from constraintd.grammar.json_schema.inhabited import inhabited_definitions, pruned
from constraintd.grammar.json_schema.report import (
    KeywordReport,
    PreparedLark,
    PreparedSchema,
    PropertyOrder,
    SchemaOptions,
    Verdict,
    Whitespace,
)
from constraintd.grammar.json_schema.translate import Translator

# The engine's own parser of JSON stops at 128 levels.
_ENGINE_DEPTH: Final = 120
# Parts of the text that the engine gets; enough for 50,000 subschemas, too few for an exponential expansion.
_MAX_PARTS: Final = 400_000

# Measured: the engine overflows an 8 MiB stack, and takes the process with it, somewhere past 5,000.
_MAX_CHAIN: Final = 2_000

BOUNDED_WHITESPACE: Final = r"[ \t]{1,16}|[ \t]{0,4}(\r?\n){1,2}[ \t]{0,64}"
_WHITESPACE: Final[dict[Whitespace, dict[str, Any]]] = {
    Whitespace.BOUNDED: {"whitespace_pattern": BOUNDED_WHITESPACE},
    Whitespace.COMPACT: {"whitespace_flexible": False},
    Whitespace.NATURAL: {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
}


def prepare_schema(text: str, options: SchemaOptions) -> PreparedSchema:
    """The engine's schema and the report for a canonical JSON Schema text.

    Raises InvalidGrammar for text that is no schema, for a schema without a finite instance, and under STRICT for
    keywords that can't be enforced, with the JSON pointer of the first as `location`; LimitExceeded for schemas too
    large.
    """
    definitions, report = _translated(text, options)
    return PreparedSchema(definitions.engine_json(), report)


def prepare_lark(text: str, options: SchemaOptions) -> PreparedLark:
    """The schema as a Lark grammar that offers the names of an object in any order, where its size allows it.

    Raises as prepare_schema does. Where no order is to be gained the grammar is one line of `%json`.
    """
    definitions, report = _translated(text, options)
    if options.property_order is PropertyOrder.DECLARED:
        return PreparedLark(f"start: %json {definitions.engine_json()}", report)
    rules = AnyOrder(definitions.cores, definitions.names, definitions.spelled, definitions.guidance)
    lark = rules.text("")
    # The engine leaves out a branch of its own that it finds impossible; a rule of ours it would refuse with the rest.
    if lark is None or (rules.unproven and LLMatcher.validate_grammar_with_warnings(lark)[0]):
        return PreparedLark(f"start: %json {definitions.engine_json()}", report)
    return PreparedLark(lark, tuple(_reordered(entry, rules.keeps_order) for entry in report))


def _reordered(entry: KeywordReport, somewhere_ordered: bool) -> KeywordReport:
    if entry.keyword != "properties" or entry.verdict is not Verdict.NARROWED:
        return entry
    if somewhere_ordered:
        return replace(entry, detail="names come in any order, or in the schema's where that is too much")
    return replace(entry, verdict=Verdict.ENFORCED, detail="")


def _translated(text: str, options: SchemaOptions) -> tuple[_Definitions, tuple[KeywordReport, ...]]:
    root = load(text)
    if isinstance(root, dict) and "x-guidance" in root:
        raise InvalidGrammar(
            "grammar.json_schema: x-guidance holds engine options and is no part of JSON Schema; take it out",
            location="/x-guidance",
        )
    translator = Translator(Document(root), options)
    definitions = translator.run()
    _check_size(definitions)
    _check_chains(definitions)
    translator.report.raise_refused()
    known = inhabited_definitions(definitions)
    if "" not in known:
        raise InvalidGrammar(
            "grammar.json_schema: no finite JSON value satisfies the schema: look for false, for bounds that "
            "contradict each other, and for a $ref or required property that leads only to itself",
            location="",
        )
    guidance = _WHITESPACE[options.whitespace] | {"json_allow_general_unicode_escapes": True}
    return _Definitions.of(definitions, known, guidance), translator.report.entries()


def _check_size(definitions: dict[str, Core]) -> None:
    parts = 0
    level: list[Any] = list(definitions.values())
    depth = 0
    while level:
        parts += len(level)
        depth += 1
        if parts > _MAX_PARTS or depth > _ENGINE_DEPTH:
            raise LimitExceeded(
                "grammar.json_schema: written out for the engine the schema is too large or too deep; simplify its "
                "oneOf, not, if and dependencies, or split it"
            )
        level = [child for part in level for child in _parts_of(part)]


def _check_chains(definitions: dict[str, Core]) -> None:
    """Walks the references as the engine does: depth first, each definition once, by recursion on a bounded stack."""
    seen = {""}
    stack = [(0, iter(_references(definitions[""])))]
    while stack:
        depth, waiting = stack[-1]
        step = next(waiting, None)
        if step is None:
            stack.pop()
            continue
        target, below = step
        if target in seen:
            continue
        seen.add(target)
        if depth + below > _MAX_CHAIN:
            raise LimitExceeded(
                f"grammar.json_schema: references lead one from within the other past {_MAX_CHAIN} levels; shorten them"
            )
        stack.append((depth + below, iter(_references(definitions[target]))))


def _references(core: Any) -> list[tuple[str, int]]:
    """The references inside a core, in order, with their depth."""
    found: list[tuple[str, int]] = []
    stack: list[tuple[Any, int]] = [(core, 1)]
    while stack:
        part, depth = stack.pop()
        if isinstance(part, dict) and isinstance(part.get("$ref"), str):
            found.append((part["$ref"], depth))
        stack.extend((child, depth + 1) for child in reversed(_parts_of(part)))
    return found


def _parts_of(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return [value for key, value in part.items() if key != "enum" and isinstance(value, dict | list)]
    return [value for value in part if isinstance(value, dict | list)] if isinstance(part, list) else []


@dataclass(frozen=True, slots=True)
class _Definitions:
    """What the engine gets, by pointer and with the names that stand for the pointers."""

    cores: dict[str, Core]
    names: dict[str, str]
    guidance: dict[str, Any]

    @staticmethod
    def of(definitions: dict[str, Core], known: frozenset[str], guidance: dict[str, Any]) -> _Definitions:
        """Without the parts that have no instance."""
        cache: dict[int, Core] = {}
        asked: dict[int, frozenset[str]] = {}
        kept = {pointer: pruned(core, known, cache, asked) for pointer, core in definitions.items() if pointer in known}
        neighbours = _fractional_units(kept.values())
        kept = {pointer: _closed(core, neighbours) for pointer, core in kept.items()}
        return _Definitions(kept, {pointer: f"d{index}" for index, pointer in enumerate(kept)}, guidance)

    def spelled(self, core: Core) -> Any:
        """A core as the engine reads it."""
        return _spelled(core, self.names)

    def engine_json(self) -> str:
        """The whole schema as the engine reads it, its options in front."""
        engine: dict[str, Any] = {"x-guidance": self.guidance, "$ref": f"#/$defs/{self.names['']}"}
        engine["$defs"] = {self.names[pointer]: _spelled(core, self.names) for pointer, core in self.cores.items()}
        return json.dumps(engine, ensure_ascii=False, separators=(",", ":"))


def _fractional_units(cores: Iterable[Core]) -> frozenset[int]:
    """The integers below each bound that is none: where such a bound may come to meet another one."""
    found: set[int] = set()
    stack: list[Any] = list(cores)
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            bounds = (part.get(key) for key in NUMERIC if key != "multipleOf")
            found.update(math.floor(bound) for bound in bounds if isinstance(bound, float))
        stack.extend(_parts_of(part))
    return frozenset(found)


def _closed(core: Any, units: frozenset[int]) -> Any:
    """Open integer bounds closed by a small step, where a fractional bound of the same unit may meet them.

    There the engine takes the open end for a closed one: from above 1 to 1.5 it takes 1 (llguidance 1.9.1).
    """
    if isinstance(core, list):
        return [_closed(part, units) for part in core]
    if not isinstance(core, dict):
        return core
    result = {key: value if key == "enum" else _closed(value, units) for key, value in core.items()}
    low, high = result.get("exclusiveMinimum"), result.get("exclusiveMaximum")
    if type(low) is int and low in units:
        del result["exclusiveMinimum"]
        result["minimum"] = max(low + _step(low), result.get("minimum", low))
    if type(high) is int and high - 1 in units:
        del result["exclusiveMaximum"]
        result["maximum"] = min(high - _step(high), result.get("maximum", high))
    return result


def _step(bound: int) -> float:
    """The engine reads 15 digits of a bound; so many lie between this step and the bound's own."""
    return 1e-9 if abs(bound) < 10**6 else 1e-3 if abs(bound) < 10**11 else 0.5


def _spelled(core: Any, names: dict[str, str]) -> Any:
    """The core with its references named for the engine."""
    if isinstance(core, list):
        return [_spelled(part, names) for part in core]
    if not isinstance(core, dict):
        return core
    result: dict[str, Any] = {}
    for key, value in core.items():
        if key == "$ref":
            result[key] = f"#/$defs/{names[value]}"
        elif key in ("properties", "patternProperties"):
            result[key] = {name: _spelled(schema, names) for name, schema in value.items()}
        elif key in ("enum", "required", "type"):
            result[key] = value
        else:
            result[key] = _spelled(value, names)
    return result
