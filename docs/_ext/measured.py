"""Tables of stored measurements: ``{measured} study.checks.coverage results/coverage.json``.

The first argument is the module of a check or of a benchmark, whose function ``table`` writes
Markdown; the second is its record. Without a record it is ``MODULE:FUNCTION``, and the function is
called when the site is built.
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

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        from script import read

        module, _, function = self.arguments[0].partition(":")
        make = getattr(importlib.import_module(module), function or "table")
        records = [ROOT / record for record in self.arguments[1:]]
        for record in records:
            self.env.note_dependency(record)
        table = make(*map(read, records))
        return self.parse_text_to_nodes(table, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
