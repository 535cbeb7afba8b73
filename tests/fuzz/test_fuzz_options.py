"""Options in TOML files and on the command line: read as they were written, or refused."""

import math
import random
import string
import tomllib
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
from fuzzing import check_message, content, outcome, seeds, sweep
from hypothesis import strategies as st
from written_rows import value

from run_command import message, run
from unbag.workflow.config import load_toml, read_config, to_toml

KNOWN = {
    "bag": str | None,
    "epochs": int,
    "alpha_level": float,
    "overwrite": bool,
    "columns": list[str] | None,
    "output": Path,
    "method_settings": dict | None,
}
plain = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.lists(st.text(max_size=3), max_size=3),
)
RIGHT = {
    "bag": st.text(max_size=5),
    "epochs": st.integers(0, 2**62),
    "alpha-level": st.floats(allow_nan=False),
    "overwrite": st.booleans(),
    "columns": st.lists(st.text(max_size=5), max_size=3),
    "set": st.dictionaries(st.text(string.ascii_letters, min_size=1), plain, max_size=2),
}


@st.composite
def toml(draw):
    names = draw(st.lists(st.sampled_from(list(RIGHT)), unique=True))
    options = {name: draw(RIGHT[name]) for name in names}
    if draw(st.integers(0, 3)) == 0:
        options[draw(st.sampled_from([*RIGHT, "other"]))] = draw(plain)
    text = to_toml(options)
    damage = draw(st.sampled_from([None] * 4 + ["cut", "byte", "table", "both"]))
    data = text.encode()
    rng = random.Random(draw(seeds()))
    place = rng.randrange(len(data) + 1)
    if damage == "cut":
        data = data[:place]
    elif damage == "byte":
        data = data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
    elif damage == "table":
        data = b"[fit]\n" + data
    elif damage == "both":
        data += b"\n[fit]\nepochs = 1\n"
    return options, data, damage


def same(one, other) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, list | dict):
        return repr(one) == repr(other)
    return one == other and type(one) is type(other)


def test_toml(tmp_path):
    path = tmp_path / "a.toml"

    def check(case) -> bool:
        options, data, damage = case
        path.write_bytes(data)
        if damage is None:
            read = load_toml(path)
            assert read.keys() == options.keys()
            assert all(same(read[name], options[name]) for name in options), (read, options)
        found, error = outcome(lambda: read_config(path, "fit", KNOWN))
        if error is not None:
            return False
        written = tomllib.loads(data.decode())
        written = written.get("fit", written)  # with a table for each command
        names = {"set": "method_settings", "alpha-level": "alpha_level"}
        written = {names.get(name, name): given for name, given in written.items() if given != {}}
        assert repr(found) == repr(written) or {**found} == written or "nan" in repr(found)
        return True

    sweep("TOML", toml(), check)


# --------------------------------------------------------------------------------------- commands

VALUES = ["", "0", "1", "-1", "2", "1e9", "nan", "inf", str(2**70), "0.5", "x", "district", "none",
          "age", "city", "id", "yes=0.3,no=0.7", "yes=1", "yes=nan,no=1", "=", "prop", "u-prr",
          "exact", "iid", "cpu", "auto", "linear", "../x", "ü", "alpha=0.5", "set=x",
          "age > 0", "city = 'Oulu' or age is null", "district in ('north', 'south')"]  # fmt: skip
OPTIONS = {
    "inspect": [
        "--bag",
        "--columns",
        "--leave-out",
        "--shares-of",
        "--level",
        "--seed",
        "--json",
        "--where",
    ],
    "predict": [
        "--key",
        "--prior",
        "--device",
        "--no-probabilities",
        "--json",
        "--overwrite",
        "--where",
        "--bag",
    ],
    "evaluate": [
        "--bag",
        "--shares-of",
        "--level",
        "--title",
        "--json",
        "--overwrite",
        "--where",
        "--by",
    ],
    "fit": [
        "--method",
        "--epochs",
        "--batch-size",
        "--learning-rate",
        "--width",
        "--depth",
        "--dropout",
        "--test-prior",
        "--set",
        "--seed",
        "--shares-of",
        "--model",
        "--json",
        "--where",
    ],
}
FLAGS = ("--json", "--overwrite", "--no-probabilities")
BASE = {
    "inspect": "inspect ROWS --priors PRIORS --bag district",
    "predict": "predict model ROWS --output out.FORMAT",
    "evaluate": "evaluate model ROWS --report out.html --bag district",
    "fit": "fit ROWS --priors PRIORS --bag district --method prop --epochs 1 --output new",
}


