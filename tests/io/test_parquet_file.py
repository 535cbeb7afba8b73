import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_tables import refused, write


class TestParquet:
    def test_not_parquet(self, tmp_path):
        refused(write(tmp_path / "a.parquet", "x,y\n1,2\n"), "a.parquet", "readable Parquet file")

    def test_cut_off(self, tmp_path):
        pq.write_table(pa.table({"x": np.random.default_rng(0).normal(size=1000)}), tmp_path / "a")
        refused(write(tmp_path / "a.parquet", (tmp_path / "a").read_bytes()[:-9]), "a.parquet")

    def test_broken_page(self, tmp_path):
        file = tmp_path / "a.parquet"
        column = np.random.default_rng(0).normal(size=1000)
        pq.write_table(pa.table({"x": column}), file)
        content = bytearray(file.read_bytes())
        content[4:200] = b"\xff" * 196
        refused(write(file, bytes(content)), "a.parquet", "whole, readable Parquet file")

    @pytest.mark.parametrize("text", [b"value of a row", b"name of a column"])
    def test_text_in_other_encoding(self, tmp_path, text):
        file = tmp_path / "a.parquet"
        columns = {"name of a column": ["value of a row"]}
        pq.write_table(pa.table(columns), file, store_schema=False, use_dictionary=False)
        refused(write(file, file.read_bytes().replace(text, b"\xe4" + text[1:])), "a.parquet")

    def test_no_rows(self, tmp_path):
        pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "a.parquet")
        refused(tmp_path, "at least one, got only column names")
        pq.write_table(pa.table({}), tmp_path / "a.parquet")
        refused(tmp_path, "must be at least one")
