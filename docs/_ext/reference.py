"""The reference of names and commands, written from the package before Sphinx looks for pages."""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

MODULES = {  # which names users call, and what they are for
    "unbag": "The names that most users need.",
    "unbag.methods": "Methods, their settings, and many models at once.",
    "unbag.objectives": "Losses for a training loop of your own: modules of (logits, bag_index).",
    "unbag.priors": "Class shares: generators, checks and weights.",
    "unbag.evaluation": "Numbers without labels.",
    "unbag.displays": "Charts for notebooks, in the manner of scikit-learn's displays.",
    "unbag.reporting": "The page of a model, and the verdict on it.",
    "unbag.inspection": "The check before the start.",
    "unbag.selection": "Search and cross-validation without labels.",
    "unbag.workflow": "What the commands call: files in, files out.",
    "unbag.io": "Rows and class shares from files.",
    "unbag.processes": "The processes that fit one model together.",
    "unbag.datasets": "The six benchmark datasets of the paper.",
    "unbag.theory": "The bound on the estimation error.",
    "unbag.callbacks": "What is told while models are trained, and loggers.",
    "unbag.distributed": "Executors of clusters.",
    "unbag.mlflow": "What MLflow calls.",
    "unbag.exceptions": "Errors and warnings.",
}
COMMANDS = """# Commands

`unbag COMMAND --help` prints the same. [From files to a page](../guide/files.md) shows them at \
work.
"""


def write_reference(app: Sphinx, _: Config) -> None:
    """Write the pages of names and of commands, where they changed."""
    from unbag.cli import app as cli

    commands = COMMANDS + "".join(_section(typer.main.get_command(cli), "unbag"))
    names = "Python names\n============\n" + "".join(map(_module, MODULES))
    for name, text in (("commands.md", commands), ("api.rst", names)):
        page = Path(app.srcdir, "reference", name)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _module(name: str) -> str:
    module = importlib.import_module(name)
    shown = [n for n in module.__all__ if _is_documented(getattr(module, n), name)]
    if not shown:
        return ""
    lines = "".join(f"   {n}\n" for n in shown)
    head = f"\n{name}\n{'-' * len(name)}\n\n.. module:: {name}\n\n{MODULES[name]}\n\n"
    return f"{head}.. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n{lines}"


def _is_documented(thing: object, module: str) -> bool:
    """Say whether a name gets a page here: a class or function that no module above shows."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return False
    first = next((m for m in MODULES if thing in vars(importlib.import_module(m)).values()), module)
    return first == module


def _section(command: Any, name: str) -> list[str]:
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        parts = [command.get_command(context, n) for n in command.list_commands(context)]
        shown = [part for part in parts if not part.hidden]
        return [text for part in shown for text in _section(_loaded(part), f"{name} {part.name}")]
    about = re.sub(r"(?m)^Example: (.+)$", r"```\n\1\n```", inspect.cleandoc(command.help or ""))
    options = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    rows = [f"| {_names(p)} | {_cell(_text(p))} |\n" for p in options]
    return [f"\n## {name}\n\n{about}\n\n| option | what it does |\n|---|---|\n", *rows]


def _loaded(command: Any) -> Any:
    """Return a command that may only be imported when it is called."""
    return command.make_context(command.name, [], resilient_parsing=True).command


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _text(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", False)
    default = shown if isinstance(shown, str) else parameter.default if shown else None
    about = getattr(parameter, "help", None) or ""
    if parameter.required:
        return f"{about} Required."
    return about if default is None or default is False else f"{about} Default: {default}."


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def find_by_last_name(
    app: Sphinx, env: BuildEnvironment, node: nodes.Element, text: nodes.Element
) -> nodes.Element | None:
    """Find what a docstring names without its module; a name without a page stays plain text."""
    target = node.get("reftarget", "").removeprefix("unbag.")
    objects = env.domains.python_domain.objects
    for ending in (target, target.rpartition(".")[2]):
        found = {entry.node_id: entry for n, entry in objects.items() if n.endswith(f".{ending}")}
        if len(found) == 1:
            break
    if node.get("refdomain") != "py":
        return None
    if len(found) != 1:
        return text if _exists(target) else None
    (entry,) = found.values()
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, text)


def _exists(target: str) -> bool:
    name = target.rpartition(".")[2]
    parts = [module for key, module in sys.modules.items() if key.split(".")[0] == "unbag"]
    return f"unbag.{target}" in sys.modules or any(hasattr(module, name) for module in parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before the sources are listed."""
    app.connect("config-inited", write_reference)
    app.connect("missing-reference", find_by_last_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
