import sys

import pytest
from loopback import whole
from typer.testing import CliRunner

from unbag.cli import app
from unbag.datasets import SOURCES, load


def run(*arguments):
    return CliRunner().invoke(app, ["datasets", *map(str, arguments)], env={"COLUMNS": "200"})


def test_fetch_says_where_the_datasets_are(publish, server, tmp_path):
    publish("mnist")
    publish("usps")
    result = run("fetch", "mnist", "usps", "--folder", tmp_path)
    assert result.exit_code == 0, result.output
    assert f"mnist: whole, in {tmp_path / 'mnist'}\n" in result.stdout
    assert f"usps: whole, in {tmp_path / 'usps'}\n" in result.stdout
    assert result.stderr == ""
    assert len(load("mnist", tmp_path).y_train) == 5
    requests = len(server.asked)
    assert run("fetch", "mnist", "--folder", tmp_path).exit_code == 0
    assert len(server.asked) == requests
    assert run("fetch", "mnist", "--folder", tmp_path, "--force").exit_code == 0
    assert len(server.asked) == requests + 4


def test_fetch_all(publish, tmp_path, monkeypatch):
    for name in SOURCES:
        publish(name)
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path))
    result = run("fetch", "--all")
    assert result.exit_code == 0, result.output
    for name in SOURCES:
        assert len(load(name).y_test) == 2


def test_a_server_that_fails_does_not_keep_the_others_from_being_fetched(publish, server, tmp_path):
    publish("pendigits")
    publish("usps")
    server.answers["/pendigits/pendigits.tes"] = lambda request: request.answer(b"", 404)
    result = run("fetch", "pendigits", "usps", "--folder", tmp_path)
    assert result.exit_code == 1
    assert result.stdout == f"usps: whole, in {tmp_path / 'usps'}\n"
    assert result.stderr.startswith(
        f"error: {server.address}/pendigits/pendigits.tes: the server answered 404 Not Found; "
    )
    assert len(result.stderr.splitlines()) == 1
    assert isinstance(result.exception, SystemExit)


def test_a_wrong_file_is_an_error_of_one_line(publish, server, tmp_path):
    publish("pendigits")
    server.answers["/pendigits/pendigits.tra"] = whole(b"wrong")
    result = run("fetch", "pendigits", "--folder", tmp_path)
    assert result.exit_code == 1
    assert "pendigits.tra must be sha256:" in result.stderr
    (tmp_path / "pendigits" / "pendigits.tra").write_bytes(b"wrong")
    result = run("fetch", "pendigits", "--folder", tmp_path)
    assert result.exit_code == 1
    assert "download it anew with force=True (--force)." in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_extra_to_install_is_named(publish, tmp_path, monkeypatch):
    publish("pendigits")
    monkeypatch.setitem(sys.modules, "pooch", None)
    result = run("fetch", "pendigits", "usps", "--folder", tmp_path)
    assert result.exit_code == 1
    assert result.stderr == (
        "error: pooch is needed here; install it with: pip install 'unbag[datasets]'\n"
    )


def test_an_unknown_name_is_told_before_anything_is_fetched(publish, server, tmp_path):
    publish("pendigits")
    result = run("fetch", "pendigits", "svhn", "--folder", tmp_path)
    assert result.exit_code == 1
    assert "name must be one of 'pendigits', 'usps'" in result.stderr
    assert server.asked == []


@pytest.mark.parametrize("arguments", [[], ["mnist", "--all"]])
def test_names_or_all_must_be_given(arguments):
    result = run("fetch", *arguments)
    assert result.exit_code == 2
    assert "give the names of datasets, or --all." in result.stderr


def test_list_says_what_is_there(publish, tmp_path):
    for name in ("mnist", "cifar10"):
        publish(name)
    assert run("fetch", "mnist", "cifar10", "--folder", tmp_path).exit_code == 0
    (tmp_path / "cifar10/cifar-10-batches-bin/test_batch.bin").unlink()
    result = run("list", "--folder", tmp_path)
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line}
    assert [rows[name][-1] for name in SOURCES] == ["no", "no", "yes", "no", "no", "partly"]
    assert rows["mnist"][1:3] == ["60,000+10,000", "28×28"]
    assert "CC BY-SA 4.0" in " ".join(rows["kmnist"])
    assert "github.com/zalandoresearch/fashion-mnist" in rows["fashion-mnist"]
    assert result.stdout.endswith(f"Folder: {tmp_path}\n")


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ([], "unbag datasets fetch mnist"),
        (["fetch"], "unbag datasets fetch mnist kmnist"),
        (["list"], "unbag datasets list"),
    ],
)
def test_help_has_an_example(command, example):
    assert f"Example: {example}" in run(*command, "--help").output
