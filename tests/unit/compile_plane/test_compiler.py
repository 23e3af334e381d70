"""One compilation for all who ask, a deadline for each, and a cache that keeps what is in use."""

import asyncio
import gc
import time

import pytest

from constraintd.config import Limits
from constraintd.errors import InvalidGrammar, LimitExceeded, LimitReached, UnknownGrammar, UnknownVocabulary
from constraintd.grammar.compiler import GrammarCompiler
from constraintd.grammar.sandbox import GrammarRefused, NoSandbox
from constraintd.grammar.sandbox_protocol import CompileLimits, Passed, Refused
from constraintd.grammar.source import GrammarKind, parse_grammar

MB = 1 << 20


def regex(pattern):
    return parse_grammar(GrammarKind.REGEX, [pattern.encode()], max_bytes=MB)


class ScriptedSandbox(NoSandbox):
    """Counts tries, holds each until `go` is set, then refuses with `refusal`, or says that it took `size`."""

    def __init__(self, *, size=0, refusal=None):
        self.size = size
        self.refusal = refusal
        self.go = asyncio.Event()
        self.go.set()
        self.tried = []
        self.ended = 0

    async def try_grammar(self, vocabulary, grammar, limits):
        self.tried.append((grammar.texts[0], limits))
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended += 1
            raise
        if self.refusal is not None:
            raise GrammarRefused(self.refusal)
        return Passed(seconds=0.0, step_seconds=0.0, steps=1, memory_bytes=self.size)


@pytest.fixture
def make(registry):
    made = []

    def make(sandbox, **limits):
        made.append(GrammarCompiler(registry, sandbox, Limits(**limits)))
        return made[-1]

    yield make
    for compiler in made:
        compiler.close()


async def test_50_requests_at_once_compile_once(make, sandbox, vocabulary):
    compiler = make(sandbox)
    answers = await asyncio.gather(*(compiler.compile(vocabulary.fingerprint, regex("[ab]{9}")) for _ in range(50)))
    assert len({id(answer.grammar) for answer in answers}) == 1
    assert not any(answer.cached for answer in answers)
    assert sandbox.statistics().tried == 1
    statistics = compiler.statistics()
    assert (statistics.misses, statistics.joined, statistics.in_flight) == (1, 49, 0)
    again = await compiler.compile(vocabulary.fingerprint, regex("[ab]{9}"))
    assert (again.cached, again.seconds) == (True, 0.0)


async def test_one_waiter_s_cancel_leaves_the_others_and_the_last_one_s_ends_the_compilation(make, vocabulary):
    sandbox = ScriptedSandbox()
    sandbox.go.clear()
    compiler = make(sandbox)
    tasks = [asyncio.create_task(compiler.compile(vocabulary.fingerprint, regex("a"))) for _ in range(3)]
    await asyncio.sleep(0.01)
    tasks[0].cancel()
    await asyncio.sleep(0.01)
    assert (sandbox.ended, compiler.statistics().in_flight) == (0, 1)
    tasks[1].cancel()
    tasks[2].cancel()
    await asyncio.sleep(0.01)
    assert (sandbox.ended, compiler.statistics().in_flight) == (1, 0)
    sandbox.go.set()
    assert (await compiler.compile(vocabulary.fingerprint, regex("a"))).grammar
    assert len(sandbox.tried) == 2


async def test_each_waiter_has_its_own_deadline(make, vocabulary):
    sandbox = ScriptedSandbox()
    sandbox.go.clear()
    compiler = make(sandbox)
    patient = asyncio.create_task(compiler.compile(vocabulary.fingerprint, regex("a")))
    with pytest.raises(LimitExceeded, match="deadline") as caught:
        await compiler.compile(vocabulary.fingerprint, regex("a"), deadline=time.monotonic() + 0.05)
    assert caught.value.code == "DEADLINE_EXCEEDED"
    sandbox.go.set()
    assert (await patient).grammar
    assert len(sandbox.tried) == 1


async def test_a_deadline_that_has_passed_begins_nothing(make, vocabulary):
    sandbox = ScriptedSandbox()
    compiler = make(sandbox)
    with pytest.raises(LimitExceeded, match="deadline"):
        await compiler.compile(vocabulary.fingerprint, regex("a"), deadline=time.monotonic() - 1)
    assert not sandbox.tried


async def test_a_refusal_is_remembered_for_a_while_and_a_passing_trouble_is_not(make, vocabulary):
    sandbox = ScriptedSandbox(refusal=Refused.by(InvalidGrammar("no good", location="1:2")))
    compiler = make(sandbox, refused_grammar_seconds=0.2)
    errors = []
    for _ in range(3):
        with pytest.raises(InvalidGrammar, match="no good") as caught:
            await compiler.compile(vocabulary.fingerprint, regex("a"))
        errors.append(caught.value)
    assert len(sandbox.tried) == 1
    assert len(set(map(id, errors))) == 3  # one object raised again and again would keep every caller's frames
    await asyncio.sleep(0.25)
    sandbox.refusal = Refused("LIMIT_EXCEEDED", "the machine was out of memory", {}, lasting=False)
    for tries in (2, 3):
        with pytest.raises(LimitExceeded, match="out of memory"):
            await compiler.compile(vocabulary.fingerprint, regex("a"))
        assert len(sandbox.tried) == tries
    sandbox.refusal = None
    assert (await compiler.compile(vocabulary.fingerprint, regex("a"))).grammar


