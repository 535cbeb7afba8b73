"""ONNX files: the same probabilities in onnxruntime."""

import json

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from torch import nn

import unbag
from unbag import UnbagClassifier, export_onnx
from unbag.estimator import graph
from unbag.exceptions import InvalidInputError, UnbagError
from unbag.methods import Tables
from unbag.tabular import FEATURES, Features, ShareModels, TabularModel

RNG = np.random.default_rng(0)
X = RNG.normal([0, 5, -3, 1e6], [1, 0.1, 7, 30], (240, 4)).astype(np.float32)
BAGS = np.repeat(["a", "b", "c"], 80)
THETA = {"a": [0.7, 0.2, 0.1], "b": [0.2, 0.7, 0.1], "c": [0.1, 0.2, 0.7]}
LABELS = np.concatenate([np.repeat([0, 1, 2], [round(80 * t) for t in THETA[b]]) for b in THETA])
SEPARATE = X + 2 * np.eye(3, 4, dtype=np.float32)[LABELS] * X.std(0)
IMAGES = RNG.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
IMAGE_BAGS = np.repeat(["a", "b", "c"], 20)


def fitted(rows=X, bags=BAGS, **options):
    options = {"priors": THETA, "epochs": 2, "width": 8, "random_state": 0} | options
    return UnbagClassifier(**options).fit(rows, bags)


def run(path, rows):
    session = onnxruntime.InferenceSession(path)
    assert [i.name for i in session.get_inputs()] == ["rows"]
    assert [o.name for o in session.get_outputs()] == ["probabilities", "class_index"]
    return session.run(None, {"rows": rows})


