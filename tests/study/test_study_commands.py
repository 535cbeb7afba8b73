import csv
import io

import pytest
from tiny_study import HERE, grid_records, made_choices, write_cells
from typer.testing import CliRunner

from study.__main__ import app
from study.plan import METHODS, SETTINGS
from study.records import Records
from study.training import Trainer

ALL_CELLS = {(s, m): [5.0, 6.0] for s in SETTINGS for m in METHODS}


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "80"})


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    """Arguments with which the study was asked for, instead of running it."""
    calls = []

    def study(results, **arguments):
        calls.append({"results": str(results), **arguments})
        return Trainer(Records(results), "cpu", "float32", False, 1, {1, 2, 3}, {1, 2, 3, 4})

    monkeypatch.setattr("study.__main__.run_study", study)
    return calls


@pytest.mark.usefixtures("small")
def test_a_quick_run_from_end_to_end():
    arguments = ("run", "--quick", "--datasets", "usps", "--methods", "prop,u-prr")
    result = run(*arguments, "--settings", "asymmetric,non-square", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "Trained 4 models in " in result.stdout
    assert "0 were there already. Records: study-quick" in result.stdout
    assert result.stdout.endswith("Next: python -m study table --quick\n")
    assert result.stderr == ""  # no progress bar where there is no terminal
    lines = [line.split() for line in result.stdout.splitlines()]
    heading = next(line for line in lines if line == list(METHODS))
    own = next(line for line in lines if line[:1] == ["asymmetric"])
    assert [cell != "—" for cell in own[1:]] == [m in ("prop", "u-prr") for m in heading]
    assert ["paper", "27.9", "10.9", "9.0", "46.1", "26.1", "11.3", "14.7", "7.3"] in lines
    assert max(map(len, result.stdout.splitlines()[:10])) <= 80

    again = run(*arguments, "--settings", "asymmetric", "--device", "cpu")
    assert "Trained 0 models in 0 s; 2 were there already." in again.stdout
    table = run("table", "--quick", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(table.stdout)))
    assert sum(int(row["trials"]) for row in rows) == 4
    assert {row["dataset"] for row in rows} == {"usps"}


def test_what_is_asked_for(asked):
    result = run("run")
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "Trained 3 models in 0 s; 4 were there already. Records: results/study\n"
        "Next: python -m study table\n"
    )
    assert asked[0] == {
        "results": "results/study",
        "datasets": ("pendigits", "usps", "mnist", "fashion-mnist", "kmnist", "cifar10"),
        "settings": list(SETTINGS),
        "methods": list(METHODS),
        "trials": 5,
        "figures": False,
        "ablations": False,
        "quick": False,
        "device": "auto",
        "precision": "auto",
        "verbose": False,
    }
    lists = ["--datasets", "mnist, usps", "--methods", "u-prr,"]
    others = [
        "--trials",
        2,
        "--figures",
        "--ablations",
        "--precision",
        "bf16",
        "--results",
        "my folder",
    ]
    result = run("run", *lists, *others)
    assert asked[1]["datasets"] == ["mnist", "usps"]
    assert asked[1]["methods"] == ["u-prr"]
    assert (asked[1]["trials"], asked[1]["figures"], asked[1]["precision"]) == (2, True, "bf16")
    assert asked[1]["ablations"]
    assert result.stdout.endswith("Next: python -m study table --results 'my folder'\n")


def test_quick_is_short_by_default(asked):
    assert run("run", "--quick").exit_code == 0
    assert (asked[0]["datasets"], asked[0]["trials"]) == (("pendigits", "usps"), 1)
    assert asked[0]["results"] == "study-quick"
    assert asked[0]["quick"]