async def test_a_refusal_under_tight_limits_says_nothing_about_wider_ones(make, vocabulary):
    sandbox = ScriptedSandbox(refusal=Refused("LIMIT_EXCEEDED", "too slow", {}))
    compiler = make(sandbox)
    with pytest.raises(LimitExceeded):
        await compiler.compile(vocabulary.fingerprint, regex("a"), limits=CompileLimits(seconds=1.0))
    sandbox.refusal = None
    assert (await compiler.compile(vocabulary.fingerprint, regex("a"), limits=CompileLimits(seconds=2.0))).grammar


async def test_a_request_s_limits_are_cut_to_the_server_s(make, vocabulary):
    sandbox = ScriptedSandbox()
    compiler = make(sandbox, max_compile_seconds=20.0, max_compile_memory_bytes=600 * MB, max_compile_step_seconds=0.1)
    wanted = CompileLimits(seconds=3600.0, memory_bytes=1 << 40, stack_bytes=1 << 30, step_seconds=9.0)
    await compiler.compile(vocabulary.fingerprint, regex("a"), limits=wanted)
    await compiler.compile(vocabulary.fingerprint, regex("b"))
    assert [limits for _, limits in sandbox.tried] == [
        CompileLimits(20.0, 600 * MB, 4 * MB, 0.1, 50),
        CompileLimits(10.0, 512 * MB, 4 * MB, 0.05, 50),
    ]


async def test_too_many_waiting_compilations_are_refused(make, vocabulary):
    sandbox = ScriptedSandbox()
    sandbox.go.clear()
    compiler = make(sandbox, max_waiting_compilations=2)
    tasks = [asyncio.create_task(compiler.compile(vocabulary.fingerprint, regex(letter))) for letter in "ab"]
    await asyncio.sleep(0.01)
    with pytest.raises(LimitReached):
        await compiler.compile(vocabulary.fingerprint, regex("c"))
    joined = asyncio.create_task(compiler.compile(vocabulary.fingerprint, regex("a")))
    sandbox.go.set()
    assert len(await asyncio.gather(*tasks, joined)) == 3


async def test_the_least_recently_used_grammar_goes_first(make, vocabulary):
    compiler = make(ScriptedSandbox(size=4 * MB), max_grammar_cache_bytes=13 * MB)
    ids = [(await compiler.compile(vocabulary.fingerprint, regex(letter))).grammar.grammar_id for letter in "abc"]
    compiler.get(vocabulary.fingerprint, ids[0])
    await compiler.compile(vocabulary.fingerprint, regex("d"))
    gc.collect()
    compiler.get(vocabulary.fingerprint, ids[0])
    with pytest.raises(UnknownGrammar, match="evicted"):
        compiler.get(vocabulary.fingerprint, ids[1])
    assert (compiler.statistics().cache.entries, compiler.statistics().cache.evicted) == (3, 1)


async def test_a_grammar_in_use_stays_over_the_bound_and_goes_when_its_last_session_does(make, vocabulary):
    compiler = make(ScriptedSandbox(size=4 * MB), max_grammar_cache_bytes=5 * MB)
    held = [(await compiler.compile(vocabulary.fingerprint, regex(letter))).lease for letter in "ab"]
    second_hold = compiler.get(vocabulary.fingerprint, held[0].grammar.grammar_id)
    first_id = held[0].grammar.grammar_id
    await compiler.compile(vocabulary.fingerprint, regex("c"))
    await asyncio.sleep(0)  # the loop itself still holds the answer that it has just delivered
    statistics = compiler.statistics().cache
    assert (statistics.entries, statistics.pinned) == (3, 2)
    assert statistics.size > statistics.limit
    held.clear()
    await asyncio.sleep(0)
    await compiler.compile(vocabulary.fingerprint, regex("d"))
    assert compiler.get(vocabulary.fingerprint, first_id) is second_hold
    del second_hold
    await asyncio.sleep(0)
    await compiler.compile(vocabulary.fingerprint, regex("e"))
    with pytest.raises(UnknownGrammar):
        compiler.get(vocabulary.fingerprint, first_id)
    assert compiler.statistics().cache.entries == 1


async def test_unknown_ids_are_named(make, vocabulary):
    compiler = make(NoSandbox())
    with pytest.raises(UnknownVocabulary.__mro__[1]):
        await compiler.compile("0" * 64, regex("a"))
    with pytest.raises(UnknownGrammar, match="compile it"):
        compiler.get(vocabulary.fingerprint, "0" * 64)


async def test_what_only_the_daemon_finds_wrong_is_that_call_s_error(make, vocabulary):
    compiler = make(NoSandbox())
    with pytest.raises(InvalidGrammar):
        await compiler.compile(vocabulary.fingerprint, regex("("))
    assert compiler.statistics().in_flight == 0
