"""Records of steps as nearly all are: read alone or many at once they come to the same log as field by field."""

import math
import struct

import numpy as np
import pytest

from constraintd.errors import InvalidEnvelope
from constraintd.sampler.config import SamplerConfig
from constraintd.sampler.settings import Settings
from constraintd.session.events import Accepted, Opened, SessionSettings
from constraintd.session.log import Log
from constraintd.session.records import Origin, log_of, record_of
from constraintd.session.step_records import OTHER, WITH_ONE_PASS, WITHOUT_PASSES, read_step, read_steps
from tests.plain_daemon import BYTES

SETTINGS = SessionSettings(Settings(BYTES, SamplerConfig()))
ORIGIN = Origin("v", b"", b"")


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


GOOD = {
    b"\2\1\x05" + bits(1.5) + b"\0": (5, 1.5, False),
    b"\2\1\x05" + bits(0.0) + b"\1\1": (5, 0.0, True),
    b"\2\1\x80\1" + bits(0.25) + b"\1\1": (128, 0.25, True),
    b"\2\1\xff\x7f" + bits(2.0) + b"\0": (16383, 2.0, False),
    b"\2\1\x80\x80\1" + bits(2.0) + b"\1\1": (16384, 2.0, True),
    b"\2\1\xff\xff\x02" + bits(2.0) + b"\0": (49151, 2.0, False),
    b"\2\1\xff\xff\x7f" + bits(2.0) + b"\0": (2097151, 2.0, False),
}
BAD = {
    "empty": b"",
    "another kind": b"\3\1\x05" + bits(1.5) + b"\0",
    "two tokens": b"\2\2\5\6" + bits(1.0) + bits(1.0) + b"\0",
    "a longer token": b"\2\1\x80\x80\x80\1" + bits(1.0) + b"\0",
    "a token not in its shortest form": b"\2\1\x85\0" + bits(1.5) + b"\0",
    "the same in three bytes": b"\2\1\x85\x80\0" + bits(1.5) + b"\0",
    "negative": b"\2\1\x05" + bits(-1.0) + b"\0",
    "not a number": b"\2\1\x05" + bits(math.nan) + b"\0",
    "infinite": b"\2\1\x05" + bits(math.inf) + b"\0",
    "past a float32": b"\2\1\x05" + bits(1e39) + b"\0",
    "a pass of two": b"\2\1\x05" + bits(1.5) + b"\1\2",
    "two passes": b"\2\1\x05" + bits(1.5) + b"\2\1\1",
    "cut off": b"\2\1\x05" + bits(1.5),
    "left over": b"\2\1\x05" + bits(1.5) + b"\0\0",
    "left over behind a pass": b"\2\1\x05" + bits(1.5) + b"\1\1\0",
}


@pytest.mark.parametrize("record", GOOD)
def test_a_step_of_one_token_is_read(record):
    assert read_step(record) == GOOD[record]


@pytest.mark.parametrize("why", BAD)
def test_whatever_else_there_is_is_left_to_the_reader_of_fields(why):
    assert read_step(BAD[why]) is None


def test_many_are_read_as_each_alone():
    records = [*GOOD, *BAD.values(), *GOOD]
    steps = read_steps(records)
    expected = [WITH_ONE_PASS if one_pass else WITHOUT_PASSES for _, _, one_pass in GOOD.values()]
    assert steps.kinds.tolist() == [*expected, *[OTHER] * len(BAD), *expected]
    good = np.flatnonzero(steps.kinds != OTHER)
    assert steps.tokens[good].tolist() == [token for token, _, _ in GOOD.values()] * 2
    assert steps.surprisals[good].tolist() == [surprisal for _, surprisal, _ in GOOD.values()] * 2


def test_a_run_ends_where_the_kind_changes():
    without, with_one, *_ = GOOD
    steps = read_steps([without, without, with_one, with_one, with_one])
    assert [steps.end_of_run(at) for at in range(5)] == [2, 2, 5, 5, 5]


def events(passes):
    steps = [Accepted((n * 997 % 49152,), (n / 8,), each) for n, each in enumerate(passes)]
    return [Opened(SETTINGS, (1, 2, 3), 7), *steps]


@pytest.mark.parametrize(
    "passes",
    [
        [(3,), *[(1,)] * 199],
        [()] * 200,
        [(3,), *[(1,)] * 80, *[()] * 50, (2, 132), *[(1,)] * 68],
        [(3,), *[(1,)] * 80, (81, 1, 2), *[(1,)] * 118],
        [(3,), *[(1,), ()] * 100][:100],
    ],
    ids=["one pass each", "none", "a break and a takeover", "fed anew", "broken off time and again"],
)
def test_a_long_log_is_what_its_events_come_to_one_by_one(passes):
    expected = Log()
    kept = []
    for event in events(passes):
        try:
            record = record_of(event, ORIGIN)
            log_of([*kept, record], lambda _ref, _prompt: SETTINGS)
        except InvalidEnvelope:
            continue  # a report that can't be
        kept.append(record)
        expected.apply(event)
    assert len(kept) > 50
    log = log_of(kept, lambda _ref, _prompt: SETTINGS)
    assert (log.tokens, log.surprisals) == (expected.tokens, expected.surprisals)
    assert (log.passes.lengths, log.passes.fed) == (expected.passes.lengths, expected.passes.fed)
    assert (log.version, log.last_step, log.position) == (expected.version, expected.last_step, expected.position)


def test_a_pass_that_is_not_all_that_was_due_is_refused_in_a_long_log():
    records = [record_of(event, ORIGIN) for event in events([(3,), *[(1,)] * 80, (), *[(1,)] * 80])]
    with pytest.raises(InvalidEnvelope, match="forward passes don't come to the tokens before them"):
        log_of(records, lambda _ref, _prompt: SETTINGS)
