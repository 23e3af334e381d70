"""What makes a part of a constraint the part that it is, as sha256: equal identities mean that places carry over."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from constraintd.encoding import Writer
from constraintd.engine.deferred import LazyOptions
from constraintd.engine.token_rules import TokenRule
from constraintd.engine.trigger import Trigger
from constraintd.vocabulary.vocabulary import Vocabulary


def grammar_identity(grammar_id: str, vocabulary: Vocabulary) -> bytes:
    """Of a grammar that is awake from its first token on."""
    writer = Writer()
    writer.text("grammar")
    writer.text(vocabulary.fingerprint)
    writer.text(grammar_id)
    return hashlib.sha256(writer.getvalue()).digest()


def lazy_identity(inner: bytes, triggers: Sequence[Trigger], options: LazyOptions) -> bytes:
    """Of something (by its identity) that sleeps until a trigger wakes it."""
    writer = Writer()
    writer.text("lazy")
    writer.data(inner)
    writer.flag(options.eog_legal)
    writer.flag(options.rearm)
    writer.unsigned(len(triggers))
    for trigger in triggers:
        writer.text(trigger.kind.value)
        writer.text(trigger.text)
        writer.signed(trigger.token)
        writer.flag(trigger.at_start)
        writer.flag(trigger.exclusive)
    return hashlib.sha256(writer.getvalue()).digest()


def rule_identity(rule: TokenRule, vocabulary: Vocabulary) -> bytes:
    """Of a token rule, by what it demands."""
    writer = Writer()
    writer.text("rule")
    writer.text(vocabulary.fingerprint)
    writer.data(rule.content)
    return hashlib.sha256(writer.getvalue()).digest()
