"""A vocabulary with tokens across every border that the reported faults were at, and sessions over it at a daemon."""

from __future__ import annotations

from constraintd_client import allowed_ids

PIECES = (b"ax", b"Best", b"<function", b"=list", b"=get", b'"ssid', b'"O', b'":"O', b'{"child":')
AX, BEST, FUNCTION, LIST, GET, SSID, QUOTED_O, VALUE_O, CHILD = range(256, 265)
TOKENS = [*(bytes([value]) for value in range(256)), *PIECES]
SPECIAL = {265: "<call>", 266: "<done>", 267: "<unk>", 268: "</s>", 269: "<|user|>", 270: "<|end|>"}
CALL, DONE, UNK, *EOGS = SPECIAL
WIDTH = 300


class Sessions:
    """Sessions of one daemon over one vocabulary."""

    def __init__(self, client, vocabulary_id):
        self.client = client
        self.vocabulary_id = vocabulary_id

    def open(self, constraint, **options):
        return self.client.open_session(self.vocabulary_id, constraint, **options)

    def take(self, session, *parts):
        """One step of these tokens: ids, and texts byte by byte."""
        tokens = [token for part in parts for token in ([part] if isinstance(part, int) else part.encode())]
        return self.client.step(session, tokens, [1.0] * len(tokens))

    def after(self, constraint, *parts):
        """What is legal behind these tokens, in a session of its own."""
        session = self.open(constraint)
        self.take(session, *parts)
        return legal(session)


def legal(session):
    """The tokens whose bit is set at the session's place."""
    return set(allowed_ids(session.directive.mask).tolist())
