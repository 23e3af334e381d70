"""type, enum, const, and the keywords of numbers and strings, in core form."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, Final

from constraintd.errors import InvalidGrammar
from constraintd.grammar.json_schema.core import TYPES, Core, Values, identity
from constraintd.grammar.json_schema.document import InexactNumber, join
from constraintd.grammar.json_schema.ecma import UnsupportedPattern, engine_pattern
from constraintd.grammar.json_schema.formats import NARROWER, PATTERNS
from constraintd.grammar.json_schema.refusals import Reporter, count, malformed
from constraintd.grammar.json_schema.report import Verdict

# The engine holds numbers as doubles: past this, neighbouring integers fall together.
_EXACT: Final = 2**53
_INT64: Final = 2**63
# The largest double that is a 64-bit integer.
_LARGEST: Final = 2**63 - 1024
_MAX_DIGITS: Final = 15
# Each unit is a state of the engine's automaton.
_MAX_DIVISOR: Final = 10_000_000
_INTEGER_SPELLING: Final = "integers are written without fraction or exponent"


def types(pointer: str, schema: dict[str, Any], report: Reporter) -> dict[str, Any]:
    """`type` as a list of names."""
    if "type" not in schema:
        return {}
    named = schema["type"]
    named = [named] if isinstance(named, str) else named
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        malformed(pointer, "type", "a type's name or a list of them", schema["type"])
    for name in named:
        if name not in (*TYPES, "integer"):
            malformed(pointer, "type", f"among {', '.join(TYPES)}, integer", name)
    if "integer" in named and "number" not in named:
        report.say(pointer, "type", Verdict.NARROWED, _INTEGER_SPELLING)
    else:
        report.say(pointer, "type", Verdict.ENFORCED)
    if "number" in named:
        named = [name for name in named if name != "integer"]
    return {"type": list(dict.fromkeys(named))}


def values(pointer: str, schema: dict[str, Any], report: Reporter) -> list[Core]:
    """`enum` and `const`, one core each."""
    found: list[Core] = []
    for key in ("enum", "const"):
        if key not in schema:
            continue
        listed = schema[key] if key == "enum" else [schema[key]]
        if not isinstance(listed, list):
            malformed(pointer, key, "a list", listed)
        distinct = list({identity(value): value for value in listed}.values())
        if any(_blurred(value) for value in distinct):
            report.lose(
                pointer,
                key,
                "it has a number that the engine's doubles don't hold (beyond 2^53, or of too many digits)",
                "write such numbers as strings",
                wider="any value is allowed",
            )
            continue
        detail = _spelling(distinct)
        report.say(pointer, key, Verdict.NARROWED if detail else Verdict.ENFORCED, detail)
        found.append({"enum": Values(map(_plain, distinct))})
    return found


def _blurred(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_blurred, value))
    if isinstance(value, dict):
        return any(map(_blurred, value.values()))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, InexactNumber) or (abs(value) > _EXACT and float(value) != value) or abs(value) > 1e300


def _plain(value: Any) -> Any:
    """Integral floats as integers, so that the engine spells them so; no negative zero."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _spelling(listed: list[Any]) -> str:
    if any(isinstance(value, dict) and len(value) > 1 for value in listed):
        return "objects are written with their names in this order"
    if any(isinstance(value, int | float | list | dict) and not isinstance(value, bool) for value in listed):
        return "numbers are written in one way"
    return ""


def numbers(pointer: str, schema: dict[str, Any], report: Reporter, *, integer: bool) -> dict[str, Any]:
    """minimum, maximum, their exclusive forms (draft-04's booleans too) and multipleOf."""
    found: dict[str, Any] = {}
    bounds: dict[str, Any] = {
        key: schema[key] for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") if key in schema
    }
    for plain, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(bounds.get(exclusive), bool):  # draft-04
            open_end = bounds.pop(exclusive)
            report.say(pointer, exclusive, Verdict.ENFORCED)
            if open_end and plain in bounds:
                report.say(pointer, plain, Verdict.ENFORCED)
                bounds[exclusive] = bounds.pop(plain)
    for key, value in bounds.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            malformed(pointer, key, "a number", value)
        _bound(pointer, key, value, found, report, integer=integer)
    if "multipleOf" in schema:
        _multiple(pointer, schema["multipleOf"], found, report)
    return found


