"""Comparing what an adapter says with what a case expects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

LONGEST_TOLD: Final = 700
"""Characters of a failure: a generation's events alone would fill pages."""


class CaseFailed(Exception):
    """A client did something else than the case says."""

    def __init__(self, what: str) -> None:
        super().__init__(what if len(what) <= LONGEST_TOLD else f"{what[:LONGEST_TOLD]}...")


def same(found: Any, wanted: Any, what: str) -> None:
    """Raises CaseFailed unless they are equal, types included: JSON's true is not 1."""
    if json.dumps(found, sort_keys=True) != json.dumps(wanted, sort_keys=True):
        raise CaseFailed(f"{what} is {json.dumps(found)}, expected {json.dumps(wanted)}")


def near(found: Any, wanted: float, what: str, tolerance: float = 1e-5) -> None:
    """Raises CaseFailed unless they are equal to the tolerance."""
    if not isinstance(found, int | float) or not abs(found - wanted) <= tolerance * max(1.0, abs(wanted)):
        raise CaseFailed(f"{what} is {found}, expected {wanted}")


def fields(found: Mapping[str, Any], wanted: Mapping[str, Any], what: str) -> None:
    """Raises CaseFailed unless every wanted field is there and equal; others may be there."""
    for key, value in wanted.items():
        if key not in found:
            raise CaseFailed(f"{what} has no {key}: {json.dumps(found)}")
        same(found[key], value, f"{what}: {key}")


def true(holds: bool, what: str) -> None:
    """Raises CaseFailed with these words unless it holds."""
    if not holds:
        raise CaseFailed(what)


def directive(session: Mapping[str, Any], what: str = "the directive", **wanted: Any) -> None:
    """Raises CaseFailed unless the Directive of an answer has these fields.

    `allows`: the ids of the mask, all of them. `finish`: the fields named in it. A Directive for which neither finish
    nor no_token_allowed is expected must have a mask, and only that.
    """
    said = session["directive"]
    allows, finish = wanted.pop("allows", None), wanted.pop("finish", None)
    fields(said, wanted, what)
    if finish is not None:
        true(said["finish"] is not None, f"{what} has no finish, expected {finish}: {said}")
        fields(said["finish"], finish, f"{what}: finish")
    outcomes = [key for key in ("mask", "finish", "no_token_allowed") if said[key] is not None]
    dead_end = wanted.get("no_token_allowed") is not None
    expected = "finish" if finish is not None else "no_token_allowed" if dead_end else "mask"
    same(outcomes, [expected], f"{what}: outcomes")
    if allows is not None:
        same(allowed(said), sorted(allows), f"{what}: the allowed tokens")


def allowed(said: Mapping[str, Any]) -> list[int]:
    """The ids whose bit is set, read by hand: little-endian words, so bit t of the bytes in order is token t."""
    if said["mask"] is None:
        raise CaseFailed(f"there is no mask: {json.dumps(said)}")
    packed = bytes.fromhex(said["mask"])
    return [token for token in range(8 * len(packed)) if packed[token // 8] >> (token % 8) & 1]
