"""Whether a daemon is there at all, also while nothing is generated: the runner's health says so."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from constraintd_client import ConstraintClient
from constraintd_client.errors import ConstraintdError, DeadlineExceeded, Unauthenticated, Unavailable

_log = logging.getLogger(__name__)


class DaemonWatch:
    """Asks for a sign of life now and then. Owns its thread, from `start` to `stop`."""

    def __init__(
        self, client: ConstraintClient, tell: Callable[[bool], None], *, bound: float, interval: float = 1.0
    ) -> None:
        """`tell(False)` comes once no daemon has answered for `bound` seconds, `tell(True)` once one does again."""
        self._client = client
        self._tell = tell
        self._bound = bound
        self._interval = interval
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runner-daemon-watch", daemon=True)

    def start(self) -> None:
        """Once."""
        self._thread.start()

    def stop(self) -> None:
        """Nothing is told any more. Safe to call twice, and before `start`."""
        self._stopping.set()

    def _run(self) -> None:
        gone_since: float | None = None
        told = True
        while not self._stopping.wait(self._interval):
            asked = time.monotonic()
            target = self._client.target
            try:
                self._client.server_info()
            except (Unavailable, DeadlineExceeded, Unauthenticated) as error:  # without a token nothing can be done
                gone_since = asked if gone_since is None else gone_since
                self._client.leave(target)
                lost = time.monotonic() - gone_since > self._bound
                cause = error
            except ValueError:
                if self._stopping.is_set():
                    return  # the client was closed meanwhile
                raise
            except ConstraintdError:
                gone_since, lost = None, False  # a refusal is a sign of life
            else:
                gone_since, lost = None, False
            if lost is told and not self._stopping.is_set():
                told = not lost
                if lost:
                    _log.error("no daemon has answered for %g s (%s): not serving", self._bound, cause)
                else:
                    _log.info("a daemon answers again: serving")
                self._tell(told)
