"""What a grammar does to the child that tries it, it does to nobody else."""

import asyncio
import os
import signal
import time

import pytest

from constraintd.errors import ConstraintdError
from constraintd.grammar.sandbox import GrammarRefused
from constraintd.grammar.sandbox_protocol import CompileLimits
from constraintd.grammar.source import GrammarKind, parse_grammar

SECOND = CompileLimits(seconds=1.0)


def regex(pattern):
    return parse_grammar(GrammarKind.REGEX, [pattern.encode()], max_bytes=1 << 24)


async def refused(sandbox, vocabulary, grammar, limits=SECOND):
    with pytest.raises(GrammarRefused) as caught:
        await sandbox.try_grammar(vocabulary, grammar, limits)
    return caught.value.refused


async def test_a_good_grammar_passes_and_is_measured(sandbox, vocabulary):
    passed = await sandbox.try_grammar(vocabulary, regex("[a-z]{3,8}(,[a-z]+)*"), CompileLimits())
    assert passed.steps > 40
    assert 0 < passed.step_seconds < 0.05
    assert 0 < passed.seconds < 5
    assert passed.memory_bytes < 64 << 20


async def test_an_invalid_grammar_comes_back_with_the_engine_s_words_and_place(sandbox, vocabulary):
    grammar = parse_grammar(GrammarKind.LARK, [b"start: a\n\na: missing"], max_bytes=100)
    verdict = await refused(sandbox, vocabulary, grammar)
    assert verdict.reason == "INVALID_GRAMMAR"
    assert "missing" in verdict.message
    assert verdict.metadata["location"].startswith("3:")


async def test_message_and_metadata_travel_unchanged(breaking, vocabulary):
    error = (await refused(breaking, vocabulary, regex("bad"))).error()
    assert (type(error).__name__, error.message) == ("InvalidGrammar", "grammar.regex: a bad one at line:column 3:4")
    assert error.metadata == {"location": "3:4", "other": "5"}
    error = (await refused(breaking, vocabulary, regex("large"))).error()
    assert (type(error).__name__, error.metadata["limit"]) == ("TooLarge", "5")
    assert error.message.startswith("grammar.regex: 9 bytes are more than the limit of 5")


@pytest.mark.parametrize(
    ("order", "limit", "lasting"),
    [
        ("hang", "seconds", True),
        ("signal SIGXCPU", "seconds", True),
        ("allocate", "memory_bytes", True),
        ("native-allocate", "memory_bytes", True),
        ("signal SIGKILL", "memory_bytes", False),
        ("read-null", "stack_bytes", True),
        ("recurse", "stack_bytes", True),
        ("signal SIGABRT", "engine", True),
        ("signal SIGILL", "engine", True),
        ("exit", "engine", True),
        ("panic", "engine", True),
        ("lie", "engine", False),
        ("talk", "engine", False),
        ("slow-step", "step_seconds", True),
    ],
)
async def test_what_breaks_a_child_is_a_limit_and_the_helper_lives_on(breaking, vocabulary, order, limit, lasting):
    await breaking.try_grammar(vocabulary, regex("fine"), SECOND)
    pid = breaking.statistics().pid
    began = time.monotonic()
    verdict = await refused(breaking, vocabulary, regex(order))
    assert time.monotonic() - began < 5
    assert (verdict.reason, verdict.metadata["limit"], verdict.lasting) == ("LIMIT_EXCEEDED", limit, lasting)
    assert len(verdict.message) > 40
    await breaking.try_grammar(vocabulary, regex("fine"), SECOND)
    assert (breaking.statistics().pid, breaking.statistics().starts) == (pid, 1)


async def test_memory_is_counted_from_what_the_child_inherited(sandbox, vocabulary):
    grammar = parse_grammar(GrammarKind.CHOICE, [b"%d" % i for i in range(60_000)], max_bytes=1 << 20)
    verdict = await refused(sandbox, vocabulary, grammar, CompileLimits(memory_bytes=16 << 20))
    assert verdict.metadata["limit"] == "memory_bytes"
    assert "16 MiB" in verdict.message
    await sandbox.try_grammar(vocabulary, regex("a"), CompileLimits(memory_bytes=64 << 20))


async def test_a_gbnf_that_would_keep_the_daemon_s_own_interpreter_busy_is_refused(sandbox, vocabulary):
    def chain(rules):
        lines = ["root ::= r0", *(f'r{i} ::= "a" r{i + 1}' for i in range(rules)), f'r{rules} ::= "b"']
        return parse_grammar(GrammarKind.GBNF, ["\n".join(lines).encode(), b"root"], max_bytes=1 << 24)

    verdict = await refused(sandbox, vocabulary, chain(60_000), CompileLimits(seconds=60.0))
    assert (verdict.reason, verdict.metadata["limit"]) == ("LIMIT_EXCEEDED", "interpreted_seconds")
    assert "hold other sessions up" in verdict.message
    await sandbox.try_grammar(vocabulary, chain(1_000), CompileLimits())


