"""Log-loss, Brier score and ROC without labels against scikit-learn's with labels."""

import json

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from unbag.evaluation import Estimate, evaluate_predictions
from unbag.evaluation.probabilities import RocCurve
from unbag.exceptions import InvalidInputError
from unbag.priors import ClassPriors


def population(k, m, levels=7, seed=0):
    """Bags in which each class has the same rows in proportion: the means are exact.

    Class y has ``levels`` kinds of rows; a bag with c rows of the class has c of each kind.
    """
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, (m, k)) + 10 * (np.arange(m)[:, None] % k == np.arange(k))
    kinds = rng.dirichlet(np.ones(k), (k, levels))  # probabilities of each kind of each class
    kinds[:, :, 0] = kinds[:, :, 0].round(1)  # ties between classes
    kinds[:, :, 1] += 1 - kinds.sum(2)
    kinds = np.abs(kinds)
    kinds /= kinds.sum(2, keepdims=True)
    cells = np.repeat(counts[:, :, None], levels, axis=2)
    bag, label, kind = (np.repeat(i.ravel(), cells.ravel()) for i in np.indices(cells.shape))
    return ClassPriors(counts, normalize=True), bag, label, kinds[label, kind]


def importance(label, test_prior):
    return (test_prior / (np.bincount(label) / len(label)))[label]


@pytest.mark.parametrize(("k", "m"), [(2, 2), (2, 5), (4, 4), (4, 9)])
@pytest.mark.parametrize("other_prior", [False, True])
def test_exact_bags_give_the_numbers_with_labels(k, m, other_prior):
    priors, bag, label, chances = population(k, m)
    pi = np.arange(1, k + 1) / np.arange(1, k + 1).sum() if other_prior else None
    weight = importance(label, pi) if other_prior else None
    report = evaluate_predictions(None, bag, priors=priors, test_prior=pi, probabilities=chances)
    result = report.probabilities
    log_loss = sk.log_loss(label, chances, sample_weight=weight)
    assert result.log_loss == pytest.approx(log_loss, abs=1e-9)
    brier = np.average(((chances - np.eye(k)[label]) ** 2).sum(1), weights=weight)
    assert result.brier == pytest.approx(brier, abs=1e-9)
    for estimate in (result.log_loss, result.brier):
        assert estimate.low < estimate < estimate.high
    accuracy = sk.accuracy_score(label, chances.argmax(1), sample_weight=weight)
    if k == m:  # the predictions are exact in the same way
        assert report.accuracy == pytest.approx(accuracy, abs=1e-9)
    assert (result.roc is None) == (k > 2)


@pytest.mark.parametrize("m", [2, 5])
def test_the_curve_and_its_area(m):
    priors, bag, label, chances = population(2, m)
    roc = evaluate_predictions(None, bag, priors=priors, probabilities=chances).probabilities.roc
    score = chances[:, 1]
    assert roc.auc == pytest.approx(sk.roc_auc_score(label, score), abs=1e-9)
    assert roc.auc.low < roc.auc < roc.auc.high
    false, true, thresholds = sk.roc_curve(label, score, drop_intermediate=False)
    np.testing.assert_allclose(roc.thresholds, thresholds[1:])
    np.testing.assert_allclose(roc.false_positive_rate, false[1:], atol=1e-9)
    np.testing.assert_allclose(roc.true_positive_rate, true[1:], atol=1e-9)
    for recall in (0.0, 0.3, 0.5, true[4], 0.9, 1.0):
        threshold = roc.threshold_for_recall(float(recall))
        assert (score[label == 1] >= threshold).mean() >= recall - 1e-9
        above = np.unique(score[score > threshold])
        if len(above) and recall > 0:  # the next larger threshold finds too few
            assert (score[label == 1] >= above[0]).mean() < recall
    with pytest.raises(InvalidInputError, match=r"recall must be a number in \[0, 1\], got 1.5"):
        roc.threshold_for_recall(1.5)


