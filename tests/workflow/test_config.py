"""Options as TOML: what is written is read again, and what is read fits the options."""

import math
import os
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbag.exceptions import InvalidInputError
from unbag.workflow.config import load_toml, read_config, text_option, to_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), TEXT)


def same(one, other):
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


@given(st.one_of(SCALARS, st.lists(SCALARS, max_size=4)))
def test_every_value_comes_back(value):
    assert same(value, tomllib.loads(to_toml({"key": value}))["key"])


@pytest.mark.parametrize(
    "text", ['"', "'''", '"""', "a\nb", "a\x7fb\x00", "\\u0041", "# no", "[x]", "🐄\u202e", "\x85"]
)
def test_hostile_texts_come_back(text):
    assert tomllib.loads(to_toml({"a": text, "b": [text]})) == {"a": text, "b": [text]}


def test_half_characters_of_file_names_become_a_sign():
    assert tomllib.loads(to_toml({"rows": "a\udcff.csv"})) == {"rows": "a?.csv"}


def test_none_is_left_out():
    assert to_toml({"a": None, "b": False, "c": []}) == "b = false\nc = []\n"
    infinite = {"a": float("nan"), "b": float("inf"), "c": -float("inf")}
    assert to_toml(infinite) == "a = nan\nb = inf\nc = -inf\n"


KNOWN = {
    "epochs": int | None,
    "dropout": float,
    "method_settings": list[str] | None,
    "calibrate": bool | None,
    "bag": str | None,
    "leave_out": list[str] | None,
}


def test_options_of_all_types(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("epochs=3\ndropout=1\ncalibrate=true\nbag='x'\nleave-out=['a']\n")
    result = read_config(file, "fit", KNOWN)
    assert result == {"epochs": 3, "dropout": 1, "calibrate": True, "bag": "x", "leave_out": ["a"]}


def test_a_table_for_each_command(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[fit]\nepochs = 3\n[predict]\nkey = ['id']\n")
    assert read_config(file, "fit", KNOWN) == {"epochs": 3}


@pytest.mark.parametrize(
    "text",
    [
        "set = {alpha = 0.4, start = 'prop'}",
        "[set]\nalpha = 0.4\nstart = 'prop'",
        "[fit]\nset = {alpha = 0.4, start = 'prop'}",
        "alpha = 0.4\nset = {start = 'prop'}",  # as older versions wrote it
    ],
)
def test_settings_of_the_method(tmp_path, text):
    file = tmp_path / "c.toml"
    file.write_text(text)
    result = read_config(file, "fit", KNOWN)
    assert result == {"method_settings": {"alpha": 0.4, "start": "prop"}}


def test_settings_come_back(tmp_path):
    file = tmp_path / "c.toml"
    arguments = {"rounds": 2, "mixup": False, "start": 'a "b" = c', "weights": [0.5, 1.0]}
    file.write_text(to_toml({"set": arguments}))
    assert read_config(file, "fit", KNOWN) == {"method_settings": arguments}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 3.0", "epochs in config file .* must be a whole number, got 3.0"),
        ("dropout = 'x'", "dropout .* must be a number, got 'x'"),
        ("calibrate = 'yes'", "calibrate .* must be true or false, got 'yes'"),
        ("bag = ['x']", "bag .* must be text in quotes"),
        ("leave_out = ['x', 1]", "leave_out .* must be a list of text in quotes"),
        ("bag = 2024-01-01", "bag .* must be text in quotes"),
        ("x = 1", "options in .* must be those of `unbag fit`, got unknown 'x'; it has 'bag'"),
        ("set = 1", "set in config file .* must be a table such as {rounds = 2}, got 1"),
        ("alpha = 'x'", "alpha .* must be a number, got 'x'"),
        ("[tune]", r"plain options, or tables with one called \[fit\], got the tables 'tune'"),
        ("epochs = 1\n[fit]", "got both options and the tables 'fit'"),
        ("x = " + "'" + "a" * (1 << 20) + "'", "at most 1 MB"),
    ],
)
def test_bad_files(tmp_path, text, message):
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_config(file, "fit", KNOWN)


def test_a_file_of_a_model_folder_is_no_link_and_no_pipe(tmp_path):
    (tmp_path / "true.toml").write_text('bag = "a"')
    (tmp_path / "link.toml").symlink_to(tmp_path / "true.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    assert text_option(tmp_path / "true.toml", "bag") == "a"
    assert load_toml(tmp_path / "link.toml") == {"bag": "a"}  # one that the user names
    for name in ("link.toml", "pipe.toml"):
        assert text_option(tmp_path / name, "bag") is None


@pytest.mark.parametrize("text", ["a", 'ü" = \\ \n\t\x7f\u2028', "", "[x]\nbag = 1"])
def test_an_option_of_text_is_read_as_it_was_written(tmp_path, text):
    file = tmp_path / "c.toml"
    file.write_text(to_toml({"other": f'bag = "{text}"', "bag": text, "z": ["bag"]}))
    assert text_option(file, "bag") == load_toml(file)["bag"] == text
    assert text_option(file, "ba") is None


@pytest.mark.parametrize("line", ["bag = 1", "bag = ['x']", 'bag = "\\q"', 'bag = "\ud800"', "x"])
def test_an_option_that_is_no_text(tmp_path, line):
    (tmp_path / "c.toml").write_bytes(line.encode("utf-8", "surrogatepass"))
    assert text_option(tmp_path / "c.toml", "bag") is None
