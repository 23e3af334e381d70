"""The canonical encoding: one form for each value, and nothing else is read."""

import pytest

from constraintd.encoding import Reader, Writer
from constraintd.errors import InvalidEnvelope


def written(method, value):
    writer = Writer()
    getattr(writer, method)(value)
    return writer.getvalue()


@pytest.mark.parametrize(
    ("method", "value", "expected"),
    [
        ("unsigned", 0, b"\x00"),
        ("unsigned", 127, b"\x7f"),
        ("unsigned", 128, b"\x80\x01"),
        ("unsigned", (1 << 64) - 1, b"\xff" * 9 + b"\x01"),
        ("signed", -1, b"\x01"),
        ("signed", 1, b"\x02"),
        ("signed", -(1 << 63), b"\xff" * 9 + b"\x01"),
        ("float", -0.0, bytes(7) + b"\x80"),
        ("flag", True, b"\x01"),
        ("data", b"ab", b"\x02ab"),
        ("text", "é", b"\x02\xc3\xa9"),
        ("numbers", [1, 300], b"\x02\x01\xac\x02"),
        ("floats", [1.0], b"\x01" + bytes(6) + b"\xf0\x3f"),
    ],
)
def test_a_value_has_these_bytes_and_comes_back(method, value, expected):
    assert written(method, value) == expected
    reader = Reader(expected, "test")
    found = getattr(reader, method)()
    assert (list(found) if isinstance(value, list) else found) == value
    reader.end()


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("unsigned", b""),
        ("unsigned", b"\x80"),
        ("unsigned", b"\x80\x00"),  # 0, but not in its shortest form
        ("unsigned", b"\xff" * 10 + b"\x01"),
        ("unsigned", b"\xff" * 9 + b"\x02"),  # 2**64 and more
        ("float", b"1234567"),
        ("flag", b"\x02"),
        ("data", b"\x03ab"),
        ("data", b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("text", b"\x01\xff"),
        ("numbers", b"\x05\x01"),
        ("floats", b"\x02" + bytes(8)),
    ],
)
def test_other_bytes_are_refused_with_their_place(method, data):
    with pytest.raises(InvalidEnvelope, match="test: ") as caught:
        getattr(Reader(data, "test"), method)()
    assert caught.value.metadata["location"].startswith("test+")


def test_nothing_may_be_left_over():
    reader = Reader(b"\x01\x02", "test")
    reader.unsigned()
    with pytest.raises(InvalidEnvelope, match="1 bytes are left over"):
        reader.end()
