"""The disposable child: confines itself, compiles and probes one grammar, says what came of it, and is gone."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import resource
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from constraintd.errors import ConstraintdError, LimitExceeded
from constraintd.grammar.engines import Engines
from constraintd.grammar.honesty import verifier_of
from constraintd.grammar.sandbox_probe import Prober
from constraintd.grammar.sandbox_protocol import (
    MAX_PRODUCT_BYTES,
    ChildsRequest,
    CompileLimits,
    Errand,
    Faulted,
    Passed,
    ReadSource,
    Refused,
    TryGrammar,
    Verdict,
    product_bytes,
    verdict_bytes,
)
from constraintd.grammar.source import Grammar

_PAGE = resource.getpagesize()
# What a child may write to a file, its own error output included: enough for the last words of an abort.
_MAX_FILE_BYTES = 64 << 10
# Below the daemon and its runner in the kernel's eyes: an attack's children wait, the step path doesn't.
_NICENESS = 10
# CPU time. A grammar of 3,000 rules takes 0.1 s, one of 60,000 takes 3.
_INTERPRETED_SECONDS = 0.4
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef", "\\u")


def run_child(request: ChildsRequest, tools: Mapping[str, tuple[Engines, Prober]], verdict_fd: int) -> None:
    """The whole life of a freshly forked child. Says its work's product and its verdict at `verdict_fd`; never returns.

    `tools` are by vocabulary id.
    """

    def say(payload: bytes) -> None:
        left = memoryview(payload)
        while left:
            left = left[os.write(verdict_fd, left) :]

    def tell(product: bytes) -> None:
        if len(product) > MAX_PRODUCT_BYTES:
            raise over_product(request)
        say(product_bytes(product))

    def work() -> Verdict:
        if isinstance(request, ReadSource):
            return read(request, tell)
        return examine(request, *tools[request.vocabulary_id], tell)

    try:
        confine(request.limits)
        say(verdict_bytes(_guarded(request, work)))
        os.close(verdict_fd)  # the kernel would do it last, once it has taken the memory apart
    finally:
        os._exit(0)


def stand_back() -> None:
    """Lets everybody else go before this process, which must be a fresh fork."""
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    with contextlib.suppress(OSError):  # some containers mount /proc read-only; this is only a preference
        Path("/proc/self/oom_score_adj").write_text("1000")


def confine(limits: CompileLimits) -> None:
    """Puts this process, which must be a fork, under the limits. Soft ones, so that a verdict can lift them."""
    cpu_seconds = math.ceil(limits.seconds)
    _soften(resource.RLIMIT_CPU, cpu_seconds)
    _soften(resource.RLIMIT_STACK, limits.stack_bytes)
    _soften(resource.RLIMIT_CORE, 0)
    _soften(resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)
    _soften(resource.RLIMIT_AS, _address_space() + limits.memory_bytes)


def read(request: ReadSource, tell: Callable[[bytes], None]) -> Verdict:
    """Reads a source and tells its canonical text. Raises TooLarge, InvalidField and InvalidGrammar."""
    began = time.perf_counter()
    tell(request.source.read_json(request.max_bytes))
    return Passed(time.perf_counter() - began, 0.0, 0, 0)


def examine(request: TryGrammar, engines: Engines, prober: Prober, tell: Callable[[bytes], None]) -> Verdict:
    """Lowers the grammar and tells the result; then compiles, probes and drops it.

    Raises InvalidGrammar, LimitExceeded and whatever an engine breaks.
    """
    limits = request.limits
    lowered = engines.lower(request.grammar)
    if lowered:
        tell(lowered)  # now: once the engine has seen the grammar, nothing that is said here is above suspicion
    before = _heap()
    began, busy = time.perf_counter(), time.thread_time()
    compiled = engines.compile(request.grammar, lowered)
    seconds, busy = time.perf_counter() - began, time.thread_time() - busy
    if not lowered and busy > _INTERPRETED_SECONDS:
        raise LimitExceeded(
            f"grammar.{request.kind.value}: compiling it takes {busy:.1f} s in Python, over the limit of "
            f"{_INTERPRETED_SECONDS:g} s, for which the daemon would hold other sessions up; make it smaller",
            limit="interpreted_seconds",
            value=_INTERPRETED_SECONDS,
        )
    probed = prober.walk(compiled, steps=limits.probe_steps, enough_seconds=limits.step_seconds)
    slowest = max(probed.slowest_seconds, _slowest_check(request.grammar, probed.texts))
    if slowest > limits.step_seconds:
        raise LimitExceeded(
            f"grammar.{request.kind.value}: one step in it takes {slowest * 1e3:.0f} ms, over "
            f"the limit of {limits.step_seconds * 1e3:g} ms; make it smaller, or split what it chooses among",
            limit="step_seconds",
            value=limits.step_seconds,
        )
    grown = max(0, _heap() - before)
    # Taking a deeply nested value apart needs stack as well, so let that happen here first.
    del compiled
    gc.collect()
    return Passed(seconds, slowest, probed.steps, grown)


def _slowest_check(grammar: Grammar, texts: Sequence[bytes]) -> float:
    """CPU time of the slowest check of a finished text: the daemon does that in the step that finishes it.

    Only where the schema has references, or escapes that may spell one: without them a check takes time in proportion
    to schema and text, with them it can double at every turn. Making the verifier costs 15 ms.
    """
    if not texts or not any(mark in source for source in grammar.texts for mark in _REFERENCES):
        return 0.0
    check = verifier_of(grammar)
    if check is None:
        return 0.0
    slowest = 0.0
    for text in texts:
        began = time.thread_time()
        check(text)
        slowest = max(slowest, time.thread_time() - began)
    return slowest


def _guarded(request: ChildsRequest, work: Callable[[], Verdict]) -> Verdict:
    try:
        return work()
    except ConstraintdError as error:
        return Refused.by(error)
    except MemoryError:
        _lift(resource.RLIMIT_AS)
        return Refused.by(over_memory(request))
    except RecursionError:
        return Refused.by(over_depth(request))
    except Exception as error:
        # Without its message, which may quote the grammar: logs hold nothing that a user wrote.
        frames = "".join(traceback.format_tb(error.__traceback__, limit=-8))
        return Faulted(f"{frames}{type(error).__name__}")
    except BaseException as error:  # pyo3 raises a panic as one; nothing else here does
        return Refused.by(engine_broke(request, repr(error)))


def over_product(request: ChildsRequest | Errand) -> LimitExceeded:
    """The refusal of a grammar that becomes too large when it is written out for its engine."""
    return LimitExceeded(
        f"grammar.{request.kind.value}: written out for its engine it has more than {MAX_PRODUCT_BYTES >> 20} MiB; "
        "make the grammar smaller",
        limit="memory_bytes",
        value=MAX_PRODUCT_BYTES,
    )


def over_memory(request: ChildsRequest | Errand) -> LimitExceeded:
    """The refusal of a grammar whose compilation wants more memory than it may have."""
    return LimitExceeded(
        f"grammar.{request.kind.value}: compiling and probing it takes more than "
        f"{request.limits.memory_bytes >> 20} MiB of memory; make the grammar smaller",
        limit="memory_bytes",
        value=request.limits.memory_bytes,
    )


def over_depth(request: ChildsRequest | Errand) -> LimitExceeded:
    """The refusal of a grammar that nests deeper than the stack goes."""
    return LimitExceeded(
        f"grammar.{request.kind.value}: compiling it overran a stack of "
        f"{request.limits.stack_bytes >> 10} KiB; nest it less deeply",
        limit="stack_bytes",
        value=request.limits.stack_bytes,
    )


def over_time(request: ChildsRequest | Errand) -> LimitExceeded:
    """The refusal of a grammar that takes too long."""
    return LimitExceeded(
        f"grammar.{request.kind.value}: compiling and probing it takes more than {request.limits.seconds:g} s; "
        "make the grammar smaller, or ask for more time",
        limit="seconds",
        value=request.limits.seconds,
    )


def engine_broke(request: ChildsRequest | Errand, detail: str) -> LimitExceeded:
    """The refusal of a grammar that its engine did not survive."""
    return LimitExceeded(
        f"grammar.{request.kind.value}: its engine broke down over it ({detail[:300]}); "
        "write the grammar in another way",
        limit="engine",
    )


def _soften(which: int, limit: int) -> None:
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _lift(which: int) -> None:
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (hard, hard))


def _address_space() -> int:
    """Bytes of address space in use."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE


def _heap() -> int:
    """Bytes of memory in use that belong to no file. Pages shared with the helper count from the start."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * _PAGE
