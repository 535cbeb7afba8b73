import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from unbag.exceptions import InvalidInputError, RankError
from unbag.objectives.losses import GeneralizedCrossEntropy, cross_entropy
from unbag.priors import asymmetric, non_square, risk_weights, symmetric
from unbag.theory import (
    LossConstants,
    NormComplexity,
    estimation_error_bound,
)

PAGE = Path(__file__).parents[2] / "docs/how/theory.md"
UNIT = LossConstants(bound=1.0, lipschitz=1.0)


def root(n):
    return 1 / math.sqrt(n)


# The theorem.


def test_the_terms_are_those_of_the_paper_worked_out_by_hand():
    # W = [[0.75, -0.25], [-0.25, 0.75]], so C_w = 0.75 and every row of it sums to 1.
    bound = estimation_error_bound(
        symmetric(2, a=0.5),
        [100, 400],
        loss=LossConstants(bound=3.0, lipschitz=0.5),
        complexity=[[0.1, 0.2], [0.3, 0.4]],
        test_prior=[0.5, 0.5],
        delta=0.1,
    )
    assert (bound.n_bags, bound.n_classes, bound.smallest_bag) == (2, 2, 100)
    assert bound.largest_weight == pytest.approx(0.75)
    assert bound.condition_number == pytest.approx(2.0)
    assert bound.complexity_sum == pytest.approx(1.0)
    assert bound.complexity_term == pytest.approx(4 * 2**0.5 * 0.5 * 2 * 0.75)
    assert bound.confidence_term == pytest.approx(2 * 0.75 * 2 * 3 * math.sqrt(math.log(20) / 100))
    assert bound.tighter_complexity_term == pytest.approx(2 * 2**0.5 * 0.5)
    assert bound.tighter_confidence_term == pytest.approx(
        2 * 3 * math.sqrt(math.log(10) / 2 * (1 / 100 + 1 / 400))
    )
    assert bound.total == pytest.approx(bound.complexity_term + bound.confidence_term)
    assert bound.deviation == pytest.approx(bound.total / 2)


def test_the_terms_against_a_plain_loop():
    theta, sizes, delta = non_square(4, random_state=0), np.arange(30, 110, 10), 0.02
    pi = [0.1, 0.2, 0.3, 0.4]
    complexity = NormComplexity(depth=3, products=(1.0, 2.0, 3.0, 4.0))
    loss = GeneralizedCrossEntropy(0.4)
    bound = estimation_error_bound(
        theta, sizes, loss=loss, complexity=complexity, test_prior=pi, delta=delta
    )
    W = np.diag(pi) @ np.linalg.pinv(theta)  # (K, M), as the paper prints it before transposing
    c_w = max(abs(W[k, m]) for m in range(8) for k in range(4))
    summed = tight = spread = 0.0
    for m, n in enumerate(sizes):
        weight = sum(abs(W[k, m]) for k in range(4))
        rademacher = sum((k + 1) * (1 + math.sqrt(4 * math.log(2))) / n**0.5 for k in range(4))
        summed, tight = summed + rademacher, tight + weight * rademacher
        spread += weight**2 / n
    slope = 2**0.5 * 0.4**0.4 / 1.4**1.4
    assert bound.complexity_term == pytest.approx(4 * 2**0.5 * slope * 4 * c_w * summed)
    assert bound.confidence_term == pytest.approx(
        2 * c_w * 4 * (1 / 0.4) * math.sqrt(8 * math.log(2 / delta) / (2 * 30))
    )
    assert bound.tighter_complexity_term == pytest.approx(2 * 2**0.5 * slope * tight)
    assert bound.tighter_confidence_term == pytest.approx(
        2 / 0.4 * math.sqrt(spread * math.log(1 / delta) / 2)
    )


def test_the_test_prior_is_the_pooled_one_by_default_and_may_be_named():
    theta = {"a": {"x": 0.7, "y": 0.3}, "b": {"x": 0.1, "y": 0.9}}
    pooled = {"y": (0.3 * 10 + 0.9 * 40) / 50, "x": (0.7 * 10 + 0.1 * 40) / 50}
    default = estimation_error_bound(theta, [10, 40], loss=UNIT, complexity=root)
    named = estimation_error_bound(theta, [10, 40], loss=UNIT, complexity=root, test_prior=pooled)
    other = estimation_error_bound(
        theta, [10, 40], loss=UNIT, complexity=root, test_prior=[0.5, 0.5]
    )
    assert default.total == pytest.approx(named.total)
    assert default.total != pytest.approx(other.total)


def test_four_times_the_rows_halve_every_term():
    theta = asymmetric(5, random_state=1)
    few, many = (
        estimation_error_bound(theta, size * np.array([1, 2, 3, 4, 5]), loss=UNIT, complexity=root)
        for size in (50, 200)
    )
    for term in ("complexity_term", "confidence_term"):
        assert getattr(many, term) == pytest.approx(getattr(few, term) / 2)
        assert getattr(many, f"tighter_{term}") == pytest.approx(
            getattr(few, f"tighter_{term}") / 2
        )


