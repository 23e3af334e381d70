"""Faults of other engines from public reports, where one client did harm to others; see test_bug_reports.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from constraintd_client import ConstraintClient, Grammar, InvalidGrammar, allowed_ids, json_schema, regex

from tests.daemon_process import EOG, SECOND_EOG, WIDTH

BAD_REGEXES = ["[", "(", "a{2,1}", "(?P<x", "[z-a]", "a)", "*a", "foo**"]
BAD_SCHEMAS = ['{"type": "object"', '{"type": "objekt"}', "[]", '"object"', '{"type": 5}', '{"properties": []}', ""]


def legal(session):
    return allowed_ids(session.directive.mask).tolist()


@pytest.mark.parametrize(
    "grammar",
    [*map(regex, BAD_REGEXES), *map(json_schema, BAD_SCHEMAS)],
    ids=[*(f"bug-037, 038 {pattern}" for pattern in BAD_REGEXES), *(f"bug-055 {schema}" for schema in BAD_SCHEMAS)],
)
def test_a_bad_grammar_is_refused_with_place_and_reason_and_other_sessions_go_on(client, byte_vocabulary, grammar):
    other = client.open_session(byte_vocabulary, regex("ab"))
    client.step(other, [ord("a")], [1.0])
    with pytest.raises(InvalidGrammar) as refused:
        client.open_session(byte_vocabulary, grammar)
    assert "location" in refused.value.metadata
    assert refused.value.message
    assert client.step(other, [ord("b")], [1.0]).finish.reason == "GRAMMAR_EXHAUSTED"


def grammar_of(index: int) -> Grammar:
    """One of eight schemas, each with a name of its own."""
    properties = {f"name{index}": {"type": "array", "items": {"type": "integer", "maximum": 10 * index + 9}}}
    schema = {"type": "object", "properties": properties, "required": [f"name{index}"], "additionalProperties": False}
    return json_schema(schema)


def text_of(index: int) -> bytes:
    return f'{{"name{index}": [{index}, {10 * index + 9}]'.encode()


def test_bug_052_32_sessions_of_8_schemas_have_the_masks_of_lone_ones(daemon, client, byte_vocabulary):
    def masks(index):
        session = client.open_session(byte_vocabulary, grammar_of(index))
        found = [legal(session)]
        for byte in text_of(index):
            client.step(session, [byte], [1.0])
            found.append(legal(session))
        return found

    lone = [masks(index) for index in range(8)]
    assert len({repr(each) for each in lone}) == 8

    def one_client(_):
        """All eight at once, a step of each in turn; True if every mask was the lone session's."""
        with ConstraintClient(daemon) as own:
            running = [own.open_session(byte_vocabulary, grammar_of(index)) for index in range(8)]
            for position in range(len(text_of(7)) + 1):
                for index, session in enumerate(running):
                    if position > len(text_of(index)):
                        continue
                    if position:
                        own.step(session, [text_of(index)[position - 1]], [1.0])
                    if legal(session) != lone[index][position]:
                        return False
        return True

    with ThreadPoolExecutor(4) as clients:
        assert list(clients.map(one_client, range(4))) == [True] * 4


def test_bug_053_a_free_session_between_two_constrained_ones_is_free_and_they_are_not(client, byte_vocabulary):
    kinds = (regex("[ab]{3}"), None, regex("[0-9]{3}"))
    first, free, third = (client.open_session(byte_vocabulary, kind) for kind in kinds)
    with client.decode_stream(byte_vocabulary, WIDTH) as stream:
        stream.send([(first, [ord("b")], [1.0]), (free, [ord("b")], [1.0]), (third, [ord("7")], [1.0])])
        answers = [stream.take(session, 10.0) for session in (first, free, third)]
    masks = [allowed_ids(answer.mask).tolist() for answer in answers]
    assert masks[0] == [ord("a"), ord("b"), 261, 262]  # 261 is "ab", 262 a second "a"
    assert masks[1] == [*range(259), 260, 261, 262]  # 259 is a hole
    assert masks[2] == [*range(ord("0"), ord("9") + 1)]
    assert {EOG, SECOND_EOG} <= set(masks[1])
