"""The record of forward passes: what a report replaces, and what is refused."""

import pytest

from constraintd.errors import InvalidField
from constraintd.session.passes import Passes


def lengths(passes):
    return passes.lengths.tolist()


def test_reports_add_up_to_what_was_fed():
    passes = Passes()
    passes.report([5, 3], due=8)
    passes.report([1], due=9)
    assert (lengths(passes), passes.fed) == ([5, 3, 1], 9)


def test_a_takeover_reports_everything_and_replaces_all():
    passes = Passes([5, 3, 1, 1])
    passes.report([10], due=10)
    assert (lengths(passes), passes.fed) == ([10], 10)


def test_what_is_fed_again_replaces_what_stood_there():
    passes = Passes([5, 3, 1])
    passes.report([2, 1], due=9)
    assert (lengths(passes), passes.fed) == ([5, 1, 2, 1], 9)


def test_a_cut_across_a_pass_shortens_it():
    passes = Passes([5, 3])
    passes.cut(6)
    assert (lengths(passes), passes.fed) == ([5, 1], 6)
    passes.cut(0)
    assert (lengths(passes), passes.fed) == ([], 0)


def test_a_step_without_a_report_breaks_the_record_off_until_a_whole_one_comes():
    passes = Passes([5])
    passes.report([], due=6)
    assert passes.fed == 0
    with pytest.raises(InvalidField, match="they come to 1 tokens; 7 were fed since the last report, 7 in all"):
        passes.checked([1], due=7)
    passes.checked([7], due=7)


@pytest.mark.parametrize("report", [[10], [1], [3, 0], [9, 1]])
def test_reports_that_cannot_be_true_are_refused(report):
    with pytest.raises(InvalidField, match="passes: "):
        Passes([5]).checked(report, due=8)


def test_a_copy_goes_on_independently():
    passes = Passes([5])
    twin = passes.copy()
    twin.report([1], due=6)
    assert (passes.fed, twin.fed) == (5, 6)
