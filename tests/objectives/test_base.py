"""What all objectives promise: the naive loop, gradients, stacks, unbiasedness, messages."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import naive
import unbag
from closed_form import DiscreteProblem, epoch_means, standard_errors_off
from unbag.exceptions import InvalidInputError, RankError
from unbag.objectives import (
    OBJECTIVES,
    GeneralizedCrossEntropy,
    RiskObjective,
    get,
    get_loss,
)
from unbag.training.batches import ShuffledBatches, StratifiedBatches, WholeBagBatches

THETA = [[0.8, 0.2], [0.3, 0.7]]


TOLERANCE = 1e-9


# Hyperparameters other than the defaults, by objective.
PARAMETERS = {
    "u-flood": [{"flood_level": 30.0}],
    "u-prr": [{"alpha": 0.0}, {"alpha": 0.9, "ascent_scale": 0.2}],
    "matched-likelihood": [{"matching": 0.0}, {"matching": 50.0}],
}


CASES = [(name, given) for name in OBJECTIVES for given in ({}, *PARAMETERS.get(name, ()))]


CASE_IDS = [f"{name} {parameters}" for name, parameters in CASES]


RISK_OBJECTIVES = [name for name, cls in OBJECTIVES.items() if issubclass(cls, RiskObjective)]


def build(name, batch, **parameters):
    if name in RISK_OBJECTIVES:
        parameters["test_prior"] = batch.test_prior
    return get(name, batch.theta, **parameters)


def evaluate(objective, batch):
    """Value from logits; of prop-cr without the consistency term, which needs a model."""
    statistics = objective.statistics(batch.logits, batch.bag_index, batch.weight, batch.inclusion)
    if isinstance(objective, OBJECTIVES["prop-cr"]):
        return objective.reduce(statistics)
    value = objective(batch.logits, batch.bag_index, batch.weight, batch.inclusion)
    assert torch.equal(value, objective.reduce(statistics))
    return value


def assert_same(got, expected, batch):
    """Values and gradients agree to the tolerance."""
    value, gradient = naive.value_and_gradient(got, batch)
    expected_value, expected_gradient = naive.value_and_gradient(expected, batch)
    assert value.dtype == torch.float64
    assert value.shape == ()
    assert naive.relative_difference(value, expected_value) <= TOLERANCE
    assert naive.relative_difference(gradient, expected_gradient) <= TOLERANCE


def test_no_objective_is_forgotten():
    assert list(naive.NAIVE) == list(OBJECTIVES)


def test_only_objectives_of_the_rewritten_risk_need_full_rank():
    assert [name for name, kind in OBJECTIVES.items() if kind.needs_rank] == RISK_OBJECTIVES


@pytest.mark.parametrize(("name", "parameters"), CASES, ids=CASE_IDS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("n_bags", "n_classes", "absent"), naive.SETTINGS)
def test_equals_the_naive_loop(name, parameters, weighted, n_bags, n_classes, absent):
    batch = naive.random_batch(n_bags, n_classes, absent=absent, weighted=weighted)
    objective = build(name, batch, **parameters)
    assert_same(evaluate(objective, batch), naive.NAIVE[name](batch, **parameters), batch)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_chances_below_one_divide_the_part_of_a_bag(name):
    batch = naive.random_batch(7, 3, absent=True)
    batch.inclusion = torch.linspace(0.3, 1, 7, dtype=torch.float64)
    assert_same(evaluate(build(name, batch), batch), naive.NAIVE[name](batch), batch)


@pytest.mark.parametrize("name", [*RISK_OBJECTIVES, "biased"])
@pytest.mark.parametrize(
    ("loss", "of_one_class"),
    [
        ("generalized-cross-entropy", naive.generalized_cross_entropy),
        (
            GeneralizedCrossEntropy(q=0.2),
            lambda logits, k: naive.generalized_cross_entropy(logits, k, q=0.2),
        ),
        (
            lambda logits: F.softplus(-logits),
            lambda logits, k: torch.log1p(logits[:, k].neg().exp()),
        ),
    ],
    ids=["by name", "by object", "own function"],
)
def test_any_loss_of_every_class_may_be_given(name, loss, of_one_class):
    batch = naive.random_batch(7, 3)
    objective = build(name, batch, loss=loss)
    assert_same(evaluate(objective, batch), naive.NAIVE[name](batch, of_one_class), batch)


def test_biased_with_the_bags_shares_among_all_rows():
    batch = naive.random_batch(7, 3, absent=True)
    batch.inclusion = torch.linspace(0.3, 1, 7, dtype=torch.float64)
    shares = torch.arange(1, 8) / 28
    major = batch.theta.argmax(1).tolist()
    terms = [
        shares[m] * naive.bag_mean(batch, m, major[m], naive.cross_entropy) / batch.chance(m)
        for m in batch.present()
    ]
    assert_same(evaluate(build("biased", batch, bag_shares=shares), batch), sum(terms), batch)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_stack_equals_each_objective_alone(name):
    many = [{}, *PARAMETERS.get(name, ())]
    batches = [naive.random_batch(m, 3, weighted=True, seed=m) for m in (3, 7, 5)]
    batches[1].theta[0] = torch.tensor([0.1, 0.1, 0.8])
    for batch in batches:
        batch.inclusion = torch.linspace(0.4, 1, len(batch.theta), dtype=torch.float64)
    alone = [build(name, b, **many[i % len(many)]) for i, b in enumerate(batches)]
    stacked = type(alone[0]).stack(alone)
    assert stacked.n_bags == 7
    joined = naive.Batch(
        logits=torch.stack([b.logits.detach() for b in batches]).requires_grad_(),
        bag_index=torch.stack([b.bag_index for b in batches]),
        theta=stacked.theta,
        test_prior=batches[0].test_prior,
        weight=torch.stack([b.weight for b in batches]),
        inclusion=torch.stack(
            [F.pad(b.inclusion, [0, 7 - len(b.inclusion)], value=1.0) for b in batches]
        ),
    )
    values = evaluate(stacked, joined)
    assert values.shape == (3,)
    (gradients,) = torch.autograd.grad(values.sum(), joined.logits)
    for i, (objective, batch) in enumerate(zip(alone, batches, strict=True)):
        value, gradient = naive.value_and_gradient(evaluate(objective, batch), batch)
        assert naive.relative_difference(values[i].detach(), value) <= TOLERANCE
        assert naive.relative_difference(gradients[i], gradient) <= TOLERANCE


@pytest.mark.parametrize("name", OBJECTIVES)
def test_one_objective_takes_many_batches(name):
    batches = [naive.random_batch(7, 3, seed=s) for s in range(3)]
    objective = build(name, batches[0])
    logits = torch.stack([b.logits for b in batches])
    bag_index = torch.stack([b.bag_index for b in batches])
    together = objective.reduce(objective.statistics(logits, bag_index))
    each = torch.stack([evaluate(objective, b) for b in batches])
    torch.testing.assert_close(together, each, rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize(("name", "parameters"), CASES, ids=CASE_IDS)
def test_gradient_equals_the_numerical_one(name, parameters):
    if name == "matched-likelihood" and parameters.get("matching") != 0:
        pytest.skip("its confidence is a constant for the gradient; the naive loop has it so too")
    batch = naive.random_batch(4, 3, n=20, weighted=True)
    largest, second = batch.logits.detach().topk(2, dim=1).values.T
    assert (largest - second).min() > 1e-3  # no tie, so that the sign of u-prr is constant
    objective = build(name, batch, **parameters)

    def value(logits):
        return objective.reduce(objective.statistics(logits, batch.bag_index, batch.weight))

    assert torch.autograd.gradcheck(value, batch.logits)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_single_precision_is_close_to_double_and_finite_for_extreme_logits(name):
    batch = naive.random_batch(7, 3)
    objective = build(name, batch)
    expected = evaluate(objective, batch)
    batch.logits = batch.logits.detach().float().requires_grad_()
    value = evaluate(objective, batch)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-5)
    batch.logits = (1000 * batch.logits.detach()).requires_grad_()
    value, gradient = naive.value_and_gradient(evaluate(objective, batch), batch)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


def test_sign_of_the_regulariser_is_constant_for_the_gradient():
    """Too few rows of a bag predicted as k: descend; too many: climb at the ascent scale."""
    objective = get("u-prr", torch.eye(2), test_prior=[0.5, 0.5], alpha=0.0, ascent_scale=3.0)
    objective.theta.copy_(torch.tensor(THETA))
    objective.risk_weights.fill_(1.0)
    logits = torch.tensor([[5.0, 0.0], [4.0, 0.0]], dtype=torch.float64, requires_grad=True)
    risks = objective.statistics(logits, torch.tensor([0, 1])).risks
    # Everything is predicted as class 0: E = [0, 1] in both bags.
    expected = (torch.tensor([[-3.0, 1.0]]) * (risks - 1 + objective.theta)).sum()
    value = objective(logits, torch.tensor([0, 1]))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(
        torch.autograd.grad(value, logits)[0], torch.autograd.grad(expected, logits)[0]
    )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("biased", {}),
        ("unbiased", {}),
        ("u-stop", {}),
        ("u-correct", {}),
        ("u-flood", {"flood_level": 0.0}),
        *(("u-prr", {"alpha": alpha}) for alpha in (0.0, 0.3, 1.0)),
        *(
            (name, {"bag_shares": [1 / 6, 2 / 6, 3 / 6]})
            for name in ("bag-likelihood", "matched-likelihood")
        ),
    ],
)
def test_pure_bags_in_proportion_give_cross_entropy(name, parameters):
    logits = torch.randn(60, 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0] * 10 + [1] * 20 + [2] * 30)
    if name in RISK_OBJECTIVES:
        parameters = parameters | {"test_prior": [1 / 6, 2 / 6, 3 / 6]}
    value = get(name, torch.eye(3), **parameters)(logits, y)
    expected = F.cross_entropy(logits, y)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        torch.autograd.grad(value, logits)[0], torch.autograd.grad(expected, logits)[0]
    )


def test_the_rewritten_risk_of_whole_distributions_is_the_risk():
    """With P(x | bag m) as the weights of rows there is nothing random left."""
    problem = DiscreteProblem()
    theta = torch.tensor(naive.priors_of_shape(7, 3, seed=0))
    weight = problem.x_given_bag(theta).flatten()
    logits = problem.logits.repeat(7, 1)
    objective = get("unbiased", theta, test_prior=problem.test_prior)
    value = objective(logits, torch.arange(7).repeat_interleave(4), weight)
    assert abs(float(value) - problem.risk()) < 1e-12


@pytest.mark.parametrize(
    ("sizes", "batch_size"), [([9500, 450, 50], 32), ([20 + 9 * (m % 7) for m in range(40)], 16)]
)
def test_stratified_batches_are_unbiased_and_shuffled_ones_are_not(sizes, batch_size):
    """Why stratified batches are the default; with 40 bags and 16 rows most bags are absent."""
    problem = DiscreteProblem()
    theta = naive.priors_of_shape(len(sizes), 3, seed=0)
    objective = get("unbiased", theta, test_prior=problem.test_prior)
    x, bag_index = problem.draw(objective.theta, sizes, seed=0)
    logits = problem.logits[x]
    of_all_rows = float(objective(logits, bag_index))

    def off(batching):
        means = epoch_means(objective, logits, bag_index, batching, batch_size, n_epochs=40)
        return abs(standard_errors_off(means, of_all_rows))

    assert off(StratifiedBatches) < 4
    assert off(ShuffledBatches) > 20


def test_batches_of_whole_bags_are_unbiased():
    problem = DiscreteProblem()
    theta = naive.priors_of_shape(40, 3, seed=0)
    objective = get("unbiased", theta, test_prior=problem.test_prior)
    x, bag_index = problem.draw(objective.theta, [10] * 40, seed=0)
    logits = problem.logits[x]
    of_all_rows = float(objective(logits, bag_index))
    means = epoch_means(objective, logits, bag_index, WholeBagBatches, 50, n_epochs=5)
    np.testing.assert_allclose(means, of_all_rows, rtol=1e-9)


def test_objectives_are_modules_with_buffers_and_no_parameters():
    objective = get("u-prr", THETA, test_prior=[0.5, 0.5], alpha=0.3)
    assert list(objective.parameters()) == []
    assert set(objective.state_dict()) == {"theta", "risk_weights", "alpha", "ascent_scale"}
    assert copy.deepcopy(objective).alpha == 0.3
    assert unbag.objectives.PartialRiskRegularized is OBJECTIVES["u-prr"]


def test_priors_and_test_prior_may_be_matched_by_name():
    named = {"north": {"yes": 0.8, "no": 0.2}, "south": {"yes": 0.3, "no": 0.7}}
    logits, bag_index = torch.randn(6, 2), torch.arange(6) % 2
    by_name = get("unbiased", named, test_prior={"no": 0.9, "yes": 0.1})
    by_place = get("unbiased", THETA, test_prior=[0.1, 0.9])
    assert torch.equal(by_name(logits, bag_index), by_place(logits, bag_index))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: get_loss("hinge"), r"loss must be one of 'cross-entropy', .*got 'hinge'"),
        (lambda: get_loss(3), r"loss must be a name or a function .*got 3"),
        (lambda: GeneralizedCrossEntropy(q=0), r"q must be a number in \(0, 1\], got 0"),
        (lambda: get("u-pr", THETA), r"name must be one of 'biased', .*'u-prr'.*, got 'u-pr'"),
        (lambda: get(None, THETA), r"name must be one of .*got None"),
        (
            lambda: get("u-flood", THETA, test_prior=[0.5, 0.5], alpha=0.5),
            r"u-flood takes the parameters 'test_prior', 'flood_level', 'loss': .*'alpha'",
        ),
        (lambda: get("prop", THETA, test_prior=[0.5, 0.5]), r"prop takes .*'test_prior'"),
        *(
            (lambda name=name: get(name, THETA), rf"{name} takes .*missing.* 'test_prior'")
            for name in RISK_OBJECTIVES
        ),
        *(
            (
                lambda key=key, bad=bad: get("u-prr", THETA, test_prior=[0.5, 0.5], **{key: bad}),
                rf"{key} must be a number .*got {bad!r}",
            )
            for key, bad in [
                ("alpha", -0.1),
                ("alpha", 1.1),
                ("alpha", math.nan),
                ("alpha", "high"),
                ("ascent_scale", -1.0),
                ("ascent_scale", math.inf),
            ]
        ),
        (
            lambda: get("u-flood", THETA, test_prior=[0.5, 0.5], flood_level=-1),
            r"flood_level must be a number of at least 0, got -1",
        ),
        *(
            (
                lambda parameter=parameter, value=value: get(
                    "prop-cr", THETA, **{parameter: value}
                ),
                rf"{parameter} must be a number (above|of at least) 0, got {value}",
            )
            for parameter, value in (
                ("probe", 0.0),
                ("probe", -1.0),
                ("radius", 0.0),
                ("radius", -1.0),
                ("consistency", -1.0),
            )
        ),
        (lambda: get("prop-cr", THETA, radius=0), r"radius must be a number above 0, got 0"),
        *(
            (
                lambda name=name: get(name, THETA, bag_shares=[1.0]),
                r"bag_shares must be of length 2",
            )
            for name in ("biased", "bag-likelihood", "matched-likelihood")
        ),
        (
            lambda: get("matched-likelihood", THETA, matching=-1),
            r"matching must be a number of at least 0, got -1",
        ),
        (
            lambda: get("bag-likelihood", THETA, bag_shares=[0.9, 0.3]),
            r"bag_shares must be shares that sum to 1, got numbers from 0.3 that sum to 1.2",
        ),
        (
            lambda: get("unbiased", THETA, test_prior=[0.5, 0.6]),
            r"test_prior must be shares that sum to 1",
        ),
        (lambda: get("unbiased", THETA, test_prior=[1.0]), r"test_prior must be 2 shares"),
        (lambda: get("unbiased", [0.5, 0.5], test_prior=[1.0]), r"priors must be a 2-dim"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


@pytest.mark.parametrize("name", RISK_OBJECTIVES)
def test_priors_that_cannot_tell_classes_apart_are_refused_by_name(name):
    table = {"p": [0.5, 0.25, 0.25], "q": [0.1, 0.45, 0.45], "r": [0.2, 0.4, 0.4]}
    priors = {bag: dict(zip("abc", row, strict=True)) for bag, row in table.items()}
    with pytest.raises(RankError, match=r"classes 'b', 'c' cannot be told apart"):
        get(name, priors, test_prior=[0.4, 0.3, 0.3])
    for other in set(OBJECTIVES) - set(RISK_OBJECTIVES):
        get(other, priors)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logits": torch.zeros(4, 3)}, r"logits must be of shape \(n, 2\), got shape \(4, 3\)"),
        ({"logits": torch.zeros(2)}, r"logits must be of shape \(n, 2\)"),
        ({"logits": torch.zeros(4, 2).long()}, r"logits must be of a floating point type"),
        ({"logits": [[0.0, 1.0]]}, r"logits must be a torch.Tensor, got list"),
        ({"bag_index": torch.zeros(3).long()}, r"bag_index must be of shape \(4,\), .*\(3,\)"),
        ({"bag_index": torch.zeros(4)}, r"bag_index must be of an integer type, .*float32"),
        ({"bag_index": torch.zeros(4).bool()}, r"bag_index must be of an integer type, .*bool"),
        ({"bag_index": torch.zeros(4).long().numpy()}, r"bag_index must be a torch.Tensor"),
        ({"bag_index": torch.tensor([0, 1, 2, 0])}, r"bag_index must be in 0..1, got 0..2"),
        ({"bag_index": torch.tensor([0, -1, 1, 0])}, r"bag_index must be in 0..1, got -1..1"),
        ({"weight": torch.ones(3)}, r"weight must be of shape \(4,\), got shape \(3,\)"),
        ({"inclusion": torch.ones(3)}, r"inclusion must be of shape \(..., 2\).* \(3,\)"),
        ({"loss": lambda logits: logits.sum(-1)}, r"loss must be .*got one that returns \(4,\)"),
    ],
)
def test_bad_batches(arguments, message):
    batch = {"logits": torch.zeros(4, 2), "bag_index": torch.tensor([0, 1, 1, 0])} | arguments
    loss = batch.pop("loss", "cross-entropy")
    objective = get("unbiased", THETA, test_prior=[0.5, 0.5], loss=loss)
    with pytest.raises(InvalidInputError, match=message):
        objective(**batch)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32])
def test_bags_of_any_integer_type(name, kind):
    options = {"test_prior": [0.5, 0.5]} if name in RISK_OBJECTIVES else {}
    objective = get(name, THETA, **options)
    statistics = objective.statistics(torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]).to(kind))
    assert torch.isfinite(objective.reduce(statistics))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _, bags: (None, bags), "logits must be a torch.Tensor, got NoneType"),
        (lambda logits, _: (logits, None), "bag_index must be a torch.Tensor, got NoneType"),
        (lambda logits, bags: (logits.to_sparse(), bags), "logits must be a dense .* a sparse one"),
        (lambda logits, bags: (logits, bags.to_sparse()), "bag_index must be a dense .* sparse"),
        (lambda logits, bags: (logits.to("meta"), bags), "logits must be a dense .* meta device"),
        (
            lambda logits, bags: (logits, bags.to("meta")),
            "bag_index must be a dense .* meta device",
        ),
    ],
)
def test_tensors_without_plain_values_are_refused(change, words):
    logits, bags = change(torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]))
    with pytest.raises(InvalidInputError, match=words):
        get("bag-likelihood", THETA)(logits, bags)
