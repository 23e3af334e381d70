"""A compile helper whose regex engine does to its process what the pattern says."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

from constraintd.errors import InvalidGrammar, TooLarge
from constraintd.grammar import engines, sandbox_process
from constraintd.grammar.sandbox_protocol import LENGTH, MAX_ANSWER_BYTES, Errand
from constraintd.grammar.source import Grammar, GrammarKind
from constraintd.vocabulary.vocabulary import Vocabulary

_TELL = "tell "
"""Before an order: first the child tells a product."""
PROGRAM = f"from {__name__} import main; main()"
BOASTING_PROGRAM = f"from {__name__} import boast; boast()"
STAMMERING_PROGRAM = f"from {__name__} import stammer; stammer()"


class BreakingEngine:
    """Obeys the pattern; anything else compiles to a grammar that allows no token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._width = vocabulary.logits_width

    def lower(self, grammar: Grammar) -> bytes:
        """See Engine."""
        return b"a product" if grammar.texts[0].startswith(_TELL) else b""

    def compile(self, grammar: Grammar, lowered: bytes = b"") -> _Nothing:
        """See Engine."""
        match grammar.texts[0].removeprefix(_TELL).split():
            case ["signal", name]:
                os.kill(os.getpid(), signal.Signals[name])
            case ["hang"]:
                time.sleep(60)
            case ["spin"]:
                while True:
                    pass
            case ["allocate"]:
                bytearray(1 << 40)
            case ["native-allocate"]:
                sys.stderr.write("memory allocation of 1099511627776 bytes failed\n")
                sys.stderr.flush()
                os.abort()
            case ["read-null"]:
                ctypes.string_at(0)
            case ["recurse"]:
                self.compile(grammar)
            case ["exit"]:
                os._exit(3)
            case ["exception"]:
                raise ZeroDivisionError(f"over {grammar.texts[0]}")
            case ["panic"]:
                raise BaseException("index out of bounds")
            case ["helper-dies", *_]:
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(60)
            case ["helper-dies-once", path]:
                if not os.path.exists(path):
                    open(path, "w").close()
                    os.kill(os.getppid(), signal.SIGKILL)
                    time.sleep(60)
            case ["lie"]:
                os.write(_verdict_pipe(), b'["Passed", {"seconds": "long"}]')
                os._exit(0)
            case ["talk"]:
                while True:
                    os.write(_verdict_pipe(), bytes(1 << 16))
            case ["bad"]:
                raise InvalidGrammar("grammar.regex: a bad one at line:column 3:4", location="3:4", other=5)
            case ["large"]:
                raise TooLarge("grammar.regex", limit=5, actual=9)
            case ["slow-step"]:
                return _Nothing(grammar.grammar_id, spin_seconds=0.2)
        return _Nothing(grammar.grammar_id)


class _Nothing:
    """A grammar of no text."""

    vocabulary_id = ""

    def __init__(self, grammar_id: str, spin_seconds: float = 0.0) -> None:
        self.grammar_id = grammar_id
        self._spin_seconds = spin_seconds

    def start(self) -> _Nothing:
        return self

    def fork(self) -> _Nothing:
        return self

    def is_accepting(self) -> bool:
        return False

    def consume(self, token: int) -> None:
        raise AssertionError("no token is legal")

    def fill_mask(self, words) -> None:
        ends = time.thread_time() + self._spin_seconds
        while time.thread_time() < ends:
            pass
        words[:] = 0


def _verdict_pipe() -> int:
    """The child's one pipe: what is open besides its standard streams and is one."""
    import stat

    for name in sorted(map(int, os.listdir("/proc/self/fd"))):
        if name > 2 and os.path.exists(f"/proc/self/fd/{name}") and stat.S_ISFIFO(os.fstat(name).st_mode):
            return name
    raise AssertionError("no pipe")


def main() -> None:
    """The helper's main with that engine for regexes."""
    engines._ENGINES = {**engines._ENGINES, GrammarKind.REGEX: BreakingEngine}  # type: ignore[misc]
    sandbox_process.main()


def boast() -> None:
    """The helper's main, whose first answer begins with a length over the most that it may have."""
    sandbox_process.Helper._say = lambda self, errand, said: self._daemon.sendall(  # type: ignore[method-assign]
        LENGTH.pack(MAX_ANSWER_BYTES + 1)
    )
    sandbox_process.main()


def stammer() -> None:
    """The helper's main, which dies in the middle of its first answer, one of 10 MB."""

    def say(self: sandbox_process.Helper, errand: Errand, said: bytes | memoryview) -> None:
        self._daemon.sendall(LENGTH.pack(10 << 20) + bytes(5 << 20))
        os.kill(os.getpid(), signal.SIGKILL)

    sandbox_process.Helper._say = say  # type: ignore[method-assign]
    sandbox_process.main()
