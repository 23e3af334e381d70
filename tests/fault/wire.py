"""A runner's way to daemons that come and go."""

from __future__ import annotations

import random
from collections.abc import Sequence

from constraintd_client import ConstraintClient, ConstraintdError, DecodeStream, Unavailable

from tests.daemon_process import WIDTH
from tests.fault.processes import CALLERS_CHANNEL
from tests.fault.sessions import register


class Wire:
    """One client a daemon, all of the same store, one of them in use, with one Decode stream. Owned by one thread."""

    def __init__(self, addresses: Sequence[str], rng: random.Random, timeout: float) -> None:
        """`timeout`: seconds for each unary call."""
        self._rng = rng
        self._clients = [ConstraintClient(address, timeout=timeout, options=CALLERS_CHANNEL) for address in addresses]
        self._vocabulary = ""
        self._stream: DecodeStream | None = None
        self._lost = False
        self.client = rng.choice(self._clients)

    @property
    def replicas(self) -> int:
        """How many daemons there are."""
        return len(self._clients)

    @property
    def is_lost(self) -> bool:
        """Whether the daemon in use was not there when it was last asked."""
        return self._lost

    def found(self) -> bool:
        """Whether some daemon is there. Nobody else is asked before, or histories would soon say little else."""
        if self._lost:
            try:
                self.client.server_info()
            except ConstraintdError:
                self.migrate()
                return False
            self._lost = False
        return True

    def vocabulary(self) -> str:
        """The byte vocabulary's id, registered if need be. Raises ConstraintdError."""
        self._vocabulary = self._vocabulary or register(self.client)
        return self._vocabulary

    def stream(self) -> DecodeStream:
        """The stream, opened if need be. Raises ConstraintdError."""
        if self._stream is None:
            self._stream = self.client.decode_stream(self.vocabulary(), WIDTH)
        return self._stream

    def failed(self, error: ConstraintdError) -> None:
        """Takes note of an error that a call ended with."""
        if error.reason == "UNKNOWN_VOCABULARY":
            self._vocabulary = ""  # a daemon that was started anew may not know it
        if isinstance(error, Unavailable) and not error.reason:
            self.migrate()
            self._lost = True

    def migrate(self) -> None:
        """Goes on with any of the daemons."""
        self.hang_up()
        self.client = self._rng.choice(self._clients)
        self._vocabulary = ""

    def hang_up(self) -> None:
        """Ends the stream: what it may still bring is for nobody."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def close(self) -> None:
        """Ends everything; sessions stay."""
        self.hang_up()
        for client in self._clients:
            client.close()
