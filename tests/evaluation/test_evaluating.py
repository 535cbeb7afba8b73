"""evaluate(): fitted classifiers of this library and of others."""

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import unbag
from unbag.evaluation import evaluate, evaluate_predictions, reliability_diagram
from unbag.exceptions import InvalidInputError, TrainingRowsWarning
from unbag.identity import hash_rows

CLASSES = np.array(["ant", "bee", "cow"])
THETA = pd.DataFrame(
    [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.4, 0.3, 0.3]],
    index=["n", "e", "s", "w"],
    columns=["cow", "ant", "bee"],  # not in the order of scikit-learn's classes_
)


def draw(n, seed, theta=THETA):
    """Rows of Gaussian classes, their labels and their bags."""
    rng = np.random.default_rng(seed)
    label = np.concatenate([rng.choice(theta.columns, n, p=row) for row in theta.to_numpy()])
    centres = dict(zip(CLASSES, 3 * np.eye(3), strict=True))
    X = np.stack([centres[y] for y in label]) + rng.normal(size=(len(label), 3))
    return X, label, np.repeat(theta.index.to_numpy(), n)


X_TRAIN, Y_TRAIN, BAGS_TRAIN = draw(60, seed=0)
X, Y, BAGS = draw(400, seed=1)


def classifier(**options):
    defaults = {"model": "linear", "epochs": 30, "learning_rate": 0.02, "random_state": 0}
    return unbag.UnbagClassifier(THETA, **(defaults | options))


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X_TRAIN, BAGS_TRAIN)


def assert_same(one, other):
    assert float(one.accuracy) == pytest.approx(float(other.accuracy), abs=1e-12)
    assert one.interval == pytest.approx(other.interval, abs=1e-12)
    np.testing.assert_allclose(one.confusion, other.confusion, atol=1e-12)
    if other.probabilities is not None:
        assert float(one.probabilities.log_loss) == pytest.approx(other.probabilities.log_loss)


def test_our_classifier(fitted):
    report = evaluate(fitted, X, BAGS)
    truth = (fitted.predict(X) == Y).mean()
    assert truth > 0.8
    assert report.accuracy.low < truth < report.accuracy.high
    assert report.classes.tolist() == ["cow", "ant", "bee"]
    chances = fitted.predict_proba(X)
    expected = evaluate_predictions(
        fitted.predict(X), BAGS, priors=THETA, probabilities=chances, X=X
    )
    assert_same(report, expected)
    assert evaluate(fitted, X, BAGS, inverse="pseudo-inverse").inverse == "pseudo-inverse"


class Counting(unbag.UnbagClassifier):
    """Counts the times that rows go through the model."""

    passes = 0

    def _log_odds(self, X, *given):
        type(self).passes += 1
        return super()._log_odds(X, *given)


class Contrary(unbag.UnbagClassifier):
    """Predicts another class than the most probable one."""

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmin(1)]


def of_kind(kind, fitted):
    other = kind(**fitted.get_params())
    other.__dict__ |= vars(fitted)
    return other


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_rows_are_predicted_once(fitted, in_pipeline, monkeypatch):
    monkeypatch.setattr(Counting, "passes", 0)
    counting = of_kind(Counting, fitted)
    report = evaluate(make_pipeline(counting) if in_pipeline else counting, X, BAGS)
    assert Counting.passes == 1
    assert_same(report, evaluate(fitted, X, BAGS))


def test_a_rule_of_prediction_of_ones_own_is_evaluated(fitted):
    report = evaluate(of_kind(Contrary, fitted), X, BAGS)
    assert_same(
        report, evaluate_predictions(of_kind(Contrary, fitted).predict(X), BAGS, priors=THETA, X=X)
    )
    assert report.accuracy < 0.2
    assert report.probabilities is not None


