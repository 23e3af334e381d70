"""AllowListConstraint: the candidates, which of them are still active, and where the text is complete."""

import pytest

from constraintd.errors import InvalidField
from constraintd.inprocess import AllowListConstraint, VocabMismatch
from constraintd.vocabulary.vocabulary import build_vocabulary
from tests.unit.inprocess.toy import legal

EOG = 49
VOCABULARY = build_vocabulary([bytes([65 + i]) for i in range(48)], {EOG: "</s>"}, eog_ids=[EOG])
HOLE = 48


def constraint(*candidates):
    return AllowListConstraint(candidates, VOCABULARY)


def mask(listed):
    return legal(listed.allowed_tokens([], 50))


def test_the_example_of_its_document():
    # Two candidates: [10, 20] and [10, 30]
    c = AllowListConstraint([[10, 20], [10, 30]], VOCABULARY)
    # First token: only 10 is allowed (shared prefix)
    mask = c.allowed_tokens([], 50)
    assert mask[10]
    assert not mask[20]
    assert not mask[30]


def test_the_whole_sequence_is_one_of_the_candidates():
    texts = set()
    for first in range(50):
        for second in range(50):
            listed = constraint([10, 20], [10, 30], [40, 20])
            for token in (first, second):
                if token not in mask(listed):
                    break
                listed.advance(token)
            else:
                if listed.is_complete:
                    texts.add((first, second))
    assert texts == {(10, 20), (10, 30), (40, 20)}


def test_the_union_of_the_active_candidates_next_tokens_is_allowed():
    listed = constraint([10, 20], [10, 30], [40])
    assert mask(listed) == {10, 40}
    listed.advance(10)
    assert mask(listed) == {20, 30}


def test_the_mask_has_the_size_of_the_vocabulary_and_only_that_can_be_asked_for():
    assert constraint([1]).allowed_tokens([], 50).shape == (50,)
    for size in (49, 51, 0):
        with pytest.raises(VocabMismatch, match=f"a mask of {size} ids was asked for"):
            constraint([1]).allowed_tokens([], size)


def test_it_is_never_unconstrained_even_where_no_candidate_is_left():
    listed = constraint([1, 2])
    listed.advance(9)
    assert mask(listed) == set()


def test_the_place_is_what_was_advanced_over_whatever_is_said_to_be_generated():
    listed = constraint([1, 2])
    assert legal(listed.allowed_tokens([1, 2, 3], 50)) == {1}


def test_a_candidate_is_inactive_from_the_first_token_that_fails_to_match():
    listed = constraint([1, 2], [1, 3], [4])
    assert listed.active_count == 3
    assert listed.advance(1)
    assert listed.active_count == 2
    assert listed.advance(3)
    assert listed.active_count == 1


def test_advancing_past_a_candidate_s_end_deactivates_it():
    listed = constraint([1], [1, 2])
    assert listed.advance(1)
    assert (listed.is_complete, mask(listed), listed.active_count) == (True, {2, EOG}, 2)
    assert listed.advance(2)
    assert (listed.is_complete, mask(listed), listed.active_count) == (True, {EOG}, 1)


def test_advancing_tells_whether_a_candidate_still_agrees():
    listed = constraint([1, 2])
    assert [listed.advance(1), listed.advance(2), listed.advance(3)] == [True, True, False]


def test_a_mismatch_deactivates_and_still_counts_its_position():
    listed = constraint([1, 2])
    assert not listed.advance(9)
    assert (listed.active_count, listed.position) == (0, 1)
    assert not listed.advance(1)
    assert (listed.active_count, listed.position) == (0, 2)


def test_duplicates_count_each():
    listed = constraint([1, 2], [1, 2], [3])
    assert listed.active_count == 3
    listed.advance(1)
    assert listed.active_count == 2


def test_it_is_complete_exactly_where_all_of_some_active_candidate_was_taken():
    listed = constraint([1, 2], [3])
    assert not listed.is_complete
    listed.advance(1)
    assert not listed.is_complete
    listed.advance(2)
    assert listed.is_complete
    listed.advance(5)
    assert not listed.is_complete


def test_an_end_is_legal_exactly_where_it_is_complete_and_then_changes_nothing():
    listed = constraint([1], [1, 2])
    assert EOG not in mask(listed)
    listed.advance(1)
    assert EOG in mask(listed)
    assert listed.advance(EOG)
    assert (listed.is_complete, listed.active_count, listed.position) == (True, 2, 1)


def test_an_early_end_is_a_mismatch():
    listed = constraint([1])
    assert not listed.advance(EOG)
    assert (listed.active_count, listed.is_complete) == (0, False)


def test_a_trailing_end_in_a_candidate_says_nothing_new():
    listed = constraint([1, EOG])
    listed.advance(1)
    assert (listed.is_complete, mask(listed)) == (True, {EOG})


def test_an_empty_candidate_is_complete_at_once_and_dies_with_the_first_token():
    listed = constraint([], [3])
    assert (listed.is_complete, mask(listed), listed.active_count) == (True, {3, EOG}, 2)
    listed.advance(3)
    assert listed.active_count == 1


@pytest.mark.parametrize(
    ("candidates", "field"),
    [
        ([], "allow_list"),
        ([[1], [2, 50]], "allow_list[1][1]"),
        ([[-1]], "allow_list[0][0]"),
        ([[HOLE]], "allow_list[0][0]"),
        ([[EOG, 1]], "allow_list[0][0]"),
    ],
    ids=["empty list", "past the width", "negative", "hole", "end within"],
)
def test_candidates_that_no_text_can_be_are_refused_at_construction(candidates, field):
    with pytest.raises(InvalidField) as caught:
        AllowListConstraint(candidates, VOCABULARY)
    assert caught.value.metadata["field"] == field


def test_reset_makes_all_candidates_active_again_at_the_first_position():
    listed = constraint([1, 2], [3])
    listed.advance(1)
    listed.reset()
    assert (listed.active_count, listed.position, mask(listed), listed.is_complete) == (2, 0, {1, 3}, False)


def test_it_has_a_name_for_people():
    assert constraint([1]).name == "allow-list"
