from constraintd.sampler.stops import OutputTail, StopMatch, StopScanner


def feed(scanner, *pieces):
    output, match = OutputTail(), None
    settled = []
    for piece in pieces:
        output, match = scanner.append(output, piece)
        settled.append(scanner.settled(output))
    return output, match, settled


def test_without_stops_whole_characters_settle_at_once():
    assert feed(StopScanner(()), b"ab", b"c")[2] == [2, 3]


def test_an_unfinished_character_is_held_back_until_it_is_whole():
    # U+1F600 is f0 9f 98 80
    assert feed(StopScanner(()), b"a\xf0", b"\x9f", b"\x98", b"\x80")[2] == [1, 1, 1, 5]


def test_bytes_that_can_become_no_character_are_not_held_back():
    assert feed(StopScanner(()), b"\xff", b"\x80", b"\xf0\x28", b"\xed\xa0")[2] == [1, 2, 4, 6]


def test_the_beginning_of_a_stop_is_held_back_and_let_go_when_it_is_none():
    assert feed(StopScanner((b"STOP",)), b"xS", b"TO", b"ne")[2] == [1, 1, 6]


def test_a_stop_is_found_across_pieces_and_cut_at_its_start():
    _, match, _ = feed(StopScanner((b"STOP",)), b"xxS", b"TO", b"P!")
    assert match == StopMatch(b"STOP", 2)


def test_the_earliest_start_wins_then_the_longest():
    assert feed(StopScanner((b"bc", b"abcd")), b"abcd")[1] == StopMatch(b"abcd", 0)
    assert feed(StopScanner((b"b", b"bc")), b"abc")[1] == StopMatch(b"bc", 1)


def test_overlapping_beginnings_hold_back_the_longest():
    assert feed(StopScanner((b"aab",)), b"aaa")[2] == [1]


def test_a_held_stop_that_would_split_a_character_holds_the_character_too():
    # The stop begins with the second byte of U+00E9 (c3 a9): all of the character has to wait.
    assert feed(StopScanner((b"\xa9!",)), b"x\xc3\xa9")[2] == [1]


def test_a_stop_longer_than_any_piece_is_found():
    stop = bytes(range(100, 200))
    _, match, settled = feed(StopScanner((stop,)), b"..", *[bytes([value]) for value in stop])
    assert match == StopMatch(stop, 2)
    assert settled[:-1] == [2] * 100


def test_the_text_after_a_refuted_stop_is_counted_from_position_zero():
    output, match, _ = feed(StopScanner((b"ab",)), b"a" * 1000, b"c")
    assert (output.total, match) == (1001, None)