def test_pure_bags_give_the_supervised_numbers():
    rng = np.random.default_rng(0)
    label = rng.choice(2, 200, p=[0.3, 0.7])
    chances = rng.dirichlet([1, 1], 200).round(2)
    chances[:3] = [[0, 1], [1, 0], [1, 0]]
    result = evaluate_predictions(
        None, label, priors=np.eye(2), probabilities=chances
    ).probabilities
    assert result.log_loss == pytest.approx(sk.log_loss(label, chances))
    assert result.roc.auc == pytest.approx(sk.roc_auc_score(label, chances[:, 1]))


def draw(theta, n, rng):
    """Rows of a binormal model, with posteriors at equal shares, in bags."""
    bag = np.repeat(np.arange(len(theta)), n)
    label = np.concatenate([rng.choice(2, n, p=row) for row in theta])
    x = rng.normal(size=len(bag)) + 1.5 * label
    positive = 1 / (1 + np.exp(-1.5 * (x - 0.75)))
    return bag, np.stack([1 - positive, positive], 1), label


def test_intervals_cover_the_truth():
    rng = np.random.default_rng(0)
    theta = np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]])
    pi = np.array([0.5, 0.5])
    _, chances, label = draw(np.array([pi]), 400_000, rng)
    truth = {
        "log_loss": sk.log_loss(label, chances),
        "brier": 2 * sk.brier_score_loss(label, chances[:, 1]),
        "auc": sk.roc_auc_score(label, chances[:, 1]),
    }
    hits, widths, values = ({name: [] for name in truth} for _ in range(3))
    for _ in range(300):
        bag, chances, _ = draw(theta, 150, rng)
        report = evaluate_predictions(
            None, bag, priors=theta, test_prior=pi, probabilities=chances
        ).probabilities
        result = {"log_loss": report.log_loss, "brier": report.brier, "auc": report.roc.auc}
        for name, estimate in result.items():
            hits[name].append(estimate.low <= truth[name] <= estimate.high)
            widths[name].append(estimate.high - estimate.low)
            values[name].append(float(estimate))
    for name in truth:
        assert 0.91 < np.mean(hits[name]) < 0.99, name
        # One bag is spare, so that some intervals allow for bags that disagree by chance.
        assert np.median(widths[name]) == pytest.approx(3.92 * np.std(values[name]), rel=0.15)
        assert np.mean(values[name]) == pytest.approx(
            truth[name], abs=4 * np.std(values[name]) / 300**0.5
        )


def test_errors_of_the_priors_and_repeated_rows_widen_the_intervals():
    rng = np.random.default_rng(0)
    theta = np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]])
    bag, chances, _ = draw(theta, 500, rng)

    def found(take=slice(None), **options):
        report = evaluate_predictions(
            None, bag[take], probabilities=chances[take], **{"priors": theta, **options}
        ).probabilities
        return [report.log_loss, report.brier, report.roc.auc]

    plain = found()
    with_errors = found(priors=ClassPriors(theta, errors=np.full((3, 2), 0.03)))
    twice = np.r_[np.arange(1500), np.arange(1500)]
    doubled, clustered = found(twice), found(twice, row_ids=twice)
    for one, other, two, both in zip(plain, with_errors, doubled, clustered, strict=True):
        assert abs(other - one) < (other.high - other.low) / 4
        assert other.high - other.low > 1.1 * (one.high - one.low)
        assert (two.high - two.low) / (one.high - one.low) == pytest.approx(0.5**0.5, rel=0.02)
        assert both.interval == pytest.approx(one.interval, rel=0.02)


