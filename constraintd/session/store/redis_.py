"""Sessions in Redis or Valkey, alone or in a cluster: for several daemons on the same sessions.

An append is one script, which compares each session's head and writes, each session independently of the others; in a
cluster it is a script a session, all sent together. So a batch costs one round trip a server. The indexes (ids in
order, ids by use, names of blobs) lie in other slots of a cluster and can't be written in the same instant. So an entry
is made before what it points to, and removed after: a crash in between leaves an entry that points to nothing, which
`page` leaves out and `expire` removes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from constraintd import failpoints
from constraintd.session.store.clock import BLOB_GRACE_SECONDS
from constraintd.session.store.journal import decode_head, encode_head
from constraintd.session.store.redis_connection import Command, RedisConnection
from constraintd.session.store.redis_keys import SHARDS, blob_keys, ids_key, put_key, session_keys, shard, used_key
from constraintd.session.store.redis_scripts import FORGET, FORGET_BLOB, PUT_BLOB, READ, WRITE, Script
from constraintd.session.store.store import Append, Behind, Head, Statistics, Stored

_WRITTEN = 1
_TOGETHER = 64  # sessions of one script: Redis does nothing else meanwhile, some 7 us a session
_CANDIDATES = 1000  # sessions or blobs of one shard that one look concerns
_NAMES_CHECKED = 8  # sessions of a blob that one look concerns


_Change: TypeAlias = tuple[bytes, bytes, bytes, tuple[bytes, ...], tuple[bytes, ...]]
"""A session's id, its expected head and its new one, blobs and records."""


