"""The six benchmark datasets, read from their upstream file formats.

``UNBAG_DATA`` names a folder with one subfolder a dataset, as :func:`load` describes.
"""

from unbag.datasets.loading import DATASETS, Dataset, load

__all__ = ["DATASETS", "Dataset", "load"]
