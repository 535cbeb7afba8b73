"""The limits that the page about security states are those of the code, and they are kept."""

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from unbag import ids, validation
from unbag.estimator import description, folder
from unbag.exceptions import InvalidInputError
from unbag.io import TableFiles, csv_text, numeric, packed, read_rows
from unbag.priors import ClassPriors, table
from unbag.schema import SchemaError, convert, decode
from unbag.validation import invalid
from unbag.workflow import config

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "security.md"
MIB = 1 << 20


def largest(kind) -> int:
    (meta,) = (m for m in kind.__metadata__ if isinstance(m, msgspec.Meta))
    return meta.le if meta.lt is None else meta.lt - 1


LAYERS = largest(description.Mlp.__annotations__["depth"])
STATED = {
    "`model.json`, `encoding.json`": f"{folder._MAX_JSON // MIB} MiB, {folder._MAX_NESTED:,} "
    f"lists and objects, {folder._MAX_VALUES:,} values and "
    f"{('no', 'one', 'two', 'three', 'four')[folder._VALUES_PER_BAG]} more for each bag",
    "`config.toml`": f"{config.MAX_BYTES // MIB} MiB",
    "header of `model.safetensors` (names and shapes of tensors)": (
        f"{folder._MAX_HEADER // MIB} MiB, {folder._MAX_TENSORS:,} tensors"
    ),
    "weights": "half of the machine's memory; every shape must fit what `model.json` implies",
    "lists and objects in one another, in these files": "what Python allows, 1,000 by default",
    "layers of a network": f"{LAYERS:,}",
    "units of a layer, values of a row": "2³¹ − 1",
    "bag ids and class names": f"{ids.LONGEST_ID:,} characters each",
    "classes": f"{table.MOST_CLASSES:,}",
    "one row of a CSV file": f"{csv_text.BLOCK // MIB} MiB",
    "large content of `.npz`, `.gz` and `.xlsx`": f"at most {packed.MAX_EXPANSION} times larger "
    "than the file",
    "numbers in rows": "{0}, and {0} deviations from the mean".format(
        f"{numeric.LARGEST:.1e}".replace("e+", "e")
    ),
    "what came, as a message shows it": f"{validation._LONGEST_GOT:,} characters",
}


def test_the_page_states_the_limits_of_the_code():
    section = PAGE.read_text().split("## Limits")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    assert dict(rows) == {"what": "limit", **STATED}
    assert largest(description.Size) == 2**31 - 1


def test_a_config_file(tmp_path):
    file = tmp_path / "config.toml"
    head = "epochs = 2\n#"
    file.write_text(head + "x" * (config.MAX_BYTES - len(head)))
    assert config.load_toml(file) == {"epochs": 2}
    file.write_text(head + "x" * (config.MAX_BYTES - len(head) + 1))
    with pytest.raises(InvalidInputError, match="at most 1 MB"):
        config.load_toml(file)


def test_a_config_file_of_a_stranger(tmp_path):
    """Nothing is parsed but one line: a parser would need gigabytes for this key."""
    (tmp_path / "config.toml").write_text("a." * 500_000 + 'b = 1\nbag = "x"\n')
    assert config.text_option(tmp_path / "config.toml", "bag") == "x"


def test_nesting():
    assert decode(b"[" * 500 + b"]" * 500, list)
    with pytest.raises(SchemaError, match="nested too deeply"):
        decode(b"[" * 1001 + b"]" * 1001, list)


def test_classes():
    names = np.arange(table.MOST_CLASSES + 1)
    ClassPriors(np.eye(2, len(names) - 1), classes=names[1:])
    with pytest.raises(InvalidInputError, match="at most 1,000 classes, got 1,001"):
        ClassPriors(np.eye(2, len(names)), classes=names)


def test_ids_and_the_space_they_take():
    """In an array of texts of numpy, each takes the space of the longest."""
    names = ["x" * ids.LONGEST_ID, *map(str, range(2000))]
    shares = ClassPriors(np.full((len(names), 2), 0.5), names)
    assert shares.bag_ids.nbytes < 1e5
    assert ClassPriors([[0.5, 0.5]] * 2, ["north", "s"]).bag_ids.dtype == "<U5"
    with pytest.raises(InvalidInputError, match="10,000 characters each, got one of 10,001"):
        ClassPriors([[0.5, 0.5]], ["x" * (ids.LONGEST_ID + 1)])


@pytest.mark.parametrize(("depth", "width"), [(LAYERS + 1, 1), (1, 2**31)])
def test_a_network(depth, width):
    network = {"kind": "mlp", "depth": LAYERS, "width": 2**31 - 1, "dropout": 0.0}
    assert convert(network, description.Mlp).depth == LAYERS
    with pytest.raises(SchemaError, match=r"depth|width"):
        convert({**network, "depth": depth, "width": width}, description.Mlp)


def test_a_row_of_a_csv_file(tmp_path):
    file = tmp_path / "rows.csv"
    for length in (csv_text.BLOCK - 100, csv_text.BLOCK + 1):
        file.write_text(f'a,b\n1,x\n2,"{"y" * length}"\n3,z\n')
        if length < csv_text.BLOCK:
            assert TableFiles(file).n_rows == 3
        else:
            with pytest.raises(InvalidInputError, match="a row longer than 4 MB"):
                _ = TableFiles(file).n_rows


@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_numbers_in_rows(tmp_path, factor):
    X = np.zeros((4, 2), dtype=np.float64)
    X[2, 1] = factor * numeric.LARGEST
    np.savez(tmp_path / "rows.npz", X=X)
    if factor < 1:
        assert read_rows(tmp_path / "rows.npz").X.shape == (4, 2)
    else:
        with pytest.raises(InvalidInputError, match=r"more than 1\.8e\+19"):
            read_rows(tmp_path / "rows.npz")


def test_a_message():
    long = "y" * 10_000_000
    assert len(str(invalid("x", "short", long))) < validation._LONGEST_GOT + 100
