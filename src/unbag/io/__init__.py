"""Rows and class priors from files: Parquet, CSV, NumPy archives and folders of images."""

from unbag.io.arrays import ArrayEncoding, read_npz
from unbag.io.drift import Drift
from unbag.io.encoding import TableEncoding
from unbag.io.images import ImageEncoding, read_images
from unbag.io.input_rows import InputRows
from unbag.io.priors_file import PriorsFile, match_bags, read_priors
from unbag.io.rows import encoding_from_dict, read_rows
from unbag.io.tables import TableFiles

__all__ = [
    "ArrayEncoding",
    "Drift",
    "ImageEncoding",
    "InputRows",
    "PriorsFile",
    "TableEncoding",
    "TableFiles",
    "encoding_from_dict",
    "match_bags",
    "read_images",
    "read_npz",
    "read_priors",
    "read_rows",
]
