"""The plain table of token bytes and its packed encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraintd.errors import VocabularyError
from constraintd.vocabulary.token_table import (
    TokenEntry,
    TokenKind,
    from_table,
    pack_table,
    pack_vocabulary,
    parse_table,
    read_token_table,
)

TEXT, SPECIAL, UNUSED = TokenKind.TEXT, TokenKind.SPECIAL, TokenKind.UNUSED


def test_entries_come_in_any_order_and_absent_ids_are_holes():
    vocabulary = from_table(
        [TokenEntry(4, SPECIAL, b"</s>"), TokenEntry(0, TEXT, b"\xff"), TokenEntry(2, UNUSED, b"")],
        eog_ids=[4],
    )
    assert vocabulary.token_bytes == (b"\xff", b"", b"", b"", b"")
    assert dict(vocabulary.special) == {4: "</s>"}
    assert vocabulary.encoder is None
    assert vocabulary.real_ids.tolist() == [0b10001]


def test_two_ids_may_have_the_same_bytes():
    vocabulary = from_table([TokenEntry(0, TEXT, b"a"), TokenEntry(1, TEXT, b"a")], eog_ids=[1])
    assert vocabulary.token_bytes == (b"a", b"a")


def test_text_that_spells_a_special_token_is_another_token():
    vocabulary = from_table([TokenEntry(0, TEXT, b"</s>"), TokenEntry(1, SPECIAL, b"</s>")], eog_ids=[1])
    assert vocabulary.token_bytes == (b"</s>", b"")
    assert dict(vocabulary.special) == {1: "</s>"}


@pytest.mark.parametrize(
    ("entries", "location", "problem"),
    [
        ([TokenEntry(0, TEXT, b"a"), TokenEntry(0, TEXT, b"b")], "entry for id 0", "id 0 is listed twice"),
        ([TokenEntry(-1, TEXT, b"a")], "entry for id -1", "id -1 is not in 0..2097151"),
        ([TokenEntry(2**21, TEXT, b"a")], "entry for id 2097152", "id 2097152 is not in 0..2097151"),
        ([TokenEntry(3, UNUSED, b"a")], "entry for id 3", "an unused id has content"),
        ([TokenEntry(3, TEXT, b"")], "entry for id 3", "a text token without content"),
        ([TokenEntry(3, SPECIAL, b"")], "entry for id 3", "a special token without content"),
        ([TokenEntry(3, SPECIAL, b"a\xff")], "entry for id 3", "is not UTF-8 (invalid start byte at byte 1)"),
        ([TokenEntry(3, TEXT, b"a" * 65_537)], "entry for id 3", "a token of 65537 bytes"),
        ([], "token_bytes", "no token of this vocabulary has any bytes"),
    ],
)
def test_a_bad_entry_is_named(entries, location, problem):
    with pytest.raises(VocabularyError) as refused:
        from_table(entries, eog_ids=[0])
    assert refused.value.location == location
    assert problem in refused.value.problem


def test_the_packed_encoding_is_as_documented():
    packed = (
        b"CDTABLE\x01"
        b"\x00\x02\x00\x00\x00\xc3\xa9"  # id 0: text
        b"\x02\x00\x00\x00\x00"  # id 1: unused
        b"\x01\x04\x00\x00\x00</s>"  # id 2: special
    )
    entries = [TokenEntry(0, TEXT, "é".encode()), TokenEntry(1, UNUSED, b""), TokenEntry(2, SPECIAL, b"</s>")]
    assert pack_table([entries[2], entries[0]]) == packed
    assert parse_table(packed) == entries
    assert read_token_table(packed).id_of_spelling == {"</s>": 2}


def test_a_whole_vocabulary_packs_into_a_table_that_reads_back_the_same():
    entries = [TokenEntry(0, TEXT, b"\xff"), TokenEntry(3, SPECIAL, "<｜é｜>".encode())]
    vocabulary = from_table(entries, eog_ids=[3])
    contents = read_token_table(pack_vocabulary(vocabulary))
    assert contents.token_bytes == (b"\xff", b"", b"", b"")
    assert contents.special == {3: "<｜é｜>"}


@pytest.mark.parametrize(
    ("packed", "location", "problem"),
    [
        (b"", "token table, byte 0", "not a packed token table"),
        (b"CDTABLE\x02", "token table, byte 0", "not a packed token table"),
        (b"CDTABLE\x01\x00\x01\x00\x00\x00a\x00\x01", "token table, record 1 at byte 14", "inside a record's head"),
        (b"CDTABLE\x01\x00\x05\x00\x00\x00abc", "token table, record 0 at byte 8", "inside a token of 5 bytes"),
        (b"CDTABLE\x01\x03\x00\x00\x00\x00", "token table, record 0 at byte 8", "unknown kind 3"),
        (b"CDTABLE\x01\x00\xff\xff\xff\xff", "token table, record 0 at byte 8", "a token of 4294967295 bytes"),
        (
            b"CDTABLE\x01" + b"\x02\x00\x00\x00\x00" * (2**21 + 1),
            "token table, record 2097152 at byte 10485768",
            "more than 2097152 records",
        ),
    ],
    ids=["empty", "version", "head", "content", "kind", "length", "count"],
)
def test_broken_packed_data_is_named_by_record_and_byte(packed, location, problem):
    with pytest.raises(VocabularyError) as refused:
        parse_table(packed)
    assert refused.value.location == location
    assert problem in refused.value.problem


_text = st.builds(lambda content: (TEXT, content), st.binary(min_size=1, max_size=9))
_special = st.builds(lambda name: (SPECIAL, name.encode()), st.text(min_size=1, max_size=9))


@given(st.lists(st.one_of(_text, _special, st.just((UNUSED, b""))), max_size=40))
def test_packing_and_parsing_gives_the_same_entries(records):
    entries = [TokenEntry(token_id, kind, content) for token_id, (kind, content) in enumerate(records)]
    assert parse_table(pack_table(entries)) == entries


@given(st.binary(max_size=60))
def test_any_bytes_are_a_table_or_a_typed_error(tail):
    try:
        entries = parse_table(b"CDTABLE\x01" + tail)
    except VocabularyError:
        return
    assert pack_table(entries) == b"CDTABLE\x01" + tail
