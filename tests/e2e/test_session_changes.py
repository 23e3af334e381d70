"""Updates, rollbacks, forks, takeovers, exports: against a real daemon, through the client."""

import contextlib
import os

import numpy as np
import pytest
from constraintd_client import (
    ConstraintClient,
    all_of,
    allowed_ids,
    json_schema,
    regex,
    sampler_config,
    sampler_preset,
    token_length,
)
from constraintd_client.errors import (
    AlreadyExists,
    InvalidEnvelope,
    InvalidField,
    PositionGap,
    SessionFinished,
    StaleEpoch,
    StalePosition,
    UnknownSession,
    UnknownVocabulary,
)

from constraintd.v1 import sampler_pb2
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH, daemon_process


@pytest.fixture
def client(daemon):
    with ConstraintClient(daemon) as client:
        yield client


def register(client):
    found = client.register_vocabulary("token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG])
    return found.vocabulary_id


def take(client, session, text):
    for byte in text:
        client.step(session, [byte], [1.0])


def legal(session):
    return set(allowed_ids(session.directive.mask).tolist())


def text_of(client, session):
    return bytes(client.get_session(session.session_id).tokens)


# --- updates ---


def test_a_dead_end_is_widened_and_the_history_stays(client):
    narrow = all_of(regex("ab"), regex("a[xy]"))
    session = client.open_session(register(client), narrow)
    take(client, session, b"a")
    assert session.directive.no_token_allowed is not None
    client.update_session(session, constraint=all_of(regex("ab|ac"), regex("a[xyc]")))
    # Both are new: they begin where the session stands, behind the "a".
    assert legal(session) == {ord("a"), 262}
    assert (session.position, text_of(client, session)) == (1, b"a")


def test_a_grammar_that_stays_goes_on_where_it_stands(client):
    session = client.open_session(register(client), all_of(regex("ab"), regex("a[xy]")))
    take(client, session, b"a")
    client.update_session(session, constraint=regex("ab"))
    assert legal(session) == {ord("b")}
    take(client, session, b"b")
    assert session.directive.finish.reason == "GRAMMAR_EXHAUSTED"


def test_a_new_turn_begins_every_constraint_anew_and_goes_on_after_a_finish(client):
    session = client.open_session(register(client), json_schema({"enum": [1]}), prompt_tokens=[1, 2])
    take(client, session, b"1")
    assert session.directive.finish.schema_satisfied
    client.update_session(session, new_turn=[3, 4, 5])
    assert ord("1") in legal(session)
    take(client, session, b"1")
    finish = session.directive.finish
    assert (finish.reason, finish.cut_offset, finish.schema_satisfied) == ("GRAMMAR_EXHAUSTED", 2, True)
    known = client.get_session(session.session_id).session
    assert (known.prompt_length, known.turn_position, known.position) == (5, 1, 2)


def test_a_terminal_token_ends_the_turn_for_good(client):
    session = client.open_session(register(client), regex("a*"))
    client.step(session, [EOG], [1.0])
    with pytest.raises(SessionFinished, match="begin a new turn, or roll back"):
        client.update_session(session, sampler=sampler_config())
    client.update_session(session, new_turn=[])
    assert EOG in legal(session)


def test_a_length_finish_goes_on_under_a_larger_bound(client):
    session = client.open_session(register(client), regex("a*"), sampler=sampler_config(max_tokens=1))
    take(client, session, b"a")
    assert session.directive.finish.reason == "LENGTH"
    client.update_session(session, sampler=sampler_config(max_tokens=2))
    take(client, session, b"a")
    assert session.directive.finish.reason == "LENGTH"


def test_bounds_count_the_tokens_of_the_turn(client):
    session = client.open_session(register(client), all_of(regex("a*"), token_length(max=2)))
    take(client, session, b"aa")
    assert session.directive.finish.reason == "LENGTH"
    client.update_session(session, new_turn=[])
    take(client, session, b"a")
    assert session.directive.finish is None


def test_a_seed_counts_at_an_update_in_a_presets_words_too(client):
    session = client.open_session(register(client), regex("a*"))
    take(client, session, b"a")
    client.update_session(session, sampler=sampler_preset("openai", {"seed": 7}))
    assert session.seed == 7
    take(client, session, b"a")
    # It is the caller's from there on: a rollback to that place keeps it.
    client.rollback_session(session, 1)
    assert session.seed == 7


def test_a_repeated_change_gets_its_first_answer(client):
    session = client.open_session(register(client), regex("a*"))
    take(client, session, b"aa")
    request_id = os.urandom(16)
    before = (session.epoch, session.directive)
    client.rollback_session(session, 1, request_id=request_id)
    first = (session.epoch, session.seed)
    session.epoch, session.directive = before
    client.rollback_session(session, 1, request_id=request_id)
    assert (session.epoch, session.seed) == first
    session.epoch, session.directive = before
    with pytest.raises(InvalidField, match="was used for a different request"):
        client.rollback_session(session, 0, request_id=request_id)


def test_changes_from_another_place_are_refused(client):
    session = client.open_session(register(client), regex("a*"))
    stale = client.open_session(session_id=session.session_id, vocabulary_id=register(client), constraint=regex("a*"))
    take(client, session, b"a")
    with pytest.raises(StalePosition):
        client.rollback_session(stale, 0)
    ahead = client.resume_session(session.session_id).session
    with pytest.raises(StaleEpoch):
        client.update_session(session, new_turn=[])
    client.rollback_session(ahead, 0)
    with pytest.raises(InvalidField, match="past the session's position"):
        client.rollback_session(ahead, 5)
    take(client, ahead, b"aa")
    epoch = ahead.epoch
    client.rollback_session(ahead, 0)
    late = client.resume_session(ahead.session_id).session
    late.directive = stale.directive
    assert late.epoch != epoch
    with pytest.raises(PositionGap):
        object.__setattr__(late.directive, "position", 7)
        client.rollback_session(late, 0)


# --- rollback ---


def test_a_seeded_session_draws_the_same_again_after_a_rollback(client):
    session = client.open_session(register(client), regex("[ab]*"), sampler=sampler_config(seed=5))
    draws = [session.directive.draw]
    for _ in range(3):
        take(client, session, b"a")
        draws.append(session.directive.draw)
    client.rollback_session(session, 1)
    assert session.directive.draw == draws[1]
    take(client, session, b"b")
    assert session.directive.draw == draws[2]
    assert text_of(client, session) == b"ab"


def test_an_unseeded_session_draws_anew_after_a_rollback(client):
    session = client.open_session(register(client), regex("[ab]*"))
    seed, draw = session.seed, session.directive.draw
    take(client, session, b"a")
    client.rollback_session(session, 0)
    assert session.seed != seed
    assert session.directive.draw != draw
    client.rollback_session(session, 0, seed=seed)
    assert session.directive.draw == draw


def test_a_rollback_undoes_a_finish_and_later_updates(client):
    session = client.open_session(register(client), regex("ab"))
    take(client, session, b"a")
    client.update_session(session, constraint=regex("xyz"))
    take(client, session, b"xyz")
    assert session.directive.finish is not None
    client.rollback_session(session, 0)
    assert legal(session) == {ord("a"), 261, 262}


# --- forks ---


def test_a_fork_shares_the_past_and_leaves_its_parent_alone(client):
    parent = client.open_session(register(client), regex("[ab]*c"), sampler=sampler_config(seed=5))
    take(client, parent, b"ab")
    before = client.get_session(parent.session_id)
    child = client.fork_session(parent.session_id, 1)
    assert (child.position, child.seed) == (1, 5)
    take(client, child, b"c")
    assert child.directive.finish.reason == "GRAMMAR_EXHAUSTED"
    after = client.get_session(parent.session_id)
    before.session.idle_ms = after.session.idle_ms = 0
    assert before == after
    take(client, parent, b"a")
    assert text_of(client, parent) == b"aba"


def test_a_new_seed_in_a_fork_changes_only_the_draws(client):
    parent = client.open_session(register(client), regex("[ab]*"), sampler=sampler_config(seed=5))
    take(client, parent, b"ab")
    same, other = (client.fork_session(parent.session_id, 2, seed=seed) for seed in (None, 6))
    assert same.directive.draw == parent.directive.draw != other.directive.draw
    assert np.array_equal(same.directive.mask, other.directive.mask)


def test_forking_twice_is_one_fork(client):
    parent = client.open_session(register(client), regex("[ab]*"))
    new_id = os.urandom(16)
    one = client.fork_session(parent.session_id, 0, new_session_id=new_id)
    assert client.fork_session(parent.session_id, 0, new_session_id=new_id).epoch == one.epoch
    with pytest.raises(AlreadyExists):
        client.fork_session(parent.session_id, 0, new_session_id=new_id, seed=1)
    with pytest.raises(InvalidField, match="past the session's position 0"):
        client.fork_session(parent.session_id, 1)


# --- takeover ---


def test_a_takeover_fences_off_the_runner_before_and_gives_all_that_it_had(client):
    session = client.open_session(register(client), regex("[ab]*"), prompt_tokens=[7, 8, 9])
    client.step(session, [97], [0.5], passes=[2, 1])
    client.step(session, [98], [0.25], passes=[1])
    client.update_session(session, new_turn=[5])
    resumed = client.resume_session(session.session_id)
    assert resumed.model_input() == [7, 8, 9, 97, 98, 5]
    assert (resumed.tokens, resumed.passes) == ((97, 98), (2, 1, 1))
    assert [(turn.position, turn.prompt_tokens) for turn in resumed.turns] == [(0, (7, 8, 9)), (2, (5,))]
    assert resumed.session.directive.draw == session.directive.draw
    assert np.array_equal(resumed.session.directive.mask, session.directive.mask)
    with pytest.raises(StaleEpoch):
        client.step(session, [97], [1.0])
    client.step(resumed.session, [97], [1.0], passes=[6])
    assert client.resume_session(session.session_id).passes == (6,)


def test_passes_that_do_not_add_up_are_refused(client):
    session = client.open_session(register(client), regex("[ab]*"), prompt_tokens=[7, 8, 9])
    with pytest.raises(InvalidField, match="passes: they come to 2"):
        client.step(session, [97], [0.5], passes=[2])
    client.step(session, [97], [0.5], passes=[3])


def test_nobody_takes_over_what_is_not_there(client):
    with pytest.raises(UnknownSession):
        client.resume_session(os.urandom(16))
    with pytest.raises(InvalidField, match="16 random ones"):
        client.resume_session(b"short")


# --- export and import ---


@contextlib.contextmanager
def another_daemon():
    with daemon_process() as address, ConstraintClient(address) as client:
        yield client


def test_an_imported_session_goes_on_in_a_fresh_daemon_as_it_would_have(client):
    sampler = sampler_pb2.SamplerConfig(
        seed=3,
        stages=[{"mirostat_v2": {}}],
        ngram_penalty={"window": 16, "max_count": 0.5, "ignored": {}},
    )
    session = client.open_session(register(client), regex("(a|b|ab)*"), sampler=sampler, prompt_tokens=[97, 98, 97])
    take(client, session, b"abab")
    envelope = client.export_session(session.session_id)
    with another_daemon() as other:
        with pytest.raises(UnknownVocabulary):
            other.import_session(envelope)
        register(other)
        moved = other.import_session(envelope)
        assert other.export_session(moved.session_id) == envelope
        for byte in b"aab":
            assert moved.directive.draw == session.directive.draw
            assert moved.directive.mu == session.directive.mu
            assert np.array_equal(moved.directive.mask, session.directive.mask)
            assert moved.directive.adjustments.ids.tolist() == session.directive.adjustments.ids.tolist()
            assert moved.directive.adjustments.scales.tolist() == session.directive.adjustments.scales.tolist()
            assert moved.directive.adjustments.offsets.tolist() == session.directive.adjustments.offsets.tolist()
            take(client, session, [byte])
            take(other, moved, [byte])
        assert other.export_session(moved.session_id) == client.export_session(session.session_id)


def test_a_compiled_grammar_travels_with_the_session_that_names_it_by_id(client):
    vocabulary_id = register(client)
    grammar_id = client.compile_grammar(vocabulary_id, regex("only (here)+"))
    session = client.open_session(vocabulary_id, grammar_id)
    take(client, session, b"only ")
    envelope = client.export_session(session.session_id)
    with another_daemon() as other:
        register(other)
        assert legal(other.import_session(envelope)) == {ord("h")}


def test_importing_twice_is_one_session_and_never_overwrites_another(client):
    session = client.open_session(register(client), regex("a*"))
    envelope = client.export_session(session.session_id)
    with pytest.raises(AlreadyExists):
        client.import_session(envelope)
    client.close_session(session.session_id)
    one = client.import_session(envelope)
    take(client, one, b"a")
    assert client.import_session(envelope).position == 1


@pytest.fixture
def envelope(client):
    session = client.open_session(register(client), regex("a*"), sampler=sampler_config(seed=1))
    take(client, session, b"aa")
    data = client.export_session(session.session_id)
    client.close_session(session.session_id)
    return data


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"", "not an exported session"),
        (lambda data: data[:40], "not an exported session"),
        (lambda data: b"x" + data[1:], "not an exported session"),
        (lambda data: data[:16] + b"\x02\x00" + data[18:], "version 2; this daemon reads version 1"),
        (lambda data: data[:-1], "its hash is not that of its contents"),
        (lambda data: data + b"\0", "its hash is not that of its contents"),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "its hash is not that of its contents"),
    ],
    ids=["empty", "header alone", "magic", "version", "cut off", "longer", "a bit"],
)
def test_a_damaged_envelope_is_refused_with_its_reason(client, envelope, damage, says):
    with pytest.raises(InvalidEnvelope, match=says):
        client.import_session(damage(envelope))
    assert client.import_session(envelope).position == 2
