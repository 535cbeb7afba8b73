"""Calls from Python: bags keep every row, estimates agree with plain counting, fits end well."""

import random

import numpy as np
import pandas as pd
import pytest
import torch
from fuzzing import outcome, seeds, sweep
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import unbag
from unbag import Bags, ClassPriors, UnbagClassifier, load_model, make_bags, tune
from unbag.exceptions import InvalidInputError, ModelFolderError
from unbag.priors import ShareErrors

NAMES = np.array(["a", "b", "c", "d"])
ODD_ROWS = [
    None,
    "x",
    [],
    [1, 2],
    [[np.nan]],
    [[]],
    [["x"]],
    np.zeros((3, 0)),
    np.zeros(4),
    7,
    object(),
]
ODD_IDS = [None, "abc", [], ["a"], [None] * 40, 5, [["a"]], np.zeros(3), ["z"] * 40, {"a": 1}]


def rows_as(kind: str, X: np.ndarray):
    return {
        "array": lambda: X,
        "float32": lambda: X.astype(np.float32),
        "list": lambda: X.tolist(),
        "torch": lambda: torch.tensor(X),
        "pandas": lambda: pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])]),
        "bytes": lambda: np.clip(X * 10, 0, 255).astype(np.uint8),
        "sparse": lambda: torch.tensor(X).to_sparse(),
        "meta": lambda: torch.tensor(X).to("meta"),
    }[kind]()


FORMS = st.sampled_from(["array", "float32", "list", "torch", "pandas", "bytes"])


@st.composite
def drawn(draw):
    """Rows in bags, and the priors of these."""
    k = draw(st.integers(2, 4))
    m = draw(st.integers(k, 4))
    n = draw(st.integers(m, 60))
    pure = draw(st.booleans()) and m == k
    rng = np.random.default_rng(draw(seeds()))
    theta = np.eye(k) if pure else rng.dirichlet(np.full(k, 0.5), m)
    bags = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    rng.shuffle(bags)
    X = rng.normal(size=(n, draw(st.integers(1, 3))))
    odd = draw(st.sampled_from([None] * 6 + ["rows", "ids", "sparse", "meta", "short", "value"]))
    return X, bags, theta, rng, odd, pure


def test_bags():
    def check(case) -> bool:
        (X, index, theta, rng, odd, _), form = case
        given, ids = rows_as(odd if odd in ("sparse", "meta") else form, X), NAMES[index]
        if odd == "rows":
            given = ODD_ROWS[rng.integers(len(ODD_ROWS))]
        elif odd == "ids":
            ids = ODD_IDS[rng.integers(len(ODD_IDS))]
        elif odd == "short":
            ids = ids[:-1]
        elif odd == "value" and form in ("array", "torch"):
            given[0, 0] = float(rng.choice([np.nan, np.inf]))
        priors = ClassPriors(theta, NAMES[: len(theta)])
        bags, error = outcome(lambda: Bags(given, ids, priors))
        if error is not None:
            return False
        assert odd in (None, "value")
        np.testing.assert_array_equal(bags.bag_ids, ids)
        np.testing.assert_array_equal(bags.counts, np.bincount(index, minlength=len(theta)))
        parts, error = outcome(
            lambda: bags.train_test_split(0.3, random_state=int(rng.integers(99)))
        )
        if error is None:  # no row is lost or repeated
            rows = np.concatenate([np.asarray(part.X) for part in parts])
            assert sorted(map(tuple, rows.tolist())) == sorted(
                map(tuple, np.asarray(bags.X).tolist())
            )
        labels = rng.integers(0, theta.shape[1], len(X))
        made, error = outcome(lambda: make_bags(X, labels, theta, random_state=0))
        if error is None:
            known = set(map(tuple, X.tolist()))
            assert set(map(tuple, np.asarray(made.X).tolist())) <= known
            for m in range(len(theta)):  # shares of the bags, to the nearest row
                drawn_labels = made.labels[made.bag_index == m]
                counts = np.bincount(drawn_labels.astype(int), minlength=theta.shape[1])
                assert np.abs(counts - theta[m] * len(drawn_labels)).max() <= 1 + 1e-9
        return True

    sweep("bags", st.tuples(drawn(), FORMS), check)


OPTIONS = {
    "level": [0.5, 0.99, 0, 1, -1, np.nan, "x", None],
    "shares_of": ["rows", "population", "x", None],
    "inverse": ["size-weighted", "least-squares", "x"],
    "test_prior": [None, None, "pooled", [1], [np.nan, 1], {"x": 1}],
    "cost": [None, None, "eye", [[1]], "x"],
}


def test_estimates():
    """Where bags are pure, the accuracy without labels is that of plain counting."""

    def check(case) -> bool:
        X, index, theta, rng, odd, pure = case
        k, ids = theta.shape[1], NAMES[index]
        priors = ClassPriors(theta, NAMES[: len(theta)])
        predicted = rng.integers(0, k, len(X))
        chances = rng.dirichlet(np.ones(k), len(X))
        options = {}
        if rng.random() < 0.3:
            name = str(rng.choice(list(OPTIONS)))
            options[name] = OPTIONS[name][rng.integers(len(OPTIONS[name]))]
            if options[name] == "eye":
                options[name] = 1 - np.eye(k)
        if odd == "ids":
            ids = ODD_IDS[rng.integers(len(ODD_IDS))]
        elif odd == "rows":
            predicted = ODD_ROWS[rng.integers(len(ODD_ROWS))]
        elif odd == "meta":
            chances = torch.tensor(chances).to("meta")
        elif odd == "value":
            chances[0] = [np.nan, 1e300, -1, 2][rng.integers(4)]
        given = chances if rng.random() < 0.5 or odd in ("meta", "value") else None
        rng2 = random.Random(int(rng.integers(2**32)))
        if rng2.random() < 0.2:
            options["labels"] = drawn_labels(rng2, k, len(X))
        whole, error = outcome(
            lambda: unbag.evaluate_predictions(
                predicted, ids, priors=priors, probabilities=given, **options
            )
        )
        checked, other = outcome(
            lambda: unbag.inspect(
                priors,
                X=X,
                bag_ids=ids,
                **{n: o for n, o in options.items() if n in ("level", "shares_of")},
            )
        )
        if other is None:
            assert str(checked)
            assert isinstance(checked.to_dict(), dict)
        if error is not None:
            return False
        value = float(whole.accuracy)
        assert np.isfinite(value)
        assert whole.accuracy.low <= value <= whole.accuracy.high or not 0 <= value <= 1
        if pure and options.get("test_prior") is None and "labels" not in options:
            best = predicted if predicted is not None else chances.argmax(1)
            assert value == pytest.approx(np.mean(best == index))
        assert str(whole)
        return True

    sweep("estimates", drawn(), check)


