"""Sections of text and tables, written as Markdown, LaTeX or HTML.

Text is Markdown of two kinds of spans only, ``**bold**`` and code between backticks; a line break
in a cell of a table stays one.
"""

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["FORMATS", "Section", "Table", "markdown"]


@dataclass(frozen=True)
class Table:
    """Headings and rows of text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A title, then paragraphs and tables."""

    title: str
    blocks: tuple[str | Table, ...]


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


def markdown(block: str | Table) -> str:
    r"""Write a paragraph or table as Markdown.

    Examples
    --------
    >>> print(markdown(Table(("method", "error"), (("`u-prr`", "**4.6**\n(0.8)"),))))
    | method | error |
    |---|---|
    | `u-prr` | **4.6**<br>(0.8) |
    """
    if isinstance(block, str):
        return block
    rows = [block.headings, ("---",) * len(block.headings), *block.rows]
    lines = [" | ".join(cell.replace("\n", "<br>") for cell in row) for row in rows]
    lines[1] = lines[1].replace(" ", "")
    return "\n".join(f"|{line}|" if i == 1 else f"| {line} |" for i, line in enumerate(lines))


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
    return _spans(
        text,
        lambda part: "".join(_LATEX.get(sign, sign) for sign in part),
        (r"\textbf{", "}"),
        (r"\texttt{", "}"),
    )


def _latex_table(table: Table) -> str:
    lines = [
        r"\begin{center}",
        rf"\begin{{tabular}}{{{'l' * len(table.headings)}}}",
        r"\toprule",
        " & ".join(map(_latex, table.headings)) + r" \\",
    ]
    for i, row in enumerate(table.rows):
        lines.append(r"\addlinespace" if i else r"\midrule")
        cells = [cell.split("\n") for cell in row]
        for depth in range(max(map(len, cells))):
            line = [cell[depth] if depth < len(cell) else "" for cell in cells]
            lines.append(" & ".join(map(_latex, line)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{center}"])


def to_latex(title: str, sections: Iterable[Section]) -> str:
    """Write a whole document as LaTeX, which needs the packages booktabs and geometry."""
    parts = [
        "\\documentclass{article}\n"
        "\\usepackage[a4paper,margin=12mm]{geometry}\n"
        "\\usepackage{booktabs}\n"
        "\\setlength{\\tabcolsep}{3pt}\n"
        "\\setlength{\\parindent}{0pt}\n"
        "\\begin{document}\n"
        "\\scriptsize",
        rf"\section*{{{_latex(title)}}}",
    ]
    for section in sections:
        parts.append(rf"\subsection*{{{_latex(section.title)}}}")
        parts += [_latex(b) if isinstance(b, str) else _latex_table(b) for b in section.blocks]
    return "\n\n".join([*parts, r"\end{document}"]) + "\n"


_STYLE = """
:root { color-scheme: light dark; --line: #8888; --back: #fff; --ink: #1a1a1a; }
@media (prefers-color-scheme: dark) { :root { --back: #16181b; --ink: #e6e6e6; } }
body { margin: 1.5rem auto; padding: 0 1rem; max-width: 72rem; background: var(--back);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
code { font-size: 0.95em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85rem; line-height: 1.35;
  font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.6rem; text-align: left; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
thead th { border-bottom-width: 2px; }
tbody th { position: sticky; left: 0; background: var(--back); font-weight: normal; }
@media (max-width: 40rem) { body { margin-top: 0.5rem; padding: 0 0.6rem; }
  table { font-size: 0.8rem; } }
@media print { :root { --back: #fff; --ink: #000; } body { max-width: none; margin: 0; }
  table { font-size: 7pt; } th, td { padding: 1pt 3pt; } .wide { overflow: visible; }
  tr { break-inside: avoid; } h2 { break-after: avoid; } }
"""


def _html(text: str) -> str:
    marked = _spans(text, html.escape, ("<strong>", "</strong>"), ("<code>", "</code>"))
    return marked.replace("\n", "<br>")


def _html_table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_html(cell)}</th>' for cell in table.headings)
    rows = [
        f'<tr><th scope="row">{_html(row[0])}</th>'
        + "".join(f"<td>{_html(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    ]
    body = "\n".join(rows)
    return (
        f'<div class="wide" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def to_html(title: str, sections: Iterable[Section]) -> str:
    """Write a whole document as one page that needs nothing else."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>",
        f"<h1>{_html(title)}</h1>",
    ]
    for section in sections:
        parts.append(f"<h2>{_html(section.title)}</h2>")
        parts += [
            f"<p>{_html(block)}</p>" if isinstance(block, str) else _html_table(block)
            for block in section.blocks
        ]
    return "\n".join([*parts, "</main>\n</body>\n</html>\n"])


FORMATS: dict[str, Callable[[str, Iterable[Section]], str]] = {
    "md": to_markdown,
    "latex": to_latex,
    "html": to_html,
}
