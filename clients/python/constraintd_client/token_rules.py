"""Constraints on token ids alone. All raise ValueError for a number that doesn't fit its field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from constraintd.v1 import session_pb2, token_ids_pb2


def allowed_tokens(ids: Iterable[int]) -> session_pb2.Constraint:
    """Only these tokens, and the end."""
    return _rule(session_pb2.TokenRule(allowed=_ids(ids)))


def allow_list(sequences: Iterable[Sequence[int]]) -> session_pb2.Constraint:
    """The text is one of these token sequences; an empty one is the empty text."""
    listed = session_pb2.AllowList(sequences=[_ids(sequence) for sequence in sequences])
    return _rule(session_pb2.TokenRule(allow_list=listed))


def token_sequence(ids: Iterable[int]) -> session_pb2.Constraint:
    """The text begins with these tokens; what follows is free."""
    return _rule(session_pb2.TokenRule(sequence=_ids(ids)))


def token_length(min: int = 0, max: int | None = None) -> session_pb2.Constraint:  # noqa: A002 - the protocol's words
    """No end before `min` tokens, unless nothing else is legal; LENGTH after `max` (None: no bound)."""
    return _rule(session_pb2.TokenRule(length=session_pb2.Length(min=min, max=max)))


def deny_ranges(ranges: Iterable[tuple[int, int]]) -> session_pb2.Constraint:
    """None of the tokens from `first` up to, not including, `end`, for each (first, end)."""
    denied = [token_ids_pb2.IdRange(first=first, end=end) for first, end in ranges]
    return _rule(session_pb2.TokenRule(deny_ranges=token_ids_pb2.IdRanges(ranges=denied)))


def banned_specials(ids: Iterable[int]) -> session_pb2.Constraint:
    """None of these special tokens; those that end a generation can't be banned."""
    return _rule(session_pb2.TokenRule(banned_specials=_ids(ids)))


def _ids(ids: Iterable[int]) -> token_ids_pb2.TokenIds:
    return token_ids_pb2.TokenIds(ids=ids)


def _rule(rule: session_pb2.TokenRule) -> session_pb2.Constraint:
    return session_pb2.Constraint(token_rule=rule)