def _bound(
    pointer: str, key: str, value: int | float, found: dict[str, Any], report: Reporter, *, integer: bool
) -> None:
    lower = key.endswith("inimum")
    target = key
    verdict, detail = (Verdict.ENFORCED, "") if integer else (Verdict.NARROWED, "bounded numbers have no exponent")
    if not integer and isinstance(value, int | float) and key.startswith("exclusive") and value == int(value):
        detail += ", and may keep 1e-9 away from an open end"
    if isinstance(value, InexactNumber) or (isinstance(value, float) and _digits(value) > _MAX_DIGITS):
        report.lose(pointer, key, f"the engine reads {_MAX_DIGITS} digits of a bound", "round it")
        return
    if abs(value) >= _EXACT:
        if value >= _INT64 if lower else value <= -_INT64:
            report.lose(pointer, key, "the engine holds no bound beyond 64 bits", "give a bound within them")
            return
        if abs(value) >= _INT64:  # an end beyond the engine's reach: its own is nearer
            value = _LARGEST if value > 0 else -_LARGEST
        inward = math.inf if lower else -math.inf
        rounded = float(value)
        if ((rounded < value) if lower else (rounded > value)) or (rounded == value and key.startswith("exclusive")):
            rounded = math.nextafter(rounded, inward)
        target = "minimum" if lower else "maximum"
        verdict, detail = Verdict.NARROWED, "beyond 2^53 the bound is the next double inwards, at most 2^63"
        value = int(rounded)
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    report.say(pointer, key, verdict, detail)
    if target in found:
        value = max(value, found[target]) if lower else min(value, found[target])
    found[target] = value


def _digits(value: float) -> int:
    return len(Decimal(repr(value)).normalize().as_tuple().digits)


def _multiple(pointer: str, value: Any, found: dict[str, Any], report: Reporter) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        malformed(pointer, "multipleOf", "a number above 0", value)
    if isinstance(value, InexactNumber) or not _engine_divides_by(value):
        report.lose(pointer, "multipleOf", "the engine takes divisors of few digits only, which this is not")
        return
    report.say(pointer, "multipleOf", Verdict.NARROWED, "multiples are written without exponent or spare zeros")
    found["multipleOf"] = _plain(value)


def _engine_divides_by(value: int | float) -> bool:
    """Whether the engine reads the divisor right: it multiplies the double by ten until no fraction is left."""
    scaled, places = float(value), 0
    while scaled % 1 and places < 12:
        scaled, places = scaled * 10, places + 1
    return scaled < _MAX_DIVISOR and Decimal(int(scaled)).scaleb(-places) == Decimal(repr(value))


def strings(pointer: str, schema: dict[str, Any], report: Reporter, *, formats_are_annotations: bool) -> list[Core]:
    """minLength, maxLength, pattern and format; a core each for further patterns."""
    found: dict[str, Any] = {}
    for key in ("minLength", "maxLength"):
        if key in schema:
            found[key] = count(pointer, key, schema[key])
            report.say(pointer, key, Verdict.ENFORCED)
    patterns: list[Core] = []
    if "pattern" in schema:
        spelled = pattern(pointer, "pattern", schema["pattern"], report)
        if spelled is not None:
            report.say(pointer, "pattern", Verdict.ENFORCED)
            patterns.append({"pattern": spelled})
    if "format" in schema:
        name = schema["format"]
        if not isinstance(name, str):
            malformed(pointer, "format", "a string", name)
        if name not in PATTERNS:
            report.say(pointer, "format", Verdict.ANNOTATION, "no format of this name is asserted")
        elif formats_are_annotations:
            report.say(pointer, "format", Verdict.ANNOTATION, "by request")
        else:
            detail = NARROWER.get(name, "")
            report.say(pointer, "format", Verdict.NARROWED if detail else Verdict.ENFORCED, detail)
            patterns.append({"pattern": engine_pattern(PATTERNS[name])})
    return [found, *patterns] if found else patterns


def pattern(pointer: str, key: str, text: Any, report: Reporter) -> str | None:
    """An ECMA-262 pattern in the engine's spelling; None (and reported) where there is none."""
    if not isinstance(text, str):
        malformed(pointer, key, "a string", text)
    try:
        return engine_pattern(text)
    except UnsupportedPattern as problem:
        if "unmatched" in problem.what or "unclosed" in problem.what:
            raise InvalidGrammar(
                f"grammar.json_schema: {join(pointer, key)} is no regular expression: {problem}",
                location=join(pointer, key),
                column=problem.column,
            ) from None
        report.lose(
            pointer,
            key,
            f"the pattern has {problem}, which the engine has not",
            "write the pattern without it",
        )
        return None