@pytest.mark.parametrize("seed", range(5))
def test_the_tighter_form_is_never_above_the_papers(seed):
    theta = non_square(3, random_state=seed)
    sizes = np.random.default_rng(seed).integers(1, 1000, 6)
    bound = estimation_error_bound(theta, sizes, loss=UNIT, complexity=root, delta=0.9)
    assert bound.tighter_complexity_term <= bound.complexity_term / 2
    assert bound.tighter_confidence_term <= bound.confidence_term


def test_what_is_printed_and_stored():
    bound = estimation_error_bound(symmetric(3, 0.5), [50] * 3, loss=UNIT, complexity=root)
    stored = bound.to_dict()
    assert json.loads(json.dumps(stored)) == stored
    assert stored["total"] == bound.total
    assert stored["vacuous"] is True
    text = str(bound)
    for number in (bound.total, bound.complexity_term, bound.confidence_term, bound.tighter_total):
        assert f" {number:.4g}" in text
    for name in (
        "complexity term",
        "confidence term",
        "C_w =",
        "N_min = 50",
        "C_ℓ =",
        "L =",
        "Σℜ =",
    ):
        assert name in text
    assert "it tells nothing" in text
    large = estimation_error_bound(symmetric(3, 0.5), [10**6] * 3, loss=UNIT, complexity=root)
    assert not large.vacuous
    assert "nothing" not in str(large)


# The bound in simulations where all it speaks of is known exactly.


class LinearWorld:
    """Linear functions of length Λ of rows on the unit sphere, with the loss Λ − z_k.

    Then L = 1 and C_ℓ = 2Λ; the complexity is at most Λ/√n; and R_U(g) is a constant less
    Σ_k v_k · a_k with a_k = Σ_m W_mk mean(bag m), so the largest deviation over the class, the
    minimiser of R_U and the best function all have closed forms.
    """

    length = 2.0

    def __init__(self, theta, sizes, seed=0):
        rng = np.random.default_rng(seed)
        self.theta, self.sizes = theta, np.asarray(sizes)
        n_classes = theta.shape[1]
        self.points = rng.normal(size=(12, 3))
        self.points /= np.linalg.norm(self.points, axis=1, keepdims=True)
        q = theta @ rng.dirichlet(np.full(12, 0.3), size=n_classes)  # (M, points)
        self.pi = np.full(n_classes, 1 / n_classes)
        self.W = risk_weights(theta, self.pi)
        self.truth = self.W.T @ q @ self.points  # (K, 3)
        draws = [rng.multinomial(n, p, size=3000) / n for n, p in zip(sizes, q, strict=True)]
        shares = np.stack(draws, 1)  # (repeats, M, points)
        self.estimates = np.einsum("mk,rmp,pd->rkd", self.W, shares, self.points)

    def bound(self, delta):
        return estimation_error_bound(
            self.theta,
            self.sizes,
            loss=LossConstants(bound=2 * self.length, lipschitz=1.0),
            complexity=NormComplexity(depth=1, products=(self.length,) * self.theta.shape[1]),
            test_prior=self.pi,
            delta=delta,
        )

    def largest_deviations(self):
        return self.length * np.linalg.norm(self.estimates - self.truth, axis=-1).sum(-1)

    def excess_risks(self):
        lengths = np.linalg.norm(self.estimates, axis=-1, keepdims=True)
        learned = (self.estimates / lengths * self.truth).sum((-2, -1))
        return self.length * (np.linalg.norm(self.truth, axis=-1).sum() - learned)


WORLDS = {
    "symmetric": (symmetric(3, a=0.3), [20, 20, 20]),
    "unequal": (asymmetric(3, random_state=2), [10, 40, 300]),
    "non-square": (non_square(4, random_state=0), [30] * 8),
    "supervised": (np.eye(2), [5, 5]),
}


@pytest.mark.parametrize("name", WORLDS)
def test_the_bound_holds_in_every_repeat(name):
    world = LinearWorld(*WORLDS[name])
    bound, excess, deviations = world.bound(0.5), world.excess_risks(), world.largest_deviations()
    assert excess.min() >= -1e-9
    assert excess.max() > 0.01
    assert excess.max() <= bound.tighter_total <= bound.total
    assert deviations.max() <= bound.deviation
    # The step of symmetrisation and contraction, on its own: the expectation of the deviation.
    assert deviations.mean() <= bound.tighter_complexity_term <= bound.complexity_term / 2