def test_a_stop_by_the_keyboard_says_what_is_kept(monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("study.__main__.run_study", stopped)
    result = run("run")
    assert result.exit_code == 130
    assert "in results/study; the same command goes on with the rest." in result.stderr
    assert "Traceback" not in result.output


def test_a_dataset_that_is_not_there_says_how_to_get_it(here, monkeypatch):
    monkeypatch.setenv("UNBAG_DATA", str(here / "none"))
    result = run("run", "--quick", "--device", "cpu")
    assert result.exit_code == 1
    assert "unbag datasets fetch pendigits" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--datasets", "svhn"], "datasets must be one of 'pendigits'"),
        (["run", "--datasets", ","], "datasets must be some of pendigits"),
        (["run", "--methods", "u-prr,best"], "methods must be one of 'biased'"),
        (["run", "--device", "gpu"], "device must be 'auto'"),
        (["table"], "results must be a folder with records, got results/study; make some with"),
        (["figures", "--results", "none"], "results must be a folder with records, got none"),
        (["page", "none.md"], "results must be a folder with records"),
        (["page", "none.md", "--results", "there"], "none.md: No such file or directory"),
        (["table", "--results", "there", "--format", "pdf"], "format must be one of 'md'"),
        (["table", "--results", "there", "--output", "no/file"], "No such file or directory"),
        (["figures", "--results", "there", "--format", ","], "format must be png, svg or both"),
        (["figures", "--results", "there", "--format", "bmp"], "format must be one of 'png'"),
    ],
)
def test_bad_input_is_told_in_one_line(here, arguments, message):
    write_cells(here / "there", ALL_CELLS)
    result = run(*arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quick", "--figures"], "the figures need the full study"),
        (["--quick", "--ablations"], "the ablations need the full study"),
        (["--trials", "0"], "trials"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, message):
    result = run("run", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_tables_go_to_a_file_or_the_terminal(here):
    write_cells(here / "results/study", ALL_CELLS)
    printed = run("table", "--format", "html")
    assert printed.stdout.startswith("<!DOCTYPE html>")
    result = run("table", "--format", "html", "--output", "tables.html")
    assert result.stdout == "Tables written to tables.html\n"
    assert (here / "tables.html").read_text(encoding="utf-8") == printed.stdout
    assert run("table").stdout.startswith("# The study of Tang et al. (2022)\n")


@pytest.mark.usefixtures("empty_figures")
def test_figures_that_cannot_be_drawn_name_the_command(here):
    choices = write_cells(here / "some", ALL_CELLS, made_choices("usps"))
    Records(here / "some").add(grid_records(choices), HERE)
    result = run("figures", "--results", "some", "--output", "drawn", "--format", "svg")
    assert result.exit_code == 0, result.output
    assert result.stdout == "drawn/grid-usps.svg\n"
    assert (here / "drawn/grid-usps.svg").is_file()
    assert (
        "rows skipped, its runs are missing: "
        "python -m study run --datasets mnist --figures --results some\n"
    ) in result.stderr
    assert len(result.stderr.splitlines()) == 8


def test_a_page_is_refilled(here):
    write_cells(here / "some", ALL_CELLS)
    page = here / "page.md"
    page.write_text("<!-- study: ranking -->\n<!-- end -->\n")
    result = run("page", "page.md", "--results", "some")
    assert result.exit_code == 0, result.output
    assert "| all | 4 of 4 | 4 of 4 | 23 of 24 |" in page.read_text(encoding="utf-8")
    page.write_text("<!-- study: rank -->\n<!-- end -->\n")
    result = run("page", "page.md", "--results", "some")
    assert result.exit_code == 1
    assert "page.md, line 1: a block must stand between" in result.stderr


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ([], "python -m study run --quick"),
        (["run"], "python -m study run --datasets pendigits,usps --methods prop,u-prr"),
        (["table"], "python -m study table --format html --output tables.html"),
        (["figures"], "python -m study figures --format svg --output figures"),
        (["page"], "python -m study page docs/records/reproduction.md"),
    ],
)
def test_help_has_an_example(command, example):
    assert f"Example: {example}" in run(*command, "--help").output