def test_known_probabilities_are_not_made_again(fitted, monkeypatch):
    monkeypatch.setattr(Counting, "passes", 0)
    chances = fitted.predict_proba(X)
    assert_same(
        evaluate(of_kind(Counting, fitted), X, BAGS, probabilities=chances),
        evaluate(fitted, X, BAGS),
    )
    assert Counting.passes == 0


@pytest.mark.parametrize("bad", [lambda p: p[:-1], lambda p: p[:, :2], lambda p: 2 * p])
def test_known_probabilities_are_checked(fitted, bad):
    with pytest.raises(InvalidInputError, match="probabilities must be"):
        evaluate(fitted, X, BAGS, probabilities=bad(fitted.predict_proba(X)))


def test_reliability_is_kept_with_the_evaluation(fitted):
    report = evaluate(fitted, X, BAGS)
    expected = reliability_diagram(
        fitted.predict_proba(X), BAGS, priors=THETA, test_prior=report.test_prior
    )
    np.testing.assert_array_equal(report.reliability.edges, np.linspace(0, 1, 11))
    np.testing.assert_allclose(report.reliability.overall.frequency, expected.overall.frequency)
    for curve, wanted in zip(report.reliability.by_class, expected.by_class, strict=True):
        np.testing.assert_allclose(curve.frequency, wanted.frequency)
    written = json.loads(json.dumps(report.to_dict()))["reliability"]
    assert written["overall"]["rows"] == expected.overall.rows.tolist()
    assert written["classes"] == ["cow", "ant", "bee"]
    without = evaluate_predictions(fitted.predict(X), BAGS, priors=THETA)
    assert without.reliability is None
    assert without.to_dict()["reliability"] is None


def test_reliability_with_labelled_rows(fitted):
    labels = np.where(np.arange(len(Y)) % 2 == 0, Y, None)
    report = evaluate(fitted, X, BAGS, labels=labels)
    right, best = fitted.predict(X) == Y, fitted.predict_proba(X).max(1)
    curve = report.reliability.overall
    place = np.clip((10 * best).astype(int), 0, 9)
    many = np.flatnonzero(curve.rows >= 100)
    assert len(many) >= 2
    truth = np.array([right[place == b].mean() for b in many])
    assert (np.abs(curve.frequency[many] - truth) < 4 * curve.error[many]).all()


def test_the_top_level_names(fitted):
    assert unbag.evaluate is evaluate
    assert unbag.evaluate_predictions is evaluate_predictions
    assert isinstance(unbag.evaluate(fitted, X, BAGS), unbag.Evaluation)


def test_our_classifier_without_priors_is_supervised():
    clf = unbag.UnbagClassifier(model="linear", epochs=30, random_state=0).fit(X_TRAIN, Y_TRAIN)
    report = evaluate(clf, X, Y)
    assert report.accuracy == pytest.approx((clf.predict(X) == Y).mean())


def test_the_test_prior_of_the_classifier_is_used_unless_another_is_given():
    pi = {"ant": 0.2, "bee": 0.3, "cow": 0.5}
    clf = classifier(test_prior=pi).fit(X_TRAIN, BAGS_TRAIN)
    np.testing.assert_allclose(evaluate(clf, X, BAGS).test_prior, [0.5, 0.2, 0.3])
    other = evaluate(clf, X, BAGS, test_prior=[0.2, 0.2, 0.6])
    np.testing.assert_allclose(other.test_prior, [0.2, 0.2, 0.6])


