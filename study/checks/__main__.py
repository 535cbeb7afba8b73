"""``python -m study.checks NAME``: measure and print the tables, or print those of a record."""

import argparse
import importlib
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unbag.files import new_file

NAMES = (
    "causes",
    "coverage",
    "inspection",
    "precision",
    "real_tables",
    "small_bags",
    "tables",
    "tuning",
)
_EARLIER = "earlier"  # the parameter of a check that goes on from a record


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a check; the parameters of its ``measure`` are options."""
    parser = argparse.ArgumentParser(prog="python -m study.checks", description=__doc__)
    checks = parser.add_subparsers(dest="name", required=True)
    for name in NAMES:
        module = importlib.import_module(f"study.checks.{name}")
        check = checks.add_parser(
            name, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        for option in inspect.signature(module.measure).parameters.values():
            if option.name != _EARLIER:
                kind = type(option.default)
                check.add_argument(f"--{option.name}", type=kind, default=option.default)
        check.add_argument("--record", type=Path, help="write the results to this file")
        check.add_argument("--table", type=Path, help="print the tables of this record")
        check.set_defaults(module=module)
    given = vars(parser.parse_args(arguments))
    module, record_file, table_file = given.pop("module"), given.pop("record"), given.pop("table")
    del given["name"]
    if _EARLIER in inspect.signature(module.measure).parameters:
        given[_EARLIER] = read(record_file) if record_file and record_file.exists() else None
    record = read(table_file) if table_file else {}
    for record in [] if table_file else module.measure(**given):
        if record_file:
            write(record_file, record)
    print(module.table(record))


def read(path: Path) -> dict[str, Any]:
    """Read a record: one JSON document, or (``.jsonl``) its head and a line per run."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".jsonl":
        return json.loads(text)
    head, *runs = map(json.loads, text.splitlines())
    return head | {"runs": runs}


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a record in the form of the file's name."""
    text = json.dumps(record, indent=1)
    if path.suffix == ".jsonl":
        head = {name: value for name, value in record.items() if name != "runs"}
        text = "\n".join(json.dumps(part, ensure_ascii=False) for part in (head, *record["runs"]))
    with new_file(path) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
