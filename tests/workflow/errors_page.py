"""The page ``docs/reference/errors.md``, made from the table of bad inputs.

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

PAGE = Path(__file__).parents[2] / "docs/reference/errors.md"
_LONGEST = 240  # characters of a message that the page shows
HEAD = """# What is refused, and the message

Every message here is tested: the command ends with exit code 1 (2 if the command line itself is \
wrong), prints this message and no traceback, and leaves every file as it was. The page is made \
by `python tests/workflow/errors_page.py` from `tests/workflow/bad_inputs.py`.

Exit codes of all commands: 0 done, 1 refused, 2 wrong command line, 130 interrupted (the same \
command goes on from there).
"""


def page(messages: dict[BadInput, str]) -> str:
    """Make the page."""
    parts = [HEAD]
    for topic, cases in groupby(messages, key=lambda case: case.topic):
        parts.append(f"\n## {topic.capitalize()}\n\n")
        parts += dict.fromkeys(f"- {_plain(messages[case])}\n" for case in cases)
    return "".join(parts)


def _plain(text: str) -> str:
    """Escape what Markdown would read, and leave the middle of a long list out."""
    if len(text) > _LONGEST:
        first, last = text[: _LONGEST // 2], text[-_LONGEST // 2 :]
        text = f"{first.rpartition(' ')[0]} … {last.partition(' ')[2]}"
    for sign in "\\<*":
        text = text.replace(sign, f"\\{sign}")
    return text


def main() -> None:
    """Write the page."""
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
