"""A session without gRPC: what a step may and may not do. The engine is the real one, over a byte vocabulary."""

import math

import pytest

from constraintd.constraint import PartKind, PartSpec
from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.errors import (
    InvalidField,
    InvalidSurprisal,
    LimitExceeded,
    PositionConflict,
    PositionGap,
    SessionFinished,
    StaleEpoch,
    StalePosition,
    StepInFlight,
    TokenNotAllowed,
)
from constraintd.grammar.source import GrammarKind, parse_grammar
from constraintd.sampler.finish import FinishReason
from constraintd.session.directive import DenseMask, NoTokenAllowed
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from tests.daemon_process import BYTE_TABLE, EOG, HOLE, SECOND_EOG, TOOL, WIDTH
from tests.plain_daemon import BYTES, grammar_part, plain_session

VOCABULARY = BYTES
ENGINE = LlguidanceEngine(VOCABULARY)


def open_session(pattern=None, **config):
    grammar = pattern and ENGINE.compile(parse_grammar(GrammarKind.REGEX, [pattern.encode()], max_bytes=10_000))
    return plain_session([grammar_part("grammar", grammar)] if grammar else [], **config)


def take(session, text, **kwargs):
    tokens = list(text) if isinstance(text, bytes) else text
    return session.step(session.epoch, session.position, tokens, [1.0] * len(tokens), **kwargs)


def legal(directive):
    return {token for token in range(8 * len(directive.outcome.words)) if directive.outcome.allows(token)}


def test_the_first_directive_stands_before_the_first_token():
    session = open_session("a[bc]", seed=7)
    assert session.directive.position == 0
    assert legal(session.directive) == {ord("a"), 261, 262}  # "a", "ab" and the second "a"
    assert session.directive.draw == 0.8720734548204873


def test_eog_is_legal_exactly_where_the_text_is_complete():
    session = open_session("a+")
    assert not {EOG, SECOND_EOG} & legal(session.directive)
    assert {EOG, SECOND_EOG} <= legal(take(session, b"a"))


def test_either_eog_finishes_and_is_no_text():
    for eog in (EOG, SECOND_EOG):
        session = open_session("a+")
        take(session, b"aa")
        finish = take(session, [eog]).outcome
        assert (finish.reason, finish.stop_id, finish.cut_offset, finish.constraint_incomplete) == (
            FinishReason.EOG,
            eog,
            2,
            False,
        )


def test_an_exhausted_grammar_finishes_without_an_eog():
    session = open_session("ab?")
    take(session, b"a")
    finish = take(session, b"b").outcome
    assert (finish.reason, finish.cut_offset, finish.constraint_incomplete) == (
        FinishReason.GRAMMAR_EXHAUSTED,
        2,
        False,
    )


def test_a_grammar_of_the_empty_text_is_exhausted_at_once():
    assert open_session("(|)").directive.outcome.reason is FinishReason.GRAMMAR_EXHAUSTED


def test_max_tokens_cuts_and_says_that_the_constraint_is_incomplete():
    session = open_session("a{5}", max_tokens=2)
    take(session, b"a")
    finish = take(session, b"a").outcome
    assert (finish.reason, finish.constraint_incomplete) == (FinishReason.LENGTH, True)
    assert open_session("a*", max_tokens=0).directive.outcome.reason is FinishReason.LENGTH


def test_the_last_token_that_completes_the_grammar_is_success_not_length():
    session = open_session("aa", max_tokens=2)
    assert take(session, b"aa").outcome.reason is FinishReason.GRAMMAR_EXHAUSTED


def test_a_stop_string_cuts_the_text_before_it():
    session = open_session(stop_strings=(b"END",))
    assert take(session, b"xxE").settled_bytes == 2
    finish = take(session, b"ND").outcome
    assert (finish.reason, finish.stop_string, finish.cut_offset) == (FinishReason.STOP_STRING, b"END", 2)
    assert session.position == 5


