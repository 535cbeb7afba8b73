"""The commands that work on files: every option, JSON, exit codes, help."""

import inspect
import json
import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
import typer

import unbag
from run_command import content, run
from small_files import QUICK
from unbag.cli import common, training, using
from unbag.cli.common import parse_settings, parse_shares
from unbag.exceptions import ConditioningWarning, InvalidInputError
from unbag.methods import UPRR
from unbag.workflow import fit_files

COMMANDS = {
    "inspect": using.inspect,
    "fit": training.fit,
    "tune": training.tune,
    "evaluate": using.evaluate,
    "predict": using.predict,
    "show": using.show,
    "export": using.export,
}
GIVEN = "rows.parquet --bag district --priors shares.csv"
SMALL = " ".join(f"--{name} {value}" for name, value in QUICK.items())


def done(command):
    result = run(command)
    assert result.exit_code == 0, result.output
    return result


def as_json(command):
    """The JSON object that a command prints, with nothing else on standard output."""
    return json.loads(done(f"{command} --json").stdout)


def no_constant(name):
    raise AssertionError(name)


# ---------------------------------------------------------------------------------------- fit


def test_fit_shows_what_it_made(folder):
    result = done(f"fit {GIVEN} {SMALL} --output new")
    assert result.stdout.startswith("Check of bags and shares: ")
    assert "\nMethod: prop. All 2 epochs were run.\n" in result.stdout
    assert re.search(r"accuracy +\d", result.stdout)
    assert "Report: new/report.html" in result.stdout
    assert "note: Column 'id' is left out" in result.stderr
    assert (folder / "new" / "config.toml").is_file()


def test_every_option_of_fit_reaches_the_model(folder):
    command = (
        f"fit {GIVEN} --output new --columns age --columns city --leave-out income "
        "--keep age "
        "--method u-prr --test-prior no=0.6,yes=0.4 --set alpha=0.4 --set ascent_scale=2 "
        "--model mlp --depth 2 --width 8 --dropout 0.1 --epochs 3 --batch-size 50 "
        "--learning-rate 0.01 --weight-decay 0.001 --early-stopping --n-iter-no-change 5 "
        "--validation-share 0.3 --evaluation-share 0.25 --calibrate --shares-of rows --level 0.9 "
        "--precision float64 --title Title --seed 4 --device cpu --time-limit 1000 --effort fast"
    )
    printed = as_json(command)
    assert printed["model"] == "new"
    assert printed["evaluation"]["level"] == 0.9
    clf = unbag.load_model("new")
    settings = {
        "method": UPRR(alpha=0.4, ascent_scale=2.0),
        "model": "mlp",
        "depth": 2,
        "width": 8,
        "dropout": 0.1,
        "effort": "fast",
        "epochs": 3,
        "batch_size": 50,
        "learning_rate": 0.01,
        "weight_decay": 0.001,
        "early_stopping": True,
        "n_iter_no_change": 5,
        "time_limit": 1000,
        "precision": "float64",
        "random_state": 4,
        "device": "cpu",
    }
    assert {name: getattr(clf, name) for name in settings} == settings
    np.testing.assert_allclose(clf.test_prior_, [0.4, 0.6])
    assert clf.encoding_.columns == ("age", "city")
    assert clf.calibration_ is not None
    assert printed["evaluation"]["n_rows"] == pytest.approx(90, abs=2)
    report = json.loads((folder / "new" / "report.json").read_text())
    assert report["title"] == "Title"
    # What the folder keeps is enough to make it again, and the command line has the last word.
    again = as_json("fit --config new/config.toml --output again")
    assert again["evaluation"] == printed["evaluation"]
    first, second = content(folder / "new"), content(folder / "again")
    assert first["model.safetensors"] == second["model.safetensors"]
    assert as_json("fit --config new/config.toml --output third --epochs 1")["epochs"] == 1


def test_a_learner_and_all_that_comes_after(folder):
    done(f"fit {GIVEN} --method tables --learner linear --set rounds=1 --output new")
    clf = unbag.load_model("new")
    assert (clf.method_, clf.learner) == ("tables", "linear")
    done("predict new other.parquet --key id --output p.csv")
    done("evaluate new other.parquet")
    assert (folder / "p.csv").read_text().count("\n") > 10