SETTINGS = {
    "method": ["prop", "u-prr", "biased", "bag-likelihood", "x", None, 3],
    "model": ["linear", "mlp", "resnet20", None, 3],
    "epochs": [1, 2, 0, -1, 1.5, None, 2**70],
    "batch_size": [None, "auto", 1, 10**9, 0, "x"],
    "learning_rate": [1e-3, 1e3, 0, np.inf, "x", 1e30],
    "width": [1, 4, 0, "x"],
    "dropout": [0, 0.5, 1, np.nan],
    "standardize": [True, False, None],
    "precision": ["float32", "float64", "x"],
    "random_state": [0, None, -1, 2**70, "x"],
    "early_stopping": [True, False, 1],
    "learner": ["linear", "x", None, 3, LogisticRegression(), LogisticRegression],
    "time_limit": [60, 1e-9, 0, -1, np.nan, np.inf, "x", 2**70],
}
SEARCHES = [None, {}, [1], 3, {"epochs": [1]}, {"width": (1, 4)}, {"width": (4, 1)}, {1: [1]},
            {"method": ["x"]}, {"method": ["prop", "u-prr"]}, {"learning_rate": (0, 1, "log")},
            {"learning_rate": (1e-3, "x")}, {"dropout": []}, {"x": [1]}]  # fmt: skip


ERRORS = [
    lambda _: None,
    lambda _: None,
    lambda theta: ShareErrors.from_rows([50] * len(theta)),
    lambda theta: ShareErrors.laplace([0.05] * len(theta)),
    lambda theta: np.full(theta.shape, 0.1),
]


def drawn_labels(rng: random.Random, k: int, n: int):
    """Classes of a few rows, and sometimes what is none."""
    labels = [rng.randrange(k) if rng.random() < 0.2 else None for _ in range(n)]
    odd = rng.choice([None, None, "x", -1, k, 0.5, np.nan, "short", "all"])
    if odd == "short":
        return labels[:-1]
    if odd == "all":
        return rng.choice([[], "x", 5, [None] * n, [[1]] * n])
    if odd is not None:
        labels[rng.randrange(n)] = odd
    return labels


def test_fits(tmp_path):
    place = tmp_path

    def check(case) -> bool:
        (X, index, theta, rng, odd, _), form = case
        rng2 = random.Random(int(rng.integers(2**32)))
        options = {"method": "prop", "model": "linear", "epochs": 1, "random_state": 0}
        for name in rng2.sample(list(SETTINGS), rng2.choice([0, 0, 1, 1, 2])):
            options[name] = rng2.choice(SETTINGS[name])
        X = X * rng2.choice([1, 1, 1, 1e-300, 1e18, 1e38])
        given, ids = rows_as(odd if odd in ("sparse", "meta") else form, np.abs(X)), NAMES[index]
        if odd == "rows":
            given = rng2.choice(ODD_ROWS)
        elif odd == "ids":
            ids = rng2.choice(ODD_IDS)
        priors = ClassPriors(theta, NAMES[: len(theta)], errors=rng2.choice(ERRORS)(theta))
        labels = drawn_labels(rng2, theta.shape[1], len(X)) if rng2.random() < 0.3 else None
        if options.get("learner") is not None or labels is not None:
            options |= {"method": rng2.choice(["tables", "crossfit", "prop"]), "model": None}
            options = {name: value for name, value in options.items() if value is not None}
        fit, error = outcome(
            lambda: UnbagClassifier(priors, **options).fit(given, ids, labels=labels)
        )
        if error is not None:
            return False
        if fit.method_ == "tables":  # the same numbers from a folder
            try:
                saved = fit.save(place / "model")
            except (InvalidInputError, ModelFolderError):
                saved = None
            if saved is not None and odd is None:
                again = load_model(saved).predict_proba(given)
                np.testing.assert_array_equal(again, fit.predict_proba(given))
        chances, error = outcome(lambda: fit.predict_proba(given))
        if error is None:
            assert chances.shape == (len(X), theta.shape[1])
            assert np.isfinite(chances).all()
            np.testing.assert_allclose(chances.sum(1), 1)
            assert (fit.predict(given) == fit.classes_[chances.argmax(1)]).all()
            shares, error = outcome(lambda: unbag.estimate_prior(fit, given))
            if error is None:
                assert sum(map(float, shares.shares)) == pytest.approx(1)
        if rng2.random() < 0.2:
            search = rng2.choice(SEARCHES)
            outcome(
                lambda: tune(
                    given,
                    ids,
                    UnbagClassifier(priors, **options),
                    search=search,
                    n_trials=1,
                    storage=None,
                )
            )
        return True

    sweep("fits", st.tuples(drawn(), FORMS), check)
