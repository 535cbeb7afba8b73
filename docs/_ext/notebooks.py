"""The gallery's notebooks, run, so that what is downloaded holds its results."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient
from sphinx.application import Sphinx
from traitlets.config import Config

_CONFIG = Config({"KernelManager": {"transport": "ipc"}})  # kernels warn of unencrypted TCP


def run_notebooks(app: Sphinx) -> None:
    """Run every notebook of the gallery that has not been run since it was written."""
    for path in sorted(Path(app.srcdir, "gallery").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if not any(cell.get("outputs") for cell in notebook.cells):
            NotebookClient(notebook, timeout=600, config=_CONFIG).execute()
            nbformat.write(notebook, path)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run after the gallery wrote its files."""
    app.connect("builder-inited", run_notebooks, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
