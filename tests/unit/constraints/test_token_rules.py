"""Token rules: what each allows, where it lets the text end, and what it refuses at construction."""

import pytest

from constraintd.constraint import PartKind, PartSpec
from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.engine.token_rules import AllowList, FixedMask, TokenSequence
from constraintd.errors import InvalidField
from constraintd.grammar.source import GrammarKind, parse_grammar
from constraintd.mask.packed import empty, ids
from constraintd.sampler.config import SamplerConfig
from constraintd.sampler.finish import FinishReason
from constraintd.sampler.settings import Settings
from constraintd.sampler.state import SamplerState
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from tests.daemon_process import BYTE_TABLE, EOG, HOLE, SECOND_EOG, TOOL, WIDTH

VOCABULARY = load_vocabulary(VocabularyFormat.TOKEN_TABLE, BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG])
ENDS = {EOG, SECOND_EOG}
ALL = set(range(263)) - {HOLE}


def mask(matcher):
    words = empty(WIDTH)
    matcher.fill_mask(words)
    return set(ids(words).tolist())


def test_an_allowed_set_allows_itself_and_the_end():
    assert mask(FixedMask.allowed([5, 7], VOCABULARY)) == {5, 7} | ENDS


def test_denied_ranges_are_out_and_all_else_is_in():
    rule = FixedMask.without_ranges([(0, 10), (250, 256), (TOOL, TOOL + 1)], VOCABULARY)
    assert mask(rule) == ALL - set(range(10)) - set(range(250, 256)) - {TOOL}


def test_banned_specials_are_out():
    assert mask(FixedMask.without_specials([TOOL], VOCABULARY)) == ALL - {TOOL}


def test_an_allow_list_allows_the_next_tokens_of_all_active_candidates():
    rule = AllowList.start([[10, 20], [10, 30], [40]], VOCABULARY)
    assert (mask(rule), rule.active_count) == ({10, 40}, 3)
    rule.consume(10)
    assert (mask(rule), rule.active_count, rule.is_accepting()) == ({20, 30}, 2, False)
    rule.consume(30)
    assert (mask(rule), rule.is_accepting()) == (ENDS, True)


def test_a_candidate_that_begins_another_is_complete_and_goes_on():
    rule = AllowList.start([[1], [1, 2]], VOCABULARY)
    rule.consume(1)
    assert (mask(rule), rule.active_count) == ({2} | ENDS, 2)
    rule.consume(2)
    assert (mask(rule), rule.active_count) == (ENDS, 1)


def test_duplicates_count_each_and_a_mismatch_deactivates_and_counts_its_position():
    rule = AllowList.start([[1, 2], [1, 2]], VOCABULARY)
    assert rule.active_count == 2
    rule.consume(9)
    assert (rule.active_count, rule.position, mask(rule)) == (0, 1, set())


def test_an_empty_candidate_is_the_empty_text():
    rule = AllowList.start([[], [3]], VOCABULARY)
    assert (mask(rule), rule.is_accepting()) == ({3} | ENDS, True)
    rule.consume(3)
    assert rule.active_count == 1


def test_a_trailing_eog_in_a_candidate_changes_nothing():
    rule = AllowList.start([[1, EOG]], VOCABULARY)
    rule.consume(1)
    assert mask(rule) == ENDS


def test_a_sequence_is_forced_and_then_all_is_free():
    rule = TokenSequence.start([8, 9], VOCABULARY)
    assert (mask(rule), rule.is_accepting()) == ({8}, False)
    rule.consume(8)
    twin = rule.fork()
    rule.consume(9)
    assert (mask(rule), rule.is_accepting()) == (ALL, True)
    assert mask(twin) == {9}


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: FixedMask.allowed([], VOCABULARY), "allowed_ids"),
        (lambda: FixedMask.allowed([1, HOLE], VOCABULARY), "allowed_ids[1]"),
        (lambda: FixedMask.allowed([WIDTH], VOCABULARY), "allowed_ids[0]"),
        (lambda: FixedMask.without_ranges([(5, 5)], VOCABULARY), "deny_ranges[0]"),
        (lambda: FixedMask.without_ranges([(0, 1), (9, 2)], VOCABULARY), "deny_ranges[1]"),
        (lambda: FixedMask.without_ranges([(0, WIDTH + 1)], VOCABULARY), "deny_ranges[0]"),
        (lambda: FixedMask.without_specials([97], VOCABULARY), "banned_specials[0]"),
        (lambda: FixedMask.without_specials([EOG], VOCABULARY), "banned_specials[0]"),
        (lambda: AllowList.start([], VOCABULARY), "allow_list"),
        (lambda: AllowList.start([[1], [2, 263]], VOCABULARY), "allow_list[1][1]"),
        (lambda: AllowList.start([[EOG, 1]], VOCABULARY), "allow_list[0][0]"),
        (lambda: TokenSequence.start([], VOCABULARY), "sequence"),
        (lambda: TokenSequence.start([1, EOG], VOCABULARY), "sequence[1]"),
    ],
)
def test_what_no_text_can_fit_is_refused_with_its_place(make, field):
    with pytest.raises(InvalidField) as caught:
        make()
    assert caught.value.metadata["field"] == field


