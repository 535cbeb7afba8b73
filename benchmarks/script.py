"""What the benchmarks share: a record in a file, and its table again from there."""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def run_script(
    description: str | None,
    measure: Callable[..., Iterator[Record]],
    table: Callable[[Record], str],
    **numbers: int,
) -> None:
    """Measure and print the table, or print that of a record; numbers are options with defaults.

    ``measure`` yields its record as it grows; each state replaces the last in the file.
    """
    parser = argparse.ArgumentParser(description=description)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--record", type=Path, help="write the results to this file")
    parser.add_argument("--table", type=Path, help="print the table of this record")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.table.read_text())))
        return
    record: Record = {}
    for record in measure(**{name: getattr(arguments, name) for name in numbers}):
        if arguments.record:
            arguments.record.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))
