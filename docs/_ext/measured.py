"""Tables of stored measurements: ``{measured} coverage results/coverage.json``.

The first argument names a check of the study, or a benchmark, that has a function ``table``; the
second is its record.
"""

import importlib
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]


class Measured(SphinxDirective):
    """Show the table that a script makes of its record."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        from study.checks.__main__ import read

        script, record = self.arguments
        is_check = (ROOT / f"study/checks/{script}.py").exists()
        module = importlib.import_module(f"study.checks.{script}" if is_check else script)
        self.env.note_dependency(ROOT / record)
        return self.parse_text_to_nodes(module.table(read(ROOT / record)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
