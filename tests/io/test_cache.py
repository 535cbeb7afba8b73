import numpy as np
import pyarrow as pa
import pytest
import torch

from unbag.exceptions import DiscardedWorkWarning, InvalidInputError
from unbag.io.cache import CacheWriter, open_cache
from unbag.schema import seal

X = np.arange(12, dtype=np.float32).reshape(4, 3)
CODES = np.array([0, 1, 1, 0], dtype=np.int32)
LEVELS = pa.array(["north", "south"])


def fill(folder, key="key", bags=(CODES, LEVELS)):
    with CacheWriter(folder, key, X.shape) as writer:
        writer.write(X[:1])
        writer.write(X[1:])
        writer.finish({"a": [1.5]}, bags)


def test_round_trip(tmp_path):
    folder = tmp_path / "new" / "cache"
    fill(folder)
    cached = open_cache(folder, "key")
    np.testing.assert_array_equal(cached.X, X)
    codes, levels = cached.bags
    np.testing.assert_array_equal(codes, CODES)
    assert levels.to_pylist() == ["north", "south"]
    assert cached.about == {"a": [1.5]}
    assert [path.name for path in folder.iterdir()] == ["key"]


def test_without_bags(tmp_path):
    fill(tmp_path, bags=None)
    cached = open_cache(tmp_path, "key")
    assert cached.bags is None


def test_torch_shares_the_pages_and_cannot_change_the_file(tmp_path):
    fill(tmp_path)
    cached = open_cache(tmp_path, "key")
    assert isinstance(cached.X, np.memmap)
    tensor = torch.from_numpy(cached.X)
    assert tensor.data_ptr() == cached.X.ctypes.data
    tensor[0, 0] = 99
    assert open_cache(tmp_path, "key").X[0, 0] == 0


def test_other_keys(tmp_path):
    fill(tmp_path, "one")
    assert open_cache(tmp_path, "two") is None
    fill(tmp_path, "two")
    assert open_cache(tmp_path, "one") is not None


class TestInterrupted:
    def test_an_error_leaves_nothing(self, tmp_path):
        def interrupt():
            with CacheWriter(tmp_path, "key", X.shape) as writer:
                writer.write(X[:2])
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert list(tmp_path.iterdir()) == []

    def test_what_a_killed_process_left_is_neither_used_nor_kept(self, tmp_path):
        killed = CacheWriter(tmp_path, "key", X.shape)
        killed.write(X)
        killed._file.flush()
        assert open_cache(tmp_path, "key") is None
        fill(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["key"]
        killed._file.close()

    def test_of_two_writers_one_wins(self, tmp_path):
        with CacheWriter(tmp_path, "key", X.shape) as first:
            first.write(X + 1)
            with CacheWriter(tmp_path, "key", X.shape) as second:
                second.write(X)
                with pytest.raises(InvalidInputError, match="folder that can be written"):
                    first.finish({})
                second.finish({})
        np.testing.assert_array_equal(open_cache(tmp_path, "key").X, X)

    def test_too_few_rows(self, tmp_path):
        with CacheWriter(tmp_path, "key", X.shape) as writer:
            writer.write(X[:3])
            with pytest.raises(InvalidInputError, match="rows written must be 4, got 3; did the"):
                writer.finish({})
        assert open_cache(tmp_path, "key") is None


class TestDamaged:
    @pytest.mark.parametrize("name", ["X.npy", "bags.npy", "bag_ids.arrow", "about.json"])
    @pytest.mark.parametrize("size", [None, 0, 5, -1, "folder", "changed"])
    def test_it_is_removed_with_a_warning(self, tmp_path, name, size):
        fill(tmp_path)
        file = tmp_path / "key" / name
        content = bytearray(file.read_bytes())
        file.unlink()
        if size == "folder":
            file.mkdir()
        elif size == "changed":
            content[-1] ^= 1
            file.write_bytes(content)
        elif size is not None:
            file.write_bytes(content[:size])
        with pytest.warns(DiscardedWorkWarning, match="The cache .*key was damaged"):
            assert open_cache(tmp_path, "key") is None
        assert not (tmp_path / "key").exists()
        fill(tmp_path)
        np.testing.assert_array_equal(open_cache(tmp_path, "key").X, X)

    @pytest.mark.parametrize("about", [[], {}, {"digests": {}}])
    def test_other_description(self, tmp_path, about):
        fill(tmp_path)
        (tmp_path / "key" / "about.json").write_bytes(seal(about))
        with pytest.warns(DiscardedWorkWarning, match="was damaged"):
            assert open_cache(tmp_path, "key") is None


class TestRefused:
    def test_disk_too_small(self, tmp_path):
        with pytest.raises(InvalidInputError, match="disk space must be at least 40,000,000,000"):
            CacheWriter(tmp_path, "key", (10**15, 9))
        assert list(tmp_path.iterdir()) == []

    def test_no_folder(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InvalidInputError, match=r"cache .*file must be a folder that can be"):
            CacheWriter(tmp_path / "file", "key", X.shape)

    def test_disk_full_while_writing(self, tmp_path):
        class Full:
            def write(self, _):
                raise OSError(28, "No space left on device")

            def close(self):
                """Nothing is open."""

        with CacheWriter(tmp_path, "key", X.shape) as writer:
            writer._file.close()
            writer._file = Full()
            with pytest.raises(InvalidInputError, match="No space left on device"):
                writer.write(X)
        assert list(tmp_path.iterdir()) == []
