"""Intervals of label-free numbers: where they must lie, and how they must change."""

import numpy as np
import pytest
from populations import SQUARE, THREE, exact_population, rows_of
from scipy import optimize, stats

from unbag.evaluation import INVERSES, LeftInverse, evaluate_predictions
from unbag.evaluation.core import Core
from unbag.evaluation.intervals import (
    EstimatePath,
    class_path,
    error_pattern,
    errors_beyond_limits,
    overall_path,
    pearson_quantile,
    score_interval,
)
from unbag.evaluation.variances import BagSample
from unbag.exceptions import RankError
from unbag.priors import SHARES_OF, ClassPriors, asymmetric, non_square, symmetric

OVERALL = ("accuracy", "balanced_accuracy", "macro_f1")
BY_CLASS = ("recall", "precision", "f1", "predicted_share")


def all_estimates(report):
    result = [getattr(report, name) for name in OVERALL]
    return result + [estimate for name in BY_CLASS for estimate in getattr(report, name)]


def width(estimate):
    return estimate.high - estimate.low


def evaluated(rows, **options):
    return evaluate_predictions(rows.predicted, rows.bag, **{"priors": rows.priors, **options})


@pytest.mark.parametrize("inverse", INVERSES)
@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_intervals_hold_the_estimate(shares_of, inverse):
    for estimate in all_estimates(evaluated(THREE, shares_of=shares_of, inverse=inverse)):
        assert 0 <= estimate.low < estimate < estimate.high <= 1


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_intervals_of_noisy_estimates(shares_of):
    """What lies in [0, 1] is held by its interval, what lies outside is still reported."""
    rng = np.random.default_rng(0)
    theta = symmetric(4, a=0.2)
    bag = np.repeat(np.arange(4), 40)
    outside = 0
    for _ in range(10):
        label = np.concatenate([rng.choice(4, 40, p=row) for row in theta])
        predicted = np.where(rng.random(160) < 0.9, label, rng.integers(0, 4, 160))
        report = evaluate_predictions(predicted, bag, priors=theta, shares_of=shares_of)
        for estimate in all_estimates(report):
            assert estimate.low < estimate.high
            if 0 <= estimate <= 1:
                assert estimate.low <= estimate <= estimate.high
            else:
                outside += 1
    assert outside > 10  # else this would prove little


def mid_p_interval(right, n):
    """The exact interval of a share, with half of the chance of what came."""

    def excess(share, side):
        tail = stats.binom.cdf(right, n, share) if side else stats.binom.sf(right - 1, n, share)
        return tail - stats.binom.pmf(right, n, share) / 2 - 0.025

    return [optimize.brentq(excess, 1e-9, 1 - 1e-9, args=(side,)) for side in (False, True)]


@pytest.mark.parametrize(("right", "n"), [(35, 50), (18, 60), (48, 50), (96, 100)])
def test_exact_intervals_of_shares_for_pure_bags(right, n):
    """One class of interest and rows drawn freely: the recall is a plain share."""
    label = np.repeat([0, 1], n)
    predicted = np.r_[np.arange(n) >= right, np.arange(n) < right].astype(int)
    report = evaluate_predictions(predicted, label, priors=np.eye(2))
    for recall in report.recall:
        assert recall.interval == pytest.approx(mid_p_interval(right, n), abs=0.004)


