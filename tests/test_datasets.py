import gzip
import struct

import numpy as np
import pytest

from unbag.datasets import DATASETS, load
from unbag.exceptions import InvalidInputError

CIFAR = "cifar-10-batches-bin"


def write(root, name, files):
    """Write files of a dataset, packed where the name says so, and return their folder."""
    for file, content in files.items():
        path = root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return root / name


def idx(array):
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + bytes(array)
    )


def random_bytes(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def tiny(name):
    """Upstream files of a few rows, and the rows in them."""
    labels = {"train": np.array([3, 0, 9, 1, 5], np.uint8), "test": np.array([2, 7], np.uint8)}
    if name == "cifar10":
        images = {"train": random_bytes(5, 3, 32, 32), "test": random_bytes(2, 3, 32, 32)}
        files = {
            f"{CIFAR}/data_batch_{i + 1}.bin": bytes([y]) + bytes(x)
            for i, (x, y) in enumerate(zip(images["train"], labels["train"], strict=True))
        }
        records = zip(images["test"], labels["test"], strict=True)
        files[f"{CIFAR}/test_batch.bin"] = b"".join(bytes([y]) + bytes(x) for x, y in records)
        return files, images, labels
    if name in ("pendigits", "usps"):
        files, images = {}, {}
        parts = {
            "train": ("pendigits.tra", "zip.train.gz"),
            "test": ("pendigits.tes", "zip.test.gz"),
        }
        for part, (pendigits, usps) in parts.items():
            n = len(labels[part])
            if name == "pendigits":
                rows = random_bytes(n, 16) % 101
                lines = [
                    ", ".join(map(str, [*r, y])) for r, y in zip(rows, labels[part], strict=True)
                ]
                files[pendigits], images[part] = ("\n".join(lines) + "\n").encode(), rows / 100
            else:
                rows = random_bytes(n, 256) / 127.5 - 1
                lines = [
                    f"{y:.4f} " + " ".join(f"{v:.8f}" for v in r) + " "
                    for r, y in zip(rows, labels[part], strict=True)
                ]
                files[usps], images[part] = ("\n".join(lines) + "\n").encode(), (rows + 1) / 2
        return files, images, labels
    images = {"train": random_bytes(5, 4, 3), "test": random_bytes(2, 4, 3)}
    files = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        files[f"{prefix}-images-idx3-ubyte.gz"] = idx(images[part])
        files[f"{prefix}-labels-idx1-ubyte.gz"] = idx(labels[part])
    return files, images, labels


# --------------------------------------------------------------------------------- the real files


@pytest.mark.parametrize(
    ("name", "row_shape", "train", "test"),
    [
        (
            "pendigits",
            (16,),
            [780, 779, 780, 719, 780, 720, 720, 778, 719, 719],
            [363, 364, 364, 336, 364, 335, 336, 364, 336, 336],
        ),
        (
            "usps",
            (256,),
            [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644],
            [359, 264, 198, 166, 200, 160, 170, 147, 166, 177],
        ),
        (
            "mnist",
            (28, 28),
            [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
            [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
        ),
        ("kmnist", (28, 28), [6000] * 10, [1000] * 10),
    ],
)
def test_real_datasets_have_their_published_sizes(dataset, name, row_shape, train, test):
    data = dataset(name)
    assert np.bincount(data.y_train).tolist() == train
    assert np.bincount(data.y_test).tolist() == test
    assert data.X_train.shape == (sum(train), *row_shape)
    assert data.X_test.shape == (sum(test), *row_shape)
    assert data.n_classes == 10
    highest = 255 if data.X_train.dtype == np.uint8 else 1
    for part in (data.X_train, data.X_test):
        assert (part.min(), part.max()) == (0, highest)


# ------------------------------------------------------------------------------------ the readers


@pytest.mark.parametrize("name", DATASETS)
def test_readers_on_tiny_files(name, tmp_path, monkeypatch):
    files, images, labels = tiny(name)
    write(tmp_path, name, files)
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path))
    data = load(name)
    np.testing.assert_allclose(data.X_train, images["train"], atol=1e-6)
    np.testing.assert_allclose(data.X_test, images["test"], atol=1e-6)
    assert data.y_train.tolist() == labels["train"].tolist()
    assert data.y_test.tolist() == labels["test"].tolist()
    assert data.y_train.dtype == np.int64
    assert data.X_train.dtype == (np.float32 if name in ("pendigits", "usps") else np.uint8)
    for part in (data.X_train, data.X_test, data.y_train, data.y_test):
        assert part.flags.writeable  # torch warns about memory that it may not write to


@pytest.mark.parametrize("name", DATASETS)
def test_every_absent_file_is_named(name, tmp_path):
    files, _, _ = tiny(name)
    for file in files:
        folder = write(tmp_path, name, files)
        (folder / file).unlink()
        with pytest.raises(InvalidInputError, match="folder must be one that holds") as error:
            load(name, tmp_path)
        assert str(folder / file) in str(error.value)


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("kept", [0, 1, 0.5, -1], ids=["empty", "a byte", "half", "all but a byte"])
def test_every_cut_file_is_named(name, kept, tmp_path):
    files, _, _ = tiny(name)
    for file in files:
        folder = write(tmp_path, name, files)
        whole = (folder / file).read_bytes().rstrip()
        # Half a line further, because a table cut at the end of a line is still a table.
        cut = len(whole) // 2 + 3 if kept == 0.5 else kept
        if file.startswith("pendigits") and kept == -1:
            cut = -2  # the last line without its label
        (folder / file).write_bytes(whole[:cut])
        with pytest.raises(InvalidInputError) as error:
            load(name, tmp_path)
        assert str(error.value).startswith(str(folder / file))


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("mnist", "train-images-idx3-ubyte.gz", b"", "idx file of bytes, 3 axes"),
        ("mnist", "train-images-idx3-ubyte.gz", b"\0\0\x08\x03\0\0", "idx file of bytes"),
        ("mnist", "train-images-idx3-ubyte.gz", b"\0\0\x0d\x03" + b"\0" * 12, "idx file of bytes"),
        ("mnist", "train-images-idx3-ubyte.gz", idx(random_bytes(5)), "3 axes"),
        ("mnist", "train-images-idx3-ubyte.gz", idx(random_bytes(5, 4, 3))[:-1], "got 75 bytes"),
        ("mnist", "t10k-labels-idx1-ubyte.gz", idx(np.zeros(3, np.uint8)), "each of 2 images"),
        (
            "kmnist",
            "train-labels-idx1-ubyte.gz",
            idx(np.array([1, 2, 3, 4, 10], np.uint8)),
            "10 in",
        ),
        ("usps", "zip.train.gz", b"1 2 3\n", "lines of 257 numbers, got 3 in each"),
        ("usps", "zip.test.gz", b"\xff\xfe", "lines of 257 numbers"),
        ("pendigits", "pendigits.tra", b"\n \n", "lines of 17 numbers, got 0 lines"),
        ("pendigits", "pendigits.tes", b"a" + b",1" * 16, "lines of 17 numbers"),
        ("pendigits", "pendigits.tes", b"1," * 16 + b"2.5", "classes 0 to 9, got 2.5 in row 0"),
        ("cifar10", f"{CIFAR}/data_batch_2.bin", bytes(3072), "3073 bytes, got 3072 bytes"),
        ("cifar10", f"{CIFAR}/test_batch.bin", b"\x0a" + bytes(3072), "classes 0 to 9, got 10"),
    ],
)
def test_wrong_content_is_told(name, file, content, message, tmp_path):
    folder = write(tmp_path, name, tiny(name)[0] | {file: content})
    with pytest.raises(InvalidInputError, match=message) as error:
        load(name, tmp_path)
    assert str(error.value).startswith(str(folder / file))


def test_a_file_that_only_claims_to_be_packed_is_named(tmp_path):
    folder = write(tmp_path, "usps", tiny("usps")[0])
    (folder / "zip.train.gz").write_bytes(b"plain text")
    with pytest.raises(InvalidInputError, match=r"zip.train.gz must be a whole gzip file"):
        load("usps", tmp_path)


def test_where_the_datasets_are_must_be_said(monkeypatch, tmp_path):
    monkeypatch.delenv("UNBAG_DATA", raising=False)
    with pytest.raises(InvalidInputError, match="mnist: set UNBAG_DATA to the folder"):
        load("mnist")
    with pytest.raises(InvalidInputError, match=r"name must be one of 'pendigits', .*got 'svhn'"):
        load("svhn", tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"folder must be one that holds .*pendigits.tra"):
        load("pendigits", tmp_path / "file")
