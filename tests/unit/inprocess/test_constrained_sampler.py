"""ConstrainedSampler: ask the constraint, mask, let the inner sampler pick, record; in this order, and whole or not."""

import numpy as np
import pytest

from constraintd.inprocess import BrokenSampler, ConstrainedSampler, MatcherConstraint, NoTokenAllowed
from tests.unit.inprocess.toy import EOG, VOCABULARY, WIDTH, Softmax, flat, greedy, liking, regex


class Allows:
    """A constraint that gives what it was made with, and writes down what it was asked."""

    def __init__(self, allowed):
        self.answer = allowed
        self.asked = []

    def allowed(self, generated):
        self.asked.append(tuple(generated))
        return self.answer


def over(pattern, inner=greedy):
    return ConstrainedSampler(MatcherConstraint.of_grammar(regex(pattern), VOCABULARY), inner)


def test_it_reads_the_history_asks_the_constraint_masks_samples_and_records_in_this_order():
    events = []

    class Watched:
        def allowed(self, generated):
            events.append(("asked behind", generated))
            return [7, 9]

    def inner(row):
        events.append(("sampled with", set(np.flatnonzero(~np.isneginf(row)).tolist()), sampler.generated))
        return 9

    sampler = ConstrainedSampler(Watched(), inner)
    sampler.try_sample(flat())
    sampler.try_sample(flat())
    assert events == [
        ("asked behind", ()),
        ("sampled with", {7, 9}, ()),
        ("asked behind", (9,)),
        ("sampled with", {7, 9}, (9,)),
    ]


def test_the_inner_sampler_sees_minus_infinity_where_the_constraint_forbids_and_the_raw_logits_elsewhere():
    seen = []
    row = np.arange(WIDTH, dtype=np.float32)
    ConstrainedSampler(Allows([3, 5]), lambda masked: seen.append(masked.copy()) or 5).try_sample(row)
    assert seen[0][3] == 3.0
    assert seen[0][5] == 5.0
    assert np.isneginf(np.delete(seen[0], [3, 5])).all()


def test_greedy_takes_the_best_legal_token_where_the_best_of_all_is_forbidden():
    assert over("[xy]z").try_sample(liking(ord("q"), ord("y"), ord("x"))) == ord("y")


def test_an_inner_sampler_that_draws_never_picks_a_forbidden_token():
    likes_the_rest = flat()
    likes_the_rest[ord("d") :] = 50.0
    picked = {over("[abc]", Softmax(seed)).try_sample(likes_the_rest) for seed in range(200)}
    assert picked == {ord("a"), ord("b"), ord("c")}


def test_an_inner_top_k_truncates_what_is_legal_and_never_what_is_not():
    def top_1(row):
        (kept,) = np.argsort(-row, kind="stable")[:1]
        return int(kept)

    assert over("z", top_1).try_sample(liking(ord("a"), ord("b"))) == ord("z")


@pytest.mark.parametrize("inner", [greedy, Softmax(1), type("Numpy", (), {"sample": lambda self, row: row.argmax()})()])
def test_functions_and_objects_with_sample_are_inner_samplers(inner):
    token = over("a", inner).try_sample(flat())
    assert (token, type(token)) == (ord("a"), int)


def test_what_can_not_pick_is_no_inner_sampler():
    with pytest.raises(TypeError, match="inner sampler is int"):
        ConstrainedSampler(Allows([1]), 5)


def test_the_caller_s_row_stays_as_it_is_even_if_the_inner_sampler_writes_to_its_own():
    def scribbles(row):
        row[:] = 1.0
        return 3

    row = liking(4)
    ConstrainedSampler(Allows([3]), scribbles).try_sample(row)
    assert row.tolist() == liking(4).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_keep_their_precision(dtype):
    seen = []
    ConstrainedSampler(Allows([3]), lambda row: seen.append(row.dtype) or 3).try_sample(flat(dtype))
    assert seen == [dtype]


