"""Runners in Python, Go and TypeScript with the same made-up model: the same tokens, through a death of the daemon."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from constraintd_client import ConstraintClient

from tests.killable_daemon import KillableDaemon
from tests.toy_sessions import CONSTRAINTS, COUNT, SAMPLERS, describe, write_sessions

ROOT: Final = Path(__file__).parent.parent.parent
TOYS: Final = {
    "python": [sys.executable, "-m", "tests.python_toy"],
    "go": [str(ROOT / "clients/go/build/toy")],
    "typescript": ["node", str(ROOT / "clients/typescript/build/toy/toy_runner.js")],
}
QUIET: Final = ("--log-level", "warning")

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


class RunningToy:
    """One toy at work on the sessions' file."""

    def __init__(self, language: str, daemon: str, sessions: Path) -> None:
        command = [*TOYS[language], "--daemon", daemon, "--vocabulary-tokens", "byte", "--sessions", str(sessions)]
        self.process = subprocess.Popen(
            [*command, "--one-stream", "--patience", "60"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def outcomes(self) -> list[dict[str, Any]]:
        """What it printed at its end. Raises AssertionError if that was none."""
        try:
            output, errors = self.process.communicate(timeout=120)
        finally:
            self.process.kill()
        assert self.process.returncode == 0, errors[-3000:] + output[-1000:]
        return [json.loads(line) for line in output.splitlines()]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sessions(tmp_path_factory.mktemp("toys") / "sessions.json")


@pytest.fixture(scope="module")
def expected(sessions: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What Python's makes of them where nothing happens."""
    with KillableDaemon(tmp_path_factory.mktemp("undisturbed"), "memory", *QUIET) as daemon:
        return RunningToy("python", daemon.address, sessions).outcomes()


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    for folder, target in (("clients/go", "toy"), ("clients/typescript", "build")):
        command = ["make", "--no-print-directory", "-C", str(ROOT / folder), target]
        made = subprocess.run(command, capture_output=True, text=True, timeout=280)
        assert made.returncode == 0, made.stdout + made.stderr


def positions(client: ConstraintClient) -> dict[bytes, int]:
    return {each.session_id: each.position for each in client.list_sessions()}


def wait_for_the_middle(client: ConstraintClient, toy: RunningToy, expected: Sequence[dict[str, Any]]) -> int:
    """Until half of all tokens are there; gives how many. Fails if the toy has ended."""
    total = sum(len(each["tokens"]) for each in expected)
    until = time.monotonic() + 60
    while (there := sum(positions(client).values())) < total / 2:
        assert toy.process.poll() is None, toy.process.communicate()
        assert time.monotonic() < until, f"{there} of {total} tokens"
        time.sleep(0.005)
    assert there < total, "the toy was through before the daemon could be killed"
    return there


def test_the_sessions_are_of_every_kind_and_end_in_every_way(expected: list[dict[str, Any]]) -> None:
    assert len(expected) == COUNT >= max(len(CONSTRAINTS), len(SAMPLERS))
    ways = Counter(each["finish"] for each in expected)
    assert set(ways) == {"EOG", "STOP_STRING", "STOP_ID", "GRAMMAR_EXHAUSTED", "LENGTH", "dead_end"}, ways
    tokens = [len(each["tokens"]) for each in expected]
    print(f"{sum(tokens)} tokens, {min(tokens)} to {max(tokens)} a session; {dict(ways)}")
    assert sum(tokens) > 1500


@pytest.mark.parametrize("language", TOYS)
def test_a_toy_makes_the_same_tokens_through_a_death_of_the_daemon(
    language: str, sessions: Path, expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    with KillableDaemon(tmp_path, f"sqlite:{tmp_path}/sessions", *QUIET) as daemon:
        toy = RunningToy(language, daemon.address, sessions)
        with ConstraintClient(daemon.address) as client:
            at = wait_for_the_middle(client, toy, expected)
        daemon.restart()
        found = toy.outcomes()
        with ConstraintClient(daemon.address) as client:
            kept = [list(client.get_session(bytes.fromhex(each["session_id"])).tokens) for each in found]
    print(f"{language}: killed at {at} of {sum(len(each['tokens']) for each in expected)} tokens")
    assert [each["session_id"] for each in found] == [each["session_id"] for each in expected]
    for number, (made, same) in enumerate(zip(found, expected, strict=True)):
        assert made == same, describe(number)
        assert kept[number] == same["tokens"], describe(number)


@pytest.mark.parametrize("language", TOYS)
def test_a_toy_that_is_killed_itself_is_gone_on_from_by_one_of_another_language(
    language: str, sessions: Path, expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    languages = list(TOYS)
    heir = languages[(languages.index(language) + 1) % len(languages)]
    with KillableDaemon(tmp_path, f"sqlite:{tmp_path}/sessions", *QUIET) as daemon:
        toy = RunningToy(language, daemon.address, sessions)
        with ConstraintClient(daemon.address) as client:
            wait_for_the_middle(client, toy, expected)
            toy.process.kill()
            toy.process.communicate()
            before = positions(client)
            assert sum(before.values()) < sum(len(each["tokens"]) for each in expected)
        found = RunningToy(heir, daemon.address, sessions).outcomes()
    for number, (made, same) in enumerate(zip(found, expected, strict=True)):
        assert made == same, describe(number)
