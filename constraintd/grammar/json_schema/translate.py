"""A schema as JSON Schema has it, to a core; a verdict for every keyword on the way."""

from __future__ import annotations

from typing import Any, Final

from constraintd.errors import InvalidGrammar
from constraintd.grammar.json_schema.arrays import arrays, unevaluated_items
from constraintd.grammar.json_schema.core import (
    NUMERIC,
    OF_ARRAYS,
    OF_OBJECTS,
    Budget,
    Core,
    all_of,
    any_of,
    integers_only,
)
from constraintd.grammar.json_schema.document import Dialect, Document, join
from constraintd.grammar.json_schema.exclusive import made_exclusive, possible_overlaps
from constraintd.grammar.json_schema.negation import negate
from constraintd.grammar.json_schema.objects import objects, unevaluated_properties
from constraintd.grammar.json_schema.refusals import Reporter, malformed
from constraintd.grammar.json_schema.report import SchemaOptions, Verdict
from constraintd.grammar.json_schema.scalars import numbers, strings, types, values

# Steps that all proofs and negations of one document may take together; real schemas take a few thousand.
_STEPS: Final = 400_000

_KEYWORDS: Final = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if"),
        *("then", "else", *NUMERIC, "minLength", "maxLength", "pattern", "format", *OF_ARRAYS, "additionalItems"),
        *("uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems", *OF_OBJECTS, "propertyNames"),
        *("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
    )
)
_PLACES: Final = frozenset(
    ("$defs", "definitions", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema", "$vocabulary")
)


class Translator:
    """Translates one document. Owns the definitions made so far and the budget for proofs."""

    def __init__(self, document: Document, options: SchemaOptions) -> None:
        self.document = document
        self.options = options
        self.report = Reporter(options.policy)
        self.dialect = document.dialect
        self.declared_dialect = document.dialect if document.declared else None
        self.definitions: dict[str, Core] = {}
        self._begun: set[str] = set()
        # Definitions from which something was left out: their complements would be too narrow.
        self._lossy: set[str] = set()
        self._wanted: list[str] = [""]
        self._budget = Budget(_STEPS)

    def run(self) -> dict[str, Core]:
        """Every reachable definition by pointer, the root's "" first. Raises InvalidGrammar for a malformed schema."""
        while self._wanted:
            self._define(self._wanted.pop())
        return self.definitions

    def _define(self, pointer: str) -> None:
        if pointer not in self._begun:
            self._begun.add(pointer)
            losses = self.report.losses
            self.definitions[pointer] = self.schema(pointer, self.document.find(pointer))
            if self.report.losses > losses:
                self._lossy.add(pointer)

    def lookup(self, pointer: str) -> Core | None:
        """What a $ref stands for, translated now if need be; None inside its own translation, or too deep."""
        if len(self._begun) - len(self.definitions) < 8:
            self._define(pointer)
        return self.definitions.get(pointer)

    def negated(self, core: Core) -> Core | None:
        """The complement, if there is an exact one."""
        return negate(core, self._exactly, self._budget)

    def _exactly(self, pointer: str) -> Core | None:
        target = self.lookup(pointer)
        return None if pointer in self._lossy else target

    def knows(self, pointer: str, key: str, since: Dialect) -> bool:
        """Whether the dialect has this keyword; if it doesn't, that is reported."""
        if self.declared_dialect is None or self.dialect >= since:
            return True
        self.report.say(pointer, key, Verdict.ANNOTATION, "the schema's dialect has no such keyword")
        return False

    def schema(self, pointer: str, schema: Any) -> Core:
        """One schema's core. Raises InvalidGrammar for a malformed one."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            shown = pointer or "the schema"
            raise InvalidGrammar(
                f"grammar.json_schema: {shown} must be a schema: an object, true or false", location=pointer
            )
        self._annotations(pointer, schema)
        if "$ref" in schema and self.dialect <= Dialect.DRAFT7 and self.document.declared:
            for key in schema:
                if key != "$ref" and key in _KEYWORDS:
                    self.report.say(pointer, key, Verdict.ANNOTATION, "beside $ref this dialect ignores it")
            return self._reference(pointer, "$ref", schema["$ref"])
        return self._conjunction(pointer, schema)

    def _annotations(self, pointer: str, schema: dict[str, Any]) -> None:
        for key in schema:
            if key not in _KEYWORDS and key not in _PLACES:
                self.report.say(pointer, key, Verdict.ANNOTATION)

    def _conjunction(self, pointer: str, schema: dict[str, Any]) -> Core:
        own: dict[str, Any] = dict(types(pointer, schema, self.report))
        own |= numbers(pointer, schema, self.report, integer=integers_only(own))
        annotate = self.options.formats_are_annotations
        parts: list[Core] = strings(pointer, schema, self.report, formats_are_annotations=annotate)
        parts += arrays(pointer, schema, self)
        parts += objects(pointer, schema, self)
        parts += values(pointer, schema, self.report)
        parts += self._applicators(pointer, schema)
        parts += self._unevaluated(pointer, schema, parts)
        return _merged(own, parts)

    def _applicators(self, pointer: str, schema: dict[str, Any]) -> list[Core]:
        references = ("$ref", "$dynamicRef", "$recursiveRef")
        parts = [self._reference(pointer, key, schema[key]) for key in references if key in schema]
        if "allOf" in schema:
            parts += self._list(pointer, "allOf", schema["allOf"])
            self.report.say(pointer, "allOf", Verdict.ENFORCED)
        if "anyOf" in schema:
            parts.append(any_of(self._list(pointer, "anyOf", schema["anyOf"])))
            self.report.say(pointer, "anyOf", Verdict.ENFORCED)
        if "oneOf" in schema:
            parts.append(self._one_of(pointer, schema["oneOf"]))
        if "not" in schema:
            parts.append(self._not(pointer, schema["not"]))
        if "if" in schema and self.knows(pointer, "if", Dialect.DRAFT7):
            parts.append(self._if(pointer, schema))
        else:
            for key in ("then", "else"):
                if key in schema:
                    self.report.say(pointer, key, Verdict.ANNOTATION, "it means something beside if only")
        return parts

    def _list(self, pointer: str, key: str, listed: Any) -> list[Core]:
        if not isinstance(listed, list) or not listed:
            malformed(pointer, key, "a list of at least one schema", listed)
        return [self.schema(join(pointer, key, index), part) for index, part in enumerate(listed)]

    def _reference(self, pointer: str, key: str, reference: Any) -> Core:
        if not isinstance(reference, str):
            malformed(pointer, key, "a URI reference", reference)
        name = self.document.find(pointer)
        if pointer and not self.document.declared and isinstance(name, dict) and ("$id" in name or "id" in name):
            self.report.lose(
                pointer,
                key,
                "drafts disagree on an id beside $ref, and the schema doesn't say its draft",
                "add $schema, or take the id out",
            )
            return True
        target = self.document.resolve(pointer, reference)
        if target is None:
            self.report.lose(
                pointer,
                key,
                f"{reference!r} is not in this document, and nothing is fetched",
                "put the schema under $defs, with its $id",
            )
            return True
        if key == "$dynamicRef" and not self._static(reference, target):
            self.report.lose(pointer, key, "several schemas bear that dynamic anchor", "use $ref")
            return True
        self.report.say(pointer, key, Verdict.ENFORCED)
        self._wanted.append(target)
        return {"$ref": target}

    def _static(self, reference: str, target: str) -> bool:
        """Whether a $dynamicRef can lead to one place only."""
        name = reference.partition("#")[2]
        bearers = self.document.dynamic_anchors.get(name, [])
        return target not in bearers or bearers == [target]

    def _exact(self, losses: int) -> bool:
        return self.report.losses == losses

    def _one_of(self, pointer: str, listed: Any) -> Core:
        losses = self.report.losses
        options = self._list(pointer, "oneOf", listed)
        options = [option for option in options if option is not False]
        clashes = possible_overlaps(options, self.lookup, self._budget)
        exact = not clashes or self._exact(losses)
        exclusive = made_exclusive(options, clashes, self.negated) if exact else None
        if exclusive is None:
            one, other = min(clashes)
            self.report.lose(
                pointer,
                "oneOf",
                f"it can't be shown that no value satisfies both branch {one} and branch {other}",
                "give each branch a required property with a const of its own, or use anyOf",
                wider="a value may satisfy several branches",
            )
            return any_of(options)
        self.report.say(pointer, "oneOf", Verdict.ENFORCED)
        return any_of(exclusive)

    def _not(self, pointer: str, schema: Any) -> Core:
        losses = self.report.losses
        inner = self.schema(join(pointer, "not"), schema)
        negated = self.negated(inner) if self._exact(losses) else None
        if negated is None:
            self.report.lose(
                pointer,
                "not",
                "the complement of this schema can't be written for the engine",
                "say what is allowed instead",
            )
            return True
        self.report.say(pointer, "not", Verdict.ENFORCED)
        return negated

    def _if(self, pointer: str, schema: dict[str, Any]) -> Core:
        branches = {
            key: self.schema(join(pointer, key), schema[key]) if key in schema else True for key in ("then", "else")
        }
        losses = self.report.losses
        condition = self.schema(join(pointer, "if"), schema["if"])
        if branches["then"] is True and branches["else"] is True:
            self.report.say(pointer, "if", Verdict.ANNOTATION, "nothing depends on it")
            return True
        negated = self.negated(condition) if self._exact(losses) else None
        if negated is None:
            self.report.lose(
                pointer,
                "if",
                "the complement of the condition can't be written for the engine",
                "list the cases in anyOf",
                wider="a value that satisfies the condition may follow else",
            )
            negated = True
        for key in ("if", "then", "else"):
            if key in schema and not (key == "if" and negated is True):
                self.report.say(pointer, key, Verdict.ENFORCED)
        return any_of([all_of([condition, branches["then"]]), all_of([negated, branches["else"]])])

    def _unevaluated(self, pointer: str, schema: dict[str, Any], parts: list[Core]) -> list[Core]:
        found: list[Core] = []
        for key in ("unevaluatedProperties", "unevaluatedItems"):
            if key not in schema or not self.knows(pointer, key, Dialect.DRAFT2019):
                continue
            if key == "unevaluatedProperties":
                core = unevaluated_properties(pointer, schema, self)
            else:
                own = next((part for part in parts if isinstance(part, dict) and "prefixItems" in part), True)
                core = unevaluated_items(pointer, schema, own, self)
            if core is None:
                self.report.lose(
                    pointer,
                    key,
                    "what is left unevaluated depends on the instance",
                    "use additionalProperties or items in each branch",
                )
            else:
                self.report.say(pointer, key, Verdict.ENFORCED)
                found.append(core)
        return found


# Keywords that look at their neighbours: of each group, all must come from one schema object.
_GROUPS: Final = (frozenset(OF_OBJECTS), frozenset(OF_ARRAYS))


def _merged(own: dict[str, Any], parts: list[Core]) -> Core:
    """One core of the own keywords and the parts, in order, with as few allOf as can be."""
    rest: list[Core] = []
    for part in parts:
        if part is False:
            return False
        if isinstance(part, dict):
            shared = set(part) & set(own) or any(group & set(part) and group & set(own) for group in _GROUPS)
            if not rest and not shared:
                own = own | part
            else:
                rest.append(part)
    if not rest:
        return own or True
    return all_of(rest) if not own else {**own, "allOf": [*own.get("allOf", ()), *rest]}
