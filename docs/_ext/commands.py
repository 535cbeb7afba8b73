"""The reference of all commands, written from their own options before Sphinx reads the pages."""

import inspect
import re
from pathlib import Path

import click
import typer
from sphinx.application import Sphinx

HEAD = """# Commands

`unbag COMMAND --help` prints the same. [From files to a page](../guide/files.md) shows them at work.
"""


def write_commands(app: Sphinx) -> None:
    """Write ``reference/commands.md``."""
    from unbag.cli import app as cli

    root = typer.main.get_command(cli)
    text = HEAD + "".join(_section(root, "unbag"))
    page = Path(app.srcdir, "reference", "commands.md")
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def _section(command: click.Command, name: str) -> list[str]:
    if hasattr(command, "commands"):
        shown = (c for c in command.commands.items() if not c[1].hidden)
        return [part for key, c in shown for part in _section(c, f"{name} {key}")]
    about = inspect.cleandoc(command.help or "")
    options = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    rows = [f"| {_names(p)} | {_cell(getattr(p, 'help', None) or '')} |\n" for p in options]
    return [f"\n## {name}\n\n{about}\n\n| option | what it does |\n|---|---|\n", *rows]


def _names(parameter: click.Parameter) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.human_readable_name}`"
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the page before the sources are read."""
    app.connect("builder-inited", write_commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
