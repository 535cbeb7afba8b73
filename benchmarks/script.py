"""What the benchmarks share: a record in a file, and its table again from there."""

import argparse
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unbag.files import new_file

Record = dict[str, Any]
_EARLIER = "earlier"  # the parameter of a benchmark that goes on from a record


def run_script(
    description: str | None,
    measure: Callable[..., Iterator[Record]],
    table: Callable[[Record], str],
    **numbers: int,
) -> Record:
    """Measure and print the table, or print that of a record; numbers are options with defaults.

    ``measure`` yields its record as it grows; each state replaces the last in the file. Where it
    has a parameter ``earlier``, it goes on with the record of the file, or starts with None.
    """
    parser = argparse.ArgumentParser(description=description)
    for name, default in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--record", type=Path, help="write the results to this file")
    parser.add_argument("--table", type=Path, help="print the table of this record")
    arguments = parser.parse_args()
    if arguments.table:
        record = read(arguments.table)
        print(table(record))
        return record
    given: dict[str, Any] = {name: getattr(arguments, name) for name in numbers}
    if _EARLIER in inspect.signature(measure).parameters:
        file = arguments.record
        given[_EARLIER] = read(file) if file and file.exists() else None
    record = {}
    for record in measure(**given):
        if arguments.record:
            write(arguments.record, record)
    print(table(record))
    return record


def read(path: Path) -> Record:
    """Read a record: one JSON document, or (``.jsonl``) its head and a line per run."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".jsonl":
        return json.loads(text)
    head, *runs = map(json.loads, text.splitlines())
    return head | {"runs": runs}


def write(path: Path, record: Record) -> None:
    """Write a record in the form of the file's name, whole or not at all."""
    text = json.dumps(record, indent=1)
    if path.suffix == ".jsonl":
        head = {name: value for name, value in record.items() if name != "runs"}
        text = "\n".join(json.dumps(part, ensure_ascii=False) for part in (head, *record["runs"]))
    with new_file(path) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")
