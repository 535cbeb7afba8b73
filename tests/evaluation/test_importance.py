"""Importance of columns, by the bag likelihood."""

import numpy as np
import pandas as pd
import pytest

import unbag
from unbag.exceptions import InvalidInputError

SHARES = {"a": {"no": 0.85, "yes": 0.15}, "b": {"no": 0.15, "yes": 0.85}}
IDS = np.repeat(["a", "b"], 300)


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    truth = generator.random(600) < np.where(IDS == "b", 0.85, 0.15)
    colours = np.where(truth, "red", "blue")
    noise = generator.normal(size=600)
    return pd.DataFrame({"noise": noise, "colour": colours, "more": generator.normal(size=600)})


def fit(X):
    clf = unbag.UnbagClassifier(
        SHARES, "prop", model="linear", epochs=60, learning_rate=0.05, random_state=0
    )
    return clf.fit(X, IDS)


def test_features_of_a_column_are_shuffled_together(table):
    clf = fit(table)
    found = unbag.permutation_importance(clf, table, IDS)
    assert found.columns[0] == "colour"
    assert set(found.columns) == set(table.columns)
    assert found.increase[0] > 0.1 > 10 * abs(found.increase[1])
    chances = clf.predict_proba(table)
    expected = unbag.bag_log_loss(chances, IDS, priors=SHARES, output_prior=clf.test_prior_)
    assert found.loss == pytest.approx(expected)
    assert found.gain == pytest.approx(np.log(2) - expected)  # two bags of one size


def test_increase_is_that_of_shuffled_rows(table):
    X = np.stack([table["colour"] == "red", table["noise"]], axis=1).astype(float)
    clf = fit(X)
    found = unbag.permutation_importance(clf, X, IDS, n_repeats=3, random_state=1)
    generator, losses = np.random.default_rng(1), []
    for column in (0, 0, 0, 1, 1, 1):
        shuffled = X.copy()
        shuffled[:, column] = X[generator.permutation(600), column]
        chances = clf.predict_proba(shuffled)
        losses.append(unbag.bag_log_loss(chances, IDS, priors=SHARES, output_prior=clf.test_prior_))
    assert found.columns == ("column 0", "column 1")
    assert found.increase == pytest.approx(np.reshape(losses, (2, 3)).mean(1) - found.loss)
    assert found.deviation == pytest.approx(np.reshape(losses, (2, 3)).std(1))
    assert found.to_frame().loc["column 0", "increase"] == found.increase[0]
    assert "column 0" in str(found.summary())


def test_bags_hold_their_ids(table):
    X = table[["noise", "more"]]
    clf = fit(X)
    bags = unbag.Bags(X, IDS, SHARES)
    found = unbag.permutation_importance(clf, bags, n_repeats=1)
    assert found.to_dict() == unbag.permutation_importance(clf, X, IDS, n_repeats=1).to_dict()
    assert set(found.columns) == {"noise", "more"}
    with pytest.raises(InvalidInputError, match="left out where X is Bags"):
        unbag.permutation_importance(clf, bags, IDS)
    with pytest.raises(InvalidInputError, match="n_repeats must be a whole number of at least 1"):
        unbag.permutation_importance(clf, bags, n_repeats=0)


def test_images_have_no_columns(table):
    X = table[["noise", "more"]].to_numpy().reshape(600, 1, 2)
    with pytest.raises(InvalidInputError, match=r"rows of shape \(d,\)"):
        unbag.permutation_importance(fit(X), X, IDS)


def test_the_plot_has_a_bar_per_column_the_most_important_above(table):
    pytest.importorskip("matplotlib")
    found = unbag.permutation_importance(fit(table), table, IDS)
    ax = found.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == list(found.columns)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx(list(found.increase))
    low, high = ax.get_ylim()
    assert low > high