def test_a_stop_string_inside_an_unfinished_grammar_stops_and_says_so():
    session = open_session("abcd", stop_strings=(b"b",))
    take(session, b"a")
    finish = take(session, b"b").outcome
    assert (finish.reason, finish.constraint_incomplete) == (FinishReason.STOP_STRING, True)


def test_a_terminal_token_whose_bytes_complete_the_grammar_leaves_it_complete():
    session = open_session("a\n", stop_strings=(b"\n",))
    take(session, b"a")
    finish = take(session, b"\n").outcome
    assert (finish.reason, finish.cut_offset, finish.constraint_incomplete) == (FinishReason.STOP_STRING, 1, False)


def test_a_stop_id_finishes_and_its_bytes_are_no_text():
    session = open_session(stop_ids=(TOOL, ord(".")))
    finish = take(session, b"hi.").outcome
    assert (finish.reason, finish.stop_id, finish.cut_offset) == (FinishReason.STOP_ID, ord("."), 2)


def test_a_stop_id_makes_nothing_legal_that_the_grammar_forbids():
    session = open_session("a+", stop_ids=(TOOL,))
    assert TOOL not in legal(session.directive)
    with pytest.raises(TokenNotAllowed):
        take(session, [TOOL])


def test_unconstrained_is_a_mask_over_the_real_ids():
    session = open_session()
    assert legal(session.directive) == set(range(263)) - {HOLE}


def test_text_never_matches_a_special_token():
    assert TOOL not in legal(open_session("<tool>").directive)
    assert 260 in legal(open_session("<tool>").directive)


def test_a_dead_end_keeps_the_step_and_the_history():
    # A vocabulary without a token for the byte 0x01, as real ones lack some.
    table = BYTE_TABLE.replace(b"\x00\x01\x00\x00\x00\x01", b"\x02\x00\x00\x00\x00", 1)
    vocabulary = load_vocabulary(VocabularyFormat.TOKEN_TABLE, table, logits_width=WIDTH, eog_ids=[EOG])
    grammar = LlguidanceEngine(vocabulary).compile(parse_grammar(GrammarKind.REGEX, [b"a\x01b"], max_bytes=100))
    session = plain_session([grammar_part("the grammar", grammar)], vocabulary)
    directive = take(session, b"a")
    assert isinstance(directive.outcome, NoTokenAllowed)
    assert (directive.position, session.log.tokens.tolist()) == (1, [97])
    assert take_again(session, 0, b"a") == directive
    with pytest.raises(TokenNotAllowed):
        take(session, b"b")
    assert session.log.tokens.tolist() == [97]


def take_again(session, position, text):
    return session.step(session.epoch, position, list(text), [9.0] * len(text))


def test_a_repeat_gives_the_same_directive_and_keeps_the_first_surprisals():
    session = open_session("[ab]+")
    first = session.step(session.epoch, 0, [97, 98], [0.5, 0.25])
    again = session.step(session.epoch, 0, [97, 98], [7.0, 7.0])
    assert again == first
    assert session.log.tokens.tolist() == [97, 98]
    assert session.log.surprisals.tolist() == [0.5, 0.25]


def test_a_repeat_of_the_finishing_step_gives_the_finish_again():
    session = open_session("ab")
    first = take(session, b"ab")
    assert take_again(session, 0, b"ab") == first


def test_other_tokens_at_the_last_step_conflict_and_name_the_logged_ones():
    session = open_session("[ab]+")
    take(session, b"ab")
    for other in (b"a", b"aa", b"aba"):
        with pytest.raises(PositionConflict) as caught:
            take_again(session, 0, other)
        assert caught.value.logged_tokens == (97, 98)