def test_rare_errors_that_are_seen_by_chance_are_allowed_for():
    """Twenty classes of 30 rows, one error in 100: an estimate jumps where an error occurs."""
    rng = np.random.default_rng(3)
    m, k, size = 30, 20, 40
    counts = 1 + rng.multinomial(size - k, rng.dirichlet(np.full(k, 0.05), m))
    confusion = np.where(np.eye(k) > 0, 0.99, 0.01 / (k - 1))
    priors = ClassPriors(counts, normalize=True, shares_of="rows")
    sample = BagSample.of(priors, counts.sum(1))
    below, above = 0, 0
    for _ in range(60):
        table = np.array([rng.multinomial(row, confusion).sum(0) for row in counts])
        recalls = Core(table, priors, sample).by_class(1.96)["recall"]
        below += np.mean([recall.high < 0.99 for recall in recalls]) / 60
        above += np.mean([recall.low > 0.99 for recall in recalls]) / 60
    assert below < 0.06  # without the skewness 0.09
    assert above < 0.04


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_intervals_shrink_with_the_root_of_the_rows(shares_of):
    small = evaluated(SQUARE, shares_of=shares_of)
    rows = exact_population(16 * np.rint(SQUARE.priors.values * 80).astype(int), CONFUSION_PARTS)
    large = evaluated(rows, shares_of=shares_of)
    assert large.n_rows == 16 * small.n_rows
    for one, other in zip(all_estimates(small), all_estimates(large), strict=True):
        assert one == pytest.approx(other, abs=1e-9)
        assert width(one) / width(other) == pytest.approx(4, rel=0.1)


CONFUSION_PARTS = np.rint(20 * SQUARE.confusion).astype(int)


def test_exact_counts_narrow_the_interval():
    exact, iid = evaluated(THREE, shares_of="rows"), evaluated(THREE)
    assert width(exact.accuracy) < 0.8 * width(iid.accuracy)
    assert exact.accuracy == iid.accuracy


def test_levels():
    widths = [width(evaluated(THREE, level=level).accuracy) for level in (0.5, 0.8, 0.95, 0.999)]
    assert widths == sorted(widths)
    expected = stats.norm.ppf(0.75) / stats.norm.ppf(0.975)
    assert widths[0] / widths[2] == pytest.approx(expected, rel=0.02)
    assert evaluated(THREE, level=0.8).level == 0.8
    wide = evaluated(THREE, level=1 - 1e-12)  # seven deviations
    expected = stats.norm.ppf(1 - 5e-13) / stats.norm.ppf(0.975)
    assert width(wide.accuracy) / widths[2] == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("shares_of", SHARES_OF)
@pytest.mark.parametrize("k", [2, 3, 10])
def test_all_rows_right(shares_of, k):
    """With exact counts the plain variance is zero, but so few rows prove no perfect model."""
    counts = 5 * np.eye(k, dtype=int) + 2
    rows = exact_population(counts, np.eye(k, dtype=int), parts=1)
    report = evaluated(rows, shares_of=shares_of)
    n = len(rows.bag)
    assert report.accuracy == pytest.approx(1)
    assert report.accuracy.high == pytest.approx(1, abs=1e-9)
    assert report.accuracy.low < 1 - 2 / n  # with labels it would be about 1 − 3/n
    assert report.accuracy.low > (1 - 40 / n if shares_of == "rows" else 0.5)
    for recall in report.recall:
        assert recall.low < 1 - 1 / n
        assert recall.high == pytest.approx(1, abs=1e-6)


def test_a_nearly_perfect_model_with_exact_counts():
    confusion = np.array([[199, 1, 0], [0, 200, 0], [0, 0, 200]])
    rows = exact_population([[3, 1, 1], [1, 3, 1], [1, 1, 3]], confusion, parts=200)
    report = evaluated(rows, shares_of="rows")
    accuracy = report.accuracy
    assert accuracy == pytest.approx((rows.label == rows.predicted).mean(), abs=1e-9)
    assert accuracy.low < accuracy - 1e-4
    assert accuracy < accuracy.high - 1e-4
    assert width(accuracy) < 0.02


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_bags_of_one_row(shares_of):
    for m, k in ((2, 2), (3, 3), (12, 3)):
        theta = asymmetric(k, 0)[np.arange(m) % k]
        report = evaluate_predictions(
            np.arange(m) % k, np.arange(m), priors=theta, shares_of=shares_of
        )
        assert report.n_rows == m
        for estimate in all_estimates(report):
            assert np.isfinite([estimate, *estimate.interval]).all()
        assert width(report.accuracy) > 0.2


