import io
import json
import zipfile

import numpy as np
import pytest

from unbag.exceptions import InvalidInputError
from unbag.io import arrays, packed
from unbag.io.arrays import ArrayEncoding, read_npz

IMAGES = np.arange(2 * 4 * 5, dtype=np.uint8).reshape(2, 4, 5)


def error(function, *args, **options):
    with pytest.raises(InvalidInputError) as caught:
        function(*args, **options)
    return str(caught.value)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.npz"


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, np.uint8, bool])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_numbers_become_float32(path, dtype, save):
    X = np.array([[0, 1, 1], [1, 0, 1]], dtype=dtype)
    save(path, X=np.asfortranarray(X), bag_ids=["a", "b"], other=[1])
    rows = read_npz(path)
    assert rows.X.dtype == np.float32
    assert rows.X.flags.c_contiguous
    np.testing.assert_array_equal(rows.X, X)
    assert rows.bag_ids.tolist() == ["a", "b"]
    assert rows.encoding == ArrayEncoding((3,), "float32")
    assert rows.encoding.n_features == 3
    assert rows.notes == ()


@pytest.mark.parametrize(
    ("X", "shape"),
    [
        (IMAGES, (1, 4, 5)),
        (IMAGES[:, None], (1, 4, 5)),
        (np.repeat(IMAGES[:, None], 3, 1), (3, 4, 5)),
    ],
)
def test_images_stay_bytes(path, X, shape):
    np.savez(path, X=X, bag=[1, 2])
    rows = read_npz(path, bag="bag")
    assert rows.X.dtype == np.uint8
    np.testing.assert_array_equal(rows.X, X.reshape(2, *shape))
    assert rows.encoding == ArrayEncoding(shape, "uint8")
    assert rows.bag_ids.tolist() == [1, 2]


@pytest.mark.parametrize(
    "ids",
    [
        np.array([3, 4]),
        np.array(["3", "4"]),
        np.array(["2024-01-31", "2024-02-01"], dtype="datetime64[D]"),
        np.array([True, False]),
    ],
)
def test_bag_ids_keep_their_type(path, ids):
    np.savez(path, X=np.eye(2), bag_ids=ids)
    got = read_npz(path).bag_ids
    assert got.dtype == ids.dtype
    np.testing.assert_array_equal(got, ids)


def test_rows_without_bags(path):
    np.savez(path, X=np.eye(2))
    assert read_npz(path, bag=None).bag_ids is None


def test_rows_must_fit_the_encoding(path):
    np.savez(path, X=np.eye(2))
    table = ArrayEncoding((2,), "float32")
    assert read_npz(path, bag=None, encoding=table).encoding is table
    message = error(read_npz, path, bag=None, encoding=ArrayEncoding((3,), "float32"))
    assert "float32 rows of shape (3,), as the model was fitted on, got float32 rows of" in message
    message = error(read_npz, path, bag=None, encoding=7)
    assert "encoding must be that of a model, got int" in message
    message = error(read_npz, path, bag=None, encoding=ArrayEncoding((1, 4, 5), "uint8"))
    assert "uint8 rows of shape (1, 4, 5), as the model was fitted on, got float32" in message


@pytest.mark.parametrize(
    ("contents", "bag", "message"),
    [
        ({"x": np.eye(2)}, None, "an archive with an array 'X', got only 'x'"),
        ({}, None, "an archive with an array 'X', got no arrays"),
        ({"X": np.eye(2), "b": [1, 2]}, "bag_ids", "'bag_ids', got only 'X', 'b'; name the array"),
        ({"X": np.array([[1, "a"]], dtype=object)}, None, "X must be an array of numbers, text or"),
        ({"X": np.eye(2), "b": np.array(["a", 1], object)}, "b", "got Python objects; save it as"),
        ({"X": np.eye(2), "b": [1, 2, 3]}, "b", "b must be of shape (2,), one for each row of X"),
        ({"X": np.eye(2), "b": [[1], [2]]}, "b", "one for each row of X, got shape (2, 1)"),
        ({"X": np.eye(2), "b": [b"a", b"b"]}, "b", "whole numbers, bool or dates, got |S1; conv"),
        ({"X": np.zeros((0, 3))}, None, "X must be at least one row, got shape (0, 3)"),
        ({"X": 3.0}, None, "X must be at least one row, got shape ()"),
        ({"X": np.zeros(3)}, None, "numbers of shape (n, d), or images (n, H, W) or (n, C, H, W)"),
        ({"X": np.zeros((3, 0))}, None, "numbers of shape (n, d)"),
        ({"X": np.zeros((3, 4, 5))}, None, "of type uint8, got float64 of shape (3, 4, 5)"),
        ({"X": np.zeros((1,) * 5, np.uint8)}, None, "got uint8 of shape (1, 1, 1, 1, 1)"),
        ({"X": np.array([["a"]])}, None, "got <U1 of shape (1, 1)"),
        ({"X": np.zeros((1, 2), "complex64")}, None, "got complex64 of shape (1, 2)"),
        ({"X": np.zeros((1, 2), "i4,f4")}, None, "numbers of shape (n, d)"),
        ({"X": np.zeros((2, 8, 8, 3), np.uint8)}, None, "channels before height and width: X.tr"),
        ({"X": np.zeros((2, 2, 8, 8), np.uint8)}, None, "1 or 3 channels, (n, C, H, W), got shape"),
        ({"X": np.zeros((2, 0, 8), np.uint8)}, None, "images of at least one pixel, got shape"),
        ({"X": [[1.0], [np.nan], [np.inf]]}, None, "in 2 rows; the first is row 1 (counted from"),
        ({"X": [[1.0], [1e39]]}, None, "more than 1.8e+19 in 1 rows; the first is row 1"),
    ],
)
def test_bad_archives(path, contents, bag, message):
    np.savez(path, **contents)
    assert message in error(read_npz, path, bag=bag)