def test_an_older_position_is_stale_and_a_later_one_a_gap():
    session = open_session("[ab]+")
    take(session, b"a")
    take(session, b"bb")
    for position in (0, 2):
        with pytest.raises(StalePosition) as stale:
            take_again(session, position, b"a")
        assert stale.value.expected_position == 3
    for position in (4, 2**64 - 1):
        with pytest.raises(PositionGap) as gap:
            take_again(session, position, b"a")
        assert gap.value.expected_position == 3
    assert session.log.tokens.tolist() == [97, 98, 98]


def test_another_epoch_is_stale():
    session = open_session("a+")
    with pytest.raises(StaleEpoch):
        session.step(session.epoch ^ 1, 0, [97], [1.0])


def test_after_a_finish_nothing_more_is_taken():
    session = open_session("a")
    take(session, b"a")
    with pytest.raises(SessionFinished):
        take(session, [EOG])


def test_a_step_applies_whole_or_not_at_all_and_names_the_first_illegal_index():
    session = open_session("[ab]+c")
    before = session.directive
    with pytest.raises(TokenNotAllowed) as caught:
        take(session, b"abxb")
    assert caught.value.illegal_index == 2
    assert (session.position, session.directive) == (0, before)
    assert take(session, b"abc").outcome.reason is FinishReason.GRAMMAR_EXHAUSTED


def test_tokens_after_the_one_that_finishes_are_refused_with_the_whole_step():
    session = open_session("ab")
    with pytest.raises(SessionFinished) as caught:
        take(session, b"abb")
    assert caught.value.illegal_index == 2
    assert session.position == 0


@pytest.mark.parametrize("token", [HOLE, 263, WIDTH - 1, WIDTH, 10**6, 2**32 - 1])
def test_ids_that_do_not_exist_are_refused_even_without_a_constraint(token):
    session = open_session()
    with pytest.raises(TokenNotAllowed):
        take(session, [token])


@pytest.mark.parametrize("surprisal", [math.nan, math.inf, -math.inf, -0.001])
def test_a_surprisal_that_is_no_number_of_bits_is_refused(surprisal):
    session = open_session()
    with pytest.raises(InvalidSurprisal) as caught:
        session.step(session.epoch, 0, [97, 98], [0.0, surprisal])
    assert caught.value.illegal_index == 1
    assert session.position == 0


def test_a_step_needs_tokens_and_a_surprisal_for_each():
    session = open_session()
    with pytest.raises(InvalidField, match="at least one token"):
        session.step(session.epoch, 0, [], [])
    with pytest.raises(InvalidField, match="1 surprisals for 2 tokens"):
        session.step(session.epoch, 0, [97, 98], [1.0])


def test_a_second_step_while_one_runs_is_refused():
    session = open_session("a+")
    with session._busy, pytest.raises(StepInFlight):
        take(session, b"a")


class GivesUp:
    """A matcher that gives up on the third token, once."""

    broken = False

    def __init__(self):
        self.seen = 0

    def fill_mask(self, words):
        words[:] = VOCABULARY.real_ids

    def is_accepting(self):
        return True

    def fork(self):
        twin = GivesUp()
        twin.seen = self.seen
        return twin

    def consume(self, token):
        self.seen += 1
        if self.seen == 3 and not GivesUp.broken:
            GivesUp.broken = True
            self.seen = 99  # the place is lost now
            raise LimitExceeded("the engine gave up")


def test_an_engine_that_gives_up_costs_the_step_and_nothing_else():
    GivesUp.broken = False
    session = plain_session([PartSpec("gives up", PartKind.GRAMMAR, b"", GivesUp, lambda _place: GivesUp())])
    take(session, b"ab")
    before = session.directive
    with pytest.raises(LimitExceeded):
        take(session, b"c")
    assert (session.log.tokens.tolist(), session.directive) == ([97, 98], before)
    assert take(session, b"c").position == 3  # folded anew from the log


def test_every_mask_has_the_width_of_the_logits():
    directive = open_session("a").directive
    assert isinstance(directive.outcome, DenseMask)
    assert len(directive.outcome.words) == 40  # 4 * ceil(300 / 32)
