"""The names of keys in Redis. What lies in braces decides the slot of a cluster, so one session lies in one slot.

    constraintd:{ID}:head       hash: head (24 bytes), used (seconds since 1970)
    constraintd:{ID}:records    list
    constraintd:{ID}:blobs      set of digests that the session names
    constraintd:{DIGEST}:blob   hash: bytes, put
    constraintd:{DIGEST}:names  set of the sessions that name the blob
    constraintd:{X}:ids         sorted set of session ids that begin with the hex digit X, all of score 0
    constraintd:{X}:used        the same ids by last use; may lag behind `used` of the session, never before it
    constraintd:{X}:put         digests that begin with X, by when they were put or last seen to be named

Ids and digests are in hex in keys, in bytes as members.
"""

from __future__ import annotations

SHARDS = "0123456789abcdef"


def session_keys(session_id: bytes) -> tuple[str, str, str]:
    """Head, records, blobs."""
    start = f"constraintd:{{{session_id.hex()}}}:"
    return start + "head", start + "records", start + "blobs"


def blob_keys(digest: bytes) -> tuple[str, str]:
    """Blob, names."""
    start = f"constraintd:{{{digest.hex()}}}:"
    return start + "blob", start + "names"


def shard(member: bytes) -> str:
    """The first hex digit."""
    return member.hex()[0]


def ids_key(digit: str) -> str:
    """Ids in order."""
    return f"constraintd:{{{digit}}}:ids"


def used_key(digit: str) -> str:
    """Ids by last use."""
    return f"constraintd:{{{digit}}}:used"


def put_key(digit: str) -> str:
    """Digests by age."""
    return f"constraintd:{{{digit}}}:put"
