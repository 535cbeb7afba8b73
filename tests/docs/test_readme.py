"""What the README says is typed as it stands there, in an empty folder."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def block(start, kind=""):
    """The block of a kind that starts like this."""
    (found,) = [text for name, text in BLOCKS if name == kind and text.startswith(start)]
    return found


def alike(shown, printed):
    """Whether the README shows these lines; numbers depend on the machine in their digits."""

    def words(text):
        return [re.sub(r"[\d.]+", "#", line).split() for line in text.splitlines() if line]

    lines = words(printed)
    return all(line in lines for line in words(shown))


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def type_commands():
    """Type the commands of the README; return what they print."""
    printed = ""
    for line in block("unbag demo").splitlines():
        command = shlex.split(line, comments=True)
        if command[0] == "cd":
            os.chdir(command[1])
            continue
        assert command[0] == "unbag"
        done = subprocess.run(
            [sys.executable, "-m", "unbag", *command[1:]],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed += done.stdout
    return printed


def run_python(code):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    return printed.getvalue()


@pytest.mark.slow
@pytest.mark.usefixtures("empty_folder")
def test_commands_and_tables_in_python():
    printed = type_commands()
    assert alike(block("290 rows"), printed)
    shown, told = (re.search(r"accuracy +([\d.]+)%", t)[1] for t in (block("290 rows"), printed))
    assert float(told) == pytest.approx(float(shown), abs=3)
    assert Path("model/report.html").stat().st_size < 1_000_000
    code = block("import pandas", "python")
    classes, accuracy = run_python(code).splitlines()
    assert re.fullmatch(r"\['\w+' '\w+' '\w+'\]", classes)
    number = r"([\d.]+) \(([\d.]+) to ([\d.]+)\)"
    shown, told = (
        [float(part) for part in re.search(number, text).groups()] for text in (code, accuracy)
    )
    assert told == pytest.approx(shown, abs=0.03)


def test_the_readme_fits_three_screens():
    assert len(README.splitlines()) < 100


def test_the_assumption_and_both_examples_stand_before_the_install_line():
    first, _ = README.split("## Install")
    assert "The assumption: " in first
    assert "- It holds where" in first
    assert "- It fails where" in first
