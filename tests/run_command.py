"""Commands run in this process, what they tell, and what they leave."""

import shlex
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from unbag.cli import app


def run(command: str, **options: Any) -> Any:
    """Run a command in this process, in the current folder."""
    return CliRunner().invoke(app, shlex.split(command), prog_name="unbag", **options)


def message(stderr: str) -> str:
    """What a command told, on one line: without the box around it, notes and warnings."""
    boxed = [line.strip("│ ") for line in stderr.splitlines() if line.startswith("│")]
    if boxed:
        return " ".join(boxed)
    lines = stderr.splitlines()
    return " ".join(line.removeprefix("error: ") for line in lines if line.startswith("error: "))


def content(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder and what is in it; None for folders."""
    paths = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in paths}
