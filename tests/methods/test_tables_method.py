"""The method for tables: what it learns, when it does not trust itself, and what it refuses."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

import unbag
from unbag.evaluation import label_free_accuracy
from unbag.exceptions import InvalidInputError
from unbag.methods import Job, Tables, fit_many
from unbag.methods.soft_learners import Boosting, Forest, SoftRows, out_of_bag
from unbag.methods.table_fitting import TableFitting
from unbag.progress import StageTimes
from unbag.training import TestSet

K = 3
THETA = np.array([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6], [0.2, 0.4, 0.4]])
SMALL = Tables(rounds=2, trees=20)
QUICK = Tables(rounds=1, trees=5)  # where it need not be right


def rows(n=400, seed=0, spread=3.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return (rng.normal(size=(n, 5)) + spread * np.eye(K, 5)[y]).astype(np.float32), y


def bags_of(n=400, seed=0, theta=THETA, **options):
    return unbag.make_bags(*rows(n, seed, **options), theta, random_state=seed)


def fit_one(bags, method=SMALL, **settings):
    return fit_many([Job(bags, method, **settings)], device="cpu")[0]


def predict(fit, X):
    with torch.no_grad():
        return fit.module(torch.as_tensor(X)).numpy()


@pytest.fixture(scope="module")
def learned():
    """A fit, and the soft labels that its forests were grown on."""
    targets, grow = [], Forest._grow

    def watched(self, soft, number):
        targets.append(soft)
        return grow(self, soft, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forest, "_grow", watched)
        return fit_one(bags_of()), targets


def test_it_learns_and_says_so(learned):
    fit, _ = learned
    X, y = rows(seed=1)
    assert (predict(fit, X).argmax(1) == y).mean() > 0.85
    assert (fit.method, fit.settings["trees"], fit.n_epochs) == ("tables", 20, 2)
    assert fit.module.trust > 0.9
    assert "confirm the model" in fit.stop_reason
    np.testing.assert_allclose(fit.output_prior, fit.pooled_prior)
    assert not fit.diverged


def test_random_bags_of_noise_give_the_shares_of_all_rows():
    rng = np.random.default_rng(3)
    y = rng.choice(3, size=400, p=[0.6, 0.3, 0.1])
    bag = np.arange(400) // 20
    theta = np.zeros((20, 3))
    np.add.at(theta, (bag, y), 1 / 20)
    fit = fit_one(unbag.Bags(rng.normal(size=(400, 5)), bag, theta))
    log_p = predict(fit, rng.normal(size=(300, 5)))
    assert (log_p.argmax(1) == 0).mean() > 0.98  # the most frequent class
    assert fit.module.trust < 0.9
    assert "left out neither confirm nor refute the model" in fit.stop_reason


def test_shares_that_say_nothing_of_the_rows_are_noticed():
    X, y = rows(600)
    bag = np.arange(600) // 20
    theta = np.zeros((30, 3))
    np.add.at(theta, (bag, y), 1 / 20)
    shuffled = np.random.default_rng(0).permutation(theta)
    right, wrong = (fit_one(unbag.Bags(X, bag, shares)) for shares in (theta, shuffled))
    assert right.module.trust > 0.9 > wrong.module.trust
    assert "confirm the model" in right.stop_reason
    assert "neither confirm nor refute the model" in wrong.stop_reason


def test_standard_errors_of_shares_leave_room_for_them():
    bags = bags_of()
    noisy = unbag.ClassPriors(THETA, errors=np.full(THETA.shape, 0.1))
    exact, given = (
        TableFitting(SMALL, Job(unbag.Bags(bags.X, bags.bag_index, priors)))
        for priors in (THETA, noisy)
    )
    even = np.zeros((400, 3))
    off = [
        np.abs(np.add.reduceat(f._targets(even), np.r_[0:400:100]) / 100 - THETA).max()
        for f in (exact, given)
    ]
    assert off[0] < 1e-3
    assert (given.data.information < 30).all()
    assert (exact.data.information == 100).all()


def test_the_seed_decides_and_jobs_do_not_disturb_each_other():
    bags, other = bags_of(120), bags_of(120, seed=2)
    alone = fit_one(bags, QUICK, seed=5)
    jobs = [Job(other, QUICK, seed=6), Job(bags, "prop", epochs=1), Job(bags, QUICK, seed=5)]
    together = fit_many(jobs, device="cpu")[2]
    X, _ = rows(50, seed=9)
    np.testing.assert_array_equal(predict(alone, X), predict(together, X))
    assert not np.array_equal(predict(alone, X), predict(fit_one(bags, QUICK, seed=6), X))


def test_weights_of_rows_count():
    bags = bags_of(120)
    weight = np.where(bags.labels == 0, 4.0, 1.0)
    plain, weighted = (fit_one(bags, QUICK, sample_weight=given) for given in (None, weight))
    assert not np.allclose(plain.pooled_prior, weighted.pooled_prior)
    X, _ = rows(50, seed=9)
    assert np.abs(predict(plain, X) - predict(weighted, X)).max() > 0.01


def test_soft_labels_have_the_shares_of_the_bags(learned):
    bags, (_, seen) = bags_of(), learned
    assert len(seen) == 3  # two rounds and the last forest
    for targets in seen:
        for m in range(len(THETA)):
            mean = targets[bags.bag_index == m].mean(0)
            np.testing.assert_allclose(mean, THETA[m], atol=2e-3)
    assert np.abs(seen[0] - seen[1]).max() > 0.01


def test_predictions_out_of_bag_are_by_trees_that_did_not_see_the_row():
    from sklearn.ensemble import RandomForestRegressor

    X, y = rows(80)
    q = np.eye(K)[np.random.default_rng(0).permutation(y)].astype(np.float32)  # nothing to learn
    forest = RandomForestRegressor(200, oob_score=True, random_state=0).fit(X.astype(float), q)
    log_p = out_of_bag(forest, X.astype(float), q)
    np.testing.assert_allclose(np.exp(log_p), np.clip(forest.oob_prediction_, 1e-4, 1), atol=2e-3)
    assert (log_p.argmax(1) == q.argmax(1)).mean() < 0.6  # it has not memorised


def test_errors_are_recorded_at_the_end():
    bags = bags_of(300)
    train, held_out = bags.train_test_split(0.3, random_state=0)
    X, y = rows(seed=4)
    fit = fit_one(train, QUICK, held_out=held_out, test=TestSet(X, y))
    test, free = fit.history["test_error"], fit.history["label_free_error"]
    assert np.isnan(test[:-1]).all()
    assert np.isnan(free[:-1]).all()
    assert test[-1] == pytest.approx((predict(fit, X).argmax(1) != y).mean())
    predicted = predict(fit, held_out.X).argmax(1)
    accuracy = label_free_accuracy(predicted, held_out.bag_index, held_out.priors, fit.test_prior)
    assert free[-1] == pytest.approx(1 - accuracy)


@pytest.mark.parametrize("theta", [THETA[:2], THETA[:1]])
def test_few_bags(theta):
    X, _ = rows(200)
    bags = unbag.Bags(X, np.arange(200) % len(theta), theta)
    fit = fit_one(bags, QUICK)
    assert np.isfinite(predict(fit, X)).all()
    if len(theta) == 1:  # nothing can be learned
        assert (predict(fit, X).argmax(1) == theta[0].argmax()).all()


def test_a_class_of_no_row_and_bags_of_one_class():
    theta = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    X, y = rows(300)
    y = np.minimum(y, 1)
    bag = np.where(np.arange(300) < 100, 2, y)
    fit = fit_one(unbag.Bags(X, bag, theta), QUICK)
    assert (predict(fit, X).argmax(1) != 2).all()


@pytest.mark.parametrize(
    "learner", [LogisticRegression(), ExtraTreesClassifier(20, min_samples_leaf=3), "boosting"]
)
def test_a_learner_takes_the_place_of_the_trees(learner):
    bags = bags_of()
    clf = unbag.UnbagClassifier(THETA, Tables(rounds=2, trees=20, learner=learner), random_state=0)
    clf.fit(bags.X, bags.bag_ids)
    X, y = rows(seed=1)
    assert (clf.predict(X) == y).mean() > 0.85
    again = clf.predict_proba(X)
    np.testing.assert_array_equal(again, clf.fit(bags.X, bags.bag_ids).predict_proba(X))
    assert not hasattr(learner, "classes_")  # it was cloned


def test_a_model_of_a_table_is_saved_as_numbers(tmp_path):
    bags = bags_of(120)
    clf = unbag.UnbagClassifier(THETA, QUICK, random_state=0).fit(bags.X, bags.bag_ids)
    again = unbag.load_model(clf.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(bags.X), clf.predict_proba(bags.X))
    assert (again.method_, again.settings_, again.method) == ("tables", QUICK.settings, QUICK)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "generalized-cross-entropy"}, "loss must be 'cross-entropy' with method='tab"),
        ({"patience": 3}, "early_stopping must be False with method='tables'"),
    ],
)
def test_what_it_cannot_do_is_refused(changes, message):
    bags = bags_of()
    with pytest.raises(InvalidInputError, match=message):
        fit_one(bags, held_out=bags, **changes)


def test_images_are_refused():
    images = unbag.Bags(np.zeros((8, 3, 3), np.float32), np.arange(8) % 4, THETA)
    with pytest.raises(InvalidInputError, match=r"X must be a table with method='tables', got row"):
        fit_one(images)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        ({"trees": 0.5}, r"trees must be a whole number of at least 1, got 0\.5"),
        ({"learner": "forest"}, "learner must be one of 'trees', .* got 'forest'"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        Tables(**settings)


def test_auto_takes_networks_where_something_about_them_is_asked_for():
    job = Job(bags_of(), model_options={"depth": 3, "width": 300, "dropout": 0.0})
    chosen = unbag.methods.Auto().choose
    assert chosen(job)[0].name == "tables"
    for change in (
        {"epochs": 5},
        {"batch_size": 10},
        {"learning_rate": 0.1},
        {"weight_decay": 0.1},
        {"model": "linear"},
        {"model_options": {"width": 20}},
    ):
        assert chosen(dataclasses.replace(job, **change))[0].name == "crossfit"


def test_models_are_weighed_by_the_bags_of_unseen_rows():
    bags = bags_of()
    fitting = TableFitting(SMALL, Job(bags, seed=1))
    right = np.log(np.full((bags.n_rows, K), 0.1) + 0.7 * np.eye(K)[bags.labels])
    blind = np.log(np.tile(bags.pooled_prior, (bags.n_rows, 1)))

    def weight(**unseen):
        return fitting._weights(unseen)["one"]

    assert weight(one=right, other=blind) > 0.99
    assert weight(one=blind, other=right) < 0.01
    assert weight(one=3 * right, other=right) == pytest.approx(0.5, abs=0.1)  # not by sharpness


def test_a_network_per_fold_learns_from_the_other_folds():
    bags = bags_of()
    fitting = TableFitting(SMALL, Job(bags, seed=1))
    targets, fold = np.eye(K, dtype=np.float32)[bags.labels], fitting.rows.folds(1)
    base = fit_one(bags, "prop", epochs=1)

    def train(*diverged):
        training = fitting._train_networks(targets)
        replicas = next(training)
        for number, replica in enumerate(replicas):
            np.testing.assert_array_equal(replica.predicted.X, bags.X[fold == number])
            np.testing.assert_array_equal(replica.targets, targets[fold != number])
            assert not replica.mixup
        logits = [np.zeros(((fold == number).sum(), K)) for number in range(len(replicas))]
        with pytest.raises(StopIteration) as end:
            training.send(
                [
                    dataclasses.replace(base, logits=each, diverged=number in diverged)
                    for number, each in enumerate(logits)
                ]
            )
        return len(end.value.value)

    assert train() == 5
    assert train(3) == 0


def test_many_rows_stand_for_one_class_each(monkeypatch):
    monkeypatch.setattr("unbag.methods.soft_learners._MANY_ROWS", 300)
    bags = bags_of(3000)
    rows = SoftRows(Job(bags), np.asarray(bags.X, dtype=np.float64))
    soft = np.random.default_rng(0).dirichlet([1, 2, 0.5], bags.n_rows).astype(np.float32)
    x, label, weight = rows.once_per_class(soft, np.arange(bags.n_rows), 0)
    assert len(x) == len(label) == bags.n_rows
    np.testing.assert_array_equal(weight, 1)
    np.testing.assert_allclose(np.bincount(label) / bags.n_rows, soft.mean(0), atol=0.03)
    assert np.unique(rows.folds(0)).tolist() == [0, 1]
    _, other, _ = rows.once_per_class(soft, np.arange(bags.n_rows), 1)
    assert (label != other).mean() > 0.2
    few, _, parts = rows.once_per_class(soft, np.arange(100), 0)
    assert len(few) > 200  # once per class
    assert parts.sum() == pytest.approx(100, abs=1)
    certain = np.tile(np.float32([1, 0, 0]), (bags.n_rows, 1))
    assert len(np.unique(rows.once_per_class(certain, np.arange(bags.n_rows), 0)[1])) == K


def test_folds_are_predicted_by_models_that_did_not_see_them():
    bags = bags_of()
    q = np.eye(K, dtype=np.float32)[np.random.default_rng(0).permutation(bags.labels)]
    rows = SoftRows(Job(bags), np.asarray(bags.X, dtype=np.float64))
    log_p = Boosting(rows, 50).unseen(q, 0)
    assert (log_p.argmax(1) == q.argmax(1)).mean() < 0.6  # noise, which it has not memorised
    model = Boosting(rows, 50).last(q, 0)
    with torch.no_grad():
        assert (model(torch.as_tensor(rows.x)).numpy().argmax(1) == q.argmax(1)).mean() > 0.75


@pytest.mark.parametrize(
    ("learner", "rounds", "last"),
    [
        (None, 2, "networks (9 of 9)"),
        (None, 1, "networks (8 of 8)"),
        ("linear", 2, "last linear (6 of 6)"),
    ],
)
def test_progress_tells_what_is_done_and_how_much_is_left(learner, rounds, last, monkeypatch):
    shown, numbered = [], TableFitting._numbered
    monkeypatch.setattr(
        TableFitting, "_numbered", lambda *call: (shown.append(numbered(*call)), shown[-1])[1]
    )
    fit_one(bags_of(90), Tables(rounds=rounds, trees=3, learner=learner))
    assert shown[0] == f"models of shares (linear) (1 of {len(shown)})"
    assert shown[-1] == last


@pytest.mark.parametrize(("learner", "rounds"), [(None, 2), (None, 1), ("linear", 2)])
def test_every_stage_tells_its_kind_to_the_time_left(learner, rounds, monkeypatch):
    ended = []
    monkeypatch.setattr(
        StageTimes, "end", lambda times, place, _: ended.append((place, times._kinds[place]))
    )
    told = []
    numbered = TableFitting._numbered
    monkeypatch.setattr(
        TableFitting, "_numbered", lambda *call: (told.append(call[1]), numbered(*call))[1]
    )
    fit_one(bags_of(90), Tables(rounds=rounds, trees=3, learner=learner))
    names = {"boosting": "boosted trees", "learner": "linear"}
    assert [place for place, _ in ended] == list(range(len(ended)))
    assert len(ended) == len(told) - (learner is None)  # networks have a bar of their own
    for (_, kind), name in zip(ended, told, strict=False):
        last, part = kind.startswith("last "), kind.removeprefix("last ")
        assert names.get(part, part) in name
        assert name.startswith("last ") == last