@pytest.mark.filterwarnings("ignore::unbag.exceptions.ImplausibleEstimateWarning")
@pytest.mark.parametrize("test_prior", [None, {"ant": 0.2, "bee": 0.3, "cow": 0.5}])
def test_score_is_the_accuracy_of_evaluate_to_the_last_digit(test_prior):
    clf = classifier(test_prior=test_prior).fit(X_TRAIN, BAGS_TRAIN)
    rng = np.random.default_rng(0)
    for _ in range(20):
        some = rng.random(len(X)) < rng.uniform(0.1, 0.9, len(BAGS) // 400).repeat(400)
        assert float(evaluate(clf, X[some], BAGS[some]).accuracy) == clf.score(X[some], BAGS[some])


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_pipeline_that_ends_in_ours(steps):
    pipeline = make_pipeline(*(StandardScaler() for _ in range(steps)), classifier())
    pipeline.fit(X_TRAIN, BAGS_TRAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = evaluate(pipeline, X, BAGS)
    expected = evaluate_predictions(
        pipeline.predict(X), BAGS, priors=THETA, probabilities=pipeline.predict_proba(X), X=X
    )
    assert_same(report, expected)
    with pytest.warns(TrainingRowsWarning, match=r"100\.0% of these rows"):
        evaluate(pipeline, X_TRAIN, BAGS_TRAIN)


def test_a_search_over_ours():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), classifier(epochs=5)),
        {"unbagclassifier__weight_decay": [0.0, 1e-3]},
        cv=2,
    )
    search.fit(X_TRAIN, BAGS_TRAIN)
    report = evaluate(search, X, BAGS)
    expected = evaluate_predictions(
        search.predict(X), BAGS, priors=THETA, probabilities=search.predict_proba(X), X=X
    )
    assert_same(report, expected)
    with pytest.warns(TrainingRowsWarning):
        evaluate(search, X_TRAIN, BAGS_TRAIN)


def test_scikit_learn_s_classifiers_with_columns_in_another_order():
    model = LogisticRegression().fit(X_TRAIN, Y_TRAIN)
    assert model.classes_.tolist() != THETA.columns.tolist()
    report = evaluate(model, X, BAGS, priors=THETA)
    truth = (model.predict(X) == Y).mean()
    assert report.accuracy.low < truth < report.accuracy.high
    log_loss = report.probabilities.log_loss
    chance = model.predict_proba(X)[np.arange(len(Y)), np.searchsorted(model.classes_, Y)]
    assert log_loss.low < -np.log(chance).mean() < log_loss.high
    assert log_loss < 0.6  # columns mixed up would give several units


def test_a_classifier_without_probabilities():
    model = SVC().fit(X_TRAIN, Y_TRAIN)
    report = evaluate(model, X, BAGS, priors=THETA)
    assert report.probabilities is None
    assert report.accuracy > 0.8


def test_a_classifier_that_lacks_a_class():
    known = Y_TRAIN != "bee"
    model = LogisticRegression().fit(X_TRAIN[known], Y_TRAIN[known])
    report = evaluate(model, X, BAGS, priors=THETA)
    assert report.recall[2] == pytest.approx(0, abs=1e-9)
    assert np.isfinite(report.probabilities.log_loss)


def test_a_classifier_with_more_classes_than_the_priors():
    model = LogisticRegression().fit(X_TRAIN, np.where(X_TRAIN[:, 0] > 4, "dog", Y_TRAIN))
    with pytest.raises(
        InvalidInputError, match="classes_ must be classes of the priors, got unknown 'dog'"
    ):
        evaluate(model, X, BAGS, priors=THETA)


def test_rows_that_cannot_be_recognised_are_evaluated_all_the_same():
    text = np.array(["leaf sugar", "buzz honey", "moo grass"])[np.searchsorted(CLASSES, Y)]
    model = make_pipeline(CountVectorizer(), LogisticRegression())
    model.fit(text[:300], Y[:300])
    report = evaluate(model, text, BAGS, priors=THETA)  # sparse rows
    assert report.design_effect == 1
    assert report.accuracy == pytest.approx(1, abs=0.1)
    missing = X.copy()
    missing[0, 0] = np.nan
    model = HistGradientBoostingClassifier(max_iter=5).fit(X_TRAIN, Y_TRAIN)
    assert evaluate(model, missing, BAGS, priors=THETA).accuracy > 0.7


