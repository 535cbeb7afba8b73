"""Writing of files and folders: whole or not at all, and never through a link."""

import os
import stat

import pytest

from unbag.files import (
    lock,
    new_file,
    new_folder,
    read_regular,
    scratch_file,
    settle_folder,
    sweep,
    was_interrupted,
    write_tensors,
    write_together,
    write_whole,
)


@pytest.fixture
def victim(tmp_path):
    """A file that nothing may change."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    file = folder / "victim"
    file.write_text("dear")
    yield file
    assert file.read_text() == "dear"


def test_a_file_is_private_until_it_is_whole(tmp_path):
    old = os.umask(0o027)
    try:
        with new_file(tmp_path / "a.txt") as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
            assert stat.S_IMODE(temporary.parent.stat().st_mode) == 0o700
            assert temporary.parent.parent == tmp_path
            temporary.write_text("whole")
            assert not (tmp_path / "a.txt").exists()
    finally:
        os.umask(old)
    assert (tmp_path / "a.txt").read_text() == "whole"
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_temporary_names_cannot_be_known(tmp_path):
    names = set()
    for _ in range(3):
        with new_file(tmp_path / "a.txt") as temporary:
            names.add(temporary.parent.name)
    assert len(names) == 3
    assert all(len(name) > 20 for name in names)


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(tmp_path, error):
    write_whole(tmp_path / "a.txt", "old")

    def fail():
        with new_file(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_links_are_replaced_and_not_followed(tmp_path, victim):
    for name in ("a.txt", ".a.txt.tmp", ".a.tmp"):
        (tmp_path / name).symlink_to(victim)
    write_whole(tmp_path / "a.txt", b"new")
    assert not (tmp_path / "a.txt").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_temporary_file_that_becomes_a_link_is_refused(tmp_path, victim):
    def planted():
        with new_file(tmp_path / "a.txt") as temporary:
            temporary.unlink()
            temporary.symlink_to(victim)

    with pytest.raises(OSError, match="symbolic"):
        planted()
    assert [p.name for p in tmp_path.iterdir()] == ["elsewhere"]


def test_a_scratch_file_is_private_and_goes(tmp_path):
    with scratch_file(tmp_path / "a.txt") as (temporary, mode):
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        assert mode & 0o600 == 0o600
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("moment", [0, 1])
def test_files_written_together_appear_together(tmp_path, monkeypatch, moment, is_new):
    one, other = tmp_path / "a.html", tmp_path / "a.json"
    inner, calls = os.replace, []

    def replace(*args, **kwargs):
        calls.append(args)
        if len(calls) > moment:
            raise OSError(28, "No space left on device")
        inner(*args, **kwargs)

    if not is_new:
        write_together({one: "old", other: "old"})
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        with pytest.raises(OSError, match="No space"):
            write_together({one: "new", other: "new"})
    assert len(list(tmp_path.iterdir())) == (0 if is_new else 2)
    write_together({one: "new", other: "new\r\n"})
    assert (one.read_bytes(), other.read_bytes()) == (b"new", b"new\r\n")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path, monkeypatch):
    inner = os.fsync

    def sync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        inner(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    write_whole(tmp_path / "a.txt", "x")
    assert (tmp_path / "a.txt").read_text() == "x"


def test_content_is_synced_before_the_name_and_the_folder_after(tmp_path, monkeypatch):
    events = []
    inner_sync, inner_replace = os.fsync, os.replace

    def sync(descriptor):
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        inner_sync(descriptor)

    def replace(*args, **kwargs):
        events.append("replace")
        inner_replace(*args, **kwargs)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    write_whole(tmp_path / "a.txt", "x")
    assert events == ["file", "replace", "folder"]


def left(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


def test_what_a_kill_leaves_goes_with_the_next_write(tmp_path, killed):
    # Killed before the rename, which is the third change; nothing cleans up then.
    assert not killed(lambda: write_whole(tmp_path / "a.txt", "x"), 2)
    assert len(left(tmp_path)) == 1
    write_whole(tmp_path / "b.txt", "x")
    assert len(left(tmp_path)) == 1  # of another file
    write_whole(tmp_path / "a.txt", "x")
    assert left(tmp_path) == []


KEPT = {
    "in use": lambda path: os.open(path, os.O_RDONLY),
    "open to others": lambda path: path.chmod(0o750),
    "a file": lambda path: (path.rmdir(), path.write_text("x")),
    "a link": lambda path: (path.rmdir(), path.symlink_to(path.parent)),
    "of another form": lambda path: path.rename(path.with_name(".a.0123456789abcdeg.tmp")),
    "of another user": lambda _: None,
}


@pytest.mark.parametrize("case", KEPT)
def test_what_may_be_in_use_or_of_others_is_not_swept(tmp_path, monkeypatch, case):
    folder = tmp_path / ".a.0123456789abcdef.tmp"
    folder.mkdir(mode=0o700)
    made = KEPT[case](folder)
    if case == "in use":
        assert lock(made)
    elif case == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    sweep(tmp_path / "a.txt")
    assert len(left(tmp_path)) == 1
    if case == "in use":
        os.close(made)
        sweep(tmp_path / "a.txt")
        assert left(tmp_path) == []


def test_a_folder_that_was_swept_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    inner, swept = os.mkdir, []

    def made(path, *args, **kwargs):
        inner(path, *args, **kwargs)
        if not swept:
            swept.append(path)
            sweep(tmp_path / "a.txt")

    monkeypatch.setattr(os, "mkdir", made)
    write_whole(tmp_path / "a.txt", "x")
    assert swept
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_long_names(tmp_path):
    for name in ("a" * 250, "ü" * 120):
        write_whole(tmp_path / name, "x")
        assert (tmp_path / name).read_text() == "x"


def test_tensors_that_do_not_fit_are_an_oserror(tmp_path):
    import torch

    write_tensors(tmp_path / "a.safetensors", {"x": torch.ones(3)}, {})
    with pytest.raises(OSError, match=r".+"):
        write_tensors(tmp_path / "none" / ("a" * 300), {"x": torch.ones(3)}, {})


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large", "missing"])
def test_only_regular_files_are_read(tmp_path, victim, kind):
    path = tmp_path / "a"
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.write_bytes(bytes(11))
    with pytest.raises(OSError, match=r".+"):
        read_regular(path, 10)


def test_the_largest_file_is_read(tmp_path):
    (tmp_path / "a").write_bytes(bytes(10))
    assert read_regular(tmp_path / "a", 10) == bytes(10)


# ---------------------------------------------------------------------------------------- folders

NAMES = ("key", "other", "gone")


def make(target, text, names=("other", "key")):
    with new_folder(target, NAMES, "key") as folder:
        for name in names:
            write_whole(folder / name, text)


def files(folder):
    return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}


def test_a_new_folder(tmp_path):
    make(tmp_path / "deep" / "a", "new")
    assert files(tmp_path / "deep" / "a") == {"key": "new", "other": "new"}
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a"]


def test_files_of_a_folder_are_replaced_and_all_others_stay(tmp_path):
    target = tmp_path / "a"
    make(target, "old", NAMES)
    (target / "mine").write_text("mine")
    inode = target.stat().st_ino
    make(target, "new")
    assert files(target) == {"key": "new", "other": "new", "mine": "mine"}
    assert target.stat().st_ino == inode
    assert len(list(target.iterdir())) == 3


def test_an_error_while_writing_changes_nothing(tmp_path):
    target = tmp_path / "a"
    make(target, "old", NAMES)

    def fail():
        with new_folder(target, NAMES, "key") as folder:
            (folder / "key").write_text("new")
            raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"):
        fail()
    assert files(target) == dict.fromkeys(NAMES, "old")
    assert len(list(target.iterdir())) == 3


def test_a_kill_at_any_moment_can_be_settled(tmp_path, killed):
    target, moment, seen, ended = tmp_path / "a", 0, set(), False
    while not ended:
        if target.exists():
            for path in target.iterdir():
                path.unlink()
        make(target, "old", NAMES)
        (target / "mine").write_text("mine")
        ended = killed(lambda: make(target, "new"), moment)
        if not (target / "key").exists():
            assert was_interrupted(target)
        else:  # what has the key is one of the two, whole
            state = {name: text for name, text in files(target).items() if name != "mine"}
            assert state in (dict.fromkeys(NAMES, "old"), {"key": "new", "other": "new"})
        settle_folder(target, "key")
        assert not was_interrupted(target)
        result = files(target)
        assert result.pop("mine") == "mine"
        assert result in (dict.fromkeys(NAMES, "old"), {"key": "new", "other": "new"})
        seen.add(result["key"])
        assert len(list(target.iterdir())) == len(result) + 1
        moment += 1
    assert seen == {"old", "new"}
    assert moment > 10


@pytest.mark.parametrize("name", [".unbag.new", ".unbag.leaving", ".unbag.left"])
def test_planted_links_to_folders_are_not_entered(tmp_path, victim, name):
    target = tmp_path / "a"
    make(target, "old")
    (target / name).symlink_to(victim.parent)
    if name == ".unbag.left":
        (target / ".unbag.new").symlink_to(victim.parent)
    make(target, "new")
    assert files(target) == {"key": "new", "other": "new"}


def test_a_planted_link_beside_a_new_folder_is_not_entered(tmp_path, victim):
    (tmp_path / ".a.saving").symlink_to(victim.parent)
    make(tmp_path / "a", "new")
    assert files(tmp_path / "a") == {"key": "new", "other": "new"}
    assert [p.name for p in victim.parent.iterdir()] == ["victim"]