def test_errors_of_the_priors_move_the_log_loss_as_the_interval_says():
    rng = np.random.default_rng(0)
    theta = np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]])
    bag, chances, _ = draw(theta, 3000, rng)
    pi, error = [0.5, 0.5], 0.02

    def found(table, **options):
        report = evaluate_predictions(
            None, bag, priors=table, test_prior=pi, probabilities=chances, **options
        ).probabilities
        return np.array([report.log_loss, report.brier, report.roc.auc]), report

    moved = []
    for _ in range(300):
        noisy = theta + error * rng.normal(size=(3, 1)) * [1, -1]
        moved.append(found(noisy)[0])
    _, before = found(theta)
    _, after = found(ClassPriors(theta, errors=np.full(theta.shape, error)))
    pairs = (
        (before.log_loss, after.log_loss),
        (before.brier, after.brier),
        (before.roc.auc, after.roc.auc),
    )
    added = [
        ((two.high - two.low) ** 2 - (one.high - one.low) ** 2) / 3.92**2 for one, two in pairs
    ]
    np.testing.assert_allclose(np.sqrt(added), np.std(moved, axis=0), rtol=0.15)


def test_bags_of_one_row():
    theta = np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]])
    chances = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4], [0.3, 0.7]])
    args = {"priors": theta}
    report = evaluate_predictions(None, [0, 1, 2, 0, 1], probabilities=chances, **args)
    assert np.isfinite(report.probabilities.log_loss.interval).all()
    report = evaluate_predictions(None, [0, 1, 2], probabilities=chances[:3], **args)
    assert np.isnan(report.probabilities.log_loss.low)  # nothing is known of any variance
    assert np.isfinite(report.probabilities.log_loss)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))


def test_predictions_default_to_the_likeliest_class():
    priors, bag, _, chances = population(4, 9)
    one = evaluate_predictions(None, bag, priors=priors, probabilities=chances)
    other = evaluate_predictions(chances.argmax(1), bag, priors=priors)
    assert one.accuracy == other.accuracy
    assert other.probabilities is None


def test_intervals_are_students_with_unbiased_variances():
    """One pure bag: its mean loss has the interval of a mean, with n − 1 in the variance."""
    rng = np.random.default_rng(0)
    n = 6
    chances = rng.dirichlet([4, 1], 2 * n)
    label = np.repeat([0, 1], n)
    report = evaluate_predictions(
        None, label, priors=np.eye(2), probabilities=chances, test_prior=[1.0, 0.0], level=0.9
    ).probabilities
    losses = -np.log(chances[:n, 0])
    assert report.log_loss == pytest.approx(losses.mean())
    error = losses.std(ddof=1) / n**0.5
    # Satterthwaite's degrees of freedom with the variance of the squares that was observed.
    second, fourth = losses.var(), ((losses - losses.mean()) ** 4).mean()
    freedom = max(2 * error**4 / ((fourth - second**2) / n**3), 3)
    half = stats.t.ppf(0.95, freedom) * error
    expected = (losses.mean() - half, losses.mean() + half)
    assert report.log_loss.interval == pytest.approx(expected)
    assert half > 1.05 * stats.norm.ppf(0.95) * error


def test_drift_of_a_bag_whose_predictions_cannot_vary():
    """Its drift is not a number of times the chance in its predictions, of which there is none."""
    theta = [[1.0, 0.0], [0.26, 0.74], [0.18, 0.82], [0.08, 0.92]]
    chances = np.random.default_rng(0).dirichlet(np.ones(2), 6)
    bag, predicted = np.array([0, 1, 2, 3, 2, 2]), np.array([0, 1, 0, 1, 1, 0])
    found = evaluate_predictions(predicted, bag, priors=theta, probabilities=chances)
    assert found.misfit.drift > 0
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_recall_beyond_the_estimated_curve_is_refused():
    roc = RocCurve(
        false_positive_rate=np.array([0.0, 0.5, 0.9]),
        true_positive_rate=np.array([0.3, 0.9, 0.8]),
        thresholds=np.array([0.9, 0.5, 0.1]),
        auc=Estimate(0.7),
    )
    assert [roc.threshold_for_recall(recall) for recall in (0.3, 0.31, 0.9)] == [0.9, 0.5, 0.5]
    assert roc.to_plain()["thresholds"] is roc.thresholds
    with pytest.raises(InvalidInputError, match=r"0.95 \(at most 0.900 is reached\)"):
        roc.threshold_for_recall(0.95)
