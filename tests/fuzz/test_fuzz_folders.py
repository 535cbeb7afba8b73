"""Model folders that somebody changed: loaded and sound, or refused; nothing else is touched."""

import hashlib
import json
import os
import random
import shutil
import sys
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from fuzzing import CASES, content, outcome, seeds, sweep
from hypothesis import strategies as st

from unbag import load_model
from unbag.workflow import fit_files, show_model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
WEIGHTS = "model.safetensors"
FILES = ("model.json", WEIGHTS, "encoding.json")
REPORT = "report.json"
VALUES = [
    None,
    True,
    0,
    -1,
    1,
    2,
    0.5,
    1e308,
    2**31,
    2**70,
    "",
    "x",
    "mlp",
    "../x",
    [],
    {},
    [[]],
    [0.5, 0.5],
]
DAMAGE = ("none", "byte", "byte", "cut", "more", "key", "key", "key", "gone", "link", "pipe", "folder", "header", "names", "number")  # noqa: E501 # fmt: skip


def places(values, path=()):
    """Every place in nested lists and dicts."""
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def change_json(values, rng: random.Random):
    *outer, last = rng.choice(list(places(values)))
    inner = values
    for key in outer:
        inner = inner[key]
    how = rng.randrange(4)
    if how == 0:
        del inner[last]
    elif how == 1 and isinstance(inner, dict):
        inner[rng.choice(["x", "", "kind", "__class__"])] = inner.pop(last)
    elif how == 2 and isinstance(inner[last], int | float):
        inner[last] = inner[last] * rng.choice([-1, 2, 10, 0, 1.0001])
    else:
        inner[last] = rng.choice(VALUES)


def damage(folder, how: str, name: str, rng: random.Random, victim) -> None:
    path = folder / name
    data = bytearray(path.read_bytes())
    position = rng.randrange(len(data))
    if how in ("key", "number") and name != WEIGHTS:
        try:
            values = json.loads(data)
        except ValueError:  # damaged before
            return
        if values:
            change_json(values, rng)
        path.write_text(json.dumps(values))
    elif how == "header" or (how == "key" and name == WEIGHTS):
        size = int.from_bytes((folder / WEIGHTS).read_bytes()[:8], "little")
        place = 8 + rng.randrange(size)
        data = bytearray((folder / WEIGHTS).read_bytes())
        data[place : place + 1] = bytes([rng.randrange(32, 127)])
        (folder / WEIGHTS).write_bytes(data)
    elif how == "number":  # of the weights
        place = len(data) - 4 * rng.randrange(1, 40)
        data[place : place + 4] = np.float32(
            rng.choice([np.nan, np.inf, 3e38, -1e30, 0, 1.5])
        ).tobytes()
        path.write_bytes(data)
    elif how == "names":
        try:
            values = json.loads((folder / "model.json").read_text())
        except (OSError, ValueError):
            return
        values["files"][rng.choice(["../x", "/etc/passwd", "x", ""])] = "0"
        (folder / "model.json").write_text(json.dumps(values))
    elif how == "byte":
        data[position] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    elif how in ("cut", "more"):
        path.write_bytes(data[:position] if how == "cut" else data + bytes(rng.randrange(99)))
    elif how != "none":
        path.unlink()
        if how == "link":
            path.symlink_to(victim)
        elif how == "pipe":
            os.mkfifo(path)
        elif how == "folder":
            path.mkdir()


def rehash(folder) -> None:
    """Make the digests right again, as somebody who means harm would."""
    if (folder / "model.json").is_symlink() or not (folder / "model.json").is_file():
        return
    try:
        values = json.loads((folder / "model.json").read_text())
        for name in values["files"]:
            if (folder / name).is_file() and name in FILES:
                digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
                values["files"][name] = digest
        (folder / "model.json").write_text(json.dumps(values))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return  # no longer a description


def good_models(folder) -> list[str]:
    """A network; in long runs a forest of a table of dates and texts, whose shares have errors."""
    if CASES < 2000:
        return ["model"]
    rows = pa.parquet.read_table(folder / "rows.parquet")
    n, rng = len(rows), random.Random(0)
    words = ["cheap", "near the sea", "old", "quiet", "with a view", "new"]
    texts = [" ".join(rng.sample(words, 3)) + f" {i}" for i in range(n)]
    days = [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(n)]
    path = folder / "odd.parquet"
    pa.parquet.write_table(rows.append_column("text", [texts]).append_column("day", [days]), path)
    shares = (folder / "shares.csv").read_text().splitlines()
    with_errors = [f"{line},{100 if i else 'rows_counted'}" for i, line in enumerate(shares)]
    (folder / "errors.csv").write_text("\n".join(with_errors))
    options = {"bag": "district", "method": "tables", "learner": "trees"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_files(path, priors=folder / "errors.csv", output=folder / "forest", **options)
    return ["model", "forest"]


def test_model_folders(folder, tmp_path):
    names = good_models(folder)
    models = [{f: (folder / m / f).read_bytes() for f in (*FILES, REPORT)} for m in names]
    place, victim = tmp_path / "changed", tmp_path / "victim"
    victim.write_bytes(models[0]["model.json"])
    shapes = [load_model(folder / m).row_shape_ for m in names]
    drawn = [np.random.default_rng(0).normal(size=(20, *shape)) for shape in shapes]

    def check(case) -> bool:
        kinds, name, again, number = case
        rng = random.Random(number)
        good, X = models[number % len(models)], drawn[number % len(models)]
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for file, data in good.items():
            (place / file).write_bytes(data)
        for how in kinds:
            if (place / name).is_file() and not (place / name).is_symlink():
                damage(place, how, name, rng, victim)
        if again:
            rehash(place)
        before = content(place)
        clf, error = outcome(lambda: load_model(place))
        if number % 8 < 2:
            _, other = outcome(lambda: str(show_model(place)))
            assert (other is None) == (error is None)
        if error is None:
            chances, error = outcome(lambda: clf.predict_proba(X.astype(np.float32)))
        assert content(place) == before
        assert victim.read_bytes() == models[0]["model.json"]
        if error is not None:
            return False
        assert np.isfinite(chances).all()
        np.testing.assert_allclose(chances.sum(1), 1)
        return True

    kinds = st.lists(st.sampled_from(DAMAGE), min_size=1, max_size=2)
    cases = st.tuples(
        st.one_of(st.just(["none"]), st.just(["none"]), kinds),
        st.sampled_from([*FILES, *FILES, REPORT]),
        st.booleans(),
        seeds(),
    )
    sweep("model folders", cases, check)
