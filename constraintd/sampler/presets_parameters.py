"""A preset's parameters: a JSON object (RFC 8259), read strictly and value by value.

Numbers are JSON's: `7` and `7.0` are the same one, `true` and `"7"` are none. Where an API documents no meaning of its
own for null, null is the same as leaving the name out.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from constraintd.errors import InvalidField, TooLarge

FIELD = "sampler.preset.parameters"
MAX_BYTES = 64 << 10
MAX_UINT32 = (1 << 32) - 1

# Whole floats above this stand for several integers.
_EXACT_FLOAT = 1 << 53
# Names and values in messages are cut here, since an error travels in a header of 8 KiB.
_SHOWN = 40
_KINDS = {
    bool: "a boolean",
    int: "a number",
    float: "a number with a fraction",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class Span:
    """Which numbers are taken: from `least` (`above`: without it) to `most`."""

    least: float = -math.inf
    most: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most and not (self.above and value == self.least)

    def __str__(self) -> str:
        """To stand after "must be"."""
        parts = []
        if self.least > -math.inf:
            parts.append(f"{'above' if self.above else 'at least'} {self.least:g}")
        if self.most < math.inf:
            parts.append(f"at most {self.most:g}")
        return " and ".join(parts) or "finite"


@dataclass(frozen=True, slots=True)
class Names:
    """What one API's names are to a preset.

    `offered` are read. `idle` ones are not offered, and are taken at these values (and null), which change nothing.
    `ignored` ones change nothing whatever their value. `unrelated` ones are the request's own and refused. `remedies`
    says for some of the refused ones what to do instead.
    """

    api: str
    offered: frozenset[str]
    idle: Mapping[str, Sequence[object]] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    unrelated: frozenset[str] = frozenset()
    remedies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The values of the offered names. Each reader raises InvalidField with the parameter's name."""

    values: Mapping[str, object]

    def given(self, name: str) -> bool:
        """Whether it is there and not null."""
        return self.values.get(name) is not None

    def number(self, name: str, default: float, span: Span) -> float:
        """A finite number."""
        if not self.given(name):
            return default
        return number_at(f"{FIELD}.{name}", self.values[name], span)

    def integer(self, name: str, default: int, *, least: int, most: int = MAX_UINT32) -> int:
        """A whole number."""
        if not self.given(name):
            return default
        return integer_at(f"{FIELD}.{name}", self.values[name], least=least, most=most)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        if not self.given(name):
            return default
        value = self.values[name]
        if not isinstance(value, bool):
            _refuse_kind(f"{FIELD}.{name}", value, "true or false")
        return value

    def ids(self, name: str, *, or_one: bool = False) -> tuple[int, ...]:
        """Token ids, each once; with `or_one` a single id need not stand in a list."""
        if not self.given(name):
            return ()
        at, value = f"{FIELD}.{name}", self.values[name]
        if or_one and not isinstance(value, list):
            return (integer_at(at, value, least=0, most=MAX_UINT32),)
        if not isinstance(value, list):
            _refuse_kind(at, value, "a list of token ids")
        ids = (integer_at(f"{at}[{i}]", entry, least=0, most=MAX_UINT32) for i, entry in enumerate(value))
        return tuple(dict.fromkeys(ids))

    def texts(self, name: str, *, or_one: bool = False, most: int | None = None) -> tuple[bytes, ...]:
        """Non-empty strings in UTF-8; with `or_one` a single one need not stand in a list."""
        if not self.given(name):
            return ()
        at, value = f"{FIELD}.{name}", self.values[name]
        if or_one and isinstance(value, str):
            return (_text_at(at, value),)
        if not isinstance(value, list):
            _refuse_kind(at, value, "a string or a list of strings" if or_one else "a list of strings")
        if most is not None and len(value) > most:
            raise InvalidField(at, f"has {len(value)} strings; the API takes at most {most}")
        return tuple(_text_at(f"{at}[{i}]", entry) for i, entry in enumerate(value))


def words(text: str) -> frozenset[str]:
    """The names of a text, apart by white space."""
    return frozenset(text.split())


