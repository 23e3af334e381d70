"""A source of directives as the decode loop uses it, with its attempts at new streams counted."""

from __future__ import annotations

from collections.abc import Sequence

from constraintd_client import Directive, SessionHandle
from constraintd_client.errors import ConstraintdError

from constraintd_runner import metrics_recording
from constraintd_runner.directives import DirectiveSource, StepReport


class MeasuredSource:
    """Another source. See DirectiveSource."""

    def __init__(self, source: DirectiveSource) -> None:
        self._source = source

    def send(self, reports: Sequence[StepReport]) -> None:
        """See DirectiveSource."""
        self._source.send(reports)

    def take(self, session: SessionHandle, timeout: float) -> Directive:
        """See DirectiveSource."""
        return self._source.take(session, timeout)

    def reconnect(self) -> None:
        """See DirectiveSource."""
        try:
            self._source.reconnect()
        except ConstraintdError:
            metrics_recording.active.reconnected(opened=False)
            raise
        metrics_recording.active.reconnected(opened=True)

    def close_session(self, session: SessionHandle) -> None:
        """See DirectiveSource."""
        self._source.close_session(session)

    def leave_session(self, session: SessionHandle) -> None:
        """See DirectiveSource."""
        self._source.leave_session(session)