def test_no_archive(path, tmp_path):
    assert "a .npz file, got no such file" in error(read_npz, path)
    assert "a .npz file, got a folder" in error(read_npz, tmp_path)
    path.write_bytes(b"PK no archive")
    assert "rows.npz must be a readable .npz file, got an error (File is not a" in error(
        read_npz, path
    )


def test_a_damaged_archive(path):
    X = np.arange(2000.0).reshape(20, 100)
    np.savez_compressed(path, X=X)
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])
    assert "a readable .npz file" in error(read_npz, path, bag=None)
    np.savez(path, X=X)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(whole)
    assert "a readable .npz file, got an error (Bad CRC-32" in error(read_npz, path, bag=None)


def write_member(path, header, body, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, header)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("X.npy", file.getvalue() + body)


@pytest.mark.parametrize("shape", [(10**6, 10**6), (10**30, 5), (3, 2), (-1, -2), (2, -1)])
def test_a_header_that_promises_other_bytes_is_refused_unread(path, shape, monkeypatch):
    def fail(*_args, **_options):
        pytest.fail("the array was read")

    if shape != (-1, -2):  # only NumPy can see that this is wrong
        monkeypatch.setattr(arrays.npy, "read_array", fail)
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    write_member(path, header, b"\0" * 16)
    message = error(read_npz, path, bag=None)
    assert "X must be a whole array in NumPy's format" in message
    if shape == (10**6, 10**6):
        assert "got 16 bytes for an array of 8,000,000,000,000" in message


def test_a_bomb_is_refused_unread(path, monkeypatch):
    monkeypatch.setattr(packed, "LARGE", 10**5)
    np.savez(path, X=np.zeros((500, 200)))
    assert read_npz(path, bag=None).X.shape == (500, 200)
    np.savez_compressed(path, X=np.zeros((500, 200)))
    monkeypatch.setattr(arrays.npy, "read_array", None)
    message = error(read_npz, path, bag=None)
    assert "X must be an array that is at most 200 times larger than its file" in message
    assert "got 800,000 bytes from" in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no array at all", "X must be a whole array in NumPy's format, got the magic string"),
        (b"\x93NUMPY\x09\x00 ", "got format version (9, 0)"),
        (b"\x93NUMPY\x01\x00\x05\x00boo()", "X must be a whole array in NumPy's format"),
        (b"\x93NUMPY\x01\x00\x04\x00{'a(", "X must be a whole array in NumPy's format"),
        (b"\x93NUMPY\x01\x00\x60\x00" + b"(" * 96, "X must be a whole array in NumPy's format"),
        (b"\x93NUMPY\x01\x00\x03\x00a b", "X must be a whole array in NumPy's format"),
        (b"", "X must be a whole array in NumPy's format"),
    ],
)
def test_members_that_are_no_arrays(path, content, message):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", content)
    assert message in error(read_npz, path, bag=None)


@pytest.mark.parametrize(
    "encoding", [ArrayEncoding((7,), "float32"), ArrayEncoding((3, 4, 5), "uint8")]
)
def test_encodings_survive_json(encoding):
    assert ArrayEncoding.from_dict(json.loads(json.dumps(encoding.to_dict()))) == encoding


GOOD = {"kind": "array", "row_shape": [7], "dtype": "float32"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "it must be an object, got null"),
        ({"kind": "array"}, "row_shape must be given, got nothing"),
        (GOOD | {"more": 1}, "it must be of known fields, got 'more'"),
        (GOOD | {"kind": "table"}, "kind must be one of those allowed"),
        (GOOD | {"dtype": "object"}, "dtype must be one of those allowed"),
        (GOOD | {"dtype": ["float32"]}, "dtype must be text, got a list"),
        (GOOD | {"row_shape": 7}, "row_shape must be a list, got a whole number"),
        (GOOD | {"row_shape": [7, 7]}, "got (7, 7)"),
        (GOOD | {"row_shape": [0]}, "row_shape of the encoding must be (d,) for float32, (1 or 3"),
        (GOOD | {"row_shape": [True]}, "row_shape[0] must be a whole number, got true or false"),
        (GOOD | {"row_shape": [1.0]}, "row_shape[0] must be a whole number, got a number"),
        (GOOD | {"row_shape": [10**12]}, "got (1000000000000,)"),
        (GOOD | {"row_shape": [7], "dtype": "uint8"}, "(1 or 3, H, W) for uint8, got (7,)"),
        (GOOD | {"row_shape": [2, 4, 4], "dtype": "uint8"}, "got (2, 4, 4)"),
    ],
)
def test_bad_encodings(values, message):
    assert message in error(ArrayEncoding.from_dict, values)


@pytest.mark.parametrize(
    "header", [b"{'descr': '<f8", b"{'descr':\x0c(\n", b"{" * 90, b"1\x00", b"(((", b"''" + b"'"]
)
def test_damaged_headers(path, header):
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", content + b"\0" * 16)
    assert "X must be a whole array in NumPy's format, got " in error(read_npz, path, bag=None)


@pytest.mark.parametrize("value", [3e38, -3e38, 2e19])
def test_numbers_whose_squares_overflow(path, value):
    np.savez(path, X=[[1.0, 2.0], [1.0, value]])
    message = error(read_npz, path, bag=None)
    assert "finite, moderate numbers, got NaN, infinity or more than 1.8e+19 in 1 rows" in message
    np.savez(path, X=[[1.0, 1.8e19]])
    assert read_npz(path, bag=None).X[0, 1] == np.float32(1.8e19)
