"""Class shares of rows from elsewhere."""

import numpy as np
import pytest

import unbag
from unbag.evaluation import estimate_prior
from unbag.evaluation.target import _on_simplex
from unbag.exceptions import InvalidInputError, RankError
from unbag.priors import ClassPriors, ShareErrors, non_square, symmetric


class Posterior:
    """What a perfect classifier of Gaussian classes would say; or one too sure of itself."""

    def __init__(self, theta, spread=2.0, sharpness=1.0, classes=None):
        k = theta.shape[1]
        self.known_priors_ = ClassPriors(theta, classes=classes)
        self.classes_ = self.known_priors_.classes
        self.centres, self.sharpness = spread * np.eye(k), sharpness
        self.test_prior_ = self.output_prior_ = np.full(k, 1 / k)

    def predict_proba(self, X):
        logits = -0.5 * self.sharpness * ((X[:, None] - self.centres) ** 2).sum(-1)
        chances = np.exp(logits - logits.max(1, keepdims=True))
        return chances / chances.sum(1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]

    def draw(self, shares, n, rng):
        label = rng.choice(len(shares), n, p=shares)
        return self.centres[label] + rng.normal(size=(n, len(shares)))

    def bags(self, n, rng):
        theta = self.known_priors_.values
        X = np.concatenate([self.draw(row, n, rng) for row in theta])
        return {"X": X, "bag_ids": np.repeat(np.arange(len(theta)), n)}


TARGET = np.array([0.6, 0.3, 0.1])


@pytest.mark.parametrize("method", ["confusion", "em"])
@pytest.mark.parametrize("theta", [symmetric(3, 0.5), non_square(3, 0)], ids=["a=0.5", "M=2K"])
def test_a_shifted_prior_is_found(method, theta):
    rng = np.random.default_rng(0)
    model = Posterior(theta)
    target, held_out = model.draw(TARGET, 4000, rng), model.bags(3000, rng)
    estimate = estimate_prior(model, target, **held_out, method=method)
    assert estimate.method == method
    np.testing.assert_allclose(estimate.prior, TARGET, atol=0.03)
    assert estimate.prior.sum() == pytest.approx(1)
    for share, true in zip(estimate.shares, TARGET, strict=True):
        assert share.low < share < share.high
        assert share.low - 0.01 < true < share.high + 0.01
        assert share.high - share.low < 0.08


def test_intervals_hold_where_probabilities_are_too_sure():
    rng = np.random.default_rng(1)
    model = Posterior(symmetric(3, 0.5), spread=1.5, sharpness=6.0)
    hits = []
    for _ in range(40):
        target, held_out = model.draw(TARGET, 600, rng), model.bags(300, rng)
        shares = estimate_prior(model, target, **held_out, method="em").shares
        hits.append([s.low <= t <= s.high for s, t in zip(shares, TARGET, strict=True)])
    assert np.mean(hits) > 0.88


def test_errors_of_the_shares_widen_the_intervals():
    rng = np.random.default_rng(2)
    model = Posterior(symmetric(3, 0.5))
    target, held_out = model.draw(TARGET, 2000, rng), model.bags(1000, rng)
    exact = estimate_prior(model, target, **held_out).shares[0]
    model.known_priors_ = model.known_priors_.with_errors(ShareErrors.from_rows(50))
    counted = estimate_prior(model, target, **held_out).shares[0]
    assert counted.high - counted.low > 1.5 * (exact.high - exact.low)


def test_resampling_is_needed_no_more():
    model, rng = Posterior(symmetric(3, 0.5)), np.random.default_rng(3)
    with pytest.warns(FutureWarning, match="n_bootstrap, random_state is replaced"):
        estimate_prior(model, model.draw(TARGET, 50, rng), random_state=0)


def test_confusion_needs_no_calibrated_probabilities():
    rng = np.random.default_rng(0)
    model = Posterior(symmetric(3, 0.5), spread=1.5, sharpness=6.0)
    target, held_out = model.draw(TARGET, 4000, rng), model.bags(4000, rng)
    by_em = estimate_prior(model, target, method="em")
    by_confusion = estimate_prior(model, target, **held_out, method="confusion")
    assert np.abs(by_em.prior - TARGET).max() > 0.05
    assert np.abs(by_confusion.prior - TARGET).max() < 0.05


def test_auto_is_confusion_where_bags_are_given():
    rng = np.random.default_rng(0)
    model = Posterior(symmetric(3, 0.5))
    target, held_out = model.draw(TARGET, 200, rng), model.bags(200, rng)
    assert estimate_prior(model, target, **held_out).method == "confusion"
    assert estimate_prior(model, target).method == "em"


