"""A folder of small files that every command can work on."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from PIL import Image

from unbag.workflow import fit_files

BAGS = ("north", "south", "west")
SHARES = np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]])
CLASSES = ("yes", "no")
QUICK = {"method": "prop", "epochs": 2, "width": 8}
N_ROWS, N_IMAGES = 360, 60


def draw(n: int, seed: int) -> tuple[pa.Table, np.ndarray]:
    """Rows of two classes in three bags, and the class of each."""
    rng = np.random.default_rng(seed)
    bag = rng.integers(0, len(BAGS), n)
    y = (rng.random(n) > SHARES[bag, 0]).astype(int)
    columns = {
        "age": rng.normal(2.0 * y, 1.0),
        "income": np.where(rng.random(n) < 0.1, np.nan, rng.normal(-1.0 * y, 1.0)),
        "city": np.array(["Oulu", "Turku", "Vaasa"])[(y + rng.integers(0, 2, n)) % 3],
        "member": rng.random(n) < 0.3 + 0.4 * y,
        "district": np.array(BAGS)[bag],
        "id": [f"r{i:04d}" for i in range(n)],
    }
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    return pa.table(arrays), y


def write_files(folder: Path) -> None:
    """Write rows, other rows, shares, arrays and images; no model."""
    rows, _ = draw(N_ROWS, seed=0)
    pa.parquet.write_table(rows, folder / "rows.parquet")
    pa.parquet.write_table(draw(N_ROWS, seed=1)[0], folder / "other.parquet")
    pa.csv.write_csv(rows, folder / "rows.csv")
    (folder / "shares.csv").write_text(
        "district,yes,no\n"
        + "".join(f"{b},{p},{q}\n" for b, (p, q) in zip(BAGS, SHARES.tolist(), strict=True))
    )
    X = np.column_stack([rows["age"], rows["income"].fill_null(0.0)]).astype(np.float32)
    np.savez(
        folder / "rows.npz",
        X=X,
        bag_ids=rows["district"].to_numpy(zero_copy_only=False).astype(str),
    )
    write_images(folder)


def write_images(folder: Path) -> None:
    """Small grey images, brighter in one class, and the table that names them."""
    rows, y = draw(N_IMAGES, seed=2)
    rng = np.random.default_rng(3)
    (folder / "images").mkdir()
    names = [f"{i:03d}.png" for i in range(N_IMAGES)]
    for name, label in zip(names, y, strict=True):
        pixels = rng.integers(0, 128, (4, 4)) + 100 * label
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / name)
    table = pa.table({"file": names, "district": rows["district"], "id": rows["id"]})
    pa.csv.write_csv(table, folder / "images.csv")


def train(folder: Path, output: str = "model", **options) -> Path:
    """A model of the folder's rows."""
    arguments = {"bag": "district", "priors": folder / "shares.csv", **QUICK, **options}
    rows = arguments.pop("rows", folder / "rows.parquet")
    return fit_files(rows, output=folder / output, **arguments).folder