@pytest.mark.parametrize("kind", ["array", "tensor", "frame"])
def test_rows_of_any_kind(fitted, kind):
    rows = {"array": X, "tensor": torch.from_numpy(X), "frame": pd.DataFrame(X)}[kind]
    with warnings.catch_warnings():
        if kind == "frame":  # scikit-learn's remark on names that the fit did not have
            warnings.simplefilter("ignore", UserWarning)
        report = evaluate(fitted, rows, BAGS)
    assert report.accuracy == pytest.approx(evaluate(fitted, X, BAGS).accuracy)


class TestTrainingRows:
    """Training rows are recognised by what the estimator remembers of them."""

    def test_a_warning_tells_how_many(self, fitted):
        with pytest.warns(TrainingRowsWarning, match=r"100\.0% of these rows have the values"):
            evaluate(fitted, X_TRAIN, BAGS_TRAIN)
        mixed = np.concatenate([X_TRAIN[:200], X[:600]])
        bags = np.concatenate([BAGS_TRAIN[:200], BAGS[:600]])
        ids = np.resize(THETA.index, len(bags))
        assert len(mixed) == len(bags)
        with pytest.warns(TrainingRowsWarning, match=r"25\.0% of these rows") as caught:
            evaluate(fitted, mixed, ids)
        assert caught[0].filename == __file__

    def test_none_for_held_out_rows(self, fitted):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            evaluate(fitted, X, BAGS)

    def test_whatever_keeps_hashes_of_its_rows(self):
        model = LogisticRegression().fit(X_TRAIN, Y_TRAIN)
        evaluate(model, X_TRAIN, BAGS_TRAIN, priors=THETA)  # nothing is known of its rows
        model.row_hashes_ = hash_rows(X_TRAIN)
        with pytest.warns(TrainingRowsWarning):
            evaluate(model, X_TRAIN, BAGS_TRAIN, priors=THETA)
        evaluate(model, X, BAGS, priors=THETA)


class TestRepeatedRows:
    """The same rows again in other bags."""

    again = np.r_[np.arange(1600), np.arange(1600)]
    bags = np.r_[BAGS, np.roll(BAGS, 1)]

    def test_they_are_recognised(self, fitted):
        report = evaluate(fitted, X[self.again], self.bags)
        by_ids = evaluate(fitted, X[self.again], self.bags, row_ids=self.again)
        assert report.design_effect == pytest.approx(by_ids.design_effect)
        assert report.design_effect > 1.9
        none = evaluate(fitted, X[self.again], self.bags, row_ids=None)
        assert none.design_effect == 1
        assert report.accuracy == none.accuracy
        assert none.misfit.p_value < report.misfit.p_value  # twice the rows seem to disagree more

    def test_a_single_pair_is_recognised(self, fitted):
        bags = np.append(BAGS, BAGS[0])
        report = evaluate(fitted, np.vstack([X, X[:1]]), bags)
        by_ids = evaluate(fitted, np.vstack([X, X[:1]]), bags, row_ids=[*range(1600), 0])
        assert report.design_effect == by_ids.design_effect > 1

    def test_distinct_rows_have_no_effect(self, fitted):
        assert evaluate(fitted, X, BAGS).design_effect == 1.0