@pytest.mark.parametrize("table", [[[1, 0], [0, 1]], [[2, 1], [0, 3]], [[0, 1], [1, 0]]])
@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_two_tiny_bags_of_two_classes(table, shares_of):
    predicted, bag = rows_of(np.array(table))
    report = evaluate_predictions(
        predicted, bag, priors=[[0.8, 0.2], [0.3, 0.7]], shares_of=shares_of
    )
    for estimate in (report.accuracy, *report.recall):
        assert np.isfinite(estimate.interval).all()
        assert width(estimate) > 0.3


@pytest.mark.parametrize("inverse", INVERSES)
def test_many_more_bags_than_classes(inverse):
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.ones(3), 300)
    bag = np.repeat(np.arange(300), 20)
    label = np.concatenate([rng.choice(3, 20, p=row) for row in theta])
    predicted = np.where(rng.random(6000) < 0.8, label, (label + 1) % 3)
    report = evaluate_predictions(predicted, bag, priors=theta, inverse=inverse)
    assert report.inverse == inverse
    truth = (predicted == label).mean()
    assert report.accuracy.low < truth < report.accuracy.high
    assert width(report.accuracy) < 0.12


def test_missing_bags_are_left_out():
    here = THREE.bag != 1
    priors = THREE.priors.with_errors(np.full(THREE.priors.values.shape, 0.01))
    report = evaluate_predictions(THREE.predicted[here], THREE.bag[here], priors=priors)
    assert report.n_bags == 4
    truth = (THREE.predicted == THREE.label)[here].mean()
    assert report.accuracy == pytest.approx(truth, abs=1e-9)