async def test_a_fault_of_the_child_s_own_code_is_logged_and_no_grammar_error(breaking, vocabulary, caplog):
    with pytest.raises(ConstraintdError, match="fault of the daemon") as caught:
        await breaking.try_grammar(vocabulary, regex("exception"), SECOND)
    assert caught.value.reason == "INTERNAL"
    assert "breaking_engine.py" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert "over exception" not in caplog.text  # a message may quote the grammar, as this one does


async def test_a_helper_that_dies_is_started_again_and_asked_once_more(breaking, vocabulary, tmp_path):
    others = [asyncio.create_task(refused(breaking, vocabulary, regex("hang"))) for _ in range(2)]
    await asyncio.sleep(0.5)
    pid = breaking.statistics().pid
    await breaking.try_grammar(vocabulary, regex(f"helper-dies-once {tmp_path}/died"), SECOND)
    assert breaking.statistics().starts == 2
    assert breaking.statistics().pid != pid
    assert {(await other).metadata["limit"] for other in others} == {"seconds"}


async def test_a_helper_that_dies_twice_over_a_grammar_is_an_error_of_that_call(breaking, vocabulary):
    with pytest.raises(ConstraintdError, match="died twice"):
        await breaking.try_grammar(vocabulary, regex("helper-dies"), SECOND)
    await breaking.try_grammar(vocabulary, regex("fine"), SECOND)
    assert breaking.statistics().starts == 3


async def test_a_cancelled_try_ends_its_child_at_once(breaking, vocabulary):
    await breaking.try_grammar(vocabulary, regex("fine"), SECOND)
    helper = breaking.statistics().pid
    task = asyncio.create_task(breaking.try_grammar(vocabulary, regex("hang"), CompileLimits(seconds=30.0)))
    await asyncio.sleep(0.3)
    [child] = children_of(helper)  # forked ahead, and now at work
    task.cancel()
    await eventually(lambda: not alive(child))
    assert breaking.statistics().under_way == 0


async def test_a_waiting_child_that_the_kernel_ends_costs_no_grammar_anything(sandbox, vocabulary):
    await sandbox.try_grammar(vocabulary, regex("a"), SECOND)
    helper = sandbox.statistics().pid
    [waiting] = await eventually(lambda: children_of(helper))
    os.kill(waiting, signal.SIGKILL)
    await eventually(lambda: not alive(waiting))
    await sandbox.try_grammar(vocabulary, regex("b"), SECOND)
    [another] = await eventually(lambda: children_of(helper))
    assert another != waiting
    assert sandbox.statistics().starts == 1


async def test_an_ended_child_is_buried_without_another_request(sandbox, vocabulary):
    await sandbox.try_grammar(vocabulary, regex("a"), SECOND)
    helper = sandbox.statistics().pid
    await eventually(lambda: len(processes_of(helper)) == len(children_of(helper)) == 1)


async def test_the_helper_and_its_children_end_with_the_daemon_s_side(breaking, vocabulary):
    task = asyncio.create_task(breaking.try_grammar(vocabulary, regex("spin"), CompileLimits(seconds=30.0)))
    [child] = await eventually(lambda: children_of(breaking.statistics().pid))
    breaking._helper._socket.connection.shutdown(2)  # what the kernel does when the daemon is killed
    await eventually(lambda: not alive(child))
    task.cancel()


async def test_a_helper_that_is_killed_takes_its_children_along(breaking, vocabulary):
    task = asyncio.create_task(breaking.try_grammar(vocabulary, regex("spin"), CompileLimits(seconds=30.0)))
    [child] = await eventually(lambda: children_of(breaking.statistics().pid))
    os.kill(breaking.statistics().pid, signal.SIGKILL)
    await eventually(lambda: not alive(child))
    task.cancel()


async def test_ctrl_c_and_sigterm_do_not_end_a_helper_whose_daemon_still_drains(sandbox, vocabulary):
    await sandbox.try_grammar(vocabulary, regex("a"), SECOND)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(sandbox.statistics().pid, number)
    await sandbox.try_grammar(vocabulary, regex("b"), SECOND)
    assert sandbox.statistics().starts == 1


async def eventually(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    return value


def children_of(pid):
    """Processes whose parent is `pid`, dead ones that nobody has waited for left out."""
    return [child for child in processes_of(pid) if alive(child)]


def processes_of(pid):
    """Processes whose parent is `pid`, dead ones that nobody has waited for included."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return []


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
