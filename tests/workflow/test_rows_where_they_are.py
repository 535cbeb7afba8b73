"""Rows in partitions and stores, and conditions on them, through the functions behind commands."""

import json

import fsspec
import pyarrow as pa
import pyarrow.dataset
import pytest

from run_command import run
from small_files import QUICK, draw
from unbag.exceptions import UnbagError
from unbag.workflow import evaluate_files, fit_files, inspect_files, predict_files


@pytest.fixture
def partitioned(folder):
    """The rows as a folder of Parquet with the bag as a partition, and two years."""
    for name, seed in (("rows", 0), ("other", 1)):
        rows, _ = draw(360, seed=seed)
        rows = rows.append_column("year", pa.array([2023, 2024] * 180))
        pyarrow.dataset.write_dataset(
            rows,
            folder / name,
            format="parquet",
            partitioning=["year", "district"],
            partitioning_flavor="hive",
        )
    return folder


@pytest.mark.usefixtures("partitioned")
def test_a_condition_is_kept_from_inspect_to_predict(folder):
    where = "year = 2024 and age > -1"
    rows = {"bag": "district", "priors": "shares.csv", "leave_out": ["id"], "where": where}
    kept = (pa.dataset.field("year") == 2024) & (pa.dataset.field("age") > -1)
    n_rows = pa.dataset.dataset("rows", partitioning="hive").count_rows(filter=kept)
    assert inspect_files("rows", **rows).inspection.n_rows == n_rows
    fit_files("rows", output="new", **rows, **QUICK)
    assert 'where = "year = 2024 and age > -1"' in (folder / "new" / "config.toml").read_text()
    judged = evaluate_files("new", "other", where="year = 2024", by="year")
    (group,) = judged.evaluation.to_dict()["groups"]
    assert (group["group"], group["n_rows"]) == ("2024", 180)
    written = predict_files(
        "new", "other", key=["id", "district"], bag="district", where="year = 2024", output="p.csv"
    )
    assert written.rows == 180
    kept = predict_files("new", "other", key=["id"], where="id = 'r0003'", output="q.parquet")
    assert kept.rows == 1
    assert pyarrow.parquet.read_table("q.parquet")["id"].to_pylist() == ["r0003"]


@pytest.mark.usefixtures("partitioned")
def test_commands_read_stores(folder):
    store = fsspec.filesystem("memory")
    store.put(str(folder / "other"), "/other", recursive=True)
    options = "--key id --where 'year = 2023' --json --output"
    try:
        there = json.loads(run(f"predict model memory://other {options} a.parquet").stdout)
        here = json.loads(run(f"predict model other {options} b.parquet").stdout)
    finally:
        store.rm("/other", recursive=True)
    assert there["rows"] == here["rows"] == 180
    a, b = (pyarrow.parquet.read_table(folder / name) for name in ("a.parquet", "b.parquet"))
    assert a.equals(b)


@pytest.mark.usefixtures("folder")
def test_a_condition_is_for_tables():
    with pytest.raises(UnbagError, match="where must be for rows from a table"):
        inspect_files("rows.npz", priors="shares.csv", where="x = 1")
