"""A waiting child goes through its work once, until its grammar comes."""

from itertools import count

import pytest

from constraintd.grammar.engines import Engines
from constraintd.grammar.sandbox_probe import Prober
from constraintd.grammar.sandbox_rehearsal import rehearse
from constraintd.vocabulary.vocabulary import build_vocabulary


class CountingProber(Prober):
    """Counts the walks."""

    walks = 0

    def walk(self, grammar, *, steps, enough_seconds):
        self.walks += 1
        return super().walk(grammar, steps=steps, enough_seconds=enough_seconds)


@pytest.fixture
def prober(vocabulary):
    return CountingProber(vocabulary)


def test_nobody_wants_it_so_it_probes_both_schemas(vocabulary, prober):
    rehearse(Engines(vocabulary), prober, lambda: False)
    assert prober.walks == 2


@pytest.mark.parametrize(("asked", "walks"), [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1), (7, 2)])
def test_it_stops_at_the_next_part_once_it_is_wanted(vocabulary, prober, asked, walks):
    calls = count(1)
    rehearse(Engines(vocabulary), prober, lambda: next(calls) == asked)
    assert (prober.walks, next(calls)) == (walks, asked + 1)


def test_a_vocabulary_that_can_write_no_json_is_no_error():
    vocabulary = build_vocabulary([b"a", b"b", b""], {2: "<end>"}, eog_ids=[2], logits_width=3)
    prober = CountingProber(vocabulary)
    rehearse(Engines(vocabulary), prober, lambda: False)
    assert prober.walks == 0