def parameters_of(text: bytes, names: Names) -> Parameters:
    """The parameters of a JSON object; no text at all is an empty one.

    Raises TooLarge, and InvalidField for what is no JSON object, a name that stands twice, is unknown or unrelated, and
    a name that is not offered at a value that would change something.
    """
    if len(text) > MAX_BYTES:
        raise TooLarge(FIELD, limit=MAX_BYTES, actual=len(text))
    values = _object_of(text) if text else {}
    for name, value in values.items():
        if name not in names.offered and name not in names.ignored:
            _check_idle(name, value, names)
    return Parameters({name: value for name, value in values.items() if name in names.offered})


def number_at(at: str, value: object, span: Span) -> float:
    """The finite number at `at`. Raises InvalidField."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse_kind(at, value, "a number")
    try:
        number = float(value)
    except OverflowError:
        raise InvalidField(at, f"{shown(value)} is past the range of a float64; give a smaller number") from None
    if number not in span:
        raise InvalidField(at, f"{shown(value)} must be {span}")
    return number


def integer_at(at: str, value: object, *, least: int, most: int) -> int:
    """The whole number at `at`. Raises InvalidField."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_FLOAT:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse_kind(at, value, "a whole number")
    if not least <= value <= most:
        raise InvalidField(at, f"{shown(value)} must be at least {least} and at most {most}")
    return value


def token_id_of(at: str, text: str) -> int:
    """The token id that an object's key spells in decimal digits. Raises InvalidField."""
    canonical = text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")
    if not canonical or len(text) > 10 or int(text) > MAX_UINT32:
        raise InvalidField(at, f"{shown(text)} is no token id; give its decimal digits, such as '15043'")
    return int(text)


def shown(value: object) -> str:
    """A value for a message: on one line, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _object_of(text: bytes) -> dict[str, object]:
    try:
        values = json.loads(
            text.decode(),
            object_pairs_hook=_members,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
        )
    except UnicodeDecodeError as error:
        raise InvalidField(FIELD, f"is not UTF-8 at byte {error.start}; encode the JSON text as UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidField(FIELD, f"is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise InvalidField(FIELD, "is nested too deeply; sampling parameters nest two levels at most") from None
    except ValueError:  # an integer of more digits than Python converts
        raise InvalidField(FIELD, "has a number with too many digits; give a smaller one") from None
    if not isinstance(values, dict):
        _refuse_kind(FIELD, values, 'a JSON object, such as {"temperature": 0.7}')
    return values


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise InvalidField(FIELD, f"{shown(name)} stands twice in one object; keep one of them")
        members[name] = value
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidField(FIELD, f"{name} is not JSON (RFC 8259); give a finite number")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidField(FIELD, f"{digits[:_SHOWN]} is past the range of a float64; give a smaller number")
    return number


def _check_idle(name: str, value: object, names: Names) -> None:
    remedy = names.remedies.get(name)
    if name in names.idle:
        # JSON's false and 0 are different values, Python's are equal.
        same_kind = (known for known in names.idle[name] if isinstance(known, bool) == isinstance(value, bool))
        if value is None or value in same_kind:
            return
        raise InvalidField(
            f"{FIELD}.{name}", f"{shown(value)} is not offered here; {remedy or 'leave it out or at its default'}"
        )
    if name in names.unrelated:
        raise InvalidField(
            f"{FIELD}.{name}",
            f"belongs to a request of {names.api} and is no sampling parameter; {remedy or 'leave it out'}",
        )
    close = difflib.get_close_matches(name[:_SHOWN], sorted(names.offered), n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"offered are {', '.join(sorted(names.offered))}"
    raise InvalidField(FIELD, f"{shown(name)} is no sampling parameter of {names.api}; {remedy or hint}")


def _text_at(at: str, value: object) -> bytes:
    if not isinstance(value, str):
        _refuse_kind(at, value, "a string")
    if not value:
        raise InvalidField(at, "an empty string would stop everywhere; leave it out")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidField(at, "has half of a surrogate pair, which is no text; write both halves") from None


def _refuse_kind(at: str, value: object, wanted: str) -> NoReturn:
    raise InvalidField(at, f"must be {wanted}, is {_KINDS[type(value)]}")