def assert_same(clf, path, rows):
    # Rows of float32 are scaled in float32, and less exactly.
    expected = clf.predict_proba(rows if rows.dtype == np.uint8 else rows.astype(np.float64))
    for part in (slice(None), slice(0, 1), slice(3, 10)):
        probabilities, index = run(path, rows[part])
        assert probabilities.dtype == np.float32
        np.testing.assert_allclose(probabilities, expected[part], atol=1e-5)
        assert (index == expected[part].argmax(1)).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "linear"},
        {"depth": 5, "dropout": 0.3},
        {"method": "prop", "test_prior": [0.1, 0.2, 0.7]},
        {"test_prior": [0.5, 0.5, 0.0]},
        {"precision": "float64"},
        {"model": nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.GELU(), nn.Linear(6, 3))},
    ],
    ids=["mlp", "linear", "deep", "prior", "excluded class", "float64", "module"],
)
@pytest.mark.parametrize("calibrated", [False, True])
def test_tables(tmp_path, options, calibrated):
    clf = fitted(**options)
    if calibrated:
        clf.calibrate(X, BAGS)
    path = export_onnx(clf, tmp_path / "model.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    assert_same(clf, path, X)


LEARNERS = [None, "trees", "boosting", "linear", MLPClassifier((5,), activation="logistic")]


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_models_of_tables(tmp_path, learner):
    method = Tables(rounds=1, trees=5, learner=learner)
    clf = fitted(SEPARATE, method=method, epochs=None, test_prior=[0.1, 0.2, 0.7])
    assert clf.module_.trust > 0.5  # or all that is compared are shares
    clf.calibrate(SEPARATE, BAGS)
    assert_same(clf, export_onnx(clf, tmp_path / "model.onnx"), SEPARATE)


def test_models_of_shares(tmp_path):
    """Features of all kinds, and rows that lie beyond those of the training."""
    rng = np.random.default_rng(0)
    kinds = [Features.learn(kind, SEPARATE.astype(float), rng) for kind in FEATURES]
    models = ShareModels([(f.kind, len(f.center)) for f in kinds], 4, 2, 3)
    with torch.no_grad():
        for number, features in enumerate(kinds):
            models.features[number] = features
            for tensor, scale in ((models.matrix[number], 5), (models.offset[number], 0.5)):
                tensor.copy_(torch.as_tensor(scale * rng.normal(size=tensor.shape)))
        models.mixing.copy_(torch.as_tensor(rng.uniform(0.1, 0.3, models.mixing.shape)))
        models.constant.copy_(torch.as_tensor(0.3 * rng.normal(size=3)))
    clf = fitted(SEPARATE, method=Tables(rounds=1, learner="linear"), epochs=None)
    clf.module_ = TabularModel({"shares": models}, [1.0], np.array([0.5, 0.3, 0.2]), 0.8)
    assert np.ptp(clf.predict_proba(SEPARATE), axis=0).max() > 0.3
    far = SEPARATE.mean(0) + 20 * (SEPARATE - SEPARATE.mean(0))
    path = export_onnx(clf, tmp_path / "model.onnx")
    again = unbag.load_model(clf.save(tmp_path / "model"))
    for rows in (SEPARATE, far):
        assert_same(clf, path, rows)
        np.testing.assert_array_equal(again.predict_proba(rows), clf.predict_proba(rows))


def test_a_model_of_a_table_that_cannot_be_exported(tmp_path):
    clf = fitted(SEPARATE, method=Tables(rounds=1, learner=GaussianNB()), epochs=None)
    message = r"learner must be one that can be exported \(RandomForest.*got GaussianNB"
    with pytest.raises(InvalidInputError, match=message):
        export_onnx(clf, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_rows_that_are_not_scaled(tmp_path):
    rows = RNG.normal(size=(240, 4)).astype(np.float32)
    clf = fitted(rows, standardize=False)
    assert_same(clf, export_onnx(clf, tmp_path / "model.onnx"), rows)


@pytest.mark.parametrize("model", ["resnet20", "mlp", "module"])
@pytest.mark.parametrize("kind", ["bytes", "floats", "grey", "odd"])
def test_images(tmp_path, model, kind):
    rows = {
        "bytes": IMAGES,
        "floats": IMAGES.astype(np.float32),
        "grey": IMAGES[:, 0],
        "odd": IMAGES[:, :, :7, :5],
    }[kind]
    if model == "module":
        n = int(np.prod(rows.shape[1:]))
        model = nn.Sequential(nn.Flatten(), nn.Linear(n, 5), nn.ReLU(), nn.Linear(5, 3))
    clf = fitted(rows, IMAGE_BAGS, model=model, epochs=1).calibrate(rows, IMAGE_BAGS)
    path = export_onnx(clf, tmp_path / "model.onnx")
    assert_same(clf, path, rows)
    if kind != "floats":
        assert onnxruntime.InferenceSession(path).get_inputs()[0].type == "tensor(uint8)"


def test_metadata(tmp_path):
    class Encoding:
        feature_names = ("w", "x", "y", "z=ü")

        def to_dict(self):
            return {"kind": "table", "columns": ["w", "x", "y", "z"]}

    table = unbag.ClassPriors(list(THETA.values()), THETA, ["no", "yes", "maybe"])
    clf = fitted(pd.DataFrame(X, columns=list("wxyz")), priors=table)
    path = export_onnx(clf, tmp_path / "plain.onnx")
    result = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert result["format"] == "unbag-onnx-1"
    assert json.loads(result["classes"]) == {"kind": "str", "values": ["no", "yes", "maybe"]}
    assert json.loads(result["feature_names"]) == ["w", "x", "y", "z"]
    assert json.loads(result["test_prior"]) == clf.test_prior_.tolist()
    assert "encoding" not in result
    clf.encoding_ = Encoding()
    path = export_onnx(clf, tmp_path / "encoded.onnx")
    result = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert json.loads(result["encoding"])["columns"] == ["w", "x", "y", "z"]
    assert json.loads(result["feature_names"])[3] == "z=ü"


def test_a_loaded_model(tmp_path):
    clf = fitted()
    again = unbag.load_model(clf.save(tmp_path / "model"))
    assert_same(clf, export_onnx(again, tmp_path / "model.onnx"), X)


def test_a_file_that_differs_is_not_written(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    export_onnx(fitted(), path)
    before = path.read_bytes()

    def wrong(made, x, linear):
        return made.add("Gemm", x, made.constant(linear.weight), transB=1)

    monkeypatch.setattr(graph, "add_linear", wrong)
    with pytest.raises(UnbagError, match="gives other probabilities"):
        export_onnx(fitted(random_state=1), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_the_check_starts_no_threads(tmp_path, monkeypatch):
    """Where memory runs out while onnxruntime starts them, it ends the process."""
    inner, seen = onnxruntime.InferenceSession, []

    def session(path, options, **more):
        seen.append(options.intra_op_num_threads)
        return inner(path, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    export_onnx(fitted(), tmp_path / "model.onnx")
    assert seen == [1]


def test_a_module_that_depends_on_the_number_of_rows_is_found_out(tmp_path):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 3)

        def forward(self, x):
            logits = self.out(x)
            return logits if len(x) == 2 else logits + torch.arange(3)

    with pytest.raises(UnbagError, match="gives other probabilities"):
        export_onnx(fitted(model=Odd()), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_module_that_torch_cannot_export(tmp_path):
    class Odd(nn.Linear):
        def forward(self, x):
            return super().forward(torch.special.bessel_j0(x))

    with pytest.raises(InvalidInputError, match=r"torch\.onnx\.export can express"):
        export_onnx(fitted(model=Odd(4, 3)), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["model", "model.txt", "folder.onnx", "file/model.onnx"])
def test_paths(tmp_path, name):
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInputError, match="path must be"):
        export_onnx(fitted(), tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_graph_needs_no_recent_runtime(tmp_path):
    for model in ("mlp", nn.Linear(4, 3)):
        exported = onnx.load(export_onnx(fitted(model=model), tmp_path / "model.onnx"))
        assert exported.ir_version == 8
        assert [(o.domain, o.version) for o in exported.opset_import] == [("", 17)]


def test_without_onnx(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(unbag.exceptions.MissingDependencyError, match=r"unbag\[onnx\]"):
        export_onnx(fitted(), tmp_path / "model.onnx")