@pytest.mark.parametrize(
    "row", [np.zeros((1, WIDTH), np.float32), np.zeros(WIDTH, np.int64), [0.0] * WIDTH], ids=["two axes", "ids", "list"]
)
def test_what_is_not_one_row_of_floats_is_refused(row):
    with pytest.raises(ValueError, match="expected one row"):
        ConstrainedSampler(Allows([3]), greedy).try_sample(row)


def test_generated_is_every_token_that_was_picked_an_eog_included():
    sampler = over("ab?")
    assert sampler.generated == ()
    sampler.try_sample(liking(ord("a")))
    sampler.try_sample(liking(EOG))
    assert sampler.generated == (ord("a"), EOG)


def test_reset_forgets_the_history_and_the_constraint_begins_again():
    sampler = over("ab")
    sampler.try_sample(flat())
    assert sampler.try_sample(flat()) == ord("b")
    sampler.reset()
    assert sampler.generated == ()
    assert sampler.try_sample(flat()) == ord("a")


def test_a_dead_end_is_an_error_that_leaves_the_history_unchanged():
    sampler = ConstrainedSampler(Allows([5]), greedy)
    sampler.try_sample(flat())
    sampler.constraint = Allows([])
    with pytest.raises(NoTokenAllowed, match="none of the row's 270 ids at position 1"):
        sampler.try_sample(flat())
    assert sampler.generated == (5,)


def test_after_a_dead_end_the_caller_may_go_on_with_a_wider_constraint():
    narrow, wide = regex("ab"), regex("a[bc]")
    sampler = ConstrainedSampler(MatcherConstraint.of_grammar(narrow, VOCABULARY), greedy)
    sampler.try_sample(flat())
    row = np.full(WIDTH, -np.inf, np.float32)
    row[ord("c")] = 1.0  # all that the model would say
    with pytest.raises(NoTokenAllowed, match="the logits of all 1 tokens that the constraint allows"):
        sampler.try_sample(row)
    sampler.constraint = MatcherConstraint.of_grammar(wide, VOCABULARY)
    assert sampler.try_sample(row) == ord("c")
    assert sampler.generated == (ord("a"), ord("c"))


def test_a_logit_that_is_minus_infinity_already_stays_forbidden():
    row = liking(ord("a"))
    row[ord("a")] = -np.inf
    assert over("[ab]").try_sample(row) == ord("b")


def test_ids_past_the_mask_s_end_are_forbidden():
    short = np.ones(100, dtype=np.bool_)
    assert ConstrainedSampler(Allows(short), greedy).try_sample(liking(200, 99)) == 99


def test_allowed_ids_outside_of_the_row_name_nothing():
    with pytest.raises(NoTokenAllowed):
        ConstrainedSampler(Allows([-1, WIDTH, 10**9]), greedy).try_sample(flat())


@pytest.mark.parametrize(
    "allowed", [[4], (4,), {4}, frozenset({4}), np.array([4]), [False] * 4 + [True]], ids=lambda a: type(a).__name__
)
def test_a_constraint_may_answer_with_ids_or_with_a_mask(allowed):
    assert ConstrainedSampler(Allows(allowed), greedy).try_sample(liking(5)) == 4


@pytest.mark.parametrize("answer", [None, [1.5], "all", [[True]]], ids=repr)
def test_an_answer_that_is_neither_ids_nor_a_mask_is_never_read_as_everything(answer):
    with pytest.raises(TypeError, match="expected a mask of bools, or ids"):
        ConstrainedSampler(Allows(answer), greedy).try_sample(flat())


@pytest.mark.parametrize("picked", [6, -1, WIDTH])
def test_an_inner_sampler_that_picks_a_forbidden_token_is_broken_and_nothing_is_recorded(picked):
    sampler = ConstrainedSampler(Allows([5]), lambda row: picked)
    with pytest.raises(BrokenSampler, match=f"picked {picked}, which is not among the 1 tokens"):
        sampler.try_sample(flat())
    assert sampler.generated == ()


def test_what_the_inner_sampler_raises_goes_through_and_nothing_is_recorded():
    def fails(row):
        raise ArithmeticError("no")

    sampler = ConstrainedSampler(Allows([5]), fails)
    with pytest.raises(ArithmeticError):
        sampler.try_sample(flat())
    assert sampler.generated == ()
