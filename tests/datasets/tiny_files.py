"""Files of a few rows in the upstream formats."""

import gzip
import struct

import numpy as np

CIFAR = "cifar-10-batches-bin"


def write(root, name, files):
    """Write files of a dataset, packed where the name says so, and return their folder."""
    for file, content in files.items():
        path = root / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packed(file, content))
    return root / name


def packed(file, content):
    return gzip.compress(content, mtime=0) if file.endswith(".gz") else content


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
                files[usps] = ("\n".join(lines) + "\n").encode()
                images[part] = (rows.reshape(n, 16, 16) + 1) / 2
        return files, images, labels
    images = {"train": random_bytes(5, 4, 3), "test": random_bytes(2, 4, 3)}
    files = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        files[f"{prefix}-images-idx3-ubyte.gz"] = idx(images[part])
        files[f"{prefix}-labels-idx1-ubyte.gz"] = idx(labels[part])
    return files, images, labels
