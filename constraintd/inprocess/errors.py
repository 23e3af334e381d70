"""What the in-process APIs raise of their own. These never cross the wire, so `constraintd.errors` does not list them.

What is refused at construction (unknown ids, bad triggers) and engines that give up raise `constraintd.errors` as they
do in the daemon: InvalidField, LimitExceeded.
"""

from __future__ import annotations


class ConstraintError(Exception):
    """A constraint and what was asked of it don't go together. Nothing was changed."""


class NoTokenAllowed(ConstraintError):
    """Nothing legal is left to sample: the constraint is at a dead end, or all that it allows was -inf before."""


class VocabMismatch(ConstraintError):
    """A row, a width or a grammar that belongs to another vocabulary."""


class ForbiddenToken(ConstraintError):
    """A token that is not legal at its place. `index` is its place in the history that was given, if one was."""

    def __init__(self, message: str, *, token: int, index: int = 0) -> None:
        super().__init__(message)
        self.token = token
        self.index = index


class EarlyEnd(ForbiddenToken):
    """An end-of-generation token before the text is complete."""


class BrokenSampler(Exception):
    """The inner sampler returned a token that was -inf in its row, or lies outside of it. Nothing was recorded."""


class ConstrainedGenerateError(Exception):
    """A generation failed; there is no completion, not even a part of one. `__cause__` is what failed."""


class GenerateRuntimeError(ConstrainedGenerateError):
    """Tokenising, the model or the inner sampler failed."""


class GenerateConstraintError(ConstrainedGenerateError):
    """The constraint left no token to sample, or could not tell what is legal."""
