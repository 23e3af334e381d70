"""The keywords met on the way through a schema, with the verdict on each."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from constraintd.errors import InvalidGrammar
from constraintd.grammar.json_schema.document import InexactNumber, join
from constraintd.grammar.json_schema.report import KeywordReport, Policy, Verdict

# How many refused keywords one error message spells out.
_NAMED_IN_MESSAGE: Final = 20


class Reporter:
    """Collects one report per keyword. Owns the list; the translators write to it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._entries: dict[str, KeywordReport] = {}
        # Counts what was left out, so that a caller can tell whether a part of the schema came out exact.
        self.losses = 0

    def say(self, pointer: str, key: str, verdict: Verdict, detail: str = "") -> None:
        """Records a verdict on the keyword `key` of the schema at `pointer`; a later one replaces it."""
        place = join(pointer, key)
        self._entries[place] = KeywordReport(place, key, verdict, detail)

    def lose(self, pointer: str, key: str, why: str, remedy: str = "", *, wider: str = "it is not applied") -> None:
        """The keyword can't be enforced: refused under STRICT, else left out."""
        self.losses += 1
        if self.policy is Policy.STRICT:
            self.say(pointer, key, Verdict.REFUSED, f"{why}; {remedy}" if remedy else why)
        else:
            self.say(pointer, key, Verdict.APPROXIMATED, f"wider: {wider}, since {why}")

    def entries(self) -> tuple[KeywordReport, ...]:
        """All verdicts, in the order in which the keywords were met."""
        return tuple(self._entries.values())

    def raise_refused(self) -> None:
        """Raises InvalidGrammar that names each refused keyword, if there are any."""
        refused = [entry for entry in self._entries.values() if entry.verdict is Verdict.REFUSED]
        if not refused:
            return
        named = [f"{entry.pointer}: {entry.detail}" for entry in refused[:_NAMED_IN_MESSAGE]]
        if len(refused) > _NAMED_IN_MESSAGE:
            named.append(f"and {len(refused) - _NAMED_IN_MESSAGE} more")
        raise InvalidGrammar(
            f"grammar.json_schema: can't be enforced: {'. '.join(named)}. Take these out, or choose the policy "
            "APPROXIMATE to have them left out",
            location=refused[0].pointer,
            refused=" ".join(entry.pointer for entry in refused[:_NAMED_IN_MESSAGE]),
        )


def malformed(pointer: str, key: str, expected: str, value: Any) -> NoReturn:
    """Raises InvalidGrammar: this keyword's value isn't what JSON Schema says it must be."""
    shown = repr(value)
    place = join(pointer, key)
    raise InvalidGrammar(
        f"grammar.json_schema: {place} must be {expected}, not {shown[:80]}", location=place, keyword=key
    )


def count(pointer: str, key: str, value: Any) -> int:
    """A non-negative integer; 2.0 counts as 2 (Validation 4.2)."""
    if isinstance(value, float) and value.is_integer() and not isinstance(value, InexactNumber):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        malformed(pointer, key, "an integer of 0 or more", value)
    return value
