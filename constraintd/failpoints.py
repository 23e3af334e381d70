"""Named places at which a test makes the daemon die, fail or dawdle, and faults planted on purpose.

Both exist only where the process was started with `--failpoints SPEC`; nothing in the environment turns them on. A SPEC
is a list of rules, separated by ";":

    append.before=kill@3           the third time that this place is reached: SIGKILL to this very process
    append.after=error@p0.1        one time in ten: StoreUnavailable
    reply.before=delay:0.05        every time: blocks the thread for 0.05 s
    seed=7                         of the probabilities; by default 0
    bug:fencing                    plants that bug

Where they stand: `append.*`, `create.*`, `change.*`, `takeover.after`, `passivate.middle` and `revive.middle` in the
session layer, around its calls to the store, so that "after" is durable; `commit.middle` in the stores of sqlite and
redis themselves; `reply.*` around handing an answer to gRPC, on the stream and in the unary Step.

The daemon asks at every step, so an unarmed `hit` is one function call and one comparison: 40 ns, an unarmed `bug` the
same (measured on Python 3.11). That is also why the armed rules are this module's one variable, against the house rule:
passing them through every layer would put a test's parameter into every signature on the step path.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from constraintd.errors import StoreUnavailable

APPEND_BEFORE: Final = "append.before"
"""Records are about to be written: nothing of them is in the store."""
APPEND_AFTER: Final = "append.after"
"""Records are written as durably as configured, and nobody has been told."""
REPLY_BEFORE: Final = "reply.before"
"""Steps are applied and appended, their answers not yet handed to gRPC."""
REPLY_AFTER: Final = "reply.after"
"""The answers are handed to gRPC; the session's owner may have them or not."""
COMMIT_MIDDLE: Final = "commit.middle"
"""A batch is put together in a transaction or pipeline that is open, and not committed or sent."""
PASSIVATE_MIDDLE: Final = "passivate.middle"
"""An idle session is chosen for its log alone, and its matchers are not yet dropped."""
REVIVE_MIDDLE: Final = "revive.middle"
"""A session's records are read, and its state is not yet folded or in the table."""
CREATE_BEFORE: Final = "create.before"
"""A new session is built in memory, and not in the store."""
CREATE_AFTER: Final = "create.after"
"""A new session is in the store, and its caller doesn't know its epoch."""
CHANGE_BEFORE: Final = "change.before"
"""An update, rollback or new turn has been computed, and is not appended."""
CHANGE_AFTER: Final = "change.after"
"""An update, rollback or new turn is appended, and its caller doesn't know the new epoch."""
TAKEOVER_AFTER: Final = "takeover.after"
"""A takeover's new epoch is in the store, and nobody knows it."""

NAMES: Final = (
    *(APPEND_BEFORE, APPEND_AFTER, REPLY_BEFORE, REPLY_AFTER, COMMIT_MIDDLE, PASSIVATE_MIDDLE, REVIVE_MIDDLE),
    *(CREATE_BEFORE, CREATE_AFTER, CHANGE_BEFORE, CHANGE_AFTER, TAKEOVER_AFTER),
)

BUG_APPEND: Final = "append"
"""A step is answered, and its append skipped."""
BUG_FENCING: Final = "fencing"
"""A call's epoch is not compared with the session's."""
BUG_REPEAT: Final = "repeat"
"""The repeat of the last step is applied again, instead of getting its answer again."""
BUG_FOLD: Final = "fold"
"""Folding a log leaves the last token out."""

BUGS: Final = (BUG_APPEND, BUG_FENCING, BUG_REPEAT, BUG_FOLD)


class BadSpec(ValueError):
    """A SPEC that can't be read; the message names the rule and what was expected."""


_RULE: Final = re.compile(
    r"(?P<name>[a-z.]+)=(?:(?P<plain>kill|error)|delay:(?P<delay>[0-9]*\.?[0-9]+))"
    r"(?:@(?:(?P<nth>[1-9][0-9]*)|p(?P<chance>[0-9]*\.?[0-9]+)))?"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens at one place. `nth`: only that time (from 1); `chance`: each time with that probability."""

    name: str
    action: str
    delay: float = 0.0
    nth: int | None = None
    chance: float | None = None


class _Armed:
    """The rules of this process, and how often each place was reached. Safe to use from many threads."""

    def __init__(self, rules: Sequence[Rule], bugs: frozenset[str], seed: int) -> None:
        self.bugs = bugs
        self._rules = {name: [rule for rule in rules if rule.name == name] for name in NAMES}
        self._counts = dict.fromkeys(NAMES, 0)
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def hit(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
            due = [rule for rule in self._rules[name] if self._is_due(rule)]
        for rule in due:
            if rule.action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif rule.action == "error":
                raise StoreUnavailable(f"failpoint {name}: the store fails because a test wants it to")
            else:
                time.sleep(rule.delay)

    def _is_due(self, rule: Rule) -> bool:
        if rule.nth is not None:
            return self._counts[rule.name] == rule.nth
        return rule.chance is None or self._random.random() < rule.chance


_armed: _Armed | None = None


def enable(spec: str) -> None:
    """Arms this process; for `--failpoints` and for tests. "" disarms it. Raises BadSpec."""
    global _armed
    rules: list[Rule] = []
    bugs: set[str] = set()
    seed = 0
    for part in filter(None, (part.strip() for part in spec.split(";"))):
        if part.startswith("bug:"):
            bugs.add(_bug_of(part))
        elif part.startswith("seed=") and part[5:].isdecimal():
            seed = int(part[5:])
        else:
            rules.append(_rule_of(part))
    _armed = _Armed(rules, frozenset(bugs), seed) if rules or bugs else None


def hit(name: str) -> None:
    """This place is reached. Raises StoreUnavailable where an armed rule says so."""
    if _armed is not None:
        _armed.hit(name)


def bug(name: str) -> bool:
    """Whether this bug is planted."""
    return _armed is not None and name in _armed.bugs


def _bug_of(part: str) -> str:
    name = part.removeprefix("bug:")
    if name not in BUGS:
        raise BadSpec(f"--failpoints: no bug {name!r}; expected one of {', '.join(BUGS)}")
    return name


def _rule_of(part: str) -> Rule:
    found = _RULE.fullmatch(part)
    if found is None:
        raise BadSpec(f"--failpoints: can't read {part!r}; expected NAME=kill|error|delay:SECONDS[@N|@pX] or bug:NAME")
    name, chance = found["name"], found["chance"]
    if name not in NAMES:
        raise BadSpec(f"--failpoints: no place {name!r}; expected one of {', '.join(NAMES)}")
    if chance is not None and not 0 <= float(chance) <= 1:
        raise BadSpec(f"--failpoints: {part!r} has a probability outside 0 to 1")
    return Rule(
        name,
        found["plain"] or "delay",
        float(found["delay"] or 0),
        None if found["nth"] is None else int(found["nth"]),
        None if chance is None else float(chance),
    )
