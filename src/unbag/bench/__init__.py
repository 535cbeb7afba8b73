"""The study of Tang et al. (2022): its settings, runs, tables and figures."""

from unbag.bench.cells import Results
from unbag.bench.choices import Choices
from unbag.bench.figures import plan_figures, save_figures
from unbag.bench.page import fill_page
from unbag.bench.records import Record, Records
from unbag.bench.running import Report, run_study
from unbag.bench.study import SETTINGS, STUDY, Run
from unbag.bench.tables import write_tables

__all__ = [
    "SETTINGS",
    "STUDY",
    "Choices",
    "Record",
    "Records",
    "Report",
    "Results",
    "Run",
    "fill_page",
    "plan_figures",
    "run_study",
    "save_figures",
    "write_tables",
]
