"""A limit on the work of one validation, counted and not timed, so that the same output always gets the same answer.

The `jsonschema` package tries every way: references that name each other twice at every level double its work with each
level, and so do nested anyOf. Here every keyword of every value costs units, by the length of what it looks at; so do
the types that it asks for, the texts that it searches and the messages that it writes, since each of them quotes a
value. Only comparing items, which it does pair by pair, is written anew.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

from jsonschema import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

# A unit is 1 to 3 us, so this is a second at most, and 20 s more for a mebibyte of output. An array of small integers,
# the densest output there is, takes 8 units a byte with three keywords an item.
_UNITS: Final = 400_000
_UNITS_A_BYTE: Final = 12
_UNITS_A_KEYWORD: Final = 4
# Characters that are searched, compared or quoted, or members that are looked at, in the time of one unit.
_LENGTH_A_UNIT: Final = 16

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class WorkSpent(Exception):
    """The units of this validation are used up."""


class Work(threading.local):
    """The units left to the validation that this thread is at. Owned by one validator, which all threads may share."""

    def __init__(self) -> None:
        self._left = _UNITS

    def begin(self, length: int) -> None:
        """A new validation, of an output of so many bytes."""
        self._left = _UNITS + _UNITS_A_BYTE * length

    def spend(self, units: int) -> None:
        """Raises WorkSpent if there are not so many left."""
        self._left -= units
        if self._left < 0:
            raise WorkSpent

    def searching(self, search: Callable[[str, str], bool | None]) -> Callable[[str, str], bool | None]:
        """The same search, at a cost."""

        def counting(pattern: str, text: str) -> bool | None:
            self.spend(1 + len(text) // _LENGTH_A_UNIT)
            return search(pattern, text)

        return counting


def counted(flavour: Any, work: Work) -> Any:
    """The validator class with every keyword and every question for a type counted."""
    keywords = {**flavour.VALIDATORS, "uniqueItems": _unique}
    types = flavour.TYPE_CHECKER
    names = ("array", "boolean", "integer", "null", "number", "object", "string")
    # Where evaluated properties are looked for, the package walks the schema without its keywords, but asks for types.
    asked = {name: _type(name, types, work) for name in names}
    return extend(  # type: ignore[no-untyped-call]
        flavour,
        {name: _keyword(check, work) for name, check in keywords.items()},
        type_checker=types.redefine_many(asked),
    )


def _type(name: str, types: Any, work: Work) -> Callable[[Any, Any], bool]:
    def check(_: Any, instance: Any) -> bool:
        work.spend(2)
        return bool(types.is_type(instance, name))

    return check


def _keyword(check: Keyword, work: Work) -> Keyword:
    def counting(validator: Validator, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        work.spend(_UNITS_A_KEYWORD + (_length(value) + _length(instance)) // _LENGTH_A_UNIT)
        for error in check(validator, value, instance, schema) or ():
            work.spend(len(error.message) // _LENGTH_A_UNIT)
            yield error

    return counting


def _length(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(len(part) for part in value.values() if isinstance(part, list))
    return len(value) if isinstance(value, str | list) else 0


def _unique(validator: Any, wanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if wanted and validator.is_type(instance, "array") and len({_written(item) for item in instance}) < len(instance):
        yield ValidationError("the array has equal items")


def _written(value: Any) -> str:
    """A text that is equal for two values exactly when JSON Schema calls them equal."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        # Not normalize(), which rounds to the digits that arithmetic keeps.
        sign, digits, exponent = value.as_tuple()
        text = "".join(map(str, digits)).lstrip("0")
        short = text.rstrip("0")
        return {"": f"{'-' if sign and short else ''}{short}E{int(exponent) + len(text) - len(short) if short else 0}"}
    if isinstance(value, Decimal):
        return {"": str(value)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        # In a list of its own, so that no object looks like a number.
        return [{name: _plain(item) for name, item in value.items()}, {}]
    return value