# --- composition ---


def grammar(pattern):
    compiled = LlguidanceEngine(VOCABULARY).compile(
        parse_grammar(GrammarKind.REGEX, [pattern.encode()], max_bytes=10_000)
    )
    return PartSpec(f"grammar {pattern}", PartKind.GRAMMAR, pattern.encode(), compiled.start, compiled.at)


def rule(name, matcher):
    return PartSpec(name, PartKind.RULE, matcher.content, matcher.fork, matcher.at)


def state(*parts, min_tokens=0, max_tokens=100, **config):
    settings = Settings(VOCABULARY, SamplerConfig(**config), parts, min_tokens=min_tokens, max_tokens=max_tokens)
    return SamplerState.start(settings)


def legal(view):
    return {token for token in range(8 * len(view.dense)) if view.dense[token >> 3] >> (token & 7) & 1}


def test_the_mask_of_several_is_the_and_of_theirs():
    both = state(grammar("[a-f]+"), grammar("[d-z]+"), rule("deny", FixedMask.without_ranges([(100, 101)], VOCABULARY)))
    assert legal(both.mask()) == {ord("e"), ord("f")}
    both.advance(ord("e"), 1.0)
    assert legal(both.mask()) == {ord("e"), ord("f")} | ENDS


def test_the_text_is_exhausted_only_where_all_let_it_end():
    both = state(grammar("ab"), grammar("[a-z]*"))
    both.advance(ord("a"), 1.0)
    both.advance(ord("b"), 1.0)
    assert both.mask().reason is FinishReason.GRAMMAR_EXHAUSTED


def test_a_dead_end_names_what_met():
    both = state(grammar("a"), rule("deny ranges", FixedMask.without_ranges([(97, 98), (261, 263)], VOCABULARY)))
    assert both.mask().dead_end
    assert both.constraint_names == ("grammar a", "deny ranges")


def test_token_rules_never_make_a_session_incomplete():
    cut = state(rule("list", AllowList.start([[1, 2, 3]], VOCABULARY)), max_tokens=1)
    cut.advance(1, 1.0)
    finish = cut.mask()
    assert (finish.reason, finish.constraint_incomplete) == (FinishReason.LENGTH, False)
    cut = state(grammar("abc"), max_tokens=1)
    cut.advance(ord("a"), 1.0)
    assert cut.mask().constraint_incomplete


def test_min_tokens_puts_the_end_off_while_something_else_is_legal():
    longer = state(grammar("a*"), min_tokens=2)
    assert not ENDS & legal(longer.mask())
    longer.advance(ord("a"), 1.0)
    assert not ENDS & legal(longer.mask())
    longer.advance(ord("a"), 1.0)
    assert ENDS <= legal(longer.mask())


def test_min_tokens_gives_way_to_an_exhausted_grammar():
    short = state(grammar("a"), min_tokens=5)
    short.advance(ord("a"), 1.0)
    assert short.mask().reason is FinishReason.GRAMMAR_EXHAUSTED


def test_stops_are_ignored_before_min_tokens():
    early = state(min_tokens=3, stop_strings=(b".",), stop_ids=(7,))
    assert early.advance(ord("."), 1.0) is None
    assert early.advance(7, 1.0) is None
    assert early.advance(ord("."), 1.0).reason is FinishReason.STOP_STRING
