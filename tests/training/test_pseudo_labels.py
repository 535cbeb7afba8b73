"""Temperatures and pseudo-labels, against plain torch."""

import dataclasses

import numpy as np
import pytest
import torch

import unbag
from unbag.evaluation import likeliest_temperature
from unbag.exceptions import InvalidInputError
from unbag.fingerprint import fingerprint
from unbag.models import MLP, ResNet20
from unbag.objectives import MatchedLikelihood
from unbag.training import Augmentation, PseudoLabels, Replica, train
from unbag.training.augmentation import augment
from unbag.training.engine import Stack
from unbag.training.pseudo_labels import _FLOOR, _GAIN_RATE, _STRONG, lowest_pure
from unbag.training.randomness import derive, seed_keys

N, D, K = 60, 4, 3
THETA = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6], [0.2, 0.6, 0.2]])


def make_replica(seed=0, pseudo=None, **settings):
    rng = np.random.default_rng(seed)
    y = np.arange(N + 30) % K
    X = rng.normal(size=(N + 30, D)) + 2 * np.eye(K, D)[y]
    bags = unbag.Bags(X, rng.integers(0, 3, N + 30), THETA)
    torch.manual_seed(seed)
    defaults = {
        "bags": bags.take(np.arange(N)),
        "predicted": bags.take(np.arange(N, N + 30)),
        "objective": MatchedLikelihood(THETA),
        "module": MLP(D, K, width=5, depth=2).double(),
        "seed": seed,
        "epochs": 4,
        "batch_size": N,
        "learning_rate": 0.02,
        "output_prior": THETA.mean(0),
        "pseudo_labels": PseudoLabels(**(pseudo or {})),
    }
    return Replica(**{**defaults, **settings})


def run(replicas, **options):
    return train(replicas, device="cpu", precision="float64", **options)


def stack(*replicas):
    return Stack(list(replicas), torch.device("cpu"), "float64")


def test_the_temperature_of_probabilities_that_are_too_sure():
    rng = np.random.default_rng(0)
    n = 20_000
    log_eta = np.log(rng.dirichlet(np.ones(K), n))
    chances = np.exp(log_eta) @ (THETA / THETA.mean(0)).T / K  # of the bags, which are equal
    bag = (chances.cumsum(1) < rng.random((n, 1))).sum(1)
    ratios = torch.from_numpy((THETA / THETA.mean(0))[bag])
    for factor in (0.7, 1.0, 3.0):
        result = likeliest_temperature(torch.from_numpy(factor * log_eta), ratios)
        assert abs(np.log(result.item() / factor)) < 0.12
    both = torch.from_numpy(np.stack([log_eta, 3 * log_eta]))
    assert likeliest_temperature(both, ratios.expand(2, n, K)).shape == (2,)


def test_the_threshold_of_a_purity():
    confidence = torch.tensor([[0.95, 0.9, 0.7, 0.4], [0.5, 0.5, 0.5, 0.0]])
    torch.testing.assert_close(lowest_pure(confidence, 0.84), torch.tensor([0.7, 2.0]))
    torch.testing.assert_close(lowest_pure(confidence, 0.5), torch.tensor([0.4, 0.5]))
    torch.testing.assert_close(lowest_pure(confidence, 0.96), torch.tensor([2.0, 2.0]))


@pytest.mark.parametrize("teacher", [True, False])
def test_the_loss_of_a_batch(teacher):
    options = {"teacher": teacher, "threshold": 0.6, "weight": 0.7, "balanced": False}
    replica = make_replica(pseudo=options)
    stacked = stack(replica)
    stacked.loss.begin_epoch(0.0)
    temperature = stacked.loss.temperature.item()
    positions = torch.arange(N)[None]
    value = stacked.loss(positions)[0].item()

    x = torch.as_tensor(replica.bags.X)
    keys = derive(seed_keys([0], x.device), _STRONG, stacked.state["step"])
    strong = augment(x[None], keys, strong=True, flip=False)[0]
    module = replica.module
    logits = module.eval()(x)
    module.train()
    weak, hard = module(x), module(strong)
    if not teacher:
        logits = weak
    bag = torch.as_tensor(replica.bags.bag_index)
    ratios = torch.as_tensor(THETA / THETA.mean(0))[bag]  # the objective has equal bags
    q = torch.softmax(logits / temperature, -1) * ratios
    q = q / q.sum(1, keepdim=True)
    confidence, label = q.max(1)
    assert 0 < (confidence >= 0.6).sum() < N
    losses = torch.nn.functional.cross_entropy(hard, label, reduction="none")
    objective = replica.objective.double()(weak, bag)
    expected = objective + 0.7 * (losses * (confidence >= 0.6)).mean()
    assert value == pytest.approx(expected.item(), abs=1e-9)


