"""Texts of 10 MB between the daemon and its helper: they arrive whole, and whatever ends a transfer ends only that."""

import asyncio
import fcntl
import os
import signal
import struct
import termios
import time
from contextlib import asynccontextmanager, suppress
from io import BytesIO

import pytest

from constraintd.errors import ConstraintdError
from constraintd.grammar import sandbox_process
from constraintd.grammar.sandbox import GrammarRefused, HelperSandbox
from constraintd.grammar.sandbox_protocol import (
    LENGTH,
    CompileLimits,
    ReadSource,
    Refused,
    TryGrammar,
    childs_request_of,
    product_bytes,
    request_frame,
    request_of,
    verdict_bytes,
)
from constraintd.grammar.source import GrammarKind, GrammarSource, parse_grammar
from tests.unit.compile_plane.breaking_engine import BOASTING_PROGRAM, STAMMERING_PROGRAM

MB = 1 << 20
LONG_TEXT = b'{ "const":  "' + b"x" * (10 * MB) + b'" }'
LONG_SOURCE = GrammarSource(GrammarKind.JSON_SCHEMA, [LONG_TEXT])
LIMITS = CompileLimits()


def regex(pattern):
    return parse_grammar(GrammarKind.REGEX, [pattern.encode()], max_bytes=MB)


def choice(number):
    return parse_grammar(GrammarKind.CHOICE, [b"%d" % i for i in range(number)], max_bytes=MB)


def read(sandbox):
    return asyncio.create_task(sandbox.read(LONG_SOURCE, 16 * MB, LIMITS))


@asynccontextmanager
async def stopped(sandbox, vocabulary):
    """The helper, which has started and does not read for a while; its process id."""
    await sandbox.try_grammar(vocabulary, regex("a"), LIMITS)
    pid = sandbox.statistics().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            yield pid
    finally:
        with suppress(ProcessLookupError):  # it may have been ended meanwhile
            os.kill(pid, signal.SIGCONT)


async def half_sent(sandbox):
    """Waits until part of a long frame is on its way, and no more of it goes."""
    ends = time.monotonic() + 10
    while unread(sandbox) < 64 << 10:
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


def unread(sandbox):
    """Bytes that the helper has not taken from its socket, with the kernel's own beside them."""
    return struct.unpack("i", fcntl.ioctl(sandbox._helper._socket.connection, termios.TIOCOUTQ, bytes(4)))[0]


@pytest.mark.parametrize(
    "request_",
    [
        TryGrammar(7, "vocabulary", regex("a"), LIMITS),
        TryGrammar(7, "vocabulary", choice(10_000), LIMITS),
        ReadSource(7, GrammarSource(GrammarKind.JSON_SCHEMA, (LONG_TEXT,)), MB, LIMITS),
    ],
    ids=["small", "many texts", "long text"],
)
def test_a_request_for_a_child_passes_the_helper_unread(request_):
    frame = b"".join(request_frame(request_))
    assert LENGTH.unpack_from(frame)[0] == len(frame) - LENGTH.size
    errand, pickled = request_of(memoryview(frame)[LENGTH.size :])
    assert errand == request_.errand
    assert childs_request_of(BytesIO(pickled)) == request_


async def test_a_long_source_and_its_canonical_text_arrive_whole(sandbox):
    grammar = await read(sandbox)
    assert grammar.texts == ('{"const":"' + "x" * (10 * MB) + '"}',)
    assert grammar == LONG_SOURCE.read(16 * MB)


async def test_a_grammar_of_many_texts_is_compiled_from_all_of_them(sandbox, vocabulary):
    passed = await sandbox.try_grammar(vocabulary, choice(10_000), LIMITS)
    assert b'"4095" | "4096"' in bytes(passed.product)
    assert b'"9998" | "9999"' in bytes(passed.product)


async def test_a_call_cancelled_in_the_middle_of_sending_leaves_the_helper_to_others(sandbox, vocabulary):
    async with stopped(sandbox, vocabulary):
        cancelled = read(sandbox)
        await half_sent(sandbox)
        other = asyncio.create_task(sandbox.try_grammar(vocabulary, regex("b"), LIMITS))
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    await other
    await sandbox.try_grammar(vocabulary, regex("c"), LIMITS)
    assert (sandbox.statistics().starts, sandbox.statistics().under_way) == (1, 0)


async def test_a_helper_killed_in_the_middle_of_a_request_is_asked_again_by_all(sandbox, vocabulary):
    async with stopped(sandbox, vocabulary) as pid:
        first = read(sandbox)
        await half_sent(sandbox)
        second = read(sandbox)
        third = asyncio.create_task(sandbox.try_grammar(vocabulary, regex("b"), LIMITS))
        await asyncio.sleep(0)  # they wait behind it
        os.kill(pid, signal.SIGKILL)
        assert await first == await second
        await third
    assert sandbox.statistics().starts == 2


async def test_a_helper_ended_in_the_middle_of_a_request_leaves_nobody_waiting(sandbox, vocabulary):
    async with stopped(sandbox, vocabulary):
        first = read(sandbox)
        await half_sent(sandbox)
        second = asyncio.create_task(sandbox.try_grammar(vocabulary, regex("b"), LIMITS))
        await asyncio.sleep(0)
        sandbox._helper._end("it does not answer")  # as when a call's time is over
        assert (await first).kind is GrammarKind.JSON_SCHEMA  # by another helper
        await second
    assert sandbox.statistics().starts == 2


@pytest.mark.parametrize(
    ("program", "why"),
    [(BOASTING_PROGRAM, "it talks nonsense: a frame of 68157450 bytes"), (STAMMERING_PROGRAM, "it closed its socket")],
)
async def test_a_helper_whose_answer_is_too_long_or_breaks_off_is_ended(vocabulary, caplog, program, why):
    sandbox = HelperSandbox(program)
    try:
        async with asyncio.timeout(60):
            with pytest.raises(ConstraintdError, match="died twice"):
                await sandbox.try_grammar(vocabulary, regex("a"), LIMITS)
        assert caplog.text.count(why) == 2
        assert (sandbox.statistics().starts, sandbox.statistics().under_way) == (2, 0)
        assert sandbox._helper.process.wait(10) == -signal.SIGKILL
    finally:
        sandbox.close()


async def test_a_refusal_leaves_the_product_behind(sandbox, vocabulary):
    refused = verdict_bytes(Refused("LIMIT_EXCEEDED", "too large", {}))
    errand = TryGrammar(7, "vocabulary", regex("a"), LIMITS).errand
    child = sandbox_process._Child(errand, 0, -1, -1, 0.0, said=bytearray(product_bytes(b"lowered") + refused))
    assert sandbox_process._spoken(child) == refused
    with pytest.raises(GrammarRefused) as caught:
        await sandbox.try_grammar(vocabulary, choice(60_000), CompileLimits(memory_bytes=16 * MB))
    assert caught.value.refused.metadata["limit"] == "memory_bytes"