def test_flood_level_and_overwrite(folder):
    done(f"fit {GIVEN} {SMALL} --method u-flood --set flood_level=0.2 --output model --overwrite")
    assert unbag.load_model("model").settings_ == {"flood_level": 0.2}
    assert not (folder / ".model.work").exists()


def test_images_and_arrays(folder):
    shares = "--priors shares.csv"
    done(f"fit images.csv --images images --bag district {shares} {SMALL} --output a")
    done("predict a images.csv --images images --key id --output a.csv")
    done("evaluate a images.csv --images images")
    done(f"inspect images.csv --images images --bag district {shares}")
    done(f"fit rows.npz {shares} {SMALL} --model linear --output b")
    done("predict b rows.npz --output b.csv")
    done("evaluate b rows.npz")
    assert {"a.csv", "b.csv"} <= set(content(folder))


# --------------------------------------------------------------------------------------- tune


def test_every_option_of_tune(folder):
    printed = as_json(
        f"tune {GIVEN} --output new --columns age --leave-out id --trials 2 --scoring likelihood "
        "--keep age --method u-prr --set alpha=0.4 "
        "--storage sqlite:///t.db --at-once 2 --test-prior yes=0.5,no=0.5 --model mlp --depth 2 "
        "--width 8 --epochs 2 --batch-size 60 --validation-share 0.3 --evaluation-share 0.3 "
        "--shares-of rows --level 0.9 --precision float32 --title T --seed 1 --device cpu "
        "--effort fast"
    )
    assert printed["trials"] == 2
    assert (folder / "t.db").is_file()
    result = done(f"tune {GIVEN} --output new --overwrite --trials 1 {SMALL}")
    assert "Best of 1 trial: the settings as they were given." in result.stdout


# ------------------------------------------------------------------ inspect, evaluate, predict


def test_every_option_of_inspect(folder):
    printed = as_json(
        f"inspect {GIVEN} --columns age --columns city --shares-of rows --level 0.9 --seed 3"
    )
    assert printed["level"] == 0.9
    assert printed["features"][0] == "age"
    assert "verdict: " in done(f"inspect {GIVEN} --leave-out age --keep city").stdout
    (folder / "c.toml").write_text("bag = 'district'\npriors = 'shares.csv'\n")
    assert "verdict: " in done("inspect rows.csv --config c.toml").stdout


def test_errors_in_the_file_of_shares_reach_the_inspection(folder):
    shares = (folder / "shares.csv").read_text().splitlines()
    told = [f"{shares[0]},rows_counted,shares_of", *(f"{row},90,rows" for row in shares[1:])]
    (folder / "shares.csv").write_text("\n".join(told))
    printed = as_json(f"inspect {GIVEN}")
    assert printed["shares_of"] == "rows"
    assert printed["prior_error_half_width"] > 0.01


def test_the_option_that_shares_of_replaced(folder):
    assert (folder / "rows.parquet").is_file()
    with warnings.catch_warnings():
        warnings.simplefilter("default", FutureWarning)
        old = done(f"inspect {GIVEN} --sampling exact --json")
    assert "sampling='exact' is replaced: use shares_of='rows'" in old.stderr
    assert json.loads(old.stdout) == as_json(f"inspect {GIVEN} --shares-of rows")


def test_json_has_no_infinite_numbers(folder):
    same = "district,yes,no\nnorth,0.5,0.5\nsouth,0.5,0.5\nwest,0.5,0.5\n"
    (folder / "shares.csv").write_text(same)
    result = done(f"inspect {GIVEN} --json").stdout
    assert json.loads(result, parse_constant=no_constant)["verdict"] == "stop"
    # A method that needs no rank trains all the same, and the evaluation says why there is none.
    shown = done(
        f"fit {GIVEN} {SMALL} --method prop --validation-share 0 --output new --json"
    ).stdout
    parsed = json.loads(shown, parse_constant=no_constant)
    assert parsed["evaluation"] is None
    assert any("do not allow an evaluation" in text for text in parsed["warnings"])
    json.loads((folder / "new" / "report.json").read_text(), parse_constant=no_constant)