def test_lost_rank_names_the_classes():
    priors = ClassPriors(
        [[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [0.1, 0.2, 0.7]], classes=["cat", "dog", "fox"]
    )
    with pytest.raises(RankError, match=r"'dog', 'fox' cannot be told apart.*at least 3 bags"):
        evaluate_predictions(["cat", "dog", "fox"], [0, 1, 1], priors=priors)


def test_errors_of_the_priors_widen_all_intervals():
    before = evaluated(THREE, shares_of="rows")
    errors = np.full(THREE.priors.values.shape, 0.02)
    after = evaluated(THREE, shares_of="rows", priors=THREE.priors.with_errors(errors))
    for one, other in zip(all_estimates(before), all_estimates(after), strict=True):
        assert abs(one - other) < width(other) / 2
        assert width(other) > 1.05 * width(one)
    none = evaluated(THREE, shares_of="rows", priors=THREE.priors.with_errors(0 * errors))
    for one, other in zip(all_estimates(before), all_estimates(none), strict=True):
        assert other.interval == pytest.approx(one.interval, abs=1e-9)


def test_an_estimate_that_no_model_explains_keeps_an_interval_around_itself():
    bag = np.repeat([0, 1], 50)
    report = evaluate_predictions(bag, bag, priors=[[0.6, 0.4], [0.4, 0.6]])
    assert report.accuracy == pytest.approx(3)
    assert 1 < report.accuracy.low < 3 < report.accuracy.high


def test_score_interval_of_a_share_is_wilson_s_or_the_exact_one():
    x = np.linspace(0, 1, 400)
    variances = x * (1 - x) / 30
    symmetric = EstimatePath(x, variances, 0 * x)
    wilson = stats.binomtest(27, 30).proportion_ci(method="wilson")
    low, high = score_interval(0.9, symmetric, 1.96)
    assert (low, high) == pytest.approx((wilson.low, wilson.high), abs=1e-3)
    skewed = EstimatePath(x, variances, x * (1 - x) * (1 - 2 * x) / 30**2)
    for right in (27, 15, 3):
        interval = score_interval(right / 30, skewed, 1.96)
        assert interval == pytest.approx(mid_p_interval(right, 30), abs=5e-3)
    # Backwards, and of what cannot lie beyond the limits.
    backwards = EstimatePath(*(values[::-1] for values in skewed))
    assert score_interval(0.9, backwards, 1.96) == score_interval(0.9, skewed, 1.96)
    low, high = score_interval(1.04, EstimatePath(x, variances + 1e-3, 0 * x), 1.96)
    assert high == 1
    assert low == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("expected", [0.3, 1.0, 1.5, 3.0, 6.0, 15.0])
def test_poisson_counts_of_errors_are_covered(expected):
    """Exact bags of pure classes: the estimate is 1 without errors, and less by each."""
    n = 1000.0
    rates = np.concatenate([[0], np.geomspace(0.01, 80, 200)])
    path = EstimatePath(1 - rates / n, rates / n**2, -rates / n**3)
    truth = 1 - expected / n
    intervals = [score_interval(1 - errors / n, path, 1.96) for errors in range(45)]
    held = [low - 1e-12 <= truth <= high + 1e-12 for low, high in intervals]
    assert 0.935 <= stats.poisson.pmf(np.arange(45), expected) @ held <= 0.985
    assert (1 - intervals[0][0]) * n == pytest.approx(3.3, abs=0.1)  # the rule of three


def test_an_estimate_beyond_all_explanation_is_a_miss_that_counts():
    """Near a limit: estimates above it by chance miss as well, so fewer may miss below."""
    x = np.linspace(0, 1, 2001)
    path = EstimatePath(x, np.full(2001, 0.05**2), 0 * x)
    rng = np.random.default_rng(0)
    for truth in (1.0, 0.98, 0.93, 0.8):
        intervals = [score_interval(v, path, 1.96) for v in rng.normal(truth, 0.05, 1000)]
        held = np.mean([low <= truth <= high for low, high in intervals])
        assert held == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize("value", [-0.1, 0.0, 1e-4, 0.6, 1 - 1e-5, 1.0, 1.02, 3.0])
def test_score_intervals_follow_the_scale_of_their_limits(value):
    x = np.linspace(0, 1, 200)
    path = EstimatePath(x, 1e-4 * (1 - x) + 1e-6 * x, 2e-7 * (0.5 - x))
    larger = EstimatePath(2 + 3 * x, 9 * path.variances, 27 * path.third_moments)
    low, high = score_interval(value, path, 1.96)
    other = score_interval(2 + 3 * value, larger, 1.96, (2.0, 5.0))
    assert other == pytest.approx((2 + 3 * low, 2 + 3 * high), abs=1e-9)
    errors = errors_beyond_limits(value, path)
    scaled = errors_beyond_limits(2 + 3 * value, larger, (2.0, 5.0))
    assert scaled == pytest.approx(errors, rel=1e-6)
    assert (errors > 0) == (not 0 <= value <= 1)
    if abs(value - 0.5) > 2:
        assert errors > 1.96
        assert low > 1


def test_quantiles_with_skewness_are_those_of_the_gamma_distribution():
    z = np.array([-2.5, -1.96, 0.0, 1.96, 2.5])
    for shape in (1.0, 4.0, 100.0):
        skewness = 2 / shape**0.5
        exact = (stats.gamma.ppf(stats.norm.cdf(z), shape) - shape) / shape**0.5
        found = pearson_quantile(z, np.full(5, skewness))
        np.testing.assert_allclose(found, exact, atol=0.03 * skewness)
        np.testing.assert_allclose(pearson_quantile(-z, np.full(5, -skewness)), -found)
    np.testing.assert_allclose(pearson_quantile(z, np.zeros(5)), z, atol=1e-5)


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("seed", range(3))
def test_paths_hold_valid_confusion_matrices_with_the_observed_shares(k, seed):
    rng = np.random.default_rng(seed)
    theta = non_square(k, seed)
    counts = rng.integers(30, 3000, 2 * k).astype(float)
    pooled = counts @ theta / counts.sum()
    confusion = 0.8 * np.eye(k) + 0.2 * rng.dirichlet(np.ones(k), k)
    predicted = pooled @ confusion
    inverse = np.linalg.pinv(theta)
    raw = confusion + 0.1 * rng.normal(size=(k, k))
    pattern = error_pattern(raw, theta, counts, predicted, inverse)
    path = overall_path(pattern, pooled, predicted)
    columns = class_path(1, pattern, pooled, predicted, counts.sum())
    for matrix in (pattern, path):
        assert (matrix >= -1e-12).all()
        np.testing.assert_allclose(matrix.sum(-1), 1)
    np.testing.assert_allclose(path[0], np.eye(k), atol=1e-12)
    accuracy = np.einsum("gkk,k->g", path, pooled)
    assert (np.diff(accuracy) <= 1e-12).all()
    assert accuracy[-1] < 0.5
    # Once the shares can be explained at all, they are.
    enough = (1 - accuracy > 1.5 * np.maximum(predicted - pooled, 0).sum()) & (accuracy > 0.6)
    assert enough.sum() > 5
    np.testing.assert_allclose((pooled @ path)[enough] / predicted, 1, atol=0.05)
    assert ((columns >= 0) & (columns <= 1)).all()
    assert columns[0, 1] == 1


def test_the_pattern_is_the_estimate_where_much_is_known():
    theta, counts = non_square(3, 0), np.full(6, 1e7)
    confusion = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]])
    predicted = counts @ theta @ confusion / counts.sum()
    result = error_pattern(confusion, theta, counts, predicted, np.linalg.pinv(theta))
    np.testing.assert_allclose(result, confusion, atol=1e-3)


