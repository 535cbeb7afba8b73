"""Check bags and shares before training, and recognise models that learned nothing."""

from unbag.inspection.alike import AlikeTest, alike_test
from unbag.inspection.columns import ColumnTest
from unbag.inspection.findings import Inspection
from unbag.inspection.inspecting import inspect
from unbag.inspection.trivial import TrivialTest, trivial_model

__all__ = [
    "AlikeTest",
    "ColumnTest",
    "Inspection",
    "TrivialTest",
    "alike_test",
    "inspect",
    "trivial_model",
]