def test_every_option_of_evaluate(folder):
    options = (
        "--bag district --priors shares.csv --report page.html --shares-of rows --level 0.9 "
        "--title T --device cpu --by member"
    )
    printed = as_json(f"evaluate model other.parquet {options}")
    groups = printed["evaluation"]["groups"]
    assert sum(group["n_rows"] for group in groups) == printed["evaluation"]["n_rows"]
    page = json.loads((folder / "page.json").read_text())
    assert [row["group"] for row in page["groups"]["rows"]] == [g["group"] for g in groups]
    assert printed["report"] == "page.html"
    assert printed["evaluation"]["level"] == 0.9
    assert json.loads((folder / "page.json").read_text())["title"] == "T"
    assert run(f"evaluate model other.parquet {options}").exit_code == 1
    done(f"evaluate model other.parquet {options} --overwrite")
    assert "Report: " not in done("evaluate model other.parquet").stdout


def test_every_option_of_predict(folder):
    (folder / "c.toml").write_text("key = ['id']\nprobabilities = false\n")
    options = "--prior yes=0.4,no=0.6 --device cpu --output p.csv"
    printed = as_json(f"predict model other.parquet --config c.toml {options}")
    assert printed["rows"] == 360
    assert sum(printed["shares"].values()) == pytest.approx(1)
    assert pa.csv.read_csv("p.csv").column_names == ["id", "class"]
    again = f"predict model other.parquet --config c.toml {options} --overwrite --probabilities"
    assert "Predicted 360 rows." in done(again).stdout
    assert pa.csv.read_csv("p.csv").column_names == ["id", "class", "p_yes", "p_no"]
    done("predict model other.parquet --key id --key age --no-probabilities --output q.parquet")
    assert pa.parquet.read_table("q.parquet").column_names == ["id", "age", "class"]
    done("predict model other.parquet --processes 2 --partition-by class --output parts")
    parts = pa.dataset.dataset("parts", partitioning="hive").to_table()
    assert set(parts["class"].to_pylist()) <= {"no", "yes"}
    assert parts.num_rows == 360
    done("predict model other.parquet --key district --bag district --output r.parquet")
    done("predict model other.parquet --key district --output s.parquet")
    by_bag, without = (pa.parquet.read_table(f"{name}.parquet").to_pydict() for name in "rs")
    clf = unbag.load_model("model")
    shares = dict(zip(clf.priors_.bag_ids, clf.priors_.values, strict=True))
    for bag, given, plain in zip(
        by_bag["district"], by_bag["p_yes"], without["p_yes"], strict=True
    ):
        odds = plain / (1 - plain) / np.divide(*clf.test_prior_) * np.divide(*shares[bag])
        assert given == pytest.approx(odds / (1 + odds), rel=1e-3)
    refused = run(
        "predict model other.parquet --bag district --prior yes=0.4,no=0.6 --output t.csv"
    )
    assert refused.exit_code == 1


@pytest.mark.usefixtures("folder")
def test_show():
    shown = done("show model").stdout
    assert "2 classes: 'yes', 'no'." in shown
    assert "2 columns of kind number: age, income.\n1 column of kind category: city.\n" in shown
    assert "1 column of kind boolean: member." in shown
    assert "Column id is not used: it" in shown
    for question in ("How good is it?", "Can I trust it?", "What should I do next?"):
        assert question in shown
    assert as_json("show model")["columns"]["city"] == "category"
    unbag.load_model("model").save("bare")
    assert "The model has no report" in done("show bare").stdout
    assert run("show nothing").exit_code == 1


def test_export(folder):
    assert as_json("export model --output m.onnx") == {"output": "m.onnx"}
    assert run("export model --output m.onnx").exit_code == 1
    (folder / "c.toml").write_text("output = 'm.onnx'\n")
    done("export model --config c.toml --overwrite")
    assert (folder / "m.onnx").stat().st_size > 500


# ------------------------------------------------------------------------- names from the data


def test_names_that_try_to_steer_the_terminal(folder):
    names = ["[bold]yes[/bold] :smile:", "\x1b[31mno"]
    shares = pa.table({"district": ["north", "south", "west"], names[0]: [0.8, 0.3, 0.5]})
    shares = shares.append_column(names[1], pa.array([0.2, 0.7, 0.5]))
    pa.parquet.write_table(shares, "shares.parquet")
    options = GIVEN.replace(".csv", ".parquet")
    result = done(f"fit {options} {SMALL} --output [red]")
    assert "Model:  [red]" in result.stdout
    shown = done("predict [red] other.parquet --output p.parquet").output
    assert "[bold]yes[/bold] :smile:" in shown
    assert "\\x1b[31mno" in shown
    assert "\x1b" not in shown + result.output
    assert (folder / "[red]" / "report.html").is_file()


