"""Models on the Hugging Face Hub, by its own package and a stand-in for its server."""

import sys

import numpy as np
import pytest
from stand_in_hub import serve

import unbag
from unbag.exceptions import MissingDependencyError, ModelFolderError

X = np.random.default_rng(0).normal(size=(200, 3))
BAGS = np.repeat(["a", "b"], 100)


@pytest.fixture
def clf():
    shares = {"a": [0.8, 0.2], "b": [0.3, 0.7]}
    return unbag.UnbagClassifier(shares, method="prop", epochs=2, random_state=0).fit(X, BAGS)


@pytest.fixture
def files(monkeypatch, tmp_path):
    """What the stand-in holds; the package must not have been imported with another address."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    for name in [name for name in sys.modules if name.split(".")[0] == "huggingface_hub"]:
        monkeypatch.delitem(sys.modules, name)
    server, address, held = serve()
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    yield held
    server.shutdown()
    server.server_close()


@pytest.mark.filterwarnings("default")
def test_there_and_back(clf, files, tmp_path):
    clf.push_to_hub("you/census", token="hf_none")
    assert {*files} == {"model.json", "model.safetensors", "MLmodel", "README.md"}
    assert 'from_pretrained("you/census")' in files["README.md"].decode()
    files["evil.py"] = b"raise SystemExit"
    again = unbag.UnbagClassifier.from_pretrained("you/census")
    assert (again.predict_proba(X) == clf.predict_proba(X)).all()
    files["model.safetensors"] = files["model.safetensors"][:-1] + b"?"
    with pytest.raises(ModelFolderError, match="refused"):
        unbag.UnbagClassifier.from_pretrained("you/census", cache_dir=tmp_path / "other")


def test_a_folder_here(clf, tmp_path):
    again = unbag.UnbagClassifier.from_pretrained(str(clf.save(tmp_path / "model")))
    assert (again.predict_proba(X) == clf.predict_proba(X)).all()


def test_without_the_package(clf, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'unbag\[hub\]'"):
        clf.push_to_hub("you/census")
