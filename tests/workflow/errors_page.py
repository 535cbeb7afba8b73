"""The list ``messages.md``, made from the table of bad inputs; a page of the site shows it.

``python tests/workflow/errors_page.py`` writes it again.
"""

import os
import shutil
import sys
import tempfile
from itertools import groupby
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where it is run alone

from bad_inputs import BAD_INPUTS, BadInput

from run_command import message, run
from small_files import train, write_files

PAGE = Path(__file__).with_name("messages.md")
_LONGEST = 240  # characters of a message that the list shows


def page(messages: dict[BadInput, str]) -> str:
    """Make the list."""
    parts = []
    for topic, cases in groupby(messages, key=lambda case: case.topic):
        parts.append(f"\n## {topic.capitalize()}\n\n")
        parts += dict.fromkeys(f"- {_plain(messages[case])}\n" for case in cases)
    return "".join(parts).lstrip("\n")


def _plain(text: str) -> str:
    """Escape what Markdown would read, and leave the middle of a long list out."""
    if len(text) > _LONGEST:
        first, last = text[: _LONGEST // 2], text[-_LONGEST // 2 :]
        text = f"{first.rpartition(' ')[0]} … {last.partition(' ')[2]}"
    for sign in "\\<*":
        text = text.replace(sign, f"\\{sign}")
    return text


def main() -> None:
    """Write the list."""
    messages = {}
    with tempfile.TemporaryDirectory() as name:
        original = Path(name, "made")
        original.mkdir()
        write_files(original)
        train(original)
        for case in BAD_INPUTS:
            folder = Path(name, "files")
            shutil.copytree(original, folder)
            os.chdir(folder)
            case.make(folder)
            messages[case] = message(run(case.command).stderr)
            os.chdir(name)
            shutil.rmtree(folder)
    PAGE.write_text(page(messages), encoding="utf-8")
    sys.stdout.write(f"{len(messages)} cases in {PAGE}\n")


if __name__ == "__main__":
    main()
