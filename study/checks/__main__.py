"""``python -m study.checks NAME``: measure and print the tables, or print those of a record.

A check whose ``measure`` takes what is ``done`` goes on from the file of its record.
"""

import argparse
import importlib
import inspect
import json
from collections.abc import Sequence
from pathlib import Path

from unbag.files import new_file

NAMES = (
    "causes",
    "columns",
    "coverage",
    "deep_bags",
    "defaults",
    "drift",
    "inspection",
    "labelled_rows",
    "mixup",
    "noisy_shares",
    "precision",
    "sampled_rows",
    "share_errors",
    "small_bags",
    "tables",
    "tuning",
)


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
            if option.name == "done":
                continue
            kind = type(option.default)
            check.add_argument(f"--{option.name}", type=kind, default=option.default)
        check.add_argument("--record", type=Path, help="write the results to this file")
        check.add_argument("--table", type=Path, help="print the tables of this record")
        check.set_defaults(module=module)
    given = vars(parser.parse_args(arguments))
    module, record_file, table_file = given.pop("module"), given.pop("record"), given.pop("table")
    del given["name"]
    record = json.loads(table_file.read_text(encoding="utf-8")) if table_file else {}
    if "done" in inspect.signature(module.measure).parameters and record_file:
        text = record_file.read_text(encoding="utf-8") if record_file.exists() else "{}"
        given["done"] = record = json.loads(text)
    for record in [] if table_file else module.measure(**given):
        if record_file:
            with new_file(record_file) as temporary:
                temporary.write_text(f"{json.dumps(record, indent=1)}\n", encoding="utf-8")
    print(module.table(record) if record else "nothing was measured")


if __name__ == "__main__":
    main()