def test_the_lemma_is_within_a_factor_of_the_root_of_two_of_the_truth():
    # One function, whose losses are 0 or 1 at a coin's toss, and weights that are nearly ±C_w:
    # McDiarmid's inequality is close to the normal tail, so a lost factor would show.
    theta, n, delta = np.array([[0.51, 0.49], [0.49, 0.51]]), 400, 1e-3
    pi = [0.5, 0.5]
    bound = estimation_error_bound(
        theta, [n, n], loss=UNIT, complexity=np.zeros((2, 2)), test_prior=pi, delta=delta
    )
    W = risk_weights(theta, pi)
    heads = np.random.default_rng(0).binomial(n, 0.5, size=(400_000, 2)) / n
    estimates = (heads * W[:, 0] + (1 - heads) * W[:, 1]).sum(1)
    deviations = np.abs(estimates - 0.5)
    assert (deviations > bound.deviation).mean() <= delta
    assert (deviations > bound.deviation / math.sqrt(2)).mean() > delta


# Bad input.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bag_sizes": [10]}, "bag_sizes must be 2 numbers, one for each bag, got 1"),
        ({"bag_sizes": [10, 0]}, r"at least 1, got 10.0, 0.0; leave bags without rows out"),
        ({"bag_sizes": [10, 2.5]}, "whole numbers"),
        ({"bag_sizes": [10, np.inf]}, "whole numbers"),
        ({"delta": 0}, r"delta must be a number in \(0, 1\), got 0"),
        ({"delta": 1.0}, r"in \(0, 1\)"),
        ({"loss": "cross-entropy"}, "no finite C_ℓ; clip it and give .*clipped_cross_entropy"),
        ({"loss": cross_entropy}, "no finite C_ℓ"),
        ({"loss": "hinge"}, "loss must be one of"),
        ({"loss": torch.relu}, r"known constants, got .*; give its LossConstants\(bound, lipsch"),
        ({"loss": 3}, "a name or a function"),
        ({"complexity": 0.1}, "complexity must be a 2-dimensional array"),
        (
            {"complexity": [[0.1, 0.1]]},
            r"of shape \(2, 2\), one number per bag and class, got shape",
        ),
        ({"complexity": lambda n: [n, n, n]}, r"one number or 2, one per class, got shape \(3,\)"),
        ({"complexity": lambda n: -n}, "finite and non-negative, got -10.0"),
        ({"complexity": [[0.1, np.nan], [0, 0]]}, "finite and non-negative"),
        ({"test_prior": [0.5, 0.6]}, "test_prior must be shares that sum to 1"),
        ({"priors": [[0.5, 0.4], [0.1, 0.9]]}, "priors must be shares that sum to 1"),
    ],
)
def test_messages(change, message):
    arguments = {
        "priors": symmetric(2, 0.5),
        "bag_sizes": [10, 20],
        "loss": UNIT,
        "complexity": root,
    }
    arguments |= change
    with pytest.raises(InvalidInputError, match=message):
        estimation_error_bound(arguments.pop("priors"), arguments.pop("bag_sizes"), **arguments)


def test_priors_without_full_rank_are_refused():
    with pytest.raises(RankError, match="cannot be told apart"):
        estimation_error_bound([[0.5, 0.5]] * 2, [10, 10], loss=UNIT, complexity=root)


# The page.


def test_the_table_of_the_page_is_what_the_bound_gives():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| a | rows per bag |")) + 2
    rows = [
        [float(cell.replace(",", "")) for cell in line.strip("| ").split("|")]
        for line in lines[start : start + 6]
    ]
    loss, pi, sums = GeneralizedCrossEntropy(0.7), np.full(10, 0.1), []
    for a, size, condition, c_w, complexity, confidence, total, tighter, _, _ in rows:
        unit = estimation_error_bound(
            symmetric(10, a), [int(size)] * 10, loss=loss, complexity=root, test_prior=pi
        )
        assert condition == pytest.approx(unit.condition_number, abs=5e-3)
        assert c_w == pytest.approx(unit.largest_weight, abs=5e-4)
        assert confidence == pytest.approx(unit.confidence_term, abs=5e-3)
        assert total == pytest.approx(complexity + confidence, abs=1.1)
        sums.append(complexity / unit.complexity_term)  # the norms: the same class in every row
        term = sums[0] * unit.tighter_complexity_term + unit.tighter_confidence_term
        assert tighter == pytest.approx(term, abs=1.1)
    np.testing.assert_allclose(sums, sums[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("theta", "sizes", "total", "tighter"),
    [
        ([[0.8, 0.2], [0.2, 0.8]], [10_000] * 2, "0.21", "0.083"),
        ([[0.8, 0.2], [0.2, 0.8], [0.5, 0.5]], [10_000, 10_000, 10], "4.5", "0.68"),
    ],
)
def test_what_the_page_says_of_a_small_bag(theta, sizes, total, tighter):
    bound = estimation_error_bound(
        theta, sizes, loss="generalized-cross-entropy", complexity=NormComplexity(1, (1.0, 1.0))
    )
    assert f"{bound.total:.2g}" == total
    assert f"{bound.tighter_total:.2g}" == tighter
    (line,) = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if "**Small" in line)
    assert f"{total} (" in line
    assert f"{tighter})" in line