def test_the_pattern_errs_alike_everywhere_where_nothing_is_known():
    """Bags that hardly differ and few rows: all that is left are the accuracy and the shares."""
    theta, counts = symmetric(3, a=0.001), np.full(3, 30.0)
    raw = np.array([[0.7, 0.3, 0.0], [0.0, 0.7, 0.3], [0.3, 0.0, 0.7]])
    predicted = np.array([0.5, 0.3, 0.2])
    result = error_pattern(raw, theta, counts, predicted, np.linalg.inv(theta))
    np.testing.assert_allclose(np.diag(result), 0.7, atol=1e-3)
    smooth = (predicted + 0.2 / 3) / 1.2
    odds = smooth / (1 - smooth)
    for y in range(3):
        off = np.delete(odds, y)
        np.testing.assert_allclose(np.delete(result[y], y), 0.3 * off / off.sum(), atol=1e-3)


class TestRepeatedRows:
    """The same records in several bags."""

    rng = np.random.default_rng(0)
    theta = symmetric(3, a=0.6)
    n = 300
    record = np.tile(np.arange(n), 2)
    label = rng.choice(3, n)
    predicted = np.where(rng.random(n) < 0.8, label, rng.integers(0, 3, n))[record]

    def bags(self, seed=0, twice_in_one=False):
        rng = np.random.default_rng(seed)
        chance = self.theta[:, self.label]  # of a bag, given the class
        chance = chance / chance.sum(0)
        first = np.array([rng.choice(3, p=c) for c in chance.T])
        second = first if twice_in_one else np.array([rng.choice(3, p=c) for c in chance.T])
        return np.r_[first, second]

    def test_rows_twice_in_one_bag_count_once(self):
        bag = self.bags(twice_in_one=True)
        args = {"priors": self.theta}
        plain = evaluate_predictions(self.predicted, bag, **args)
        assert plain.design_effect == 1
        clustered = evaluate_predictions(self.predicted, bag, row_ids=self.record, **args)
        assert clustered.design_effect == pytest.approx(2)
        half = evaluate_predictions(self.predicted[: self.n], bag[: self.n], **args)
        assert width(clustered.accuracy) == pytest.approx(width(half.accuracy), rel=0.03)
        assert width(clustered.accuracy) / width(plain.accuracy) == pytest.approx(2**0.5, rel=0.05)

    def test_as_a_bootstrap_of_records_says(self):
        bag = self.bags()
        report = evaluate_predictions(self.predicted, bag, priors=self.theta, row_ids=self.record)
        rng = np.random.default_rng(0)

        def spread(draws):
            result = []
            for take in draws:
                table = np.zeros((3, 3))
                np.add.at(table, (bag[take], self.predicted[take]), 1)
                shares = table / table.sum(1, keepdims=True)
                confusion = np.linalg.inv(self.theta) @ shares
                result.append(report.test_prior @ np.diag(confusion))
            return np.var(result)

        records = [rng.integers(0, self.n, self.n) for _ in range(1500)]
        clustered = spread([np.r_[take, take + self.n] for take in records])
        alone = spread([rng.integers(0, 2 * self.n, 2 * self.n) for _ in range(1500)])
        assert report.design_effect == pytest.approx(clustered / alone, rel=0.15)
        expected = 2 * 1.96 * clustered**0.5
        assert width(report.accuracy) == pytest.approx(expected, rel=0.2)

    def test_rows_in_bags_of_opposite_weights_do_not_narrow(self):
        """Their parts cancel; but had each bag been drawn alone, the variance would not."""
        theta = symmetric(2, a=0.8)
        rng = np.random.default_rng(0)
        predicted = rng.integers(0, 2, 200)
        args = {"priors": theta, "bag_ids": np.repeat([0, 1], 200)}
        plain = evaluate_predictions(np.tile(predicted, 2), **args)
        again = evaluate_predictions(np.tile(predicted, 2), row_ids=np.tile(range(200), 2), **args)
        assert again.design_effect == 1
        assert again.interval == plain.interval

    def test_a_row_counts_by_the_size_of_its_bag(self):
        """Repeats in a small bag matter more than in a large one."""
        rng = np.random.default_rng(0)
        bag, n = np.repeat([0, 1], [40, 400]), 440
        predicted = rng.integers(0, 2, n)
        record = np.arange(n)
        record[bag == 0] //= 2
        priors = ClassPriors(symmetric(2, a=0.6))
        report = evaluate_predictions(predicted, bag, priors=priors, row_ids=record)
        weights = LeftInverse(priors, [40, 400]).weights(np.diag(report.test_prior))
        parts = np.zeros(n)
        for m, size in ((0, 40), (1, 400)):
            values = weights[m, predicted[bag == m]]
            parts[bag == m] = (values - values.mean()) / size
        expected = (np.bincount(record, weights=parts) ** 2).sum() / (parts**2).sum()
        assert report.design_effect == pytest.approx(expected)
        assert expected > 1.05

    def test_ids_of_any_kind(self):
        bag = self.bags()
        args = {"priors": self.theta}
        effects = [
            evaluate_predictions(self.predicted, bag, row_ids=ids, **args).design_effect
            for ids in (
                self.record,
                [f"record {i}" for i in self.record],
                [int(i) if i % 2 else str(i) for i in self.record],
            )
        ]
        assert effects == pytest.approx([effects[0]] * 3)
        assert effects[0] != pytest.approx(1, abs=0.01)

    def test_distinct_rows_have_no_effect(self):
        report = evaluate_predictions(
            self.predicted, self.bags(), priors=self.theta, row_ids=np.arange(2 * self.n)
        )
        assert report.design_effect == pytest.approx(1)


