"""``python -m unbag`` is the command ``unbag``."""

from unbag.cli import app

app(prog_name="unbag")
