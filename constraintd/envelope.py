"""An exported session: a versioned, hashed envelope around its records and the state that they lead to.

    16 bytes   magic          "constraintd sess"
     2 bytes   version        little-endian
    32 bytes   sha256         of what follows
               payload        in the canonical encoding (`constraintd.encoding`)

Reading checks form and hashes alone; the importing daemon then compiles, folds, and compares the states.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from constraintd.encoding import Reader, Writer
from constraintd.errors import InvalidEnvelope

_MAGIC = b"constraintd sess"
_VERSION = 1
_HEADER = len(_MAGIC) + 2 + 32


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an envelope holds. `blobs` are what the records name (see `session.records`), by sha256."""

    session_id: bytes
    blobs: Mapping[bytes, bytes]
    records: tuple[bytes, ...]
    state: bytes


def pack(envelope: Envelope) -> bytes:
    """The bytes of an envelope: the same ones for the same session everywhere."""
    writer = Writer()
    writer.data(envelope.session_id)
    for blobs in ([envelope.blobs[digest] for digest in sorted(envelope.blobs)], envelope.records):
        writer.unsigned(len(blobs))
        for blob in blobs:
            writer.data(blob)
    writer.data(envelope.state)
    payload = writer.getvalue()
    return _MAGIC + struct.pack("<H", _VERSION) + hashlib.sha256(payload).digest() + payload


def unpack(data: bytes) -> Envelope:
    """The envelope in these bytes. Raises InvalidEnvelope."""
    if len(data) < _HEADER or data[: len(_MAGIC)] != _MAGIC:
        raise InvalidEnvelope("envelope: not an exported session, or cut off; give what ExportSession gave, whole")
    (version,) = struct.unpack_from("<H", data, len(_MAGIC))
    if version != _VERSION:
        raise InvalidEnvelope(f"envelope: version {version}; this daemon reads version {_VERSION}", version=version)
    payload = data[_HEADER:]
    if hashlib.sha256(payload).digest() != data[len(_MAGIC) + 2 : _HEADER]:
        raise InvalidEnvelope("envelope: its hash is not that of its contents: it was altered or cut off on the way")
    reader = Reader(payload, "envelope")
    session_id = reader.data()
    if len(session_id) != 16:
        raise reader.error(f"the session id has {len(session_id)} bytes, expected 16")
    blobs = [reader.data() for _ in range(reader.count())]
    records = tuple(reader.data() for _ in range(reader.count()))
    state = reader.data()
    reader.end()
    digests = [hashlib.sha256(blob).digest() for blob in blobs]
    if digests != sorted(set(digests)):
        raise reader.error("the blobs are not in order, or one stands twice")
    return Envelope(session_id, dict(zip(digests, blobs, strict=True)), records, state)
