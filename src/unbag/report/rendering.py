"""From the content of a report to one HTML page that needs nothing else."""

import base64
import hashlib
import importlib.resources
import json
from typing import Any

from unbag.report import agreement, overview, results
from unbag.report.building import FORMAT, VERSION
from unbag.report.markup import escape, name, short
from unbag.validation import invalid

__all__ = ["render_html"]

_LINKS = (
    ("headline", "Results"),
    ("inspection", "Inspection"),
    ("priors", "Priors"),
    ("training", "Training"),
    ("confusion", "Confusion"),
    ("shares", "Shares"),
    ("calibration", "Calibration"),
    ("hyperparameters", "Hyperparameters"),
    ("data", "Data"),
    ("citation", "Cite"),
)
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="unbag">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<p class="brand">unbag report</p>
<h1>{heading}</h1>
<p class="small">{created} · method <code>{method}</code></p>
</header>
<main>
{banner}
<nav aria-label="On this page">{links}</nav>
{sections}
</main>
<footer>{about}</footer>
<div id="tip" role="status" aria-live="polite" dir="auto" hidden></div>
<script type="application/json" id="grids">{grids}</script>
<script>{script}</script>
</body>
</html>
"""


def render_html(report: dict[str, Any]) -> str:
    """Make a page of a report: one file, no network, readable on phones, in print and in the dark.

    Parameters
    ----------
    report : dict
        What :func:`~unbag.report.build_report` made, or what JSON brought back of it.

    Returns
    -------
    str
        HTML, to be written as UTF-8. Scripts and styles are allowed by their hashes alone, and no
        connection is.
    """
    got = report.get("format"), report.get("version")
    if got != (FORMAT, VERSION):
        remedy = "build it with this version of unbag."
        raise invalid("report", f"of format {FORMAT!r}, version {VERSION}", f"{got}", remedy)
    grids: dict[str, Any] = {}
    style, script = _file("page.css"), _file("page.js")
    sections = (
        overview.cards(report["headline"]),
        overview.inspection(report["inspection"]),
        results.priors(report["priors"], grids),
        results.training(report["training"]),
        results.confusion(report["confusion"], grids),
        agreement.bag_shares(report["bag_shares"], report["priors"], grids),
        agreement.calibration(report["calibration"]),
        overview.hyperparameters(report["hyperparameters"], report["training"], report["method"]),
        overview.data(report["data"]),
        overview.citation(report["citation"]),
    )
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=escape(short(report["title"], 120)),
        style=style,
        heading=name(report["title"], 120),
        created=overview.moment(report["created"]),
        method=escape(report["method"]),
        banner=overview.banner(report["inspection"], report["warnings"]),
        links="".join(f'<a href="#{key}">{label}</a>' for key, label in _LINKS),
        sections="\n".join(sections),
        about=overview.about(report),
        grids=_embedded(grids),
        script=script,
    )


def _file(file: str) -> str:
    return importlib.resources.files("unbag.report").joinpath(file).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _embedded(content: dict[str, Any]) -> str:
    """Write JSON that cannot end the script element it stands in."""
    written = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
