"""Reading a model folder takes at most the memory of its files plus 100 MB, whatever is in it."""

import hashlib
import json
import struct
import subprocess
import sys

import numpy as np
import pytest

from unbag import UnbagClassifier

ALLOWED = 100 << 20
PROGRAM = """
import resource, sys
import numpy as np
from unbag import load_model
from unbag.exceptions import ModelFolderError

good, hostile = sys.argv[1:]
load_model(good)  # what is imported late
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load_model(hostile)
    print("loaded")
except ModelFolderError as error:
    print("refused:", error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
BIG = 30_000_000  # bytes of JSON


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    X = np.random.default_rng(0).normal(size=(60, 3))
    clf = UnbagClassifier({"a": [0.8, 0.2], "b": [0.3, 0.7]}, method="prop", epochs=1, width=8)
    return clf.fit(X, np.repeat(["a", "b"], 30)).save(tmp_path_factory.mktemp("good") / "model")


def described(path, **changes):
    values = json.loads((path / "model.json").read_text())
    (path / "model.json").write_text(json.dumps(values | changes, separators=(",", ":")))


def many_ids(path):
    described(path, bags={"kind": "str", "values": ["a"] * (BIG // 4)})


def one_id(path):
    described(path, bags={"kind": "str", "values": ["x" * BIG, "b"]})


def many_numbers(path):
    described(path, output_prior=[0] * (BIG // 2))


def many_names(path):
    described(path, feature_names=[f"{i:x}" for i in range(BIG // 10)])


def many_keys(path):
    described(path, settings={f"{i:x}": 0 for i in range(BIG // 12)})


def one_text(path):
    described(path, stop_reason="x" * BIG)


def many_lists(path):
    described(path, history=[[]] * 1_000_000)


def long_header(path):
    shapes = {f"t{i}": {"dtype": "F32", "shape": [], "data_offsets": [0, 0]} for i in range(60_000)}
    header = json.dumps(shapes).encode()[: (1 << 22) - 8]
    write_weights(path, struct.pack("<Q", len(header)) + header)


def many_tensors(path):
    shapes = {
        f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(40_000)
    }
    header = json.dumps(shapes).encode()
    write_weights(path, struct.pack("<Q", len(header)) + header)


def large_weights(path):
    header = json.dumps({"x": {"dtype": "F32", "shape": [1 << 25], "data_offsets": [0, 1 << 27]}})
    write_weights(path, struct.pack("<Q", len(header)) + header.encode() + bytes(1 << 27))


def wide(path):
    described(path, network={"kind": "mlp", "depth": 1000, "width": 2**31 - 1, "dropout": 0.0})


def write_weights(path, data):
    (path / "model.safetensors").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    described(path, files={"model.safetensors": digest})


KINDS = [many_ids, one_id, many_numbers, many_names, many_keys, one_text, many_lists, long_header,
         many_tensors, large_weights, wide]  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="it cannot tell the peak of its memory")
@pytest.mark.parametrize(
    "change",
    [pytest.param(kind, marks=() if kind is many_ids else pytest.mark.slow) for kind in KINDS],
    ids=lambda change: change.__name__,
)
def test_peak_memory(good, tmp_path, change):
    path = tmp_path / "model"
    path.mkdir()
    for file in good.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    change(path)
    size = sum(file.stat().st_size for file in path.iterdir())
    arguments = [sys.executable, "-c", PROGRAM, good, path]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=True)
    told, peak = ended.stdout.splitlines()
    assert told.startswith(("refused", "loaded")), told
    assert int(peak) <= size + ALLOWED, f"{int(peak):,} for {size:,}: {told}"
