"""Results as a plain dict, and as one HTML page."""

from unbag.report.building import FORMAT, VERSION, build_report
from unbag.report.rendering import render_html

__all__ = ["FORMAT", "VERSION", "build_report", "render_html"]
