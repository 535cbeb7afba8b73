"""The study of Tang et al. (2022): its settings, runs, tables and figures."""

from unbag.bench.choices import Choices
from unbag.bench.records import Record, Records
from unbag.bench.running import run_study
from unbag.bench.study import SETTINGS, STUDY, Run

__all__ = ["SETTINGS", "STUDY", "Choices", "Record", "Records", "Run", "run_study"]
