"""The formats that are asserted, each as one exact pattern.

The engine has its own list, but with February 29 in every year and leap seconds at any minute; so formats reach it as
patterns. The same pattern decides for the validator, beside the `jsonschema` package's own check. A format of another
name is an annotation.
"""

from __future__ import annotations

from typing import Final

_YEAR_AND_DAY: Final = (
    "(?:(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
)
_CLOCK: Final = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
    r"(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_LABEL: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9\\-]{0,61}[a-zA-Z0-9])?"
_HEX: Final = "[0-9a-fA-F]{1,4}"
_TAIL: Final = f"(?:{_HEX}:{_HEX}|{_IPV4})"
_IPV6: Final = "|".join(
    [
        f"(?:{_HEX}:){{6}}{_TAIL}",
        f"::(?:{_HEX}:){{5}}{_TAIL}",
        f"(?:{_HEX})?::(?:{_HEX}:){{4}}{_TAIL}",
        f"(?:(?:{_HEX}:){{0,1}}{_HEX})?::(?:{_HEX}:){{3}}{_TAIL}",
        f"(?:(?:{_HEX}:){{0,2}}{_HEX})?::(?:{_HEX}:){{2}}{_TAIL}",
        f"(?:(?:{_HEX}:){{0,3}}{_HEX})?::{_HEX}:{_TAIL}",
        f"(?:(?:{_HEX}:){{0,4}}{_HEX})?::{_TAIL}",
        f"(?:(?:{_HEX}:){{0,5}}{_HEX})?::{_HEX}",
        f"(?:(?:{_HEX}:){{0,6}}{_HEX})?::",
    ]
)
_ATEXT: Final = r"[a-zA-Z0-9!#$%&'*+/=?\^_`\{|\}~\-]+"
_PCT: Final = "%[0-9a-fA-F]{2}"
_PCHAR: Final = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=:@\-]|{_PCT})"
_REG_NAME: Final = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=\-]|{_PCT})*"
_USER: Final = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=:\-]|{_PCT})*"
_HIER: Final = (
    rf"(?://(?:{_USER}@)?(?:\[(?:{_IPV6})\]|{_REG_NAME})(?::[0-9]*)?(?:/{_PCHAR}*)*"
    rf"|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?|{_PCHAR}+(?:/{_PCHAR}*)*|)"
)
# A first segment without a colon, which would end a scheme.
_RELATIVE: Final = (
    rf"(?://(?:{_USER}@)?(?:\[(?:{_IPV6})\]|{_REG_NAME})(?::[0-9]*)?(?:/{_PCHAR}*)*"
    rf"|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?|(?:[a-zA-Z0-9._~!$&'()*+,;=@\-]|{_PCT})+(?:/{_PCHAR}*)*|)"
)
_AFTER: Final = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_DATE_PARTS: Final = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_TIME_PARTS: Final = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"

# RFC 3339 and its appendix A (duration), 5321 without quoted local parts and address literals, 1123, 2673, 4291, 4122,
# 3986. The year 0000 is no year to most date libraries, the validator's among them.
_BODIES: Final = {
    "date-time": f"{_YEAR_AND_DAY}[tT]{_CLOCK}",
    "date": _YEAR_AND_DAY,
    "time": _CLOCK,
    "duration": f"P(?:{_DATE_PARTS}(?:{_TIME_PARTS})?|{_TIME_PARTS}|[0-9]+W)",
    "email": rf"{_ATEXT}(?:\.{_ATEXT})*@{_LABEL}(?:\.{_LABEL})*",
    "hostname": rf"{_LABEL}(?:\.{_LABEL})*",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uuid": "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
    "uri": rf"[a-zA-Z][a-zA-Z0-9+.\-]*:{_HIER}{_AFTER}",
    "uri-reference": rf"(?:[a-zA-Z][a-zA-Z0-9+.\-]*:{_HIER}|{_RELATIVE}){_AFTER}",
}
# In ECMA-262 spelling, anchored.
PATTERNS: Final = {name: f"^(?:{body})$" for name, body in _BODIES.items()}

NARROWER: Final = {
    "date-time": "no leap seconds, at most nine digits of a second, years from 0001",
    "date": "years from 0001",
    "time": "no leap seconds, at most nine digits of a second",
    "email": "no quoted local part, no address literal",
}
