"""The command of the checks; their tables are compared with the pages in test_result_pages."""

import json
import math
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from study.checks import __main__ as command
from study.checks import causes, share_errors
from study.checks.processes import results_of
from study.data import Data
from study.plan import METHODS, Run
from unbag.methods import check_job


@pytest.fixture
def counting(monkeypatch):
    """One check that counts, in the place of all."""

    def measure(count: int = 2) -> Iterator[dict]:
        for number in range(count):
            yield {"numbers": [*range(number + 1)]}

    def table(record):
        return f"sum {sum(record['numbers'])}"

    module = SimpleNamespace(measure=measure, table=table, __doc__="Count.")
    monkeypatch.setattr(command, "NAMES", ("counting",))
    monkeypatch.setattr(command.importlib, "import_module", lambda _: module)


@pytest.mark.usefixtures("counting")
def test_a_check_measures_and_prints_its_table(capsys, tmp_path):
    command.main(["counting"])
    assert capsys.readouterr().out == "sum 1\n"
    file = tmp_path / "record.json"
    command.main(["counting", "--count", "4", "--record", str(file)])
    assert capsys.readouterr().out == "sum 6\n"
    assert json.loads(file.read_text()) == {"numbers": [0, 1, 2, 3]}
    command.main(["counting", "--table", str(file)])
    assert capsys.readouterr().out == "sum 6\n"


@pytest.mark.usefixtures("counting")
def test_a_record_that_is_shown_is_not_measured_again(tmp_path, capsys):
    file = tmp_path / "record.json"
    file.write_text('{"numbers": [40, 2]}')
    before = file.read_bytes()
    command.main(["counting", "--table", str(file), "--record", str(file)])
    assert capsys.readouterr().out == "sum 42\n"
    assert file.read_bytes() == before


def test_every_check_can_be_asked_for(capsys):
    for name in command.NAMES:
        with pytest.raises(SystemExit) as ended:
            command.main([name, "--help"])
        assert ended.value.code == 0
        assert f"python -m study.checks {name}" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
class TestChangedJobs:
    def test_changed_objectives_are_jobs(self):
        for change, objectives in causes.CHANGED.items():
            for name, objective in objectives.items():
                run = Run("usps", "asymmetric", name, 0, 1e-3, 10, 3)
                _, method = check_job(causes.changed_job(change, run, Data("usps")))
                assert (method.name, method.objective) == (f"{name}, {change}", objective)

    def test_without_pi_the_prior_is_uniform_and_the_level_lower(self):
        data = Data("usps")
        run = Run("usps", "asymmetric", "u-flood", 0, 1e-3, 10, 3, flood_level=0.1)
        job = causes.changed_job(causes.NO_PI, run, data)
        np.testing.assert_allclose(job.test_prior, np.full(10, 0.1))
        assert job.method.flood_level == pytest.approx(0.01)
        assert causes.changed_job(causes.PLAIN, run, data).method.flood_level == 0.1

    def test_methods_are_those_of_the_study(self):
        assert {name for changes in causes.CHANGED.values() for name in changes} <= set(METHODS)


class TestProcesses:
    def test_all_results_come_with_their_position(self):
        tasks = [(math.sqrt, (number,)) for number in (4, 9, 16)]
        assert list(results_of(tasks)) == [(0, 2.0), (1, 3.0), (2, 4.0)]
        assert sorted(results_of(tasks, processes=2)) == [(0, 2.0), (1, 3.0), (2, 4.0)]

    def test_a_time_limit_ends_the_work(self):
        """Of one process no task is begun after it; those of others are given up."""
        assert list(results_of([(time.sleep, (0.02,))] * 50, seconds=0.01)) == [(0, None)]
        assert list(results_of([(time.sleep, (600,))], processes=2, seconds=0.01)) == []


def test_cases_with_fewer_repeats_are_measured_again(monkeypatch):
    """A record keeps the order of the cases, whatever is measured last."""
    first, second = share_errors.CASES[:2]
    monkeypatch.setattr(share_errors, "CASES", (first, second))
    monkeypatch.setattr(share_errors, "TARGET_CASES", ())
    monkeypatch.setattr(share_errors, "PARTLY_KNOWN", ())
    few = list(share_errors.measure(repeats=2))[-1]
    assert [case["repeats"] for case in few["cases"]] == [2, 2]
    assert list(share_errors.measure(repeats=2, done=few)) == []
    more = list(share_errors.measure(repeats=3, done={"cases": few["cases"][1:]}))
    assert [[case["bags"] for case in record["cases"]] for record in more] == [
        [first.bags, second.bags],
        [first.bags, second.bags],
    ]
    assert [case["repeats"] for case in more[0]["cases"]] == [3, 2]
    assert [case["repeats"] for case in more[1]["cases"]] == [3, 3]
