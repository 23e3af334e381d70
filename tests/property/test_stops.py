"""Stops and settled bytes against a plain definition over the whole text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from constraintd.sampler.stops import OutputTail, StopScanner

pieces = st.lists(st.text("abé😀", max_size=3).map(str.encode) | st.binary(max_size=3), max_size=12)
stops = st.lists(st.text("abé", min_size=1, max_size=4).map(str.encode), max_size=3).map(tuple)


@given(pieces, stops)
@settings(max_examples=600, deadline=None)
def test_a_stop_is_found_in_the_first_piece_that_completes_one(parts, stop_strings):
    scanner = StopScanner(stop_strings)
    output, text = OutputTail(), b""
    for part in parts:
        output, match = scanner.append(output, part)
        text += part
        found = sorted((text.find(stop), -len(stop), stop) for stop in stop_strings if stop in text)
        if found:
            assert match is not None
            assert (match.start, match.stop) == (found[0][0], found[0][2])
            return
        assert match is None
        assert output.total == len(text)


@given(pieces, stops, pieces)
@settings(max_examples=600, deadline=None)
def test_settled_bytes_are_never_taken_back_and_end_at_a_character(parts, stop_strings, later):
    scanner = StopScanner(stop_strings)
    output, text, settled = OutputTail(), b"", 0
    for part in [*parts, *later]:
        output, match = scanner.append(output, part)
        if match is not None:
            assert match.start >= settled
            return
        text += part
        now = scanner.settled(output)
        assert settled <= now <= len(text)
        settled = now
        # A character that is whole in the text is never split.
        if settled < len(text):
            assert text[settled] & 0xC0 != 0x80 or not _is_text(text)


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
