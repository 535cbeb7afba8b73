"""Make one self-contained HTML page from the content of a report."""

import base64
import hashlib
import importlib.resources
from typing import Any

import jinja2
from markupsafe import Markup

from unbag.reporting import charts, figures, formatting, heat
from unbag.reporting.building import FORMAT, VERSION
from unbag.reporting.sections import SECTIONS
from unbag.validation import invalid

__all__ = ["render_html"]


def render_html(report: dict[str, Any]) -> str:
    """Make a page of a report: one file, no network, readable on phones, in print and in the dark.

    Parameters
    ----------
    report : dict
        What :func:`~unbag.reporting.build_report` made, or what JSON brought back of it.

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
    # Reports of earlier versions lack the sections that they did not know.
    sections = [section for section in SECTIONS if report.get(section.key) is not None]
    style, script = _file("page.css"), _file("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    try:
        return (
            _environment()
            .get_template("page.html")
            .render(
                report=report,
                sections=sections,
                policy=Markup(policy),
                style=Markup(style),
                script=Markup(script),
            )
        )
    except (jinja2.UndefinedError, KeyError, TypeError) as error:  # a function got Undefined
        raise invalid(
            "report",
            "with all that this version of unbag puts into one",
            f"one of another version ({error})",
            "evaluate the model again with this version.",
        ) from error


def _environment() -> jinja2.Environment:
    """Make the environment of the templates: whatever they print is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("unbag.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for module in (charts, figures, heat):
        environment.globals |= {name: getattr(module, name) for name in module.__all__}
    environment.filters |= {name: getattr(formatting, name) for name in formatting.__all__}
    return environment


def _file(name: str) -> str:
    folder = importlib.resources.files("unbag.reporting") / "templates"
    return folder.joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