def test_a_terminal_without_unicode(monkeypatch):
    class Narrow:
        encoding = "ascii"

    with monkeypatch.context() as patched:
        printed = []
        patched.setattr(common.sys, "stdout", Narrow())
        patched.setattr(common.typer, "echo", printed.append)
        common.say("± 3 🐄")
    assert printed == ["\\xb1 3 \\U0001f404"]


@pytest.mark.usefixtures("folder")
def test_many_notes_are_cut():
    table = pa.parquet.read_table("rows.parquet")
    for i in range(50):
        table = table.append_column(f"c{i}", pa.array(["same"] * len(table)))
    pa.parquet.write_table(table, "rows.parquet")
    result = done(f"inspect {GIVEN}")
    assert result.stderr.count("note: ") == 21
    assert "note: and 32 more; --verbose and --json show all of them." in result.stderr
    assert done(f"inspect {GIVEN} --verbose").stderr.count("note: ") == 52
    assert len(as_json(f"inspect {GIVEN}")["input_notes"]) == 52


# --------------------------------------------------------------------- exit codes, help, options


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_interrupting(folder, monkeypatch, command):
    def stop(*_, **__):
        raise KeyboardInterrupt

    module = training if command == "fit" else using
    monkeypatch.setattr(module, f"{command}_files", stop)
    call = f"fit {GIVEN} --output new" if command == "fit" else "predict model x --output p.csv"
    before = content(folder)
    result = run(call)
    assert result.exit_code == 130
    assert "the same command goes on from there" in result.stderr
    assert content(folder) == before


@pytest.mark.usefixtures("folder")
def test_warnings_go_to_standard_error(monkeypatch):
    def warn(*args, **kwargs):
        warnings.warn("mind the gap", ConditioningWarning, stacklevel=2)
        return fit_files(*args, **kwargs)

    monkeypatch.setattr(training, "fit_files", warn)
    result = done(f"fit {GIVEN} {SMALL} --output new --json")
    assert "warning: mind the gap" in result.stderr
    json.loads(result.stdout)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_parses(name):
    text = " ".join(inspect.getdoc(COMMANDS[name]).split())
    example = text.partition("Example: ")[2]
    assert example.startswith(f"unbag {name} ")
    module = training if name in ("fit", "tune") else using
    command = typer.main.get_command(module.app).commands[name]
    with command.make_context(name, shlex.split(example)[2:], resilient_parsing=False) as context:
        assert context.params
    shown = run(f"{name} --help")
    assert shown.exit_code == 0
    assert f"Example: unbag {name}" in " ".join(shown.stdout.split())


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        ([], {}),
        (["rounds=2", "mixup=false", "start=prop"], {"rounds": 2, "mixup": False, "start": "prop"}),
        (["a = [1, 2.5]", 'b="x=y"', "c=x=y"], {"a": [1, 2.5], "b": "x=y", "c": "x=y"}),
        (["a=1\nb=2", "c="], {"a": "1\nb=2", "c": ""}),
    ],
)
def test_settings_on_the_command_line(texts, settings):
    assert parse_settings(texts) == settings


@pytest.mark.parametrize("texts", [["alpha"], ["=1"], ["a b=1"], ["a=1", "a=2"]])
def test_bad_settings_on_the_command_line(texts):
    with pytest.raises(InvalidInputError, match="set must be NAME=VALUE, each name once"):
        parse_settings(texts)


@pytest.mark.usefixtures("folder")
def test_settings_on_the_command_line_come_before_those_of_a_file():
    Path("c.toml").write_text("method = 'u-prr'\nset = {alpha = 0.4, ascent_scale = 2}\n")
    done(f"fit {GIVEN} --epochs 1 --width 4 --config c.toml --set alpha=0.6 --output new")
    clf = unbag.load_model("new")
    assert clf.settings_ == {"alpha": 0.6, "ascent_scale": 2}
    assert 'set = {"alpha" = 0.6, "ascent_scale" = 2}' in Path("new/config.toml").read_text()


