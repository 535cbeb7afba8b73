"""Examples with the engines of others, each where its package is installed."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "engines"


def run_example(name: str, package: str, folder: Path, *arguments: str) -> str:
    """Run an example in a process of its own, and give what it prints."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    settings = {"OMP_NUM_THREADS": "1", "PYSPARK_PYTHON": sys.executable}
    paths = os.pathsep.join([str(EXAMPLES), *filter(None, sys.path)])  # for its own processes
    with tempfile.TemporaryDirectory() as temporary:  # of a short path: Ray puts sockets there
        ended = subprocess.run(
            [sys.executable, EXAMPLES / name, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={**os.environ, **settings, "PYTHONPATH": paths, "TMPDIR": temporary},
        )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("ray_data.py", "ray"),
        ("spark.py", "pyspark"),
        ("dask_dataframe.py", "dask"),
        ("mlflow_model.py", "mlflow"),
    ],
)
def test_predictions_are_those_of_this_process(name, package, tmp_path):
    if package == "pyspark" and shutil.which("java") is None:
        pytest.skip("there is no Java runtime for Spark")
    printed = run_example(name, package, tmp_path)
    difference = re.search(r"2000 rows; largest difference from this process: (\S+)", printed)
    assert difference, printed
    assert float(difference[1]) < 1e-6


def test_64_jobs_on_two_workers_of_ray_are_those_of_one_process(tmp_path):
    printed = run_example("many_fits.py", "ray", tmp_path)
    assert "64 models; the same class for 100.00% of the rows or more" in printed
    difference = re.search(r"largest difference from one process: (\S+)", printed)
    assert float(difference[1]) < 1e-6


def test_three_loggers_have_the_same_curve(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    printed = run_example("tracking.py", "mlflow", tmp_path)
    assert "status in MLflow: FINISHED All 5 epochs were run." in printed
    difference = re.search(r"5 epochs; largest difference between the three: (\S+)", printed)
    assert float(difference[1]) < 1e-6


@pytest.mark.parametrize(("backend", "package"), [("dask", "dask"), ("ray", "ray")])
def test_a_grid_on_a_backend_of_joblib_has_the_scores_of_this_process(backend, package, tmp_path):
    printed = run_example("grid_search.py", package, tmp_path, backend)
    difference = re.search(r"largest difference from this process: (\S+)", printed)
    assert float(difference[1]) < 1e-9


def test_rows_of_duckdb_and_of_a_store(tmp_path):
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    printed = run_example("rows_in_place.py", "moto", tmp_path)
    assert "DuckDB: 2000 rows" in printed
    assert "S3: 2000 rows inspected, 2000 predicted" in printed
    assert "the same predictions: True" in printed
