import json
import sys

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from unbag.cli import app
from unbag.demo import DEMO_METHODS, DemoRow, write_files

FILES = ("rows", "more")
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_demo_prints_a_table_and_saves_a_plot(tmp_path, monkeypatch):
    def short(*, seed, verbose):
        assert seed == 3
        assert verbose
        epochs = np.arange(1, 4.0)
        history = {"epoch": epochs, "empirical_risk": -epochs, "test_error": epochs / 10}
        return [DemoRow(m, 0.3, 0.1, 0.25, 3, history) for m in DEMO_METHODS]

    monkeypatch.setattr("unbag.cli.demo.run_demo", short)
    result = run("demo", "--output", str(tmp_path / "plot.svg"), "--seed", "3")
    assert result.exit_code == 0, result.output
    for method in DEMO_METHODS:
        assert f"{method} " in result.output
    assert "25.0" in result.output
    assert (tmp_path / "plot.svg").stat().st_size > 1000


@pytest.mark.parametrize("name", ["plot.foo", "missing/plot.png"])
def test_demo_refuses_a_bad_output_before_training(tmp_path, monkeypatch, name):
    monkeypatch.setattr("unbag.cli.demo.run_demo", lambda **_: pytest.fail("trained first"))
    result = run("demo", "--output", str(tmp_path / name))
    assert result.exit_code == 1
    assert "output must be a file" in result.output


def test_help_has_an_example():
    assert "unbag demo --output" in run("demo", "--help").output
    assert "Example: unbag fit rows.parquet" in run("--help").output


def test_the_extra_to_install_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("unbag.cli.demo.run_demo", lambda **_: pytest.fail("trained first"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    result = run("demo", "--output", str(tmp_path / "plot.png"))
    assert result.exit_code == 1
    assert "pip install 'unbag[plot]'" in result.stderr


def test_demo_files_are_what_they_say(tmp_path, monkeypatch):
    monkeypatch.setattr("unbag.cli.demo.run_demo", lambda **_: pytest.fail("trained"))
    result = run("demo", "--files", str(tmp_path / "example"))
    assert result.exit_code == 0, result.output
    rows, more = (pandas.read_parquet(tmp_path / "example" / f"{n}.parquet") for n in FILES)
    truth = pandas.read_csv(tmp_path / "example/truth.csv").set_index("id").digit
    assert sorted([*rows.id, *more.id]) == sorted(truth.index)
    assert truth.index.is_unique
    shares = pandas.read_csv(tmp_path / "example/shares.csv").set_index("district")
    counted = pandas.crosstab(rows.district, truth[rows.id].to_numpy(), normalize="index") * 100
    assert np.abs(counted[shares.columns] - shares).to_numpy().max() < 1  # of 145 rows each
    digits = load_digits()
    later = pandas.read_parquet(tmp_path / "example/later.parquet")
    assert set(later.id) <= set(more.id)
    assert later.district.value_counts().tolist() == [30] * 10
    first = more.drop(columns="id").iloc[0].to_numpy()
    shown = digits.target[(digits.data == first).all(1)]
    assert truth[more.id[0]] == NAMES[shown[0]]


def test_demo_files_go_into_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = write_files(".")
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()}


def test_demo_files_never_join_others(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = run("demo", "--files", str(tmp_path))
    assert result.exit_code == 1
    assert "files must be a new or empty folder" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_demo_and_lists_speak_json(tmp_path, monkeypatch):
    history = {"epoch": np.arange(2.0), "empirical_risk": np.ones(2), "test_error": np.ones(2)}
    row = DemoRow("u-prr", 0.3, 0.1, 0.25, 2, history)
    monkeypatch.setattr("unbag.cli.demo.run_demo", lambda **_: [row])
    options = tmp_path / "options.toml"
    options.write_text(f'output = "{tmp_path / "plot.png"}"\n')
    result = run("demo", "--json", "--config", str(options))
    assert result.exit_code == 0, result.output
    actual = json.loads(result.stdout)
    assert actual["methods"][0]["label_free_error"] == 0.25
    assert actual["plot"] == str(tmp_path / "plot.png")
    files = json.loads(run("demo", "--json", "--files", str(tmp_path / "f")).stdout)["files"]
    assert len(files) == 6
    listed = json.loads(run("datasets", "list", "--folder", str(tmp_path), "--json").stdout)
    assert listed["folder"] == str(tmp_path)
    assert listed["datasets"]["mnist"]["rows"] == [60_000, 10_000]
    assert not any(listed["datasets"]["mnist"]["files"].values())


def test_bench_names_the_command_that_took_its_place():
    result = run("bench", "run", "--quick", "--help")
    assert result.exit_code == 2
    assert "error: `unbag bench` is now `python -m study`" in result.stderr
    assert "in the folder of a clone, run: python -m study run --quick --help" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "bench " not in run("--help").stdout