@st.composite
def commands(draw):
    rng = random.Random(draw(seeds()))
    name = draw(st.sampled_from([*BASE, "predict", "inspect"]))
    words = BASE[name].replace("FORMAT", rng.choice(["csv", "parquet"])).split()
    n_options = draw(st.sampled_from([0, 0, 0, 1, 1, 2]))
    for option in rng.sample(OPTIONS[name], n_options):
        words += [option] if option in FLAGS else [option, rng.choice(VALUES)]
    rows = draw(
        st.sampled_from(["rows.csv", "blank.csv", "other.parquet", "rows.parquet", "odd.csv"])
    )
    priors = draw(st.sampled_from(["shares.csv"] * 4 + ["rows.csv", "none.csv", "model"]))
    words = [{"ROWS": rows, "PRIORS": priors}.get(word, word) for word in words]
    return name, words, rng


def test_commands(folder):
    """A command ends with 0, 1 or 2, says why, and leaves a whole result or nothing."""
    import shlex

    text = (folder / "rows.csv").read_text()
    (folder / "blank.csv").write_text(text.replace("\n", "\n\r\n\n", 50))
    before = content(folder)
    rows = {}
    for name in ("rows.csv", "blank.csv"):
        rows[name] = rows["rows.parquet"] = 360
    expected = {}

    def check(case) -> bool:
        name, words, rng = case
        lines = text.splitlines()
        for _ in range(3):
            i = rng.randrange(1, len(lines))
            cells = lines[i].split(",")
            cells[rng.randrange(len(cells))] = '"' + value("odd text", rng).replace('"', '""') + '"'
            lines[i] = ",".join(cells)
        (folder / "odd.csv").write_text("\n".join(lines), newline="")
        result = run(shlex.join(words))
        assert result.exit_code in (0, 1, 2), (words, result.exception)
        after = content(folder)
        after.pop("odd.csv")
        new = {path for path in after if path not in before}
        assert {path: after.get(path) for path in before} == before, "a file was changed"
        assert not [path for path in new if Path(path).name.startswith(".")], new
        if result.exit_code == 0:
            if name == "predict":
                check_predictions(folder, words, expected)
            elif name == "fit":
                assert {"new/model.json", "new/report.html", "new/config.toml"} <= new
        else:
            assert not new
            told = message(result.stderr)
            assert told, result.stderr
            if result.exit_code == 1:
                check_message(told)
        for path in sorted(new, reverse=True):
            (folder / path).rmdir() if (folder / path).is_dir() else (folder / path).unlink()
        return result.exit_code == 0

    sweep("commands", commands(), check)


def check_predictions(folder: Path, words: list[str], expected: dict) -> None:
    output = folder / words[words.index("--output") + 1]
    read = pyarrow.csv.read_csv if output.suffix == ".csv" else pyarrow.parquet.read_table
    found = read(output)
    if "--where" in words:
        assert 0 < found.num_rows <= 360
        return
    assert found.num_rows == 360
    if "--key" not in words:
        assert found["row"].to_pylist() == list(range(360))
    if {"--prior", "--bag"} & set(words) or words[2] == "odd.csv":
        return
    source = {"blank.csv": "rows", "rows.csv": "rows", "rows.parquet": "rows"}.get(
        words[2], words[2]
    )
    assert expected.setdefault(source, found["class"].to_pylist()) == found["class"].to_pylist()
