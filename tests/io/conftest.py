"""Fixtures that tests of tables share."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unbag.io import TableEncoding, TableFiles, csv_text


@pytest.fixture
def fit(tmp_path):
    """Fit an encoding to columns, through a Parquet file."""

    def fit(content, **options):
        pq.write_table(pa.table(content), tmp_path / "table.parquet")
        return TableEncoding.fit(TableFiles(tmp_path / "table.parquet"), **options)

    return fit


@pytest.fixture
def small_blocks(monkeypatch):
    """Parse CSV in blocks of a few rows, so that later blocks matter."""
    monkeypatch.setattr(csv_text, "BLOCK", 64)