class TestPartsOfExactBags:
    """Which share of each bag is held out decides how much its classes vary."""

    def test_bags_know_which_share_a_part_of_them_is(self, fitted):
        bags = unbag.Bags(X, BAGS, THETA)
        _, part = bags.train_test_split(0.25, random_state=0)
        for rows in (part, part.take(np.argsort(part.bag_index, kind="stable")), part.present()):
            report = evaluate(fitted, rows, shares_of="rows")
            np.testing.assert_allclose(report.held_out_share, 0.25)
        with_share = evaluate(fitted, part, shares_of="rows", held_out_share=0.25)
        assert with_share.interval == report.interval
        free, whole = (
            evaluate(fitted, part),
            evaluate(fitted, part, shares_of="rows", held_out_share=1),
        )
        assert free.held_out_share is None
        # The less they are said to vary, the more the bags seem to disagree.
        chances = [report.misfit.p_value for report in (whole, with_share, free)]
        assert chances == sorted(set(chances))
        np.testing.assert_array_equal(
            evaluate(fitted, bags, shares_of="rows").held_out_share, np.ones(4)
        )

    def test_also_of_bags_with_other_priors_and_without_rows(self, fitted):
        bags = unbag.Bags(X, BAGS, THETA)
        rows = np.flatnonzero(BAGS != "e")
        part = bags.take(rows[rows % 2 == 0])
        report = evaluate(fitted, part, shares_of="rows", priors=THETA.iloc[::-1])
        np.testing.assert_allclose(report.held_out_share, 0.5)
        assert report.n_bags == 3
        model = LogisticRegression().fit(X_TRAIN, Y_TRAIN)
        np.testing.assert_allclose(evaluate(model, part, shares_of="rows").held_out_share, 0.5)

    def test_shares_by_bag(self):
        shares = {"w": 0.1, "s": 1.0, "n": 0.5, "e": 0.25}
        by_name = evaluate_predictions(
            Y, BAGS, priors=THETA, shares_of="rows", held_out_share=shares
        )
        in_order = evaluate_predictions(
            Y, BAGS, priors=THETA, shares_of="rows", held_out_share=[0.5, 0.25, 1.0, 0.1]
        )
        assert by_name.interval == in_order.interval
        np.testing.assert_array_equal(by_name.held_out_share, [0.5, 0.25, 1.0, 0.1])
        other = evaluate_predictions(
            Y, BAGS, priors=THETA, shares_of="rows", held_out_share=[0.1, 0.25, 1.0, 0.5]
        )
        assert by_name.interval != other.interval


