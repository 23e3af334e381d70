"""Runs one case with one language."""

from __future__ import annotations

import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from .adapter import Adapter, AdapterDied
from .case import Case
from .expect import CaseFailed
from .languages import Language
from .places import Places
from .talk import Talk

OK, FAIL, LACKS = "ok", "FAIL", "-"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one case with one language."""

    word: str
    """OK, FAIL, or LACKS: the client does not have what the case is about."""
    why: str = ""


class Seat:
    """One language's adapter, from case to case; after a failure a new one, so that no case suffers from another's.

    Use it in a with statement.
    """

    def __init__(self, language: Language, places: Places) -> None:
        self._language = language
        self._places = places
        self._stack = ExitStack()
        self._adapter: Adapter | None = None
        self._hello: dict[str, Any] = {}

    def run(self, case: Case) -> Verdict:
        """The case's verdict."""
        try:
            adapter = self._ready()
            lacking = sorted(
                (case.stages - set(self._hello["stages"])) | (case.features - set(self._hello["features"]))
            )
            if lacking:
                return Verdict(LACKS, f"it does not have {', '.join(lacking)}")
            case.script(Talk(adapter, self._places))
            Talk(adapter, self._places).ok("reset")
        except (CaseFailed, AdapterDied) as failure:
            self._drop()
            return Verdict(FAIL, str(failure))
        except Exception:
            # An answer of another shape than the case takes apart, or a server that did not start: either way this
            # case alone has no result, and the others go on.
            self._drop()
            return Verdict(FAIL, traceback.format_exc())
        return Verdict(OK)

    def _ready(self) -> Adapter:
        if self._adapter is None:
            self._adapter = self._stack.enter_context(Adapter(self._language))
            self._hello = self._adapter.ask({"op": "hello"})["ok"]
        return self._adapter

    def _drop(self) -> None:
        self._adapter = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop()
