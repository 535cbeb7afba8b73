"""What the study may use: public names of the library, and helpers for messages and files."""

import ast
import runpy
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "study").glob("*.py"))
ALLOWED = {
    "unbag",
    "unbag.datasets",
    "unbag.exceptions",
    "unbag.methods",
    "unbag.priors",
    "unbag.training",
    # Helpers that the project's commands share.
    "unbag.cli",
    "unbag.cli.common",
    "unbag.files",
    "unbag.validation",
}


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_it_uses_the_public_names_of_the_library(path):
    result = set(imports(ast.parse(path.read_text(encoding="utf-8"))))
    assert {name for name in result if name.startswith("unbag")} <= ALLOWED


def test_jobs_are_built_in_one_place():
    calls = [
        (path.relative_to(ROOT / "study").as_posix(), node.func.id)
        for path in sorted((ROOT / "study").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Job"
    ]
    assert calls == [("data.py", "Job")]


def test_the_wheel_carries_the_library_only():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/unbag"]}


def test_it_runs_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["study", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "study/__main__.py"), run_name="__main__")
    assert ended.value.code == 0
    assert "python -m study" in capsys.readouterr().out
