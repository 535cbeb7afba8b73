"""Rows that are memory-mapped: nothing copies them, and results are those of rows in memory."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import unbag
from unbag import UnbagClassifier
from unbag.bags import Bags
from unbag.exceptions import InvalidInputError, TrainingRowsWarning
from unbag.identity import identify
from unbag.training.rows import _as_tensor

THETA = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6], [0.4, 0.3, 0.3]])
SETTINGS = {"standardize": False, "epochs": 3, "width": 20, "device": "cpu", "random_state": 0}


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """A file of rows, some of them repeated, and the bag of each."""
    rng = np.random.default_rng(0)
    bag = rng.integers(0, 4, 3000)
    y = (rng.random(3000)[:, None] > THETA[bag].cumsum(1)[:, :-1]).sum(1)
    X = (rng.standard_normal((3000, 5)) + 2 * np.eye(5)[y]).astype(np.float32)
    X[100:150] = X[:50]
    path = tmp_path_factory.mktemp("rows") / "rows.f32"
    X.tofile(path)
    return path, X, bag


def mapped(problem, mode="c"):
    path, X, _ = problem
    return np.memmap(path, np.float32, mode, shape=X.shape)


def split(X, bag):
    return Bags(X, bag, THETA).train_test_split(0.3, random_state=0)


def weights(clf):
    return torch.cat([p.flatten() for p in clf.module_.parameters()])


@pytest.mark.parametrize("mode", ["c", "r"])
@pytest.mark.parametrize("standardize", [False, True])
def test_the_result_is_that_of_rows_in_memory(problem, mode, standardize):
    _, X, bag = problem
    settings = SETTINGS | {"standardize": standardize}
    train, held_out = split(mapped(problem, mode), bag)
    clf = UnbagClassifier(**settings).fit_bags(train, held_out=held_out)
    in_memory, rest = split(X, bag)
    assert (in_memory.rows == train.rows).all()
    expected = UnbagClassifier(priors=THETA, **settings).fit(in_memory.X, in_memory.bag_ids)

    assert torch.equal(weights(clf), weights(expected))
    assert (clf.row_hashes_ == expected.row_hashes_).all()
    assert (clf.predict_proba(held_out) == expected.predict_proba(rest.X)).all()
    assert (clf.predict(held_out) == expected.predict(rest.X)).all()
    assert (clf.predict(mapped(problem, mode)) == expected.predict(X)).all()
    assert clf.score(held_out) == expected.score(rest.X, rest.bag_ids)
    assert clf.score(rest.X, rest.bag_ids) == clf.score(held_out)
    ours = unbag.evaluate(clf, held_out)
    assert ours.to_dict() == unbag.evaluate(expected, rest.X, rest.bag_ids).to_dict()
    clf.calibrate(held_out)
    expected.calibrate(rest.X, rest.bag_ids)
    assert clf.calibration_.temperature == expected.calibration_.temperature
    assert (clf.calibration_.biases == expected.calibration_.biases).all()


@pytest.mark.parametrize("kind", ["int16", "float64", "tensor", "bfloat16", "images"])
def test_rows_of_other_kinds_are_those_of_fit(problem, kind):
    _, X, bag = problem
    rows = {
        "int16": (10 * X).astype(np.int16),
        "float64": X.astype(np.float64),
        "tensor": torch.tensor(X),
        "bfloat16": torch.tensor(X).bfloat16(),
        "images": np.clip(40 * X + 100, 0, 255).astype(np.uint8).reshape(-1, 1, 1, 5),
    }[kind]
    train, held_out = split(rows, bag)
    clf = UnbagClassifier(**SETTINGS).fit_bags(train, held_out=held_out)
    expected = UnbagClassifier(priors=THETA, **SETTINGS).fit(train.X, train.bag_ids)
    assert torch.equal(weights(clf), weights(expected))
    assert (clf.predict_proba(held_out) == expected.predict_proba(held_out.X)).all()


def test_the_error_of_rows_held_out_is_recorded_and_changes_nothing(problem):
    _, _, bag = problem
    train, held_out = split(mapped(problem), bag)
    clf = UnbagClassifier(**SETTINGS).fit_bags(train, held_out=held_out)
    without = UnbagClassifier(**SETTINGS).fit_bags(train)
    assert "label_free_error" not in without.history_
    assert torch.equal(weights(clf), weights(without))
    errors = clf.history_["label_free_error"]
    assert errors.shape == (3,)
    clf.set_params(test_prior=clf.test_prior_)  # the error is that under the training shares
    np.testing.assert_allclose(errors[-1], 1 - clf.score(held_out), rtol=1e-9)
    with pytest.warns(TrainingRowsWarning, match="100.0%"):
        unbag.evaluate(clf, train)


def test_early_stopping_watches_the_rows_held_out(problem):
    _, _, bag = problem
    train, held_out = split(mapped(problem), bag)
    settings = SETTINGS | {"method": "u-prr", "epochs": 60, "n_iter_no_change": 3}
    clf = UnbagClassifier(early_stopping=True, **settings).fit_bags(train, held_out=held_out)
    errors = clf.history_["label_free_error"]
    assert clf.n_iter_ < 60
    assert clf.best_epoch_ == errors.argmin() + 1 == clf.n_iter_ - 3
    # All training rows are trained on: up to the best epoch it is the training without stopping.
    whole = UnbagClassifier(**(settings | {"epochs": clf.best_epoch_})).fit_bags(train)
    assert torch.equal(weights(clf), weights(whole))


def test_early_stopping_without_rows_held_out_splits_the_bags(problem):
    _, X, bag = problem
    settings = SETTINGS | {"early_stopping": True, "epochs": 10}
    clf = UnbagClassifier(**settings).fit_bags(Bags(mapped(problem), bag, THETA))
    expected = UnbagClassifier(priors=THETA, **settings).fit(X, bag)
    assert torch.equal(weights(clf), weights(expected))


def test_a_resumed_training_is_the_same(problem, tmp_path):
    _, _, bag = problem
    train, held_out = split(mapped(problem), bag)
    settings = SETTINGS | {"checkpoint": tmp_path}
    clf = UnbagClassifier(**settings).fit_bags(train, held_out=held_out)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert written
    again = UnbagClassifier(**settings).fit_bags(train, held_out=held_out)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == written
    assert torch.equal(weights(clf), weights(again))


def test_priors_are_those_of_the_bags(problem):
    _, _, bag = problem
    names = np.array(list("abcd"))
    table = unbag.ClassPriors(THETA, names, ["x", "y", "z"])
    bags = Bags(mapped(problem), names[bag], table)
    clf = UnbagClassifier(**SETTINGS).fit_bags(bags)
    assert clf.classes_.tolist() == ["x", "y", "z"]
    assert clf.priors_ is table
    assert UnbagClassifier(priors=table, **SETTINGS).fit_bags(bags).score(bags) == clf.score(bags)
    part = bags.take(bags.bag_index < 3).present()  # of a larger table
    UnbagClassifier(priors=table, **SETTINGS).fit_bags(part)
    for other in (THETA, unbag.ClassPriors(THETA[::-1], names, ["x", "y", "z"])):
        with pytest.raises(InvalidInputError, match=r"(None, or those of the bags|ids that the)"):
            UnbagClassifier(priors=other, **SETTINGS).fit_bags(bags)
    swapped = Bags(bags.source, names[bag], unbag.ClassPriors(THETA, names, ["z", "y", "x"]))
    for method in (clf.score, clf.calibrate):
        with pytest.raises(InvalidInputError, match="of the classes 'x', 'y', 'z'"):
            method(swapped)


def test_bad_arguments_say_what_is_wrong(problem):
    _, X, bag = problem
    bags = Bags(X, bag, THETA)
    with pytest.raises(InvalidInputError, match="bags must be of type Bags, got ndarray"):
        UnbagClassifier().fit_bags(X)
    with pytest.raises(InvalidInputError, match="held_out must be of type Bags, got tuple"):
        UnbagClassifier().fit_bags(bags, held_out=(X, bag))
    clf = UnbagClassifier(**SETTINGS).fit_bags(bags)
    for method in (clf.score, clf.calibrate):
        with pytest.raises(InvalidInputError, match="y must be left out where X is Bags"):
            method(bags, bag)
    with pytest.raises(InvalidInputError, match="bag_ids must be left out where X is Bags"):
        unbag.evaluate(clf, bags, bag)
    with pytest.raises(InvalidInputError, match=r"rows of shape \(5,\)"):
        clf.predict(Bags(X[:, :4], bag, THETA))
    with pytest.raises(InvalidInputError, match="3000 rows, as many as before, got 2"):
        bags.with_rows(X[:2])


def test_features_are_matched_by_name(problem):
    _, X, bag = problem
    frame = pd.DataFrame(X, columns=list("pqrst"))
    bags = Bags(frame, bag, THETA)
    clf = UnbagClassifier(**SETTINGS).fit_bags(bags)
    assert clf.feature_names_in_.tolist() == list("pqrst")
    assert (clf.predict(bags) == clf.predict(frame)).all()  # and nothing is said of names
    with pytest.raises(InvalidInputError, match="Bags of the features 'p', 'q'"):
        clf.predict(Bags(frame.rename(columns={"p": "u"}), bag, THETA))


def test_a_value_that_is_not_finite_is_found_in_any_part(problem, monkeypatch):
    _, X, bag = problem
    clf = UnbagClassifier(**SETTINGS).fit(X, bag % 3)
    monkeypatch.setattr("unbag.rows._CHUNK", 100)
    monkeypatch.setattr("unbag.estimator.inputs._PART_ROWS", 100)
    bad = X.copy()
    bad[2500, 3], bad[2501, 0], bad[2999, 1] = np.nan, np.inf, -np.inf
    for rows in (bad, torch.tensor(bad)):
        with pytest.raises(InvalidInputError, match=r"3 NaN .* in row 2500, column 3"):
            Bags(rows, bag, THETA)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        clf.predict(bad)


def test_predictions_do_not_depend_on_the_container(problem):
    """Parts of arrays are checked one by one, other containers as a whole."""
    _, X, bag = problem
    X, bag = np.tile(X, (3, 1)), np.tile(bag, 3)  # more than one part
    clf = UnbagClassifier(priors=THETA, epochs=1, width=20, random_state=0).fit(X, bag)
    expected = clf.predict_proba(X)
    for rows in (X.tolist(), torch.tensor(X), pd.DataFrame(X), X.astype(object), X[::-1][::-1]):
        np.testing.assert_allclose(clf.predict_proba(rows), expected, rtol=1e-5)
    assert (clf.predict_proba(X[::-1])[::-1].argmax(1) == expected.argmax(1)).all()


def test_bags_are_evaluated_for_classifiers_of_other_libraries(problem):
    _, X, bag = problem
    bags = Bags(X, bag, THETA).take(np.arange(2000))
    model = LogisticRegression().fit(X, bag % 3)
    expected = unbag.evaluate(model, bags.X, bags.bag_ids, priors=THETA)
    assert unbag.evaluate(model, bags).to_dict() == expected.to_dict()


def test_rows_with_equal_hashes_are_still_told_apart(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (500, 3))
    expected = identify(rows)
    index = rng.integers(0, 500, 700)
    chosen = identify(rows[index])
    monkeypatch.setattr("unbag.identity._CHUNK", 30)
    for modulus in (1, 7):
        monkeypatch.setattr(
            "unbag.identity._hash", lambda bits, m=modulus: bits.sum(1) % np.uint64(m)
        )
        assert (identify(rows) == expected).all()
        assert (identify(rows, index) == chosen).all()
        assert (identify(torch.tensor(rows), index) == chosen).all()


def test_ids_are_matched_in_any_part(monkeypatch):
    monkeypatch.setattr("unbag.ids._PART", 3)
    known = unbag.ClassPriors(THETA, list("abcd"))
    assert known.encode(np.array(list("dabbacdd"))).tolist() == [3, 0, 1, 1, 0, 2, 3, 3]
    with pytest.raises(InvalidInputError, match="unknown 'x', 'y'"):
        known.encode(np.array(list("daxbay")))


def test_read_only_rows_are_shared():
    rows = np.zeros((3, 2), np.float32)
    rows.flags.writeable = False
    assert _as_tensor(rows).data_ptr() == rows.ctypes.data


MEMORY = """
    import sys, threading, time
    import numpy as np
    import unbag
    from unbag.bags import Bags

    def memory():
        with open("/proc/self/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["RssAnon"].split()[0]) / 1000

    def watch():
        global peak
        while True:
            peak = max(peak, memory())
            time.sleep(0.002)

    def work(X):
        half = len(X) // 2
        bags = Bags(X, np.arange(len(X)) % 2, [[0.9, 0.1], [0.2, 0.8]])
        bags.row_identity()
        train, held_out = bags.take(np.arange(half)), bags.take(np.arange(half, 2 * half))
        clf = unbag.UnbagClassifier(
            model="linear", standardize=False, epochs=1, batch_size=2_000, device="cpu",
            random_state=0, checkpoint=sys.argv[3],
        )
        clf.fit_bags(train, held_out=held_out)
        clf.predict(X)
        clf.score(held_out)
        unbag.evaluate(clf, held_out)

    work(np.random.default_rng(0).random((100, 500), dtype=np.float32))  # all that is loaded late
    X = np.memmap(sys.argv[1], np.float32, sys.argv[2], shape=(300_000, 500))
    start = peak = memory()
    threading.Thread(target=watch, daemon=True).start()
    work(X)
    print(peak - start)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
@pytest.mark.parametrize("mode", ["c", "r"])
def test_memory_does_not_grow_with_the_rows(tmp_path, mode):
    """A copy of one half of 600 MB of rows (a sparse file) would take 300 MB on top of some 70."""
    path = tmp_path / "rows.f32"
    with path.open("wb") as file:
        file.write(np.random.default_rng(0).random(2_000 * 500, dtype=np.float32).tobytes())
        file.truncate(300_000 * 500 * 4)
    script = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        textwrap.dedent(MEMORY),
        path,
        mode,
        tmp_path / "state",
    ]
    # Large blocks of memory are then given back as soon as they are free.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    done = subprocess.run(script, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 200
