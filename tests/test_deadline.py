import math

import pytest

from unbag.deadline import Deadline


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_without_a_limit_there_is_always_time():
    deadline = Deadline()
    with deadline.stage():
        pass
    assert deadline.left == math.inf
    assert deadline.has_time_for(1e9)
    assert deadline.part(0.5).left == math.inf


def test_the_longest_stage_decides_what_fits():
    clock = Clock()
    deadline = Deadline(10, clock)
    assert deadline.has_time_for(1000)  # nothing is known yet
    for seconds in (1.0, 3.0, 2.0):
        with deadline.stage():
            clock.now += seconds
    assert deadline.left == 4
    assert deadline.has_time_for(1.0)
    assert not deadline.has_time_for(1.5)
    clock.now += 9
    assert deadline.left == 0
    assert deadline.has_time_for(0)
    assert not deadline.has_time_for(0.01)


def test_a_part_ends_earlier():
    clock = Clock()
    part = Deadline(10, clock).part(0.25)
    assert part.left == pytest.approx(2.5)