def test_weights_of_rows_count_in_the_loss_of_labels_and_in_their_balance():
    weight = np.where(np.arange(N) % 2 == 0, 3.0, 1.0)
    options = {"threshold": 0.0, "weight": 1.0}
    replica = make_replica(pseudo=options, sample_weight=weight)
    stacked, without = (
        stack(replica),
        stack(make_replica(pseudo=options | {"weight": 0.0}, sample_weight=weight)),
    )
    positions = torch.arange(N)[None]
    for each in (stacked, without):
        each.loss.begin_epoch(0.0)
    added = stacked.loss(positions)[0].item() - without.loss(positions)[0].item()

    x = torch.as_tensor(replica.bags.X)
    keys = derive(seed_keys([0], x.device), _STRONG, stacked.state["step"])
    strong = augment(x[None], keys, strong=True, flip=False)[0]
    logits = replica.module.eval()(x)
    hard = replica.module.train()(strong)
    bag = torch.as_tensor(replica.bags.bag_index)
    shares = torch.as_tensor(replica.objective.log_ratios).exp()[bag]
    q = torch.softmax(logits / stacked.loss.temperature.item(), -1) * shares
    q = q / q.sum(1, keepdim=True)
    losses = torch.nn.functional.cross_entropy(hard, q.argmax(1), reduction="none")
    weights = torch.as_tensor(weight)
    assert added == pytest.approx(((weights * losses).sum() / weights.sum()).item(), abs=1e-6)
    # The factors take their step towards the shares from means that are weighted as well.
    mean = torch.stack(
        [(weights[:, None] * q)[bag == m].sum(0) / weights[bag == m].sum() for m in range(3)]
    )
    plain = torch.stack([q[bag == m].mean(0) for m in range(3)])
    gap = torch.as_tensor(THETA) - mean
    assert torch.equal(stacked.loss.gain[0].sign(), gap.sign())
    assert not torch.equal(gap, torch.as_tensor(THETA) - plain)
    ratio = stacked.loss.gain[0] / gap * (torch.as_tensor(THETA) + _FLOOR / K)
    torch.testing.assert_close(ratio, torch.full_like(ratio, _GAIN_RATE), rtol=1e-5, atol=1e-9)


def test_soft_labels_count_by_how_sure_they_are():
    """Objective and labels are of the changed rows, and the teacher sees the weak ones."""
    replica = make_replica(pseudo={"soft": True, "strong": False}, predicted=None)
    stacked = stack(replica)
    stacked.loss.begin_epoch(0.0)
    positions = torch.arange(N)[None]
    value = stacked.loss(positions)[0].item()
    x, bag = torch.as_tensor(replica.bags.X), torch.as_tensor(replica.bags.bag_index)
    logits = replica.module.train()(x)  # rows of a table do not change weakly
    # The network has batch normalisation, so its teacher normalises by the batch as well.
    q = torch.softmax(logits.detach(), -1) * torch.as_tensor(THETA / THETA.mean(0))[bag]
    q = q / q.sum(1, keepdim=True)
    certainty = (1 + (q * torch.log(q)).sum(1) / np.log(K)) ** 2
    losses = -(q * torch.log_softmax(logits, -1)).sum(1)
    objective = replica.objective.double()(logits, bag)
    assert value == pytest.approx((objective + (certainty * losses).mean()).item(), abs=1e-6)


def test_a_teacher_that_begins_with_a_trained_network_follows_slowly():
    replica = make_replica(pseudo={"soft": True}, epochs=1)
    stacked = stack(replica)
    weights = stacked.model.weights.clone()
    stacked.run_epoch(0)
    followed = torch.lerp(weights, stacked.network.weights, 0.002)
    torch.testing.assert_close(stacked.model.weights, followed)
    # Its statistics are those of its own weak rows, not those of the network's changed ones.
    module = replica.module.train()
    module(torch.as_tensor(replica.bags.X))
    expected, teacher = module.state_dict(), stacked.model.extract(0).state_dict()
    for name in (name for name in expected if "running" in name):
        torch.testing.assert_close(teacher[name], expected[name], rtol=0, atol=1e-9)


def test_no_label_counts_above_every_confidence():
    stacked = stack(make_replica(pseudo={"threshold": 2.0}))
    stacked.loss.begin_epoch(0.0)
    other = stack(make_replica(pseudo={"weight": 0.0}))
    other.loss.begin_epoch(0.0)
    positions = torch.arange(N)[None]
    torch.testing.assert_close(stacked.loss(positions)[0], other.loss(positions)[0])


