"""Tiny datasets on a server that can misbehave."""

import hashlib
import threading
from dataclasses import replace

import numpy as np
import pytest
from loopback import Server, tar, whole
from tiny_files import packed, tiny

from unbag.datasets import SOURCES, Archive


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def publish(server, monkeypatch):
    """Publish tiny files of a dataset on loopback; returns what is there by its path."""

    def run(name, *, archive=None):
        source = SOURCES[name]
        files = {file: packed(file, content) for file, content in tiny(name)[0].items()}
        checksums = {
            file: f"sha256:{hashlib.sha256(content).hexdigest()}" for file, content in files.items()
        }
        if name == "usps":
            numbers = np.array(tiny(name)[0]["zip.train.gz"].split(), "<f4") + 0
            digest = hashlib.sha256(numbers.astype("<f4").tobytes()).hexdigest()
            checksums["zip.train.gz"] = f"values:{digest}"
        if source.archive:
            archive = archive or tar(files)
            digest = hashlib.md5(archive).hexdigest()
            packing = Archive(source.archive.name, f"md5:{digest}")
            files = {packing.name: archive}
        else:
            packing = None
        published = {f"/{name}/{file}": content for file, content in files.items()}
        server.answers |= {path: whole(content) for path, content in published.items()}
        address = f"{server.address}/{name}/"
        monkeypatch.setitem(
            SOURCES, name, replace(source, address=address, files=checksums, archive=packing)
        )
        return published

    return run
