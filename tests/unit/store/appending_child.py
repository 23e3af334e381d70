"""A process that appends to eight sessions of a SQLite store until it is killed: python -m ... PATH DURABILITY.

It writes a line per answered batch: the version that all eight sessions have from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.store import Head
from tests.unit.store.places import session, step

SESSIONS = 8


def record(number: int, version: int) -> bytes:
    """What session `number` holds at `version`."""
    return b"%d of session %d" % (version, number)


def versions(store: SqliteStore) -> Iterator[int]:
    """Appends for ever; each version once it was answered."""
    heads = [store.head(session(number)) for number in range(SESSIONS)]
    if heads[0] is None:
        for number in range(SESSIONS):
            store.create(session(number), Head(7, 0, 0), [], [])
    version = heads[0].version if heads[0] else 0
    while True:
        batch = [step(session(number), version, record(number, version)) for number in range(SESSIONS)]
        assert store.append(batch) == [None] * SESSIONS
        version += 1
        yield version


if __name__ == "__main__":
    # The index is written all the time, so that the kill meets every part of it.
    for answered in versions(SqliteStore(sys.argv[1], sys.argv[2], index_seconds=0.002)):  # type: ignore[arg-type]
        print(answered, flush=True)
