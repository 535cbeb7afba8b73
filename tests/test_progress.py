"""Steps tell how far they are once a minute where standard error is no terminal."""

import logging
import threading

import pytest
from rich.progress import ProgressSample

from unbag import progress
from unbag.progress import RowProgress, StageProgress, StageTimes, TrainingProgress


class Time:
    """A clock and a wait that the test moves on: a wait of 60 seconds takes none."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class Ended:
    """An event whose waits end at times that the test gives, then for good."""

    def __init__(self, clock, times):
        self.clock, self.times, self.waits = clock, list(times), []

    def wait(self, seconds):
        self.waits.append(seconds)
        if not self.times:
            return True
        self.clock.now = self.times.pop(0)
        return False

    def set(self):
        self.times = []


@pytest.fixture
def clock(monkeypatch):
    clock = Time()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress._Clock, "told", None)
    return clock


def lines(step, clock, times, capsys):
    """What the step prints while its waits end at these times."""
    step._ended = Ended(clock, times)
    step._tell()
    return capsys.readouterr().err.splitlines()


def test_one_line_per_minute_while_a_step_does_one_long_thing(clock, capsys):
    step = StageProgress("random forest", visible=True)
    assert lines(step, clock, [1060, 1120.5], capsys) == [
        "random forest: 1 min 0 s so far",
        "random forest: 2 min 0 s so far",
    ]
    assert step._ended.waits == [60, 60, 60]


def test_short_steps_share_one_minute(clock, capsys):
    told = []
    for number in range(9):  # of 20 seconds each
        step = StageProgress(f"step {number}", visible=True)
        end = clock.now + 20
        told += lines(step, clock, [t for t in (1060, 1120, 1180) if clock.now < t <= end], capsys)
        clock.now = end
    assert [line.split(":")[0] for line in told] == ["step 2", "step 5", "step 8"]


def test_a_line_tells_the_time_left(clock, capsys):
    step = TrainingProgress(total=40, visible=True, label="start")
    step.advance(10)
    (line,) = lines(step, clock, [1060], capsys)
    assert line == "start: 25%, 1 min 0 s so far, 3 min 0 s left"
    step = TrainingProgress(total=40, visible=True, label="round 1", ahead=2.5)
    step.advance(10)  # a minute; 3 of this step are left, and 2.5 times 4 of later ones
    clock.now = 1060.0
    (line,) = lines(step, clock, [1120], capsys)
    assert line == "round 1: 25%, 1 min 0 s so far, at most about 13 min 0 s left"
    rows = RowProgress("reading rows", visible=True)
    rows(50, None)  # their number is not known
    (line,) = lines(rows, clock, [1180], capsys)
    assert line == "reading rows: 1 min 0 s so far"


PLAN = ["linear", "forest", "forest", "boosting", "forest"]
COSTS = {"linear": 1.0, "forest": 10.0, "boosting": 20.0}


def run_stage(clock, times, place, seconds, told_at, capsys, limit=float("inf")):
    """What a stage of so many seconds prints after some of them."""
    step = StageProgress(f"step {place}", True, times, place, limit)
    printed = lines(step, clock, [clock.now + told_at], capsys)
    step._lines = False  # the thread was run by hand
    step._started, clock.now = clock.now - told_at, clock.now - told_at + seconds
    step.__exit__(None, None, None)
    return [line.partition(" so far")[2] for line in printed]


def test_a_line_tells_the_time_left_of_all_stages(clock, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_EVERY", 1.0)
    times = StageTimes(PLAN, COSTS)
    assert run_stage(clock, times, 0, 5, 2, capsys) == [""]  # nothing is known yet
    # 3 forests of 10 × 5 s, boosting of 20 × 5 s, less 10 s of this forest
    assert run_stage(clock, times, 1, 20, 10, capsys) == [", at most about 4 min 0 s left"]
    # forests take 20 s; boosting has not been seen, and the linear one is the slowest for its cost
    assert run_stage(clock, times, 2, 20, 5, capsys) == [", at most about 2 min 15 s left"]
    assert run_stage(clock, times, 3, 30, 10, capsys) == [", at most about 1 min 50 s left"]
    assert run_stage(clock, times, 4, 20, 8, capsys) == [", about 12 s left"]


def test_a_stage_that_takes_longer_makes_later_ones_longer():
    times = StageTimes(PLAN, COSTS)
    times.end(0, 1.0)
    times.end(1, 10.0)
    assert times.left(2, 0.0) == (10 + 20 + 10, True)
    assert times.left(2, 35.0) == (20 + 35, True)
    times.end(2, 40.0)
    times.end(3, 8.0)  # less than it should
    assert times.left(3, 0.0) == (8 + 40, False)


def test_the_time_left_is_at_most_that_of_the_limit(clock, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_EVERY", 1.0)
    times = StageTimes(PLAN, COSTS)
    times.end(0, 5.0)
    told = run_stage(clock, times, 1, 20, 10, capsys, limit=70.0)
    assert told == [", at most about 1 min 0 s left"]


def test_a_bar_of_stages_tells_the_time_left_until_it_ends():
    times = StageTimes(PLAN, COSTS)
    times.end(0, 1.0)
    step = StageProgress("forest", False, times, 3)
    (column,) = (c for c in step._bar.columns if isinstance(c, progress._StagesRemaining))
    (task,) = step._bar.tasks
    task.start_time = task.get_time()
    assert column.render(task).plain == "at most about 30 s left"
    with step:
        pass
    assert column.render(task).plain == ""


def test_a_stage_that_fails_tells_no_time():
    times = StageTimes(PLAN, COSTS)
    with pytest.raises(ZeroDivisionError), StageProgress("linear", False, times):
        raise ZeroDivisionError
    assert times.left(1, 0.0) is None


def test_a_bar_tells_the_time_left_of_all_steps():
    bar = TrainingProgress(total=40, visible=True, label="start", ahead=2.5)._bar
    (task,) = bar.tasks
    (left,) = (column for column in bar.columns if isinstance(column, progress._AllRemaining))
    assert left.render(task).plain == "-:--:--"
    task.start_time, task.stop_time, task.completed = 0.0, 60.0, 10
    task._progress.extend([ProgressSample(20.0, 0), ProgressSample(60.0, 10)])
    assert (task.elapsed, task.time_remaining) == (60, 120)  # 4 seconds for each of the others
    assert left.render(task).plain == "0:09:30"


@pytest.mark.parametrize("visible", [True, False])
def test_a_short_step_is_silent_and_leaves_no_thread(visible, capsys, caplog, monkeypatch):
    monkeypatch.setattr(progress._Clock, "told", None)  # another test may have been long ago
    before = threading.active_count()
    with caplog.at_level(logging.INFO, "unbag"), StageProgress("models of shares", visible):
        assert threading.active_count() == before + visible
    assert threading.active_count() == before
    assert capsys.readouterr().err == ""
    assert "models of shares: 0." in caplog.text


def test_a_step_that_is_not_visible_tells_nothing(clock, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    with StageProgress("models of shares", visible=False):
        clock.now += 100
    assert capsys.readouterr().err == ""


def test_lines_come_from_the_thread(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_EVERY", 0.001)
    printed = threading.Event()
    step = StageProgress("random forest", visible=True)
    monkeypatch.setattr(step, "_line", lambda: printed.set() or "told")
    with step:
        assert printed.wait(30)
    assert set(capsys.readouterr().err.splitlines()) == {"told"}
