"""A second opinion: does a finished output satisfy the schema as its author wrote it?

Independent of the engine and of everything in this package that rewrites schemas: the `jsonschema` package on the
original text, with the same formats asserted. Three things differ from that package's defaults, so that output can't
hurt the process: numbers are compared exactly (Decimal), patterns run in the engine's linear-time matcher, never in
Python's backtracking `re`, and the work is counted, so that it ends (validator_work).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    FormatChecker,
    ValidationError,
)
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing.exceptions import Unresolvable

from constraintd.errors import InvalidGrammar, LimitExceeded
from constraintd.grammar.json_schema.document import Dialect, Document, join, load
from constraintd.grammar.json_schema.formats import PATTERNS
from constraintd.grammar.json_schema.report import SchemaOptions
from constraintd.grammar.json_schema.validator_work import Work, WorkSpent, counted

_VALIDATORS: Final = {
    Dialect.DRAFT4: Draft4Validator,
    Dialect.DRAFT6: Draft6Validator,
    Dialect.DRAFT7: Draft7Validator,
    Dialect.DRAFT2019: Draft201909Validator,
    Dialect.DRAFT2020: Draft202012Validator,
}
_LONGEST_MESSAGE: Final = 300

# Whether a text matches an ECMA-262 pattern anywhere; None where that can't be told.
Search = Callable[[str, str], bool | None]


@dataclass(frozen=True, slots=True)
class Violation:
    """The first thing wrong with an output. `pointer` is where in the output."""

    pointer: str
    message: str


class SchemaValidator:
    """One schema's validator. Immutable once built; safe to use from many threads if `search` is."""

    def __init__(self, text: str, options: SchemaOptions, search: Search) -> None:
        """`search(pattern, text)` decides patterns. Raises InvalidGrammar for text that is no schema."""
        document = Document(load(text))
        self._schema = json.loads(text, parse_float=_number)
        checker = None if options.formats_are_annotations else _format_checker()
        self._work = Work()
        counting = self._work.searching(search)
        flavour = counted(
            extend(  # type: ignore[no-untyped-call]
                _VALIDATORS[document.dialect],
                {
                    "pattern": _pattern(counting),
                    "patternProperties": _patterns(counting),
                    "additionalProperties": _additional(counting),
                },
            ),
            self._work,
        )
        # There the package asks Python's `re`, which a crafted pattern can keep busy for ever.
        self._unbounded = '"unevaluatedProperties"' in text and '"patternProperties"' in text
        self._validator: Validator = flavour(self._schema, format_checker=checker)

    def check(self, output: bytes) -> Violation | None:
        """The first violation, None if the output satisfies the schema.

        Raises LimitExceeded for output nested too deeply to check or that takes too much work, InvalidGrammar for a
        reference that leads nowhere.
        """
        if self._unbounded:
            raise LimitExceeded("patternProperties with unevaluatedProperties can't be validated in bounded time")
        try:
            value = json.loads(
                output.decode("utf-8"),
                parse_float=_number,
                parse_constant=_refuse_constant,
                object_pairs_hook=_refuse_duplicates,
            )
        except UnicodeDecodeError as error:
            return Violation("", f"not UTF-8 at byte {error.start}")
        except _Refused as error:
            return Violation("", str(error))
        except RecursionError:
            raise LimitExceeded("the output is nested too deeply to validate") from None
        except ValueError as error:  # JSONDecodeError, or an integer of more digits than Python converts
            return Violation("", f"not JSON: {error}")
        self._work.begin(len(output))
        return self._first(value)

    def _first(self, value: Any) -> Violation | None:
        try:
            error: ValidationError | None = next(self._validator.iter_errors(value), None)
        except RecursionError:
            raise LimitExceeded("the output is nested too deeply to validate") from None
        except WorkSpent:
            raise LimitExceeded("the schema and the output take too much work to validate") from None
        except InvalidOperation:
            return Violation("", "a number is too far out of range to check")
        except Unresolvable as problem:
            raise InvalidGrammar(f"grammar.json_schema: a $ref leads nowhere: {problem}") from None
        if error is None:
            return None
        return Violation(join("", *error.absolute_path), error.message[:_LONGEST_MESSAGE])


class _Refused(Exception):
    """JSON that Python reads and RFC 8259 doesn't, or that readers disagree on."""


def _refuse_constant(name: str) -> Any:
    raise _Refused(f"{name} is not JSON")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"the name {twice!r} stands twice in one object")
    return members


def _number(text: str) -> int | Decimal:
    """Exact. Whole numbers as int, as JSON Schema counts 1.0 among the integers.

    An exponent past Decimal's own range (10^18) makes the number infinite, or 0.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        if "e-" in text.lower():
            return 0
        return Decimal("-Infinity" if text.startswith("-") else "Infinity")
    if value.adjusted() < 400 and value == value.to_integral_value():
        return int(value)
    return value


def _pattern(search: Search) -> Callable[..., Iterator[ValidationError]]:
    def check(_: Validator, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not search(pattern, instance):
            yield ValidationError(f"{instance!r} does not match {pattern!r}, or that can't be told")

    return check


def _patterns(search: Search) -> Callable[..., Iterator[ValidationError]]:
    def check(validator: Any, by_pattern: dict[str, Any], instance: Any, _: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, dict):
            return
        for pattern, subschema in by_pattern.items():
            for name, value in instance.items():
                if search(pattern, name) is not False:
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)

    return check


def _additional(search: Search) -> Callable[..., Iterator[ValidationError]]:
    def check(validator: Any, subschema: Any, instance: Any, schema: dict[str, Any]) -> Iterator[ValidationError]:
        if not isinstance(instance, dict):
            return
        patterns = schema.get("patternProperties", {})
        for name, value in instance.items():
            if name in schema.get("properties", {}) or any(search(pattern, name) for pattern in patterns):
                continue
            if subschema is False:
                yield ValidationError(f"additional property {name!r} is not allowed")
            else:
                yield from validator.descend(value, subschema, path=name)

    return check


def _format_checker() -> FormatChecker:
    """Every asserted format: our pattern, and the `jsonschema` package's check where it has one."""
    checker = FormatChecker(formats=())
    for name, pattern in PATTERNS.items():
        checker.checkers = checker.checkers | {name: (_format(name, re.compile(pattern, re.ASCII)), ValueError)}
    return checker


def _format(name: str, compiled: re.Pattern[str]) -> Callable[[object], bool]:
    # The class's own table would hold draft-03's "time".
    theirs = Draft202012Validator.FORMAT_CHECKER.checkers.get(name)

    def holds(value: object) -> bool:
        if not isinstance(value, str):
            return True
        if not compiled.fullmatch(value):
            return False
        if theirs is None:
            return True
        check, problems = theirs
        try:
            return bool(check(value))
        except problems:
            return False

    return holds