def test_the_teacher_follows_and_is_what_comes_back():
    replica = make_replica(epochs=1)
    stacked = stack(replica)
    before = stacked.model.weights.clone()
    assert torch.equal(before, stacked.network.weights)
    stacked.run_epoch(0)
    followed = torch.lerp(before, stacked.network.weights, 1 - 2 / 11)
    torch.testing.assert_close(stacked.model.weights, followed)
    outcome = run([replica])[0]
    tensor = stacked.model.extract(0).state_dict()
    for name, value in outcome.module.state_dict().items():
        torch.testing.assert_close(value, tensor[name])
    logits = outcome.module(torch.as_tensor(replica.predicted.X)).detach().numpy()
    np.testing.assert_allclose(outcome.logits, logits, atol=1e-9)


def test_without_a_teacher_the_network_itself_comes_back():
    stacked = stack(make_replica(pseudo={"teacher": False}))
    assert stacked.model is stacked.network


def test_factors_bring_the_posteriors_of_a_bag_to_its_shares():
    replica = make_replica()
    stacked = stack(replica)
    positions = torch.arange(N)[None]
    index = torch.as_tensor(replica.bags.bag_index)[None]
    logits = stacked.model.forward(
        stacked.rows.batch(positions), stacked.keys, 0, training=False
    ) + torch.tensor([1.5, 0.0, 0.0])

    def gap():
        q = stacked.loss._posterior(logits, index)[0]
        means = torch.stack([q[index[0] == m].mean(0) for m in range(3)])
        return (means - torch.as_tensor(THETA)).abs().max().item()

    first = gap()
    for _ in range(300):
        q = stacked.loss._posterior(logits, index)
        stacked.loss._balance(q, index)
    assert first > 0.1
    assert gap() < 0.01


