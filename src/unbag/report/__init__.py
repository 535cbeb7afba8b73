"""Results as a plain dict, and as one HTML page."""

from unbag.report.building import FORMAT, VERSION, build_report
from unbag.report.making import Report, report
from unbag.report.rendering import render_html
from unbag.report.verdict import ModelVerdict, judge_model

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
