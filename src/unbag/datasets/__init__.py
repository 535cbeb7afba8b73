"""The six benchmark datasets: downloaded from upstream, read from their upstream file formats.

``UNBAG_DATA`` names a folder with one subfolder per dataset; without it, the user's cache is used.
"""

from unbag.datasets.fetching import fetch
from unbag.datasets.folder import data_folder
from unbag.datasets.loading import DATASETS, Dataset, load
from unbag.datasets.sources import SOURCES, Archive, Source

__all__ = ["DATASETS", "SOURCES", "Archive", "Dataset", "Source", "data_folder", "fetch", "load"]
