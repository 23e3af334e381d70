"""How a batch of changes is written as one blob, and records as one piece.

A batch is a run of entries, each one change of one session:

    kind u8, length of the id u8, blobs u16, records u32, epoch u64, version u64, position u64,
    the lengths of blobs and records u32 each, then the bytes of id, blobs and records

A piece is records alone: their number u32, their lengths u32 each, then their bytes. Pieces may be joined. All numbers
are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from constraintd.session.store.store import Append, Head

CREATED: Final = 0
APPENDED: Final = 1
DELETED: Final = 2

_ENTRY = struct.Struct("<BBHIQQQ")
_HEAD = struct.Struct("<QQQ")
_ONE_RECORD = struct.Struct("<II")
_NOWHERE = Head(epoch=0, version=0, position=0)

Kind = Literal[0, 1, 2]


@dataclass(frozen=True, slots=True)
class Entry:
    """One change: a session created, appended to, or deleted (then only its id counts)."""

    kind: int
    session_id: bytes
    head: Head
    records: tuple[bytes, ...] = ()
    blobs: tuple[bytes, ...] = ()


def encode_entry(
    kind: Kind, session_id: bytes, head: Head, records: Sequence[bytes] = (), blobs: Sequence[bytes] = ()
) -> bytes:
    """One entry of a batch. Entries are joined to a batch."""
    sizes = [len(item) for item in (*blobs, *records)]
    start = _ENTRY.pack(
        kind, len(session_id), len(blobs), len(records), head.epoch, head.version, head.position
    ) + struct.pack(f"<{len(sizes)}I", *sizes)
    return b"".join((start, session_id, *blobs, *records))


def encode_appends(appends: Sequence[Append]) -> bytes:
    """A batch of appends."""
    return b"".join([encode_entry(APPENDED, each.session_id, each.head, each.records, each.blobs) for each in appends])


def encode_deletions(session_ids: Sequence[bytes]) -> bytes:
    """A batch of deletions."""
    return b"".join([encode_entry(DELETED, session_id, _NOWHERE) for session_id in session_ids])


def decode_batch(batch: bytes) -> Iterator[Entry]:
    """The entries of a batch, in order."""
    at = 0
    while at < len(batch):
        kind, id_size, blobs, records, epoch, version, position = _ENTRY.unpack_from(batch, at)
        at += _ENTRY.size
        sizes = struct.unpack_from(f"<{blobs + records}I", batch, at)
        at += 4 * len(sizes)
        session_id = batch[at : at + id_size]
        at += id_size
        items = _split(batch, at, sizes)
        at += sum(sizes)
        yield Entry(kind, session_id, Head(epoch, version, position), tuple(items[blobs:]), tuple(items[:blobs]))


def encode_piece(records: Sequence[bytes]) -> bytes:
    """Records as one piece."""
    return struct.pack(f"<{len(records) + 1}I", len(records), *map(len, records)) + b"".join(records)


def decode_pieces(pieces: bytes) -> list[bytes]:
    """The records of joined pieces, in order."""
    found: list[bytes] = []
    at, end = 0, len(pieces)
    while at < end:
        count, size = _ONE_RECORD.unpack_from(pieces, at)
        if count == 1:
            at += 8
            found.append(pieces[at : at + size])
            at += size
        else:
            sizes = struct.unpack_from(f"<{count}I", pieces, at + 4)
            at += 4 + 4 * count
            found += _split(pieces, at, sizes)
            at += sum(sizes)
    return found


def _split(data: bytes, at: int, sizes: Sequence[int]) -> list[bytes]:
    items = []
    for size in sizes:
        items.append(data[at : at + size])
        at += size
    return items


def encode_head(head: Head) -> bytes:
    """24 bytes: epoch, version, position, u64 each (SQLite's own integers are signed)."""
    return _HEAD.pack(head.epoch, head.version, head.position)


def decode_head(data: bytes) -> Head:
    """The head of those 24 bytes."""
    return Head(*_HEAD.unpack(data))