def test_little_memory_is_told(monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(using, "predict_files", fail)
    result = run("predict model rows.csv --output p.csv")
    assert result.exit_code == 1
    assert "error: There is too little memory" in result.stderr


@pytest.mark.parametrize("name", ["other.csv", "other.parquet"])
def test_rows_from_standard_input(folder, name):
    pa.csv.write_csv(pa.parquet.read_table("other.parquet"), "other.csv")
    expected = done(f"predict model {name} --output a.csv")
    given = (folder / name).read_bytes()
    result = run("predict model - --output b.csv", input=given)
    assert result.exit_code == 0, result.output
    assert result.stdout.replace("b.csv", "a.csv") == expected.stdout
    assert (folder / "a.csv").read_text() == (folder / "b.csv").read_text()


def test_what_is_told_and_logged(folder):
    told = "--log-file log.txt --verbose"
    result = done(f"fit {GIVEN} {SMALL} --output new {told}")
    assert re.search(r"\d\d:\d\d:\d\d reading rows: ", result.stderr)
    log = (folder / "log.txt").read_text()
    for text in (" reading rows: ", " training: ", "note: Column 'id'", "Method: prop"):
        assert text in log
    quiet = done("predict model other.parquet --output p.csv --quiet --log-file log.txt")
    assert quiet.stderr == ""
    assert "Predicted 360 rows." in quiet.stdout
    assert (folder / "log.txt").read_text().startswith(log)
    failed = run("inspect nothing.csv --bag a --priors shares.csv --log-file log.txt --verbose")
    assert failed.exit_code == 1
    assert "Traceback" in failed.stderr
    assert "Traceback" in (folder / "log.txt").read_text()
    assert "quiet must be left out with --verbose" in run(f"inspect {GIVEN} -q --verbose").stderr


@pytest.mark.usefixtures("folder")
def test_some_of_the_rows():
    result = done(f"inspect {GIVEN} --json --where \"member = true and city in ('Oulu')\"")
    assert 0 < json.loads(result.stdout)["n_rows"] < 100
    assert "in which a number" in run(f"inspect {GIVEN} --where 'age >'").stderr


def test_a_column_of_labels_is_learned_from_and_evaluated_with(folder):
    rows = pyarrow.parquet.read_table(folder / "other.parquet")
    known = ["yes" if age < 1 else "no" for age in rows["age"].to_pylist()]
    seen = pyarrow.array([k if i % 4 == 0 else None for i, k in enumerate(known)])
    pyarrow.parquet.write_table(rows.append_column("seen", seen), folder / "seen.parquet")
    shares = "--bag district --priors shares.csv"
    options = "--method crossfit --model linear --epochs 2 --labels seen --output seen"
    printed = as_json(f"fit seen.parquet {shares} {options}")
    assert printed["evaluation"]["labelled"]["n_rows"] > 5
    printed = as_json(f"evaluate seen seen.parquet {shares} --labels seen")
    assert printed["evaluation"]["labelled"]["n_rows"] == 90
    result = run(f"evaluate seen seen.parquet {shares} --labels city")
    assert result.exit_code == 1
    assert "labels must be a column of the classes" in result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_used_in_a_test(name):
    tested = "".join(
        inspect.getsource(value) for key, value in globals().items() if key.startswith("test_")
    )
    for option in set(inspect.signature(COMMANDS[name]).parameters) - {"rows", "model", "as_json"}:
        name = {"method_settings": "set"}.get(option, option)
        assert f"--{name.replace('_', '-')}" in tested, option


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("yes=0.3,no=0.7", {"yes": 0.3, "no": 0.7}),
        (" yes = 0.3 , no = 7e-1 ", {"yes": 0.3, "no": 0.7}),
        ("a,b=0.3,c=d=0.7", {"a,b": 0.3, "c=d": 0.7}),
        ("<x> 🐄=1", {"<x> 🐄": 1.0}),
        ("yes=30%,no=70%", {"yes": 0.3, "no": 0.7}),
        ("yes=25,no=75", {"yes": 0.25, "no": 0.75}),
    ],
)
def test_shares_on_the_command_line(text, shares):
    assert parse_shares("prior", text) == shares


@pytest.mark.parametrize("text", ["", ",", "yes", "=1", "yes=", "yes=x", "a=1,a=0", "a=1,,"])
def test_bad_shares_on_the_command_line(text):
    with pytest.raises(InvalidInputError, match="prior must be a share for each class, such as"):
        parse_shares("prior", text)


def test_percent_signs_are_everywhere_or_nowhere():
    with pytest.raises(InvalidInputError, match="everywhere or nowhere"):
        parse_shares("prior", "yes=30%,no=0.7")
