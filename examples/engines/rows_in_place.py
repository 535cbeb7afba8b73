"""Rows from DuckDB, and from a store of objects: pip install unbag duckdb "moto[server]" boto3.

The store runs here, by moto; with a real one, leave out its address.
"""

import os
import tempfile
from pathlib import Path

import boto3
import duckdb
import pyarrow as pa
import pyarrow.dataset
from moto.server import ThreadedMotoServer
from small_model import SHARES, make_rows

import unbag
from unbag.workflow import fit_files, inspect_files, predict_files

folder = Path(tempfile.mkdtemp())
rows = make_rows()
pyarrow.dataset.write_dataset(  # the bag is a partition
    pa.Table.from_pandas(rows),
    folder / "rows",
    format="parquet",
    partitioning=["district"],
    partitioning_flavor="hive",
)

# DuckDB: whatever has __arrow_c_stream__ is a table.
files = str(folder / "rows" / "**" / "*.parquet")
found = duckdb.sql(f"SELECT age, city, district FROM read_parquet('{files}', hive_partitioning=1)")
clf = unbag.UnbagClassifier(SHARES, method="prop", epochs=5, random_state=0)
clf.fit(found, bag="district")
share = (clf.predict(found) == "yes").mean()
print(f"DuckDB: {len(clf.predict(found))} rows, {share:.0%} yes")

# S3
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
address = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
os.environ |= {"AWS_ENDPOINT_URL": address, "AWS_REGION": "us-east-1"}
os.environ |= {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
store = boto3.client("s3", region_name="us-east-1")
store.create_bucket(Bucket="bucket")
for file in (folder / "rows").rglob("*.parquet"):
    store.upload_file(str(file), "bucket", str(file.relative_to(folder)))
shares = folder / "shares.csv"
lines = [f"{name},{of['no']},{of['yes']}\n" for name, of in SHARES.items()]
shares.write_text("district,no,yes\n" + "".join(lines))
given = {"bag": "district", "priors": shares, "leave_out": ["id"]}
for name, place in {"S3": "s3://bucket/rows", "here": str(folder / "rows")}.items():
    inspected = inspect_files(place, **given).inspection.n_rows
    model = fit_files(place, output=folder / name, method="prop", epochs=5, **given)
    written = predict_files(model.folder, place, output=folder / f"{name}.parquet", key=["id"])
    print(f"{name}: {inspected} rows inspected, {written.rows} predicted: {written.shares}")
server.stop()
same = (folder / "S3.parquet").read_bytes() == (folder / "here.parquet").read_bytes()
print("the same predictions:", same)