def test_the_pattern_lies_halfway_where_an_entry_is_known_as_well_as_the_average():
    """An entry may be twice the average or nothing, so the average is its standard deviation."""
    theta, counts, raw = np.eye(2), np.array([100.0, 100.0]), np.array([[0.7, 0.3], [0.1, 0.9]])
    average = 0.2  # errors of a model with this accuracy that errs alike everywhere
    inverse = np.sqrt(100 * average / (1 - average)) * np.eye(2)  # variance average²
    pattern = error_pattern(raw, theta, counts, np.array([0.5, 0.5]), inverse)
    np.testing.assert_allclose(pattern, [[0.75, 0.25], [0.15, 0.85]])


def test_along_the_path_of_a_class_it_is_predicted_as_often_as_observed():
    pattern = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.1, 0.1, 0.8]])
    pooled, predicted = np.array([0.5, 0.3, 0.2]), np.array([0.5, 0.25, 0.25])
    for k in range(3):
        path = class_path(k, pattern, pooled, predicted, 1e9)
        assert (np.diff(path[:, k]) < 0).all()
        free = (path.max(1) < 1) & (pooled[k] * path[:, k] < predicted[k])
        assert free.sum() > 20
        np.testing.assert_allclose(path[free] @ pooled, predicted[k], rtol=1e-6)
