"""Sections of text and tables, written as Markdown, LaTeX or HTML.

A table is a DataFrame of text. Text is Markdown of two kinds of spans only, ``**bold**`` and code
between backticks; a line break in a cell of a table stays one.
"""

import html
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pandas as pd

Block: TypeAlias = "str | pd.DataFrame"  # a paragraph or a table


@dataclass(frozen=True)
class Section:
    """A title, then paragraphs and tables."""

    title: str
    blocks: Iterable[Block]


def bold(text: str, is_bold: bool) -> str:
    """Mark text as bold, where it is."""
    return f"**{text}**" if is_bold else text


def with_deviation(mean: float, deviation: float) -> str:
    """Write a mean and, where there is one, its deviation; a dash where there is no mean."""
    if math.isnan(mean):
        return "—"
    return f"{mean:.2f}" if math.isnan(deviation) else f"{mean:.2f} ({deviation:.2f})"


def signed(value: float) -> str:
    """Write a difference with its sign."""
    return "—" if math.isnan(value) else f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def number_of(number: int, noun: str) -> str:
    """Write a number and its noun.

    Examples
    --------
    >>> number_of(1, "trial"), number_of(1000, "trial")
    ('1 trial', '1,000 trials')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def with_index(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Turn the index into the first column, of a given name."""
    return table.rename_axis(index=name, columns=None).reset_index()


_HERE = Path(__file__).parent
_SPAN = re.compile(r"\*\*(?P<bold>.+?)\*\*|`(?P<code>.+?)`")


def _spans(
    text: str, escape: Callable[[str], str], bold: tuple[str, str], code: tuple[str, str]
) -> str:
    """Escape text and put marks around its spans."""
    parts, end = [], 0
    for match in _SPAN.finditer(text):
        before, after = bold if match["bold"] else code
        inner = escape(match["bold"] or match["code"])
        parts += [escape(text[end : match.start()]), before, inner, after]
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def markdown(block: Block) -> str:
    r"""Write a paragraph or table as Markdown.

    Examples
    --------
    >>> print(markdown(pd.DataFrame({"method": ["`u-prr`"], "error": ["**4.6**\n(0.8)"]})))
    | method | error |
    |---|---|
    | `u-prr` | **4.6**<br>(0.8) |
    """
    if isinstance(block, str):
        return block
    rows = [f"| {' | '.join(row)} |" for row in [list(block), *block.to_numpy().tolist()]]
    rows.insert(1, "|---" * block.shape[1] + "|")
    return "\n".join(row.replace("\n", "<br>") for row in rows)


def to_markdown(title: str, sections: Iterable[Section]) -> str:
    """Write a whole document as Markdown."""
    parts = [f"# {title}"]
    for section in sections:
        parts += [f"## {section.title}", *map(markdown, section.blocks)]
    return "\n\n".join(parts) + "\n"


# Signs of the tables that a plain LaTeX does not know.
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "—": "---",
    "–": "--",
    "±": r"$\pm$",
    "×": r"$\times$",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "Θ": r"$\Theta$",
}


def _latex(text: str) -> str:
    def escape(part: str) -> str:
        return "".join(_LATEX.get(sign, sign) for sign in part)

    lines = [
        _spans(line, escape, (r"\textbf{", "}"), (r"\texttt{", "}")) for line in text.split("\n")
    ]
    if len(lines) == 1:
        return lines[0]
    return r"\begin{tabular}[t]{@{}l@{}}" + r" \\ ".join(lines) + r"\end{tabular}"


def _latex_block(block: Block) -> str:
    if isinstance(block, str):
        return _latex(block)
    cells = block.map(_latex).rename(columns=_latex)
    table = cells.to_latex(index=False, column_format="l" * block.shape[1])
    spaced = table.replace("\\\\\n", "\\\\\n\\addlinespace\n")
    return f"\\begin{{center}}\n{spaced}\\end{{center}}"


def to_latex(title: str, sections: Iterable[Section]) -> str:
    """Write a whole document as LaTeX, which needs the packages booktabs and geometry."""
    parts = [_HERE.joinpath("head.tex").read_text(), rf"\section*{{{_latex(title)}}}"]
    for section in sections:
        parts += [rf"\subsection*{{{_latex(section.title)}}}", *map(_latex_block, section.blocks)]
    return "\n\n".join([*parts, r"\end{document}"]) + "\n"


_ROW_HEADING = re.compile(r"(<tr>\s*)<td>(.*?)</td>")


def _html(text: str) -> str:
    marked = _spans(text, html.escape, ("<strong>", "</strong>"), ("<code>", "</code>"))
    return marked.replace("\n", "<br>")


def _html_block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{_html(block)}</p>"
    cells = block.map(_html).rename(columns=_html)
    with pd.option_context("display.max_colwidth", None):
        table = cells.to_html(index=False, escape=False, border=0, justify="left")
    table = table.replace("<th>", '<th scope="col">')
    table = _ROW_HEADING.sub(r'\1<th scope="row">\2</th>', table)
    return f'<div class="wide" tabindex="0">{table}</div>'


def to_html(title: str, sections: Iterable[Section]) -> str:
    """Write a whole document as one page that needs nothing else."""
    style = _HERE.joinpath("style.css").read_text()
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>",
        f"<h1>{_html(title)}</h1>",
    ]
    for section in sections:
        parts += [f"<h2>{_html(section.title)}</h2>", *map(_html_block, section.blocks)]
    return "\n".join([*parts, "</main>\n</body>\n</html>\n"])


FORMATS: dict[str, Callable[[str, Iterable[Section]], str]] = {
    "md": to_markdown,
    "latex": to_latex,
    "html": to_html,
}
