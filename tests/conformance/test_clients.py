"""Every client passes every case of clients/conformance, against real daemons and a real runner."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from clients.conformance.harness.adapter import Adapter, AdapterDied
from clients.conformance.harness.case import Case, all_cases
from clients.conformance.harness.expect import CaseFailed, directive, fields, same
from clients.conformance.harness.languages import LANGUAGES, ROOT, Language
from clients.conformance.harness.places import Places
from clients.conformance.harness.run import OK, Seat
from clients.conformance.harness.talk import Talk


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with Places() as places:
        yield places


@pytest.fixture(scope="module")
def seat(request: pytest.FixtureRequest, places: Places) -> Iterator[Seat]:
    language = LANGUAGES[request.param]
    if language.build:
        subprocess.run(language.build, cwd=ROOT, check=True)
    with Seat(language, places) as seat:
        yield seat


@pytest.mark.parametrize(
    "seat",
    [pytest.param(name, marks=pytest.mark.clients) if LANGUAGES[name].build else name for name in LANGUAGES],
    indirect=True,
)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_client_does_what_the_case_says(seat: Seat, case: Case) -> None:
    verdict = seat.run(case)
    assert verdict.word == OK, verdict.why  # one that lacks what a case needs has lost it: all three have it all


# --- the harness itself: it must see what is wrong ---

ECHO = "import sys\nfor line in sys.stdin: print({answer!r}, flush=True)"


def scripted(python: str, answer: str) -> Language:
    """An adapter that gives the same answer to everything."""
    return Language((python, "-c", ECHO.format(answer=answer)))


@pytest.fixture
def python() -> str:
    return LANGUAGES["python"].command[0]


def test_an_adapter_that_ends_or_babbles_is_told_of(python: str) -> None:
    for language, told in (
        (Language((python, "-c", "raise SystemExit('no such thing')")), "no such thing"),
        (scripted(python, "hello"), "no JSON"),
        (scripted(python, '{"fine": 1}'), "neither ok nor error"),
    ):
        with Adapter(language) as adapter, pytest.raises(AdapterDied, match=told):
            adapter.ask({"op": "hello"})


def test_an_adapter_that_says_nothing_is_not_waited_for_for_ever(python: str) -> None:
    with Adapter(Language((python, "-c", "import time; time.sleep(60)"))) as adapter:
        with pytest.raises(AdapterDied, match=r"no answer to hello within 0\.2 s"):
            adapter.ask({"op": "hello"}, timeout=0.2)


def test_success_where_a_refusal_is_due_fails_and_so_does_another_refusal(python: str, places: Places) -> None:
    with Adapter(scripted(python, '{"ok": {}}')) as adapter:
        with pytest.raises(CaseFailed, match="succeeded, expected"):
            Talk(adapter, places).refused({"reason": "POSITION_GAP"}, "step")
    with Adapter(scripted(python, '{"error": {"kind": "refused", "reason": "STALE_POSITION"}}')) as adapter:
        with pytest.raises(CaseFailed, match='reason is "STALE_POSITION", expected "POSITION_GAP"'):
            Talk(adapter, places).refused({"reason": "POSITION_GAP"}, "step")
        with pytest.raises(CaseFailed, match="step failed"):
            Talk(adapter, places).ok("step")


def test_values_are_compared_with_their_types_and_their_presence() -> None:
    for found, wanted in ((1, True), (None, False), ([], None), ("1", 1), ([1, 2], [2, 1])):
        with pytest.raises(CaseFailed):
            same(found, wanted, "it")
    with pytest.raises(CaseFailed, match="has no stop_id"):
        fields({"reason": "EOG"}, {"reason": "EOG", "stop_id": 256}, "the finish")


def test_a_directive_with_a_second_outcome_or_another_mask_fails() -> None:
    said = {"position": 1, "mask": "06000000", "finish": None, "no_token_allowed": None}
    directive({"directive": said}, position=1, allows=[1, 2])
    for wrong, wanted in (
        (said | {"mask": "07000000"}, {"allows": [1, 2]}),
        (said | {"no_token_allowed": "nothing"}, {"allows": [1, 2]}),
        (said | {"mask": None}, {}),
        (said, {"finish": {"reason": "EOG"}}),
        (said | {"position": 2}, {"position": 1}),
    ):
        with pytest.raises(CaseFailed):
            directive({"directive": wrong}, **wanted)