class TestBadInput:
    """Messages name the parameter, what is allowed and what came."""

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"y_pred": ["ant"]}, "y_pred must be one class for each of 4 rows, got 1"),
            ({"y_pred": ["ant", "bee", "cow", "dog"]}, "y_pred must be classes of the priors, got"),
            ({"y_pred": None}, "y_pred must be predictions, or None with probabilities, got neit"),
            ({"bag_ids": list("nesx")}, "bag_ids must be ids that the priors have, got unknown 'x"),
            ({"bag_ids": [], "y_pred": []}, "bag_ids must be ids of at least one row, got none"),
            ({"priors": [[0.5, 0.6]] * 3}, "priors must be shares that sum to 1"),
            (
                {"priors": [[1.0]], "bag_ids": [0] * 4, "y_pred": [0] * 4},
                "priors must be a table of at least two classes, got 1",
            ),
            ({"test_prior": [0.5, 0.5]}, "test_prior must be 3 shares, one for each class, got 2"),
            ({"test_prior": [0.5, 0.5, 0.5]}, "test_prior must be shares that sum to 1"),
            ({"level": 1}, r"level must be a number in \(0, 1\), got 1"),
            ({"level": "high"}, r"level must be a number in \(0, 1\), got 'high'"),
            (
                {"shares_of": "census"},
                "shares_of must be one of 'rows', 'population', got 'census'",
            ),
            ({"inverse": "best"}, "inverse must be one of 'size-weighted', .* got 'best'"),
            (
                {"held_out_share": 0.5},
                "held_out_share must be left out unless shares_of is 'rows', got shares_of=None",
            ),
            (
                {"held_out_share": [0.5, 0.5], "shares_of": "rows"},
                "held_out_share must be one number or 4, one per bag, got 2",
            ),
            (
                {"held_out_share": [0.5, 0.0, 1.0, 1.0], "shares_of": "rows"},
                "held_out_share must be above 0 and at most 1, got 0.5, 0.0",
            ),
            (
                {"held_out_share": 1.5, "shares_of": "rows"},
                "held_out_share must be above 0 and at most 1, got 1.5",
            ),
            (
                {"held_out_share": {"n": 0.5}, "shares_of": "rows"},
                "held_out_share must be given for every bag of the priors",
            ),
            ({"cost": np.ones((2, 2))}, r"cost must be an array of shape \(3, 3\), got shape \(2"),
            ({"cost": np.full((3, 3), np.nan)}, "cost must be finite, got NaN"),
            ({"row_ids": [1, 2, 3]}, "row_ids must be one for each of 4 rows, got 3"),
            ({"row_ids": ["a", None, "b", "c"]}, "row_ids must be .* none missing, got None"),
            ({"row_ids": [1.0, np.nan, 2.0, 3.0]}, "row_ids must be .* none missing, got nan"),
            ({"probabilities": np.ones((4, 2)) / 2}, r"probabilities must be an array of shape"),
            (
                {"probabilities": np.ones((4, 3))},
                "probabilities must be probabilities that sum to 1, got the sum 3 in row 0",
            ),
            (
                {"probabilities": np.full((4, 3), np.nan)},
                "probabilities must be probabilities from 0 to",
            ),
        ],
    )
    def test_predictions(self, changes, message):
        good = {"y_pred": ["ant", "bee", "cow", "ant"], "bag_ids": list("nesw"), "priors": THETA}
        with pytest.raises(InvalidInputError, match=message):
            evaluate_predictions(**(good | changes))

    def test_numbers_written_as_text(self):
        with pytest.raises(InvalidInputError, match=r"priors have 0 \(int\), y_pred has '0' \(str"):
            evaluate_predictions(["0", "1"], [0, 1], priors=np.eye(2))

    def test_no_priors(self):
        model = LogisticRegression().fit(X_TRAIN, Y_TRAIN)
        with pytest.raises(InvalidInputError, match="priors must be given, or known to the estim"):
            evaluate(model, X, BAGS)

    def test_priors_of_other_libraries_are_not_taken_for_ours(self):
        model = LinearDiscriminantAnalysis(priors=[0.3, 0.3, 0.4]).fit(X_TRAIN, Y_TRAIN)
        with pytest.raises(InvalidInputError, match="priors must be given, or known to the estim"):
            evaluate(model, X, BAGS)
        assert evaluate(model, X, BAGS, priors=THETA).accuracy > 0.8

    def test_a_classifier_that_is_not_fitted(self):
        with pytest.raises(NotFittedError):
            evaluate(classifier(), X, BAGS)

    def test_ids_and_rows_that_do_not_match_in_number(self, fitted):
        with pytest.raises(InvalidInputError, match=r"must be .*1599"):
            evaluate(fitted, X, BAGS[1:])

    def test_a_missing_bag_is_left_out(self, fitted):
        here = BAGS != "w"
        report = evaluate(fitted, X[here], BAGS[here])
        assert report.n_bags == 3


def test_rows_beside_those_of_training_are_an_unknown_part_of_their_bags(fitted):
    assert evaluate(fitted, X, BAGS).shares_of == "population"
    rows = unbag.ClassPriors.of(THETA).with_errors(shares_of="rows")
    assert evaluate(fitted, X, BAGS, priors=rows).shares_of == "rows"
    assert evaluate(fitted, unbag.Bags(X, BAGS, rows)).shares_of == "rows"


@pytest.mark.parametrize(("shares_of", "old"), [("rows", "exact"), ("population", "iid")])
def test_results_survive_pickling_and_have_their_old_names(shares_of, old):
    theta = np.array([[0.8, 0.2], [0.3, 0.7]])
    bag = np.repeat([0, 1], 50)
    report = evaluate_predictions(np.arange(100) % 2, bag, priors=theta, shares_of=shares_of)
    again = pickle.loads(pickle.dumps(report.accuracy))
    assert (again, again.interval) == (report.accuracy, report.accuracy.interval)
    with pytest.warns(FutureWarning, match="Evaluation.sampling is replaced: use Evaluation.share"):
        assert report.sampling == old
