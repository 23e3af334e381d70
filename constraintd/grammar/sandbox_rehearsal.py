"""What a child does while it waits for its grammar: it goes through its work once with a small schema of our own.

A fresh fork shares its memory with the helper, and the kernel copies each page when it is first written to: 780 pages
in an ordinary compilation, which took 7 ms so and takes 4.5 ms in a child that has rehearsed (50 pages). The parts are
short, 1 to 5 ms, so that a grammar which comes meanwhile waits for one of them and not for all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Final

from constraintd.errors import ConstraintdError
from constraintd.grammar.engines import Engines
from constraintd.grammar.sandbox_probe import Prober
from constraintd.grammar.sandbox_protocol import CompileLimits, TryGrammar, childs_request_of, pickled
from constraintd.grammar.source import GrammarKind, parse_grammar

_SMALL: Final = b'{"type":"object","properties":{"a":{"type":"string","maxLength":9}},"required":["a"]}'
_ORDINARY: Final = (
    b'{"type":"object","properties":{"a":{"type":"string","maxLength":9},"b":{"type":"integer","minimum":0},'
    b'"c":{"enum":["x","y"]},"d":{"type":["number","null"]},"e":{"type":"array","items":{"type":"object","properties":'
    b'{"f":{"type":"boolean"},"g":{"type":"string"}},"additionalProperties":false},"maxItems":8}},"required":["a","b"],'
    b'"additionalProperties":false}'
)
_STEPS: Final = 5  # along each of the probe's paths: 1 ms


def rehearse(engines: Engines, prober: Prober, is_wanted: Callable[[], bool]) -> None:
    """Goes through the parts of a child's work until `is_wanted`, which is asked before each."""
    with contextlib.suppress(ConstraintdError):  # a vocabulary without braces, say
        for _ in _parts(engines, prober):
            if is_wanted():
                return


def _parts(engines: Engines, prober: Prober) -> Iterator[None]:
    yield
    for schema in (_SMALL, _ORDINARY):
        grammar = parse_grammar(GrammarKind.JSON_SCHEMA, [schema], max_bytes=len(schema))
        request = childs_request_of(BytesIO(b"".join(pickled(TryGrammar(0, "", grammar, CompileLimits())))))
        assert isinstance(request, TryGrammar)
        lowered = engines.lower(request.grammar)
        yield
        compiled = engines.compile(request.grammar, lowered)
        yield
        prober.walk(compiled, steps=_STEPS, enough_seconds=request.limits.step_seconds)
        yield