def test_labels_of_whole_bags_have_their_shares_in_every_batch():
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.ones(K), 20)
    bags = unbag.Bags(rng.normal(size=(80, D)), np.arange(80) // 4, theta)
    replica = make_replica(
        bags=bags.take(np.arange(60)),
        predicted=bags.take(np.arange(60, 80)),
        objective=unbag.objectives.get("count-likelihood", theta, bag_counts=np.full(20, 4)),
        output_prior=theta.mean(0),
        batching="whole-bags",
        batch_size=20,
    )
    stacked = stack(replica)
    positions = torch.arange(20)[None] + 8  # bags 2 to 6
    index = stacked.rows.bag_index.gather(1, positions)
    q = torch.softmax(torch.randn(1, 20, K, dtype=torch.float64), -1)
    labels = stacked.loss._balance_whole(q, index, stacked.part)[0]
    torch.testing.assert_close(labels.sum(1), torch.ones(20, dtype=torch.float64))
    means = labels.view(5, 4, K).mean(1)
    torch.testing.assert_close(means, torch.from_numpy(theta[2:7]), rtol=0, atol=0.02)
    assert (q[0].view(5, 4, K).mean(1) - torch.from_numpy(theta[2:7])).abs().max() > 0.2
    fit = run([replica])[0]
    assert np.isfinite(fit.history["objective"]).all()


@pytest.mark.parametrize("name", ["adamw", "sgd"])  # decay apart from the gradient, and in it
def test_steps_are_those_of_torch(name):
    plain = {"pseudo_labels": None, "predicted": None, "epochs": 5}
    settings = {
        "adamw": {"decoupled_weight_decay": 0.3},
        "sgd": {"optimizer": "sgd", "weight_decay": 0.3, "learning_rate": 0.05},
    }[name]
    replica = make_replica(**plain, **settings)
    module = MLP(D, K, width=5, depth=2).double()
    module.load_state_dict(replica.module.state_dict())
    optimizer = {
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.3),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.3, momentum=0.9, nesterov=True),
    }[name](module.parameters())
    objective = MatchedLikelihood(THETA).double()
    bag = torch.as_tensor(replica.bags.bag_index)
    for _ in range(5):
        optimizer.zero_grad()
        objective(module(torch.as_tensor(replica.bags.X)), bag).backward()
        optimizer.step()
    outcome = run([replica])[0]
    for tensor, other in zip(outcome.module.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(tensor, other, rtol=0, atol=1e-9)


def test_a_stack_equals_each_alone():
    replicas = [make_replica(seed) for seed in range(3)]
    for replica, outcome in zip(replicas, run(replicas), strict=True):
        alone = run([replica])[0]
        for tensor, other in zip(
            outcome.module.parameters(), alone.module.parameters(), strict=True
        ):
            torch.testing.assert_close(tensor, other, rtol=0, atol=1e-9)


def test_fingerprints_differ_by_what_matters():
    replica = make_replica()
    out = replica.predicted
    ids = np.roll(out.bag_index, 1)
    rebagged = unbag.Bags(out.source, np.resize(ids, len(out.source)), THETA).take(out.rows)
    variants = [
        replica,
        dataclasses.replace(replica, pseudo_labels=PseudoLabels(purity=0.5)),
        dataclasses.replace(replica, decoupled_weight_decay=0.1),
        dataclasses.replace(replica, optimizer="sgd"),
        dataclasses.replace(replica, predicted=replica.predicted.take(np.arange(20))),
        dataclasses.replace(replica, predicted=rebagged),
    ]
    device = torch.device("cpu")
    assert len({fingerprint([v], "float64", device) for v in variants}) == len(variants)
    assert variants[0].group != variants[1].group


def test_weights_of_rows_count_in_labels_and_factors():
    weight = np.where(np.arange(N) % 2, 9.0, 1.0)
    shares = np.bincount(make_replica().bags.bag_index, weights=weight) / weight.sum()
    objective = MatchedLikelihood(THETA, bag_shares=shares)
    replica = make_replica(sample_weight=weight, objective=objective, output_prior=shares @ THETA)
    stacked = stack(replica)
    torch.testing.assert_close(stacked.loss.ratios[0], torch.tensor(THETA / (shares @ THETA)))
    q = torch.softmax(torch.randn(1, N, K, dtype=torch.float64), -1)
    index = stacked.rows.bag_index[:, :N]  # behind these is padding
    stacked.loss._balance(q, index, torch.tensor(weight)[None])
    of_bag = index[0] == 0
    mean = np.average(q[0][of_bag].numpy(), 0, weight[of_bag.numpy()])
    expected = 0.05 * (THETA[0] - mean) / (THETA[0] + 0.1 / K)
    np.testing.assert_allclose(stacked.loss.gain[0, 0], expected)


def test_the_teacher_of_a_replica_that_ended_stays():
    stacked = stack(make_replica(0), make_replica(1))
    with torch.no_grad():
        stacked.network.weights.add_(1.0)
    before = stacked.model.weights.clone()
    stacked.loss.end_step(torch.tensor([True, False]))
    assert not torch.equal(stacked.model.weights[0], before[0])
    assert torch.equal(stacked.model.weights[1], before[1])


@pytest.mark.parametrize("objective", ["matched-likelihood", "prop-cr"])
def test_residual_networks_can_be_compiled(objective):
    """As on CUDA, where buffers that two passes share must not get in the compiler's way."""
    rng = np.random.default_rng(0)
    bags = unbag.Bags(rng.random((30, 3, 8, 8), dtype=np.float32), np.arange(30) % 3, THETA)
    settings = {"pseudo_labels": None, "predicted": None}
    if objective == "matched-likelihood":
        settings = {"predicted": bags.take(np.arange(20, 30))}
    module = ResNet20(3, K)
    module.blocks = module.blocks[3:4]  # from 16 to 32 channels: the compiler takes long
    module.output = torch.nn.Linear(32, K)
    replica = make_replica(
        **settings,
        bags=bags.take(np.arange(20)),
        module=module,
        objective=unbag.objectives.get(objective, THETA),
        batch_size=20,
    )
    stacked = Stack([replica], torch.device("cpu"), "float32")
    positions = torch.arange(20)[None]
    function = stacked.loss._end if objective == "prop-cr" else stacked.loss.evaluate
    arguments = (positions,)
    if objective == "prop-cr":
        x, logits = stacked.loss._start(positions)
        arguments = (positions, x, logits.detach().requires_grad_(), torch.zeros_like(x))
    expected = function(*arguments)[0]
    result = torch.compile(function, backend="aot_eager", dynamic=False)(*arguments)[0]
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"predicted": None}, "predicted must be given together with pseudo_labels"),
        (
            {"objective": None, "targets": np.full((N, K), 1 / K)},
            "pseudo_labels must be given with an objective, got targets",
        ),
        ({"decoupled_weight_decay": -1.0}, "decoupled_weight_decay"),
        ({"optimizer": "lion"}, "optimizer"),
        ({"augmentation": Augmentation()}, "augmentation must be None with pseudo_labels"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        make_replica(**settings)


@pytest.mark.parametrize("options", [{"purity": 2.0}, {"threshold": -1}, {"teacher": "yes"}])
def test_refusals_of_options(options):
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        PseudoLabels(**options)
