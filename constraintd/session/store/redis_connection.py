"""One way to speak to Redis or Valkey, alone or in a cluster: many commands, one round trip a server."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from constraintd.errors import StoreUnavailable
from constraintd.session.store.redis_scripts import Script

Command = tuple[Any, ...]
"""A command's name, or a Script and its number of keys, then the arguments."""

_PIECE = 10_000  # commands sent before the first answers are read


class RedisConnection:
    """Connects at the first call and again after a failure. Any thread may call, many at once.

    Nothing is ever sent twice by itself: a write whose answer was lost may have taken effect, and only the caller can
    tell what to do about that.
    """

    def __init__(self, url: str, *, timeout_seconds: float) -> None:
        self._url = url
        self._place = url.partition("//")[2].rpartition("@")[2]  # without the password
        self._options: dict[str, Any] = {
            "socket_timeout": timeout_seconds,
            "socket_connect_timeout": timeout_seconds,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        self._lock = threading.Lock()
        self._client: Any = None

    @property
    def in_cluster(self) -> bool:
        """Whether a script's keys must lie in one slot. Connects; StoreUnavailable if that fails."""
        try:
            return isinstance(self._connected(), RedisCluster)
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error

    def call(self, commands: Sequence[Command]) -> list[Any]:
        """Runs commands, those to one server in order; their answers. StoreUnavailable if one failed."""
        if not commands:
            return []
        client: Any = None
        try:
            client = self._connected()
            answers: list[Any] = []
            for at in range(0, len(commands), _PIECE):
                answers += self._call(client, commands[at : at + _PIECE])
        except (RedisError, OSError) as error:
            self._forget(client)
            raise self._unavailable(error) from error
        return answers

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"redis {self._place}: {error}; check that the server runs and can be reached, then try again",
            store=self._place,
        )

    def _call(self, client: Any, commands: Sequence[Command]) -> list[Any]:
        answers = _send(client, [_by_hash(command) for command in commands])
        unknown = [place for place, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            again = _send(client, [_as_text(commands[place]) for place in unknown])
            for place, answer in zip(unknown, again, strict=True):
                answers[place] = answer
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                client: Any = redis.Redis.from_url(self._url, **self._options)
                if client.info("cluster").get("cluster_enabled"):
                    client.close()
                    client = RedisCluster.from_url(self._url, **self._options)
                self._client = client
            return self._client

    def _forget(self, client: Any) -> None:
        """After an error the next call connects anew: the name may lead to another server by then.

        Not closed: other threads may still wait for answers on it.
        """
        with self._lock:
            if self._client is client:
                self._client = None

    def close(self) -> None:
        """Lets go of all connections; a later call makes new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _send(client: Any, commands: Sequence[Command]) -> list[Any]:
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return list(pipeline.execute(raise_on_error=False))


def _by_hash(command: Command) -> Command:
    script = command[0]
    return ("EVALSHA", script.sha1, *command[1:]) if isinstance(script, Script) else command


def _as_text(command: Command) -> Command:
    return ("EVAL", command[0].text, *command[1:])