class RedisStore:
    """A SessionStore that daemons share. `url`: redis://[user:password@]host:port/db, or rediss:// for TLS.

    Nothing is connected before the first call. `clock` is for tests: None takes each server's own, which all daemons
    see alike. What a server's death or a failover takes is the server's doing: see docs/stores.md.
    """

    def __init__(self, url: str, *, timeout_seconds: float = 5.0, clock: Callable[[], float] | None = None) -> None:
        self._redis = RedisConnection(url, timeout_seconds=timeout_seconds)
        self._clock = clock

    @property
    def shared(self) -> bool:
        """Other daemons may change the same sessions."""
        return True

    @property
    def quick(self) -> bool:
        """An append is a round trip over a network."""
        return False

    def _now(self) -> str:
        return "" if self._clock is None else repr(self._clock())

    def _time(self) -> float:
        """For indexes, which need no exact one."""
        if self._clock is not None:
            return self._clock()
        seconds, microseconds = self._redis.call([("TIME",)])[0]
        return int(seconds) + int(microseconds) / 1e6

    def _on_session(self, script: Script, session_id: bytes, *arguments: object) -> Command:
        return (script, 3, *session_keys(session_id), self._now(), *arguments)

    # --- sessions ---

    def create(self, session_id: bytes, head: Head, records: Sequence[bytes], blobs: Sequence[bytes]) -> Stored | None:
        digit = shard(session_id)
        entries: list[Command] = [
            ("ZADD", ids_key(digit), "NX", 0, session_id),
            ("ZADD", used_key(digit), "NX", self._time(), session_id),
            *_naming(session_id, blobs),
        ]
        write = self._written([(session_id, b"", encode_head(head), tuple(blobs), tuple(records))])
        [written] = self._redis.call([*entries, write])[-1]
        if written == _WRITTEN:
            return None
        # Deleted since: what was kept there is no more, so the id is free.
        return self.load(session_id) or self.create(session_id, head, records, blobs)

    def append(self, appends: Sequence[Append]) -> list[Behind | None]:
        entries = [command for each in appends if each.blobs for command in _naming(each.session_id, each.blobs)]
        changes = [
            (each.session_id, encode_head(each.expected), encode_head(each.head), each.blobs, each.records)
            for each in appends
        ]
        together = 1 if self._redis.in_cluster else _TOGETHER
        writes = [self._written(changes[at : at + together]) for at in range(0, len(changes), together)]
        failpoints.hit(failpoints.COMMIT_MIDDLE)
        answers = [answer for part in self._redis.call(entries + writes)[len(entries) :] for answer in part]
        return [None if answer == _WRITTEN else Behind(decode_head(answer) if answer else None) for answer in answers]

    def _written(self, changes: Sequence[_Change]) -> Command:
        """Writes what is told of each session, if it stands where it is expected."""
        keys: list[str] = []
        arguments: list[object] = []
        for session_id, expected, head, blobs, records in changes:
            keys += session_keys(session_id)
            arguments += (expected, head, len(blobs), len(records), *blobs, *records)
        return (WRITE, len(keys), *keys, self._now(), *arguments)

    def load(self, session_id: bytes) -> Stored | None:
        found = self._redis.call([self._on_session(READ, session_id)])[0]
        return None if found is None else _stored(found)

    def load_short(self, session_ids: Sequence[bytes], most_records: int) -> dict[bytes, Stored]:
        heads = self._redis.call([("HGET", session_keys(each)[0], "head") for each in session_ids])
        pairs = zip(session_ids, heads, strict=True)
        short = [each for each, head in pairs if head and decode_head(head).version <= most_records]
        found = self._redis.call([self._on_session(READ, each) for each in short])
        return {each: _stored(answer) for each, answer in zip(short, found, strict=True) if answer is not None}

    def head(self, session_id: bytes) -> Head | None:
        head = self._redis.call([("HGET", session_keys(session_id)[0], "head")])[0]
        return decode_head(head) if head else None

    def delete(self, session_id: bytes) -> bool:
        blobs = self._redis.call([self._on_session(FORGET, session_id, -1)])[0]
        self._redis.call(_unlisting(session_id, blobs or []))
        return blobs is not None

    def page(self, after: bytes, size: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < size:
            listed = self._listed(after, size)
            if not listed:
                break
            after = listed[-1]
            exist = self._redis.call([("EXISTS", session_keys(session_id)[0]) for session_id in listed])
            found += [session_id for session_id, there in zip(listed, exist, strict=True) if there]
        return found[:size]

    def _listed(self, after: bytes, size: int) -> list[bytes]:
        digits = SHARDS[SHARDS.index(shard(after)) :] if after else SHARDS
        past = b"(" + after if after else "-"
        shards = self._redis.call([("ZRANGEBYLEX", ids_key(digit), past, "+", "LIMIT", 0, size) for digit in digits])
        return [session_id for ids in shards for session_id in ids][:size]

    def expire(self, idle_seconds: float) -> list[bytes]:
        expired: list[bytes] = []
        before = self._time() - idle_seconds
        while idle := self._oldest(used_key, before):
            answers = self._redis.call([self._on_session(FORGET, each, idle_seconds) for each in idle])
            follow: list[Command] = []
            for session_id, answer in zip(idle, answers, strict=True):
                if isinstance(answer, bytes):  # it was used since: the index lagged
                    follow.append(("ZADD", used_key(shard(session_id)), "XX", float(answer), session_id))
                    continue
                follow += _unlisting(session_id, answer or [])
                if answer is not None:
                    expired.append(session_id)
            self._redis.call(follow)
            if all(isinstance(answer, bytes) and float(answer) < before for answer in answers):
                break  # the servers' clocks differ: these are idle by one only
        self._forget_blobs()
        return expired

    def _oldest(self, key: Callable[[str], str], before: float) -> list[bytes]:
        commands = [("ZRANGEBYSCORE", key(digit), "-inf", f"({before!r}", "LIMIT", 0, _CANDIDATES) for digit in SHARDS]
        return [member for members in self._redis.call(commands) for member in members]

    # --- blobs ---

    def put_blobs(self, blobs: Mapping[bytes, bytes]) -> None:
        put = self._time()
        commands: list[Command] = []
        for digest, contents in blobs.items():
            commands.append(("ZADD", put_key(shard(digest)), put, digest))
            commands.append((PUT_BLOB, 1, blob_keys(digest)[0], self._now(), contents))
        self._redis.call(commands)

    def blob(self, digest: bytes) -> bytes | None:
        contents: bytes | None = self._redis.call([("HGET", blob_keys(digest)[0], "bytes")])[0]
        return contents

    def _forget_blobs(self) -> None:
        now = self._time()
        old = self._oldest(put_key, now - BLOB_GRACE_SECONDS)
        self._forget_names(old)
        gone = self._redis.call([(FORGET_BLOB, 2, *blob_keys(each), self._now(), BLOB_GRACE_SECONDS) for each in old])
        self._redis.call(
            [
                ("ZREM", put_key(shard(digest)), digest) if forgotten else ("ZADD", put_key(shard(digest)), now, digest)
                for digest, forgotten in zip(old, gone, strict=True)
            ]
        )

    def _forget_names(self, digests: Sequence[bytes]) -> None:
        """Some of the names that point to no session: those that a crash left."""
        some: list[Any] = self._redis.call(
            [("SRANDMEMBER", blob_keys(digest)[1], _NAMES_CHECKED) for digest in digests]
        )
        names = [(digest, name) for digest, members in zip(digests, some, strict=True) for name in members]
        there = self._redis.call([("SISMEMBER", session_keys(name)[2], digest) for digest, name in names])
        self._redis.call(
            [
                ("SREM", blob_keys(digest)[1], name)
                for (digest, name), exists in zip(names, there, strict=True)
                if not exists
            ]
        )

    # --- the whole ---

    def statistics(self) -> Statistics:
        """Counted in the indexes."""
        counts = self._redis.call([("ZCARD", key(digit)) for key in (ids_key, put_key) for digit in SHARDS])
        return Statistics(sessions=sum(counts[: len(SHARDS)]), blobs=sum(counts[len(SHARDS) :]))

    def close(self) -> None:
        self._redis.close()


def _stored(answer: Sequence[Any]) -> Stored:
    head, idle, blobs, records = answer
    return Stored(decode_head(head), tuple(records), tuple(sorted(blobs)), float(idle))


def _naming(session_id: bytes, blobs: Sequence[bytes]) -> list[Command]:
    return [("SADD", blob_keys(digest)[1], session_id) for digest in blobs]


def _unlisting(session_id: bytes, blobs: Sequence[bytes]) -> list[Command]:
    digit = shard(session_id)
    return [
        ("ZREM", ids_key(digit), session_id),
        ("ZREM", used_key(digit), session_id),
        *[("SREM", blob_keys(digest)[1], session_id) for digest in blobs],
    ]
