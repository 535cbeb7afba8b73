"""Commands are imported when they are given; help and version need neither torch nor them."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest
import typer

import unbag
from run_command import run
from unbag.cli import _COMMANDS, app

CODE = "import sys; import unbag{}; sys.exit(sum(name in sys.modules for name in {!r}))"
HEAVY = ("torch", "sklearn", "scipy", "pyarrow")


@pytest.mark.parametrize("name", sorted(set(_COMMANDS) - {"bench", "datasets"}))
def test_the_line_of_a_command_is_its_own(name):
    module, text = _COMMANDS[name]
    command = getattr(import_module(f"unbag.cli.{module}"), name)
    assert inspect.getdoc(command).partition("\n\n")[0].replace("\n", " ") == text


@pytest.mark.parametrize("part", ["", ".cli"])
def test_importing_is_light(part):
    code = CODE.format(part, HEAVY)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_are_all_there():
    assert set(unbag.__all__) <= set(dir(unbag))
    assert all(getattr(unbag, name) is not None for name in unbag.__all__)
    assert unbag.priors.ClassPriors is unbag.ClassPriors
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        unbag.nothing  # noqa: B018


@pytest.mark.parametrize("options", ["--help", "-h", ""])
def test_help_names_the_commands(options):
    shown = run(options).output
    assert all(f" {name} " in shown for name in _COMMANDS if name != "bench")
    assert " bench " not in shown


def test_version_and_module():
    assert run("--version").stdout == f"unbag {unbag.__version__}\n"
    command = [sys.executable, "-m", "unbag", "--version"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown == f"unbag {unbag.__version__}\n"


def test_options_are_in_groups():
    shown = run("fit -h").output
    places = [shown.index(f"─ {group} ─") for group in ("Data", "Method", "Training", "Output")]
    assert places == sorted(places)


def test_unknown_commands_are_named():
    result = run("nonsense")
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output
    assert isinstance(app, typer.Typer)


@pytest.mark.parametrize("command", ["inspect", "fit", "tune", "evaluate", "predict", "show"])
def test_help_says_in_words_what_follows_an_option(command):
    whole = typer.main.get_command(app)
    own = whole.get_command(typer.Context(whole), command)
    own = own.make_context(command, [], resilient_parsing=True).command
    following = {
        name: parameter.metavar
        for parameter in own.params
        if parameter.param_type_name == "option" and parameter.name != "help"
        for name in parameter.opts
    }
    assert set(following.values()) <= {"<text>", "<path>", "<number>", "NAME=VALUE", ""}
    assert following["--json"] == following["--quiet"] == ""
    assert following["--log-file"] == "<path>"
