"""What a resumed session comes to for a caller who has seen a part of it."""

from __future__ import annotations

import pytest
from constraintd_client import Directive, Finish, SessionHandle
from constraintd_client.session_changes import Resumed, Turn
from constraintd_runner.errors import ContextExceeded, InvalidRequest, OtherVocabulary
from constraintd_runner.resume import Unseen, check_fits, exact_passes, model_input, token_limit, unseen_by
from constraintd_runner.text import SettledText

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd.v1 import sampler_pb2
from tests.unit.runner.scripted import anything

# Token 0 is "a", 1 the two bytes of "é", 2 the first of them and 3 the second, 4 a byte that no UTF-8 has.
TABLE = [b"a", b"\xc3\xa9", b"\xc3", b"\xa9", b"\xff"]


def session(
    *tokens: int,
    settled: int = 0,
    finish: Finish | None = None,
    passes: tuple[int, ...] = (),
    prompt: int = 3,
    max_tokens: int | None = 10,
    turns: tuple[Turn, ...] = (),
) -> Resumed:
    directive = anything(len(tokens), settled)
    if finish is not None:
        directive = Directive(len(tokens), None, finish, None, 0.0, settled, 0)
    config = sampler_pb2.SamplerConfig(max_tokens=max_tokens)
    handle = SessionHandle(b"s" * 16, 5, 7, directive, config)
    return Resumed(handle, "v", turns or (Turn(0, (9,) * prompt),), tokens, passes)


def unseen(resumed: Resumed, tokens: int, text_bytes: int) -> Unseen:
    request = pb.ResumeGenerationRequest(seen_tokens=tokens, seen_text_bytes=text_bytes)
    return unseen_by(request, resumed, SettledText(TABLE))


def test_the_rest_begins_where_the_caller_s_ends() -> None:
    resumed = session(0, 1, 0, 0, settled=4)
    assert unseen(resumed, 0, 0) == Unseen((0, 1, 0, 0), "aéa")
    assert unseen(resumed, 2, 1) == Unseen((0, 0), "éa")
    assert unseen(resumed, 4, 4) == Unseen((), "")


def test_text_behind_the_settled_bytes_is_kept_back() -> None:
    assert unseen(session(0, 0, 2, settled=2), 0, 0).text == "aa"


def test_a_finished_text_is_given_up_to_its_cut_and_to_the_end() -> None:
    finish = Finish("STOP_STRING", b"a", None, 3, False)
    assert unseen(session(0, 1, 0, settled=1, finish=finish), 1, 1) == Unseen((1, 0), "é")
    broken = Finish("LENGTH", b"", None, 2, False)
    assert unseen(session(0, 2, settled=1, finish=broken), 2, 1) == Unseen((), "\ufffd")


def test_bytes_that_are_no_text_count_as_what_was_shown_for_them() -> None:
    # U+FFFD is three bytes of UTF-8 for the one that it stands for.
    resumed = session(4, 0, settled=2)
    assert unseen(resumed, 0, 0).text == "\ufffda"
    assert unseen(resumed, 1, 3).text == "a"


def test_text_can_go_on_behind_the_replayed_one() -> None:
    text = SettledText(TABLE)
    unseen_by(pb.ResumeGenerationRequest(), session(0, 2, settled=1), text)
    text.accept(3)
    assert text.settle(3) == "é"


@pytest.mark.parametrize(
    ("tokens", "text_bytes", "metadata"),
    [
        (5, 0, {"field": "seen_tokens", "expected_position": "4"}),
        (4, 5, {"field": "seen_text_bytes", "expected_bytes": "4"}),
        (4, 2, {"field": "seen_text_bytes"}),
    ],
    ids=["tokens", "text", "half a character"],
)
def test_what_cannot_be_gone_on_from_is_refused(tokens: int, text_bytes: int, metadata: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        unseen(session(0, 1, 0, 0, settled=4), tokens, text_bytes)
    assert caught.value.metadata == metadata


# --- whether the model can ---


def test_another_vocabulary_is_refused() -> None:
    check_fits(session(0), "v", 100)
    with pytest.raises(OtherVocabulary):
        check_fits(session(0), "w", 100)


def test_a_session_has_to_fit_to_its_end() -> None:
    check_fits(session(0, 0, max_tokens=10), "v", 13)
    with pytest.raises(ContextExceeded) as caught:
        check_fits(session(0, 0, max_tokens=10), "v", 12)
    assert caught.value.metadata == {"limit": "12", "actual": "13"}
    with pytest.raises(ContextExceeded, match="any number"):
        check_fits(session(0, max_tokens=None), "v", 1000)
    check_fits(session(0, max_tokens=None, finish=Finish("EOG", b"", 1, 1, False)), "v", 1)


def test_the_limit_of_tokens_counts_from_the_present_turn() -> None:
    turns = (Turn(0, (9,)), Turn(2, (8, 8)))
    resumed = session(0, 1, 0, max_tokens=5, turns=turns)
    assert token_limit(resumed) == 7
    assert model_input(resumed).tolist() == [9, 0, 1, 8, 8, 0]
    check_fits(resumed, "v", 10)
    with pytest.raises(ContextExceeded):
        check_fits(resumed, "v", 9)


def test_a_session_without_any_tokens_has_nothing_to_begin_from() -> None:
    with pytest.raises(InvalidRequest):
        model_input(session(prompt=0))


# --- its passes ---


@pytest.mark.parametrize(
    ("resumed", "passes"),
    [
        (session(), (3,)),
        (session(0, passes=(3,)), (3, 1)),
        (session(0, 1, 0, passes=(3, 1, 1)), (3, 1, 1, 1)),
        (session(0, 1, 0, passes=(5,)), (5, 1)),
        (session(0, 1, passes=(1, 2, 1)), (1, 2, 1, 1)),
    ],
    ids=["none yet", "one token", "three tokens", "after a takeover", "a prompt in parts"],
)
def test_passes_are_those_reported_and_what_was_fed_since(resumed: Resumed, passes: tuple[int, ...]) -> None:
    assert exact_passes(resumed) == passes


def test_passes_that_nobody_reported_are_not_made_up() -> None:
    for unknown in (session(0, 1), session(0, passes=(1,))):
        with pytest.raises(InvalidRequest) as caught:
            exact_passes(unknown)
        assert caught.value.metadata == {"field": "exact"}
