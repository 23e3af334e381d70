"""The penalties of a sampler config: each value out of range is refused by its field's name."""

from dataclasses import replace

import pytest

from constraintd.config import Limits
from constraintd.errors import InvalidField, TooLarge
from constraintd.sampler.checks import check_sampler_config
from constraintd.sampler.config import IgnoredNGrams, NGramPenalty, SamplerConfig, WindowPenalty

WIDTH = 10
NAN = float("nan")
INF = float("inf")


def check(*, window=None, ngram=None):
    config = SamplerConfig(window_penalty=window, ngram_penalty=ngram)
    check_sampler_config(config, logits_width=WIDTH, limits=Limits())


def ngram(**values):
    return replace(NGramPenalty(), **values)


def ignoring(**values):
    return replace(NGramPenalty(), ignored=IgnoredNGrams(**values))


@pytest.mark.parametrize(
    "penalty",
    [
        WindowPenalty(),
        WindowPenalty(repetition=5e-324, frequency=-2.0, presence=-2.0, window=1),
        WindowPenalty(repetition=1e308, window=2**32 - 1),
    ],
)
def test_a_window_penalty_at_the_edge_of_its_range_is_taken(penalty):
    check(window=penalty)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"repetition": 0.0}, "repetition"),
        ({"repetition": -1.0}, "repetition"),
        ({"repetition": NAN}, "repetition"),
        ({"repetition": INF}, "repetition"),
        ({"frequency": NAN}, "frequency"),
        ({"frequency": -INF}, "frequency"),
        ({"presence": NAN}, "presence"),
        ({"presence": INF}, "presence"),
        ({"window": 0}, "window"),
    ],
)
def test_a_window_penalty_out_of_range_is_refused_by_its_field(values, field):
    with pytest.raises(InvalidField) as caught:
        check(window=replace(WindowPenalty(), **values))
    assert caught.value.metadata["field"] == f"sampler.window_penalty.{field}"


@pytest.mark.parametrize(
    "penalty",
    [
        NGramPenalty(),
        ngram(min_size=7, max_size=7),
        ngram(min_size=1, max_size=1, repeat=1e308),
        ngram(frequency=-1.0, presence=-1.0),
        ngram(window=1),
        ngram(window=65_536),
        ngram(decay=1.0, max_count=0.0),
        ignoring(ngrams=((9,), (1,) * 7)),
        ignoring(ngrams=((1,),) * 4096, texts=(b"the",) * 4096),
        ignoring(texts=(b"x" * 1024, "ä".encode())),
        ignoring(sets=()),
    ],
)
def test_an_ngram_penalty_at_the_edge_of_its_range_is_taken(penalty):
    check(ngram=penalty)


@pytest.mark.parametrize(
    ("penalty", "field"),
    [
        (ngram(min_size=0), "min_size"),
        (ngram(min_size=8, max_size=8), "min_size"),
        (ngram(max_size=8), "max_size"),
        (ngram(max_size=0), "max_size"),
        (ngram(min_size=5), "min_size"),
        (ngram(repeat=0.0), "repeat"),
        (ngram(repeat=-1.05), "repeat"),
        (ngram(repeat=NAN), "repeat"),
        (ngram(repeat=INF), "repeat"),
        (ngram(repeat=1e308), "repeat"),
        (ngram(repeat=1e-308), "repeat"),
        (ngram(frequency=NAN), "frequency"),
        (ngram(frequency=INF), "frequency"),
        (ngram(presence=NAN), "presence"),
        (ngram(presence=-INF), "presence"),
        (ngram(window=0), "window"),
        (ngram(window=65_537), "window"),
        (ngram(decay=0.0), "decay"),
        (ngram(decay=1.01), "decay"),
        (ngram(decay=NAN), "decay"),
        (ngram(max_count=-0.5), "max_count"),
        (ngram(max_count=NAN), "max_count"),
        (ngram(max_count=INF), "max_count"),
        (ignoring(ngrams=((1,), ())), "ignored.ngrams[1]"),
        (ignoring(ngrams=((1,) * 8,)), "ignored.ngrams[0]"),
        (ignoring(ngrams=((1,), (2, 10))), "ignored.ngrams[1].ids[1]"),
        (ignoring(texts=(b"the", b"")), "ignored.texts[1]"),
        (ignoring(texts=(b"\xff",)), "ignored.texts[0]"),
    ],
)
def test_an_ngram_penalty_out_of_range_is_refused_by_its_field(penalty, field):
    with pytest.raises(InvalidField) as caught:
        check(ngram=penalty)
    assert caught.value.metadata["field"] == f"sampler.ngram_penalty.{field}"


@pytest.mark.parametrize(
    ("ignored", "field", "limit", "actual"),
    [
        ({"ngrams": ((1,),) * 4097}, "ngrams", "4096", "4097"),
        ({"texts": (b"the",) * 4097}, "texts", "4096", "4097"),
        ({"texts": (b"x" * 1025,)}, "texts[0]", "1024", "1025"),
    ],
)
def test_too_much_to_ignore_is_refused_with_its_limit(ignored, field, limit, actual):
    with pytest.raises(TooLarge) as caught:
        check(ngram=ignoring(**ignored))
    assert caught.value.metadata == {
        "field": f"sampler.ngram_penalty.ignored.{field}",
        "limit": limit,
        "actual": actual,
    }


def test_a_refusal_says_what_was_wrong_and_what_to_do():
    with pytest.raises(InvalidField) as caught:
        check(ngram=ngram(min_size=5, max_size=4))
    assert caught.value.message == ("sampler.ngram_penalty.min_size: 5 is above max_size 4; lower it or raise that")
    with pytest.raises(InvalidField) as caught:
        check(window=WindowPenalty(repetition=0.0))
    assert caught.value.message == (
        "sampler.window_penalty.repetition: 0.0 must be finite and above 0; 1 is no penalty"
    )
