"""A rolling restart of three daemons behind Envoy and of two runners, and clients that notice nothing of it.

`ROLLING_ROUNDS=20` restarts all of them so many times instead of once.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from constraintd_client import GenerationClient

from tests.rolling_load import Heard, LoadClient, build_clients, load
from tests.rolling_requests import REQUESTS, write_requests
from tests.rolling_site import Site, running_site

ROUNDS = int(os.environ.get("ROLLING_ROUNDS", "1"))
PATIENCE_SECONDS = 45.0

pytestmark = [pytest.mark.services, pytest.mark.clients, pytest.mark.timeout(400 + 90 * ROUNDS)]


def undisturbed(runner: str) -> list[Heard]:
    """Each request, generated where nothing happens."""
    found = []
    with GenerationClient(runner) as client:
        for number, request in enumerate(REQUESTS):
            whole = client.generate(request.prompt, constraint=request.constraint, sampler=request.sampler).wait()
            assert whole.finish is not None
            assert whole.usage is not None
            tokens = whole.usage.completion_tokens
            found.append(Heard(number, list(whole.token_ids), whole.text, whole.finish.reason, tokens))
    return found


def wait_until_each_ends_another(clients: Sequence[LoadClient]) -> None:
    """Every client's generation under way comes to its end, or fails."""
    before = [client.ended for client in clients]
    until = time.monotonic() + PATIENCE_SECONDS
    while any(client.ended <= ended and not client.failures for client, ended in zip(clients, before, strict=True)):
        late = [f"{c.name}: {c.describe()}" for c, ended in zip(clients, before, strict=True) if c.ended <= ended]
        assert time.monotonic() < until, f"nothing ends within {PATIENCE_SECONDS} s: {late}"
        time.sleep(0.1)


def restart_everything(site: Site, clients: Sequence[LoadClient]) -> None:
    """One after the other, each once the load has got over the last one."""
    for number in range(len(site.replicas)):
        site.restart_replica(number)
        wait_until_each_ends_another(clients)
    for runner in site.runners:
        others = sum(each.resumes for each in site.runners)
        runner.restart()
        wait_until_each_ends_another(clients)
        assert sum(each.resumes for each in site.runners) > others, "nothing was under way at this runner"


def test_no_generation_is_lost_or_altered_while_all_daemons_and_runners_are_restarted(tmp_path: Path) -> None:
    build_clients()
    with running_site(tmp_path) as site:
        expected = undisturbed(site.runners[0].address)
        for request, whole in zip(REQUESTS, expected, strict=True):
            assert request.satisfied(whole.text), whole
            assert whole.counted == len(whole.tokens)
        runners = [runner.address for runner in site.runners]
        began = time.monotonic()
        with load(tmp_path, write_requests(tmp_path / "requests.json"), runners) as clients:
            wait_until_each_ends_another(clients)
            for _ in range(ROUNDS):
                restart_everything(site, clients)
            for client in clients:
                client.end()
        took = time.monotonic() - began
        assert all(runner.moves >= ROUNDS for runner in site.runners), "a runner's stream stood where nothing happened"
        moves, resumes = (sum(each.moves for each in site.runners), sum(each.resumes for each in site.runners))
        assert "Traceback" not in site.logs(), site.logs()

    generations = [heard for client in clients for heard in client.generations]
    silence = max(client.longest_silence for client in clients)
    print(
        f"{len(generations)} generations, {sum(len(each.tokens) for each in generations)} tokens in {took:.0f} s; "
        f"{moves} times a stream moved, {resumes} generations resumed; at most {silence:.2f} s without an event; "
        f"ends {dict(Counter(each.reason for each in generations))}"
    )
    for client in clients:
        assert not client.failures, f"{client.name}: {client.describe()}"
        assert client.ended == len(client.generations)
        for heard in client.generations:
            assert heard == expected[heard.request], client.name
            assert REQUESTS[heard.request].satisfied(heard.text), client.name
    assert {heard.request for heard in generations} == set(range(len(REQUESTS)))