def test_seeds_and_levels():
    rng = np.random.default_rng(0)
    model = Posterior(symmetric(3, 0.5))
    target, held_out = model.draw(TARGET, 500, rng), model.bags(500, rng)
    for options in ({"method": "em"}, {**held_out, "method": "confusion"}):
        one = estimate_prior(model, target, **options)
        other = estimate_prior(model, target, **options)
        assert [s.interval for s in one.shares] == [s.interval for s in other.shares]
        narrow = estimate_prior(model, target, level=0.5, **options)
        for wide, tight in zip(one.shares, narrow.shares, strict=True):
            assert wide == tight
            assert wide.low < tight.low < tight.high < wide.high


def test_a_class_that_is_absent_and_classes_with_names():
    rng = np.random.default_rng(0)
    model = Posterior(symmetric(3, 0.5), spread=3.0, classes=["x", "y", "z"])
    target, held_out = model.draw([0.7, 0.3, 0.0], 2000, rng), model.bags(2000, rng)
    for options in ({"method": "em"}, {**held_out, "method": "confusion"}):
        estimate = estimate_prior(model, target, **options)
        assert estimate.classes.tolist() == ["x", "y", "z"]
        assert estimate.shares[2].low < 0.01
        assert estimate.prior[2] < 0.03


def test_missing_bags():
    rng = np.random.default_rng(0)
    model = Posterior(non_square(3, 0))
    target, held_out = model.draw(TARGET, 2000, rng), model.bags(2000, rng)
    here = held_out["bag_ids"] != 1
    estimate = estimate_prior(
        model, target, X=held_out["X"][here], bag_ids=held_out["bag_ids"][here]
    )
    np.testing.assert_allclose(estimate.prior, TARGET, atol=0.05)
    here = held_out["bag_ids"] < 2
    with pytest.raises(RankError, match="at least 3 bags are needed, and there are 2"):
        estimate_prior(model, target, X=held_out["X"][here], bag_ids=held_out["bag_ids"][here])


def test_our_classifier():
    rng = np.random.default_rng(0)
    theta = symmetric(3, 0.8)
    world = Posterior(theta, spread=4.0)
    train, held_out = world.bags(200, rng), world.bags(1000, rng)
    clf = unbag.UnbagClassifier(
        theta, model="linear", epochs=60, learning_rate=0.02, random_state=0
    )
    clf.fit(train["X"], train["bag_ids"])
    target = world.draw(TARGET, 2000, rng)
    estimate = estimate_prior(clf, target, **held_out)
    np.testing.assert_allclose(estimate.prior, TARGET, atol=0.06)
    assert clf.predict(target, prior=estimate.prior).shape == (2000,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "bbse"}, "method must be one of 'auto', 'confusion', 'em', got 'bbse'"),
        ({"method": "confusion"}, "X and bag_ids must be held-out rows for method='confusion', go"),
        ({"level": 0}, r"level must be a number in \(0, 1\), got 0"),
        ({"X": np.zeros((4, 3)), "bag_ids": [0, 1]}, "bag_ids must be one for each of 4 rows, got"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(InvalidInputError, match=message):
        estimate_prior(Posterior(symmetric(3, 0.5)), np.zeros((5, 3)), **options)


def test_every_group_has_its_shares_with_intervals_for_all_at_once():
    model, rng = Posterior(symmetric(3, 0.5)), np.random.default_rng(3)
    shares = {"north": TARGET, "south": TARGET[::-1]}
    target = np.concatenate([model.draw(row, 3000, rng) for row in shares.values()])
    by = np.repeat(list(shares), 3000)
    held_out = model.bags(3000, rng)
    estimates = estimate_prior(model, target, **held_out, by=by)
    assert list(estimates) == list(shares)
    for group, estimate in estimates.items():
        np.testing.assert_allclose(estimate.prior, shares[group], atol=0.04)
    alone = estimate_prior(model, target[:3000], **held_out)
    assert alone.prior == pytest.approx(estimates["north"].prior)
    wide, narrow = (np.diff(e.shares[0].interval) for e in (estimates["north"], alone))
    assert wide > narrow


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0])
def test_shares_outside_the_simplex_become_the_likeliest_in_it(scale):
    rng = np.random.default_rng(0)
    root = scale * rng.normal(size=(3, 3))
    free, precision = np.array([0.7, 0.45, -0.15]), np.linalg.inv(root @ root.T)
    found = _on_simplex(free, root @ root.T)
    corners = np.linspace(0, 1, 401)
    grid = np.array([[a, b, 1 - a - b] for a in corners for b in corners if a + b <= 1 + 1e-12])
    distance = np.einsum("ij,jk,ik->i", grid - free, precision, grid - free)
    np.testing.assert_allclose(found, grid[distance.argmin()], atol=5e-3)
