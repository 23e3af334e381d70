"""What an import refuses though its hash is right: whoever alters an envelope can write the hash anew."""

import hashlib
import random
from dataclasses import replace

import pytest

from constraintd.encoding import Writer
from constraintd.envelope import pack, unpack
from constraintd.errors import ConstraintdError, InvalidEnvelope, ReplayDiverged
from constraintd.v1 import grammar_pb2, sampler_pb2, session_pb2
from tests.plain_daemon import PlainDaemon

HEADER = 16 + 2 + 32
SAMPLER = sampler_pb2.SamplerConfig(
    stages=[{"mirostat_v2": {}}],
    window_penalty={"repetition": 1.2},
    ngram_penalty={"window": 16, "max_count": 0.5},
    stop_strings=[b"zz"],
)


@pytest.fixture(scope="module")
def daemon():
    daemon = PlainDaemon()
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def envelope(daemon):
    """Of a session with a rollback, another constraint and a second turn behind it."""
    letters = session_pb2.Constraint(grammar=grammar_pb2.Grammar(regex=b"[a-z ]*"))
    session = daemon.open(letters, prompt_tokens=[97, 98], sampler=SAMPLER)
    for index, token in enumerate(b"abcabcab"):
        daemon.step(session, [token], [1.0], [1] if index else [2])
    daemon.rollback(session, 5)
    daemon.update(session, constraint=session_pb2.Constraint(grammar=grammar_pb2.Grammar(regex=b"[ab]*")))
    daemon.step(session, [97], [0.5])
    daemon.update(session, new_turn={"prompt_tokens": [1, 2]})
    daemon.step(session, [97], [0.5])
    data = daemon.export(session)
    daemon.close_session(session)
    return data


def sealed(payload):
    """A header with the right hash before the payload."""
    return b"constraintd sess\x01\x00" + hashlib.sha256(payload).digest() + payload


def refused(daemon, data, kind=InvalidEnvelope):
    with pytest.raises(kind) as caught:
        daemon.import_(data)
    return caught.value.message


def accepted(*tokens, surprisal=0.5):
    """The record of a step, as any program might write it."""
    writer = Writer()
    writer.unsigned(2)
    writer.numbers(tokens)
    for _ in tokens:
        writer.float(surprisal)
    writer.numbers([])
    return writer.getvalue()


def test_a_blob_that_nothing_names_is_refused(daemon, envelope):
    held = unpack(envelope)
    more = replace(held, blobs={**held.blobs, hashlib.sha256(b"more").digest(): b"more"})
    assert "holds more" in refused(daemon, pack(more))


def test_the_same_log_in_other_words_is_refused(daemon, envelope):
    held = unpack(envelope)
    last = max(index for index, record in enumerate(held.records) if record[0] == 2)
    assert held.records[last] == accepted(97)
    # A surprisal that no float32 is: it reads as the one that was there.
    altered = (*held.records[:last], accepted(97, surprisal=0.5 + 2**-40), *held.records[last + 1 :])
    assert "in another way" in refused(daemon, pack(replace(held, records=altered)))


def test_a_token_more_than_the_state_knows_is_refused(daemon, envelope):
    held = unpack(envelope)
    last = max(index for index, record in enumerate(held.records) if record[0] == 2)
    longer = (*held.records[: last + 1], accepted(98), *held.records[last + 1 :])
    assert "another state" in refused(daemon, pack(replace(held, records=longer)), ReplayDiverged)
    illegal = (*held.records[: last + 1], accepted(122), *held.records[last + 1 :])
    assert "token 122 at position 7 is refused" in refused(daemon, pack(replace(held, records=illegal)), ReplayDiverged)


def test_whatever_is_altered_is_refused_with_a_typed_error_or_is_another_whole_session(daemon, envelope):
    payload = envelope[HEADER:]
    generator = random.Random(11)
    imported = 0
    for _ in range(300):
        altered = bytearray(payload)
        at = generator.randrange(len(altered))
        how = generator.randrange(4)
        if how == 0:
            altered[at] = generator.randrange(256)
        elif how == 1:
            altered[at] ^= 1 << generator.randrange(8)
        elif how == 2:
            del altered[at : at + generator.randrange(1, 9)]
        else:
            altered[at:at] = generator.randbytes(generator.randrange(1, 9))
        data = sealed(bytes(altered))
        try:
            session = daemon.import_(data)
        except ConstraintdError:
            continue
        imported += 1
        assert daemon.export(session) == data
        daemon.close_session(session)
    assert imported < 30
