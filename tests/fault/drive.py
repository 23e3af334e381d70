"""One session under way, as its runner sees it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from constraintd_client import SessionHandle

from tests.fault.sessions import Kind, kind_of, session_id_of


@dataclass(slots=True, eq=False)
class Drive:
    """Without `handle` the session has to be opened or taken over first."""

    number: int
    session_id: bytes
    kind: Kind
    handle: SessionHandle | None = None
    fed: list[int] = field(default_factory=list)
    """The model's input so far."""
    turns: int = 1
    pending: tuple[int, float] | None = None
    """Token and surprisal of a step without an answer."""
    before: tuple[SessionHandle, int, float] | None = None
    """The last applied step: the handle that it was sent with, token and surprisal."""
    change: tuple[str, bytes] | None = None
    """Kind and request id of a change without an answer."""
    rest: float = 0.0
    """Nothing is done before this time."""
    ended: bool = False

    @property
    def name(self) -> str:
        """The session's id, as histories have it."""
        return self.session_id.hex()

    @property
    def held(self) -> SessionHandle:
        """The handle, which is there."""
        assert self.handle is not None
        return self.handle

    @property
    def picked(self) -> tuple[int, float]:
        """The pending step, which is there."""
        assert self.pending is not None
        return self.pending

    def drop(self) -> None:
        """Nothing is known of it any more."""
        self.handle = self.pending = self.before = self.change = None

    def took(self, sent: SessionHandle) -> None:
        """The pending step was applied; it was sent with this handle."""
        token, surprisal = self.picked
        self.before = (sent, token, surprisal)
        self.fed.append(token)
        self.pending = None


def begin(run: str, number: int) -> Drive:
    """Session `number` of a run, not opened yet."""
    return Drive(number, session_id_of(run, number), kind_of(number))


def standing_at(handle: SessionHandle, position: int) -> SessionHandle:
    """A handle of its own that stands there."""
    directive = replace(handle.directive, position=position)
    return SessionHandle(handle.session_id, handle.epoch, handle.seed, directive, handle.sampler)
