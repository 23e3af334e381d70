"""The draw rule of the protocol. The numbers come from NumPy's Philox constructed anew for each."""

import threading

import pytest

from constraintd.sampler.draws import draw


@pytest.mark.parametrize(
    ("seed", "position", "expected"),
    [
        (0, 0, 0.011546754286331562),
        (7, 3, 0.43900223090044976),
        (2**64 - 1, 2**40, 0.7846576271824589),
    ],
)
def test_a_draw_is_the_first_double_of_philox_at_its_position(seed, position, expected):
    assert draw(seed, position) == expected


def test_a_draw_does_not_depend_on_what_was_drawn_before():
    draw(1, 2)
    draw(9, 9)
    assert draw(7, 3) == 0.43900223090044976


def test_threads_do_not_disturb_each_other():
    seen = []
    threads = [threading.Thread(target=lambda: seen.extend(draw(7, 3) for _ in range(200))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {0.43900223090044976}
    assert len(seen) == 800
