"""Files in stores, by the one that fsspec keeps in memory."""

import io
import time

import fsspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from small_tables import refused, values

from unbag.exceptions import InvalidInputError
from unbag.io import TableFiles, read_rows
from unbag.io.stores import StoreAddress, any_path


@pytest.fixture
def store():
    """Rows of two bags in partitions, and a CSV file."""
    files = fsspec.filesystem("memory")
    for bag in ("north", "south"):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pa.table({"x": [1.0, 2.0, 4.0], "y": ["a", "b", "a"]}), buffer)
        files.pipe(f"/rows/bag={bag}/0.parquet", buffer.getvalue())
    files.pipe("/rows/bag=north/_metadata", b"hidden")
    files.pipe("/rows/sub/0.parquet", b"no partition")
    files.pipe("/rows/notes.txt", b"not a table")
    files.pipe("/one/a.csv", b"x,y\n1,a\n2,b\n")
    yield files
    for folder in ("/rows", "/one"):
        files.rm(folder, recursive=True)


@pytest.mark.usefixtures("store")
def test_a_folder_with_partitions():
    table = TableFiles("memory://rows")
    bags = ["north"] * 3 + ["south"] * 3
    assert values(table) == {"x": [1, 2, 4] * 2, "y": ["a", "b", "a"] * 2, "bag": bags}
    assert table.notes == ("Files that are not tables are not read: 'notes.txt'.",)
    assert str(table.files[0]) == "memory:///rows/bag=north/0.parquet"
    kept = TableFiles("memory://rows", where="bag = 'south' and x > 1")
    assert values(kept, ["x"])["x"] == [2, 4]
    read = read_rows("memory://rows", bag="bag", columns=["x"])
    assert read.bag_ids.tolist() == bags


@pytest.mark.usefixtures("store")
def test_one_file_and_patterns():
    assert values(TableFiles("memory://one/a.csv"))["x"] == [1, 2]
    assert values(TableFiles(["memory://one/*.csv"]))["y"] == ["a", "b"]
    assert values(TableFiles("memory://rows/bag=north/*.parquet"))["x"] == [1, 2, 4]


def test_a_file_that_is_written_anew_is_another(store):
    before = TableFiles("memory://one/a.csv").fingerprint()
    store.pipe("/one/a.csv", b"x,y\n1,a\n2,c\n")
    assert TableFiles("memory://one/a.csv").fingerprint() != before


@pytest.mark.usefixtures("store")
def test_what_is_refused():
    refused("memory://nothing", "table memory://nothing must be an existing file or folder")
    refused("memory://one/b*.csv", "a pattern of existing files")
    refused("memory://rows/notes.txt", "a file that ends in", "got the suffix '.txt'")
    refused(["memory://one/a.csv", "memory://one/a.csv"], "'a.csv' more than once")
    refused("nosuchstore://x/y", "an installed package of fsspec can open (nosuchstore://)")
    with pytest.raises(InvalidInputError, match="one without credentials, got some"):
        any_path("s3://key:secret@bucket/rows")


def test_a_store_of_google_that_does_not_answer_is_an_error_within_half_a_minute():
    began = time.monotonic()
    address = "gs://anonymous@bucket/rows?endpoint_override=127.0.0.1:9&scheme=http"
    refused(address, "must be where a store can be read", "check the address, the network and")
    assert time.monotonic() - began < 30


def test_kinds_of_addresses(tmp_path):
    assert any_path("rows.csv").name == "rows.csv"
    assert any_path(f"file://{tmp_path}") == tmp_path
    assert any_path("C:/rows.csv").suffix == ".csv"
    address = any_path("s3://bucket/rows.npz?region=eu-north-1")
    assert isinstance(address, StoreAddress)
    assert address.suffix == ".npz"
