import gzip
import hashlib
import os
import re
import shutil
import socket
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from loopback import tar, whole
from tiny_files import CIFAR, tiny

from unbag.datasets import DATASETS, SOURCES, Archive, fetch, fetching, load
from unbag.exceptions import DownloadError, InvalidInputError, MissingDependencyError
from unbag.files import lock

IMAGES = "train-images-idx3-ubyte.gz"
LABELS = "train-labels-idx1-ubyte.gz"
ARCHIVE = "/cifar10/cifar-10-binary.tar.gz"


def left(folder):
    """Every file below a folder."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def refuse_to_load(name, folder):
    with pytest.raises(InvalidInputError, match="folder must be one that holds"):
        load(name, folder)


def check_loads(name, folder):
    _, images, labels = tiny(name)
    data = load(name, folder)
    np.testing.assert_allclose(data.X_train, images["train"], atol=1e-6)
    assert data.y_train.tolist() == labels["train"].tolist()
    assert data.y_test.tolist() == labels["test"].tolist()


# ------------------------------------------------------------------------------------ it works


@pytest.mark.parametrize("name", DATASETS)
def test_what_is_fetched_loads_and_is_not_fetched_again(name, publish, server, tmp_path):
    published = publish(name)
    folder = tmp_path / "not" / "yet"
    assert fetch(name, folder) == folder / name
    check_loads(name, folder)
    assert left(folder / name) == sorted(SOURCES[name].files)
    assert sorted(server.asked) == sorted(published)
    assert fetch(name, folder) == folder / name
    assert len(server.asked) == len(published)


def test_files_can_be_read_by_others(publish, tmp_path):
    publish("pendigits")
    (tmp_path / "plain").touch()
    root = fetch("pendigits", tmp_path)
    assert (root / "pendigits.tra").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_only_what_is_missing_is_fetched(publish, server, tmp_path):
    publish("mnist")
    (fetch("mnist", tmp_path) / LABELS).unlink()
    server.asked.clear()
    fetch("mnist", tmp_path)
    assert server.asked == [f"/mnist/{LABELS}"]
    check_loads("mnist", tmp_path)


def test_the_default_folder_is_the_one_that_load_reads(publish, tmp_path, monkeypatch):
    publish("usps")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UNBAG_DATA", raising=False)
    assert fetch("usps") == tmp_path / "cache/unbag/usps"
    check_loads("usps", None)
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path / "data"))
    assert fetch("usps") == tmp_path / "data/usps"
    check_loads("usps", None)


def test_a_file_declared_as_packed_for_transport_stays_packed(publish, server, tmp_path):
    for path, content in (publish("mnist") | publish("cifar10")).items():
        server.answers[path] = whole(content, Content_Encoding="x-gzip")
    for name in ("mnist", "cifar10"):
        fetch(name, tmp_path)
        check_loads(name, tmp_path)


# --------------------------------------------------------------------------------- it goes wrong


def cut(request, body, *, length):
    headers = {"Content_Length": len(body)} if length else {}
    request.answer(body[: len(body) // 2], **headers)


def cut_chunks(request, body):
    request.protocol_version = "HTTP/1.1"
    request.close_connection = True
    half = body[: len(body) // 2]
    chunk = f"{len(half):x}\r\n".encode() + half + b"\r\n"
    request.answer(chunk, Transfer_Encoding="chunked")


def hang_up(request, _):
    request.close_connection = True


FAILURES = {
    "cut off, length known": (lambda r, b: cut(r, b, length=True), "connection was cut off"),
    "cut off, length unknown": (lambda r, b: cut(r, b, length=False), "got [0-9]+ bytes of"),
    "cut off between chunks": (cut_chunks, "connection was cut off"),
    "wrong bytes": (lambda r, b: whole(b[::-1])(r), "got [0-9]+ bytes of"),
    "too many bytes": (lambda r, b: whole(b + b"\n")(r), "got [0-9]+ bytes of"),
    "a page in its place": (lambda r, _: whole(b"<html>log in</html>")(r), "got 19 bytes of"),
    "empty": (lambda r, _: whole(b"")(r), "got 0 bytes of"),
    "404": (lambda r, _: r.answer(b"gone", 404), "the server answered 404 Not Found"),
    "500": (lambda r, b: r.answer(b, 500), "the server answered 500 Internal Server Error"),
    "redirects": (lambda r, _: r.answer(b"", 302, Location=r.path), "30 redirects"),
    "no answer": (hang_up, "connection failed .*closed connection"),
}


@pytest.mark.parametrize(("name", "path"), [("mnist", f"/mnist/{LABELS}"), ("cifar10", ARCHIVE)])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_download_leaves_nothing_and_can_be_repeated(
    failure, name, path, publish, server, tmp_path
):
    published = publish(name)
    misbehave, message = FAILURES[failure]
    server.answers[path] = lambda request: misbehave(request, published[path])
    with pytest.raises(DownloadError, match=message) as error:
        fetch(name, tmp_path)
    assert str(error.value).startswith(server.address + path)
    assert "try again" in str(error.value)
    whole_before = [f"mnist/{IMAGES}"] if name == "mnist" else []
    assert left(tmp_path) == whole_before
    refuse_to_load(name, tmp_path)

    server.asked.clear()
    server.answers[path] = whole(published[path])
    fetch(name, tmp_path)
    check_loads(name, tmp_path)
    assert server.asked == [p for p in published if p != f"/mnist/{IMAGES}"]


def test_wrong_bytes_are_told_with_both_checksums(publish, server, tmp_path):
    published = publish("pendigits")
    server.answers["/pendigits/pendigits.tra"] = whole(b"something else")
    with pytest.raises(DownloadError) as error:
        fetch("pendigits", tmp_path)
    expected = hashlib.sha256(published["/pendigits/pendigits.tra"]).hexdigest()
    found = hashlib.sha256(b"something else").hexdigest()
    assert f"pendigits.tra must be sha256:{expected}, got 14 bytes of sha256:{found}" in str(
        error.value
    )


def test_a_refused_connection_names_the_address_and_the_file(publish, tmp_path, monkeypatch):
    publish("mnist")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/"
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], address=address))
    with pytest.raises(DownloadError, match=r"connection failed .*refused") as error:
        fetch("mnist", tmp_path)
    assert f"{address}{IMAGES}: " in str(error.value)
    assert f"by hand to {tmp_path / 'mnist' / IMAGES} and" in str(error.value)
    assert left(tmp_path) == []


@pytest.mark.parametrize("sent", [0, 10])
def test_a_server_that_falls_silent_is_left(sent, publish, server, tmp_path, monkeypatch):
    published = publish("pendigits")
    done = threading.Event()

    def stall(request):
        body = published["/pendigits/pendigits.tra"]
        if sent:
            request.answer(body[:sent], Content_Length=len(body))
            request.wfile.flush()
        done.wait(10)

    server.answers["/pendigits/pendigits.tra"] = stall
    monkeypatch.setattr(fetching, "_TIMEOUT", 0.2)
    try:
        with pytest.raises(DownloadError, match=r"no answer for 0.2 seconds|timed out"):
            fetch("pendigits", tmp_path)
    finally:
        done.set()
    assert left(tmp_path) == []


def test_an_interrupted_download_leaves_nothing(publish, tmp_path, monkeypatch):
    publish("pendigits")

    def interrupt(part, *_):
        assert part.stat().st_size > 0
        raise KeyboardInterrupt

    monkeypatch.setattr(fetching, "_check", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch("pendigits", tmp_path)
    assert left(tmp_path) == []


def test_what_killed_downloads_left_is_harmless_and_removed(publish, tmp_path):
    published = publish("mnist")
    root = tmp_path / "mnist"
    root.mkdir()
    half, stem = published[f"/mnist/{IMAGES}"][:20], Path(IMAGES).stem
    dead, alive, foreign = (
        root / name
        for name in (f".{stem}.{'0' * 16}.tmp", f".{stem}.{'1' * 16}.tmp", f".{IMAGES}.part")
    )
    for path in (dead, alive):
        path.mkdir(mode=0o700)
        (path / IMAGES).write_bytes(half)
    foreign.write_bytes(half)
    held = os.open(alive, os.O_RDONLY)
    assert lock(held)
    refuse_to_load("mnist", tmp_path)
    fetch("mnist", tmp_path)
    check_loads("mnist", tmp_path)
    os.close(held)
    assert left(root) == sorted([*SOURCES["mnist"].files, f"{alive.name}/{IMAGES}", foreign.name])


@pytest.mark.parametrize("name", ["pendigits", "cifar10"])
def test_two_at_once_do_not_disturb_each_other(name, publish, server, tmp_path):
    published = publish(name)
    path = next(iter(published))
    together = threading.Barrier(2, timeout=10)

    def wait_for_the_other(request):
        together.wait()
        body = published[path]
        request.answer(body[:5], Content_Length=len(body))
        request.wfile.flush()
        together.wait()  # both are half way
        request.wfile.write(body[5:])

    server.answers[path] = wait_for_the_other
    with ThreadPoolExecutor(2) as pool:
        roots = list(pool.map(lambda _: fetch(name, tmp_path), range(2)))
    assert roots == [tmp_path / name] * 2
    assert server.asked.count(path) == 2
    assert left(tmp_path / name) == sorted(SOURCES[name].files)
    check_loads(name, tmp_path)


# ------------------------------------------------------------------- files that are already there


@pytest.mark.parametrize("content", [b"", b"half", None], ids=["empty", "other", "cut"])
def test_a_wrong_file_is_refused_and_kept_unless_forced(content, publish, server, tmp_path):
    published = publish("mnist")
    content = published[f"/mnist/{IMAGES}"][:-1] if content is None else content
    path = tmp_path / "mnist" / IMAGES
    path.parent.mkdir()
    path.write_bytes(content)
    found = hashlib.sha256(content).hexdigest()
    message = (
        rf"^{re.escape(str(path))} must be the upstream file, sha256:.*got sha256:{found}; del"
    )
    with pytest.raises(InvalidInputError, match=message):
        fetch("mnist", tmp_path)
    assert server.asked == []
    assert path.read_bytes() == content

    server.answers[f"/mnist/{IMAGES}"] = whole(b"wrong as well")
    with pytest.raises(DownloadError):
        fetch("mnist", tmp_path, force=True)
    assert path.read_bytes() == content

    server.answers[f"/mnist/{IMAGES}"] = whole(published[f"/mnist/{IMAGES}"])
    fetch("mnist", tmp_path, force=True)
    check_loads("mnist", tmp_path)


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_force_fetches_whole_files_anew(name, publish, server, tmp_path):
    published = publish(name)
    fetch(name, tmp_path)
    fetch(name, tmp_path, force=True)
    assert sorted(server.asked) == sorted(2 * list(published))


def test_a_folder_that_cannot_be_is_told(publish, tmp_path):
    publish("mnist")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match=r"folder must be one .*Not a directory.*--folder"):
        fetch("mnist", tmp_path / "file")
    (tmp_path / "mnist" / IMAGES).mkdir(parents=True)
    with pytest.raises(InvalidInputError, match=r"folder must be one .*Is a directory"):
        fetch("mnist", tmp_path)
    with pytest.raises(InvalidInputError, match=r"name must be one of 'pendigits', .*got 'svhn'"):
        fetch("svhn", tmp_path)


def test_usps_is_known_by_its_numbers(publish, server, tmp_path):
    publish("usps")
    path = tmp_path / "usps" / "zip.train.gz"
    path.parent.mkdir()
    lines = [line.split() for line in tiny("usps")[0]["zip.train.gz"].decode().splitlines()]

    def write(rows):
        path.write_bytes(gzip.compress("".join(" ".join(row) + " \n" for row in rows).encode()))

    write([[f"{float(v):.10f}" for v in row] for row in lines])
    fetch("usps", tmp_path)
    assert server.asked == ["/usps/zip.test.gz"]
    lines[2][7] = f"{float(lines[2][7]) + 1e-4:.8f}"
    write(lines)
    with pytest.raises(InvalidInputError, match=r"zip.train.gz must be .*values:.*got values:"):
        fetch("usps", tmp_path)
    write(lines[:-1])
    with pytest.raises(InvalidInputError, match=r"zip.train.gz must be .*got values:"):
        fetch("usps", tmp_path)
    path.write_bytes(b"no table")
    with pytest.raises(InvalidInputError, match=r"zip.train.gz must be .*got sha256:"):
        fetch("usps", tmp_path)


def test_minus_zero_is_zero(tmp_path):
    checksums = set()
    for zero in ("0", "-0.0000"):
        (tmp_path / "zip.gz").write_bytes(gzip.compress(f"5 {zero}{' -1' * 255}\n".encode()))
        checksums.add(fetching._checksum(tmp_path / "zip.gz", "values"))
    assert len(checksums) == 1


# ------------------------------------------------------------------------------------- archives


def link(kind, target):
    member = tarfile.TarInfo()
    member.type, member.linkname = kind, target
    return member


def batches():
    return tiny("cifar10")[0]


def test_only_the_expected_files_leave_the_archive(publish, tmp_path):
    tricks = {
        "../outside.bin": b"outside",
        str(tmp_path / "absolute.bin"): b"outside",
        f"{CIFAR}/../../outside.bin": b"outside",
        f"{CIFAR}/../{CIFAR}/data_batch_1.bin": b"outside",
        f"{CIFAR}/link.bin": link(tarfile.SYMTYPE, "../../outside.bin"),
        f"{CIFAR}/batches.meta.txt": b"airplane",
        CIFAR: link(tarfile.SYMTYPE, str(tmp_path)),
    }
    publish("cifar10", archive=tar(tricks | batches()))
    fetch("cifar10", tmp_path / "data")
    check_loads("cifar10", tmp_path / "data")
    assert left(tmp_path) == sorted(f"data/cifar10/{file}" for file in SOURCES["cifar10"].files)


@pytest.mark.parametrize(
    "kind", [None, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
)
def test_an_archive_without_a_file_is_refused(kind, publish, tmp_path):
    member = f"{CIFAR}/data_batch_3.bin"
    secret = tmp_path / "secret.bin"
    secret.write_bytes(batches()[member])
    files = {name: content for name, content in batches().items() if name != member}
    if kind:
        files[member] = link(kind, str(secret))
    publish("cifar10", archive=tar(files))
    with pytest.raises(DownloadError, match=rf"cifar-10-binary.tar.gz must hold {member}; "):
        fetch("cifar10", tmp_path)
    assert left(tmp_path / "cifar10") == sorted(set(SOURCES["cifar10"].files) - {member})
    refuse_to_load("cifar10", tmp_path)


def test_a_file_of_an_archive_is_checked(publish, tmp_path):
    member = f"{CIFAR}/data_batch_1.bin"
    publish("cifar10", archive=tar(batches() | {member: bytes(3073)}))
    with pytest.raises(DownloadError, match=rf"^{member} in cifar-10-binary.tar.gz must be sha256"):
        fetch("cifar10", tmp_path)
    assert left(tmp_path) == []


def test_an_archive_that_was_downloaded_by_hand_is_unpacked(publish, server, tmp_path):
    archive = publish("cifar10")[ARCHIVE]
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    path.parent.mkdir()
    path.write_bytes(archive[:-1])
    with pytest.raises(InvalidInputError, match=r"tar.gz must be the upstream .*md5:.*got md5:"):
        fetch("cifar10", tmp_path)
    refuse_to_load("cifar10", tmp_path)
    path.write_bytes(archive)
    fetch("cifar10", tmp_path)
    check_loads("cifar10", tmp_path)
    assert server.asked == []
    assert path.read_bytes() == archive
    path.write_bytes(b"wrong")
    fetch("cifar10", tmp_path, force=True)
    assert server.asked == [ARCHIVE]
    check_loads("cifar10", tmp_path)


# ----------------------------------------------------------------------------- pooch and progress


def test_pooch_is_needed_only_to_download(publish, tmp_path, monkeypatch):
    publish("pendigits")
    fetch("pendigits", tmp_path / "before")
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'unbag\[datasets\]'"):
        fetch("pendigits", tmp_path / "after")
    fetch("pendigits", tmp_path / "before")
    check_loads("pendigits", tmp_path / "before")


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("length", [True, False])
def test_progress_is_shown_on_a_terminal_only(
    terminal, length, publish, server, tmp_path, capsys, monkeypatch
):
    published = publish("pendigits")
    if not length:
        for path, content in published.items():
            server.answers[path] = lambda request, content=content: request.answer(content)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    fetch("pendigits", tmp_path, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("pendigits.tra" in shown.err) == terminal
    assert ("left" in shown.err) == terminal
    fetch("pendigits", tmp_path, force=True)
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------------------ the real registry


def test_the_registry_is_well_formed():
    assert list(SOURCES) == list(DATASETS)
    lengths = {"sha256": 64, "values": 64, "md5": 32}
    for name, source in SOURCES.items():
        assert sorted(source.files) == sorted(tiny(name)[0])
        assert re.fullmatch(r"https?://\S+/", source.address)
        for entry in [
            *source.files.values(),
            *([source.archive.checksum] if source.archive else []),
        ]:
            kind, _, digest = entry.partition(":")
            assert re.fullmatch(f"[0-9a-f]{{{lengths[kind]}}}", digest)
    everything = [c for source in SOURCES.values() for c in source.files.values()]
    assert len(set(everything)) == len(everything)
    assert SOURCES["cifar10"].archive == Archive(
        "cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d13530"
    )


@pytest.mark.parametrize("name", ["pendigits", "usps", "mnist", "kmnist"])
def test_the_real_files_are_whole(name, dataset, tmp_path, monkeypatch):
    data = dataset(name)
    source = SOURCES[name]
    assert (len(data.y_train), len(data.y_test)) == source.rows
    assert np.prod(data.X_train.shape[1:]) == np.prod(source.shape)
    folder = Path(os.environ["UNBAG_DATA"])
    monkeypatch.setitem(sys.modules, "pooch", None)  # so that nothing can be downloaded
    assert fetch(name, folder) == folder / name
    for file in source.files:
        (tmp_path / name).mkdir(exist_ok=True)
        copy = tmp_path / name / file
        shutil.copyfile(folder / name / file, copy)
        with copy.open("r+b") as opened:
            opened.seek(copy.stat().st_size // 2)
            byte = opened.read(1)[0]
            opened.seek(-1, os.SEEK_CUR)
            opened.write(bytes([byte ^ 1]))
        with pytest.raises(InvalidInputError, match=f"{file} must be the upstream file"):
            fetch(name, tmp_path)
        copy.unlink()
