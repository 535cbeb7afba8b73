"""Results as a plain dict, and as one HTML page."""

from unbag.reporting.building import FORMAT, VERSION, build_report
from unbag.reporting.making import Report, report
from unbag.reporting.rendering import render_html
from unbag.reporting.verdict import ModelVerdict, judge_model

__all__ = [
    "FORMAT",
    "VERSION",
    "ModelVerdict",
    "Report",
    "build_report",
    "judge_model",
    "render_html",
    "report",
]
