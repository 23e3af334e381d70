"""The statements that read and write a session's rows. All but `read_*` belong inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from constraintd.session.store.journal import (
    APPENDED,
    decode_batch,
    decode_head,
    decode_pieces,
    encode_head,
    encode_piece,
)
from constraintd.session.store.sqlite_schema import Connection
from constraintd.session.store.sqlite_tail import Pending, Tail
from constraintd.session.store.store import Head


@dataclass(frozen=True, slots=True)
class ShortSession:
    """What the tables know of a session of one chunk, `pieces`."""

    session_id: bytes
    head: Head
    used: float
    pieces: bytes
    blobs: list[bytes]


_CHUNK_BYTES = 4096
"""A chunk shorter than this grows. So 4,096 one-token records that were indexed one by one lie in some 40 rows."""


def read_head(connection: Connection, session_id: bytes) -> Head | None:
    """The head in the tables."""
    row = connection.execute("SELECT head FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return decode_head(row[0]) if row else None


def read_used(connection: Connection, session_id: bytes) -> float | None:
    """When the session was last used, as far as the tables know."""
    row = connection.execute("SELECT used_at FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return row[0] if row else None


def read_records(connection: Connection, session_id: bytes) -> list[bytes]:
    """The records in the tables."""
    rows = connection.execute("SELECT pieces FROM chunks WHERE session = ? ORDER BY chunk", (session_id,)).fetchall()
    return decode_pieces(b"".join([pieces for (pieces,) in rows]))


def read_blobs(connection: Connection, session_id: bytes) -> list[bytes]:
    """The digests that the session names, as far as the tables know, in the order in which they were named."""
    rows = connection.execute("SELECT digest FROM refs WHERE session = ? ORDER BY place", (session_id,)).fetchall()
    return [digest for (digest,) in rows]


def read_short(connection: Connection, session_ids: Sequence[bytes]) -> list[ShortSession]:
    """Those of these sessions whose records lie in one chunk. Two statements for all."""
    these = ", ".join("?" * len(session_ids))
    named: dict[bytes, list[bytes]] = {}
    sql = f"SELECT session, digest FROM refs WHERE session IN ({these}) ORDER BY session, place"
    for session_id, digest in connection.execute(sql, session_ids).fetchall():
        named.setdefault(session_id, []).append(digest)
    sql = (
        "SELECT id, head, used_at, pieces FROM sessions JOIN chunks ON session = id AND chunks.chunk = 0"
        f" WHERE sessions.chunk = 0 AND id IN ({these})"
    )
    return [
        ShortSession(session_id, decode_head(head), used, pieces, named.get(session_id, []))
        for session_id, head, used, pieces in connection.execute(sql, session_ids).fetchall()
    ]


def write_pending(connection: Connection, session_id: bytes, pending: Pending) -> int:
    """Moves the newest part of a session into the tables; the bytes written."""
    row = connection.execute("SELECT chunk, chunk_size FROM sessions WHERE id = ?", (session_id,)).fetchone()
    chunk, size = row or (0, 0)
    written = 0
    if pending.records:
        pieces = encode_piece(pending.records)
        if size >= _CHUNK_BYTES:
            chunk, size = chunk + 1, 0
        elif size:
            key = (session_id, chunk)
            pieces = (
                connection.execute("SELECT pieces FROM chunks WHERE session = ? AND chunk = ?", key).fetchone()[0]
                + pieces
            )
        size = written = len(pieces)
        connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)", (session_id, chunk, pieces))
    connection.execute(
        "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)",
        (session_id, encode_head(pending.head), pending.used, pending.seq, chunk, size),
    )
    for digest in pending.blobs:
        connection.execute(
            "INSERT OR IGNORE INTO refs SELECT ?, ?, count(*) FROM refs WHERE session = ?",
            (session_id, digest, session_id),
        )
    return written


def delete_rows(connection: Connection, session_id: bytes) -> None:
    """Removes a session from the tables."""
    connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
    connection.execute("DELETE FROM chunks WHERE session = ?", (session_id,))
    connection.execute("DELETE FROM refs WHERE session = ?", (session_id,))


def append_journal(connection: Connection, seq: int, used: float, changes: bytes) -> None:
    """One row; outside a transaction it is committed by itself."""
    connection.execute("INSERT INTO journal VALUES (?, ?, ?)", (seq, used, changes))


def replay_journal(connection: Connection, tail: Tail) -> tuple[int, float]:
    """Puts into `tail` what the tables lack; the newest row's seq (0: none), and the newest time of use anywhere."""
    newest, latest = 0, connection.execute("SELECT max(used_at) FROM sessions").fetchone()[0] or 0.0
    indexed: dict[bytes, int | None] = {}  # up to which row the tables know a session; None: not at all
    for seq, used, changes in connection.execute("SELECT * FROM journal ORDER BY seq").fetchall():
        newest, latest = seq, max(latest, used)
        for entry in decode_batch(changes):
            session_id = entry.session_id
            if session_id not in indexed:
                row = connection.execute("SELECT seq FROM sessions WHERE id = ?", (session_id,)).fetchone()
                indexed[session_id] = row[0] if row else None
            known = indexed[session_id]
            if known is not None and seq <= known:
                continue
            if known is None and entry.kind == APPENDED and session_id not in tail.sessions:
                continue  # its beginning was trimmed: the session is deleted further on
            tail.put(entry, seq, used)
        tail.size += len(changes)
    return newest, latest


def trim_journal(connection: Connection, before: int, size: int) -> bool:
    """Removes the journal's rows before `before`, oldest first, until `size` bytes are gone. Whether any were left."""
    sql = "SELECT seq, length(changes) FROM journal WHERE seq < ? ORDER BY seq LIMIT 256"
    last = None
    for seq, length in connection.execute(sql, (before,)).fetchall():
        last, size = seq, size - length
        if size < 0:
            break
    if last is not None:
        connection.execute("DELETE FROM journal WHERE seq <= ?", (last,))
    return last is not None


def write_blob(connection: Connection, digest: bytes, contents: bytes, put: float) -> None:
    """Keeps a blob, or its newer time."""
    connection.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?)", (digest, put))
    connection.execute("INSERT OR IGNORE INTO contents VALUES (?, ?)", (digest, contents))


def read_unnamed_blobs(connection: Connection, put_before: float) -> list[bytes]:
    """Old blobs that no session in the tables names."""
    rows = connection.execute(
        "SELECT digest FROM blobs WHERE put_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM refs WHERE refs.digest = blobs.digest)",
        (put_before,),
    ).fetchall()
    return [digest for (digest,) in rows]


def delete_blobs(connection: Connection, digests: Sequence[bytes]) -> None:
    """Removes blobs."""
    for digest in digests:
        connection.execute("DELETE FROM blobs WHERE digest = ?", (digest,))
        connection.execute("DELETE FROM contents WHERE digest = ?", (digest,))
