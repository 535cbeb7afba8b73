"""The training loop: replicas of a stack against one another and against plain torch."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import unbag
from unbag import objectives
from unbag.evaluation import label_free_accuracy
from unbag.models import MLP, ResNet20
from unbag.training import Replica, TestSet, engine, train
from unbag.training.batches import BATCHINGS
from unbag.training.engine import Stack
from unbag.training.randomness import seed_keys
from unbag.training.run import _replicas_per_stack

K, D = 3, 4
ALL_BUT_CONSISTENCY = [
    "biased",
    "prop",
    "unbiased",
    "u-correct",
    "u-flood",
    "u-prr",
    "bag-likelihood",
    "matched-likelihood",
]


def make_data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return rng.normal(size=(n, D)) + 2 * np.eye(K, D)[y], y


def mlp(seed, **options):
    torch.manual_seed(seed)
    return MLP(D, K, **{"width": 6, **options}).double()


def make_replica(method, theta=None, data=None, **settings):
    X, y = make_data() if data is None else data
    theta = unbag.priors.asymmetric(K, 0) if theta is None else theta
    seed = settings.pop("seed", 0)
    bags = unbag.make_bags(X, y, theta, random_state=seed, sizes=settings.pop("sizes", None))
    needs = {"test_prior": bags.pooled_prior} if method.startswith("u") else {}
    defaults = {
        "bags": bags,
        "objective": objectives.get(method, bags.priors, **needs),
        "module": mlp(seed),
        "seed": seed,
        "epochs": 20,
        "batch_size": 30,
        "learning_rate": 1e-2,
        "weight_decay": 1e-3,
        "risk_weights": unbag.priors.risk_weights(bags.priors, bags.pooled_prior),
    }
    return Replica(**{**defaults, **settings})


def run(replicas, **options):
    return train(replicas, device="cpu", precision="float64", **options)


def assert_same(one, other, atol=1e-9):
    assert one.n_epochs == other.n_epochs
    assert one.stop_reason == other.stop_reason
    assert one.diverged == other.diverged
    assert one.history.keys() == other.history.keys()
    for name, values in one.history.items():
        np.testing.assert_allclose(values, other.history[name], rtol=0, atol=atol, err_msg=name)
    tensor, others = one.module.state_dict(), other.module.state_dict()
    assert tensor.keys() == others.keys()
    for name, value in tensor.items():
        torch.testing.assert_close(value, others[name], rtol=0, atol=atol)


def mixed_replicas(batching="stratified"):
    data = make_data()
    square, tall = unbag.priors.asymmetric(K, 0), unbag.priors.non_square(K, 1)
    calls = []
    for i, method in enumerate([*ALL_BUT_CONSISTENCY, *ALL_BUT_CONSISTENCY][:12]):
        theta = square if i % 2 else tall
        calls.append(
            make_replica(
                method,
                theta,
                data if i % 3 else make_data(seed=i),
                seed=i,
                learning_rate=10.0 ** -(1 + i % 3),
                weight_decay=[0, 1e-2][i % 2],
                module=mlp(i, dropout=[0.0, 0.3, 0.5][i % 3]),
                batching=batching,
            )
        )
    calls[2] = make_replica(
        "u-stop", tall, data, seed=50, stop_when_negative=True, batching=batching
    )
    return calls


@pytest.mark.parametrize("batching", list(BATCHINGS))
def test_a_replica_of_a_mixed_stack_equals_itself_alone(batching):
    replicas = mixed_replicas(batching)
    assert len({replica.group for replica in replicas}) == 1
    stacked = run(replicas)
    for replica, outcome in zip(replicas, stacked, strict=True):
        assert_same(outcome, run([replica])[0])
    order = np.random.default_rng(0).permutation(len(replicas))
    for i, outcome in zip(order, run([replicas[i] for i in order]), strict=True):
        assert_same(outcome, stacked[i])


@pytest.mark.parametrize(("room", "sizes"), [(0, [1] * 12), (5, [4, 4, 4]), (100, [12])])
def test_stacks_are_cut_to_the_cache_with_the_same_results(monkeypatch, room, sizes):
    replicas = mixed_replicas()
    whole = run(replicas)
    seen = []

    class Watched(Stack):
        def __init__(self, part, *args):
            seen.append(len(part))
            super().__init__(part, *args)

    monkeypatch.setattr("unbag.training.run.Stack", Watched)
    widest = 4 * 30 * 6  # bytes of the activations of a layer: 30 rows, 6 units
    monkeypatch.setattr("unbag.training.run._CACHE", room * widest)
    cut = run(replicas)
    assert seen == sizes
    for one, other in zip(cut, whole, strict=True):
        assert_same(one, other)


def test_weights_of_rows_and_decays_stay_with_their_replica():
    # Replicas of one objective stand together in a stack, in another order than they were given.
    kinds = ("u-prr", "biased", "prop", "biased", "u-prr")
    replicas = []
    for i, kind in enumerate(kinds):
        weight = np.random.default_rng(i).uniform(0.1, 5, len(make_data()[1]))
        settings = {
            "weight_decay": 0.1 * i,
            "decoupled_weight_decay": 0.2 * (4 - i),
            "annealed": i % 2 == 0,
        }
        replicas.append(make_replica(kind, seed=i, epochs=4, sample_weight=weight, **settings))
    together = run(replicas)
    for replica, fit in zip(replicas, together, strict=True):
        assert_same(fit, run([replica])[0])
    swapped = [dataclasses.replace(replicas[0], sample_weight=replicas[4].sample_weight)]
    assert not np.allclose(run(swapped)[0].history["objective"], together[0].history["objective"])


def test_every_stack_is_reported_as_it_ends(monkeypatch, tmp_path):
    monkeypatch.setattr("unbag.training.run._CACHE", 4 * 4 * 30 * 6)  # room for four
    replicas = mixed_replicas()
    reported = []

    def keep(ended, delete_checkpoint):
        reported.append(ended)
        delete_checkpoint()

    outcomes = run(replicas, on_finish=keep, checkpoint=tmp_path, checkpoint_seconds=0.0)
    assert [len(ended) for ended in reported] == [4, 4, 4]
    joined = {i: outcome for ended in reported for i, outcome in ended.items()}
    assert [joined[i] for i in range(12)] == outcomes
    assert all(outcome.seconds > 0 for outcome in outcomes)
    assert not list(tmp_path.iterdir())


def test_what_ended_before_a_crash_was_reported(monkeypatch):
    monkeypatch.setattr("unbag.training.run._CACHE", 4 * 4 * 30 * 6)
    replicas = mixed_replicas()
    whole = run(replicas)
    kept = {}

    def crash_after_two(ended, _):
        kept.update(ended)
        if len(kept) == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(replicas, on_finish=crash_after_two)
    rest = [i for i in range(12) if i not in kept]
    # What is left is cut into the stacks that were left, so the results are the same to the bit.
    kept.update(zip(rest, run([replicas[i] for i in rest]), strict=True))
    uncut = run(replicas)
    for i, outcome in enumerate(uncut):
        assert_same(kept[i], outcome, atol=0)
        assert_same(kept[i], whole[i])


def test_rows_and_bag_sizes_may_differ_within_a_stack():
    tall = unbag.priors.non_square(K, 1)
    replicas = [
        make_replica("u-prr", sizes=[5, 20, 20], seed=1, batch_size=20),
        make_replica("u-prr", tall, sizes=[2, 3, 5, 8, 15, 26], seed=2, batch_size=20),
        make_replica("biased", tall, sizes=[1, 1, 1, 1, 1, 40], seed=3, batch_size=20),
    ]
    assert len({replica.group for replica in replicas}) == 1
    for replica, outcome in zip(replicas, run(replicas), strict=True):
        assert_same(outcome, run([replica])[0])


def test_more_bags_than_batch_rows_in_a_stack():
    theta = np.repeat(unbag.priors.asymmetric(K, 0), 10, axis=0)  # 30 bags, batches of 8
    replicas = [
        make_replica(method, theta, sizes=list(range(1, 31)), data=make_data(600), seed=s)
        for s, method in enumerate(["u-prr", "prop", "biased"])
    ]
    replicas = [Replica(**{**vars(r), "batch_size": 8, "epochs": 5}) for r in replicas]
    for replica, outcome in zip(replicas, run(replicas), strict=True):
        assert_same(outcome, run([replica])[0])


def test_consistency_in_its_own_stack_equals_itself_alone():
    theta = [unbag.priors.asymmetric(K, 0), unbag.priors.non_square(K, 1)]
    replicas = [
        make_replica("prop-cr", theta[s % 2], seed=s, module=mlp(s, dropout=0.2 * s))
        for s in range(3)
    ]
    weak = objectives.get("prop-cr", replicas[2].bags.priors, consistency=3.0, radius=0.1)
    replicas[2] = Replica(**{**vars(replicas[2]), "objective": weak})
    stacked = run([replicas[0], make_replica("prop"), *replicas[1:]])
    for replica, outcome in zip(replicas, [stacked[0], *stacked[2:]], strict=True):
        assert_same(outcome, run([replica])[0])


def test_consistency_changes_the_result_by_its_weight():
    replica = make_replica("prop-cr")
    none = objectives.get("prop-cr", replica.bags.priors, consistency=0.0)
    plain = run([make_replica("prop")])[0]
    assert_same(run([Replica(**{**vars(replica), "objective": none})])[0], plain)
    assert not np.allclose(run([replica])[0].history["objective"], plain.history["objective"])


def plain_training(replica):
    """The same training in plain torch, one module and torch's own Adam."""
    bags = replica.bags
    x = torch.as_tensor(np.asarray(bags.X))
    bag_index = torch.as_tensor(bags.bag_index)
    batches = BATCHINGS[replica.batching](
        bag_index[None],
        replica.objective.n_bags,
        replica.rows_per_batch,
        seed_keys([replica.seed], torch.device("cpu")),
    )
    inclusion = None if batches.inclusion is None else batches.inclusion[0]
    module = mlp(replica.seed).train()
    adam = torch.optim.Adam(
        module.parameters(), lr=replica.learning_rate, weight_decay=replica.weight_decay
    )
    objective, risk = [], []
    for epoch in range(replica.epochs):
        values, risks = [], []
        for rows in torch.cat(list(batches.epoch(epoch)), dim=1)[0]:
            logits = module(x[rows])
            weight = replica.sample_weight
            weight = None if weight is None else torch.as_tensor(weight)[rows]
            statistics = replica.objective.statistics(logits, bag_index[rows], weight, inclusion)
            value = replica.objective.reduce(statistics)
            adam.zero_grad()
            value.backward()
            adam.step()
            values.append(value.item())
            terms = torch.as_tensor(replica.risk_weights) * statistics.risks
            risks.append((terms * statistics.presence[:, None]).sum().item())
        objective.append(np.mean(values))
        risk.append(np.mean(risks))
    return module.eval(), np.array(objective), np.array(risk)


@pytest.mark.parametrize("method", ALL_BUT_CONSISTENCY)
@pytest.mark.parametrize("batching", list(BATCHINGS))
def test_training_equals_a_plain_torch_loop(method, batching):
    replica = make_replica(method, batching=batching, epochs=10, seed=3)
    check_against_plain(replica)


def test_training_equals_a_plain_torch_loop_with_weights_and_rare_bags():
    theta = np.repeat(unbag.priors.asymmetric(K, 0), 4, axis=0)  # 12 bags, batches of 5
    weight = np.random.default_rng(0).uniform(0.5, 2, 120)
    check_against_plain(make_replica("u-prr", theta, batch_size=5, epochs=4, sample_weight=weight))


def check_against_plain(replica):
    outcome = run([replica])[0]
    module, objective, risk = plain_training(replica)
    np.testing.assert_allclose(outcome.history["objective"], objective, rtol=0, atol=1e-9)
    np.testing.assert_allclose(outcome.history["empirical_risk"], risk, rtol=0, atol=1e-9)
    state = outcome.module.state_dict()
    for name, value in module.state_dict().items():
        if value.is_floating_point():  # weights and running statistics
            torch.testing.assert_close(state[name], value, rtol=0, atol=1e-9)


def test_history_of_partial_risks_averages_over_batches_that_hold_the_bag():
    replica = make_replica("unbiased", epochs=2, batch_size=120, learning_rate=1e-12)
    outcome = run([replica])[0]
    module = mlp(0).train()
    logits = module(torch.as_tensor(np.asarray(replica.bags.X)))
    losses = -torch.log_softmax(logits, -1).detach().numpy()
    expected = [losses[replica.bags.bag_index == m].mean(0) for m in range(K)]
    assert outcome.history["partial_risks"].shape == (2, K, K)
    np.testing.assert_allclose(outcome.history["partial_risks"][0], expected, atol=1e-9)


def test_negative_share_counts_batches():
    outcome = run([make_replica("unbiased", epochs=30, learning_rate=0.1)])[0]
    share, risk = outcome.history["negative_share"], outcome.history["empirical_risk"]
    assert share[0] == 0
    assert share[-1] == 1
    assert risk[-1] < 0
    assert set(np.unique(share * 4).round(9)) <= {0, 1, 2, 3, 4}  # 120 rows in batches of 30


def test_without_risk_weights_the_risk_is_not_a_number():
    outcome = run([make_replica("prop", risk_weights=None, epochs=2)])[0]
    assert np.isnan(outcome.history["empirical_risk"]).all()
    assert np.isnan(outcome.history["negative_share"]).all()
    assert np.isfinite(outcome.history["objective"]).all()


@pytest.mark.parametrize("rate", [1e200, 1e300])
def test_a_diverged_replica_leaves_the_others_unchanged(rate):
    good = [make_replica("u-prr", seed=s) for s in (1, 2)]
    bad = make_replica("unbiased", seed=3, learning_rate=rate)
    stacked = run([good[0], bad, good[1]])
    for replica, outcome in zip(good, [stacked[0], stacked[2]], strict=True):
        assert_same(outcome, run([replica])[0])
    outcome = stacked[1]
    assert outcome.diverged
    assert (
        outcome.stop_reason
        == f"The objective or its gradient was not finite in epoch {outcome.n_epochs}."
    )
    assert len(outcome.history["objective"]) == outcome.n_epochs < 20
    for value in outcome.module.state_dict().values():
        assert torch.isfinite(value).all()
    with pytest.raises(unbag.exceptions.TrainingDivergedError, match=outcome.stop_reason):
        outcome.raise_if_failed()


def test_a_gradient_whose_square_overflows_is_a_divergence():
    X, y = make_data()

    def linear(seed, rows):
        module = mlp(seed, depth=1).float()
        return make_replica("u-prr", data=(rows, y), seed=seed, module=module)

    good = [linear(1, X), linear(2, X)]
    large = [linear(3, 1e25 * X), linear(4, -1e25 * X)]  # 1e50 is no number of 32 bits
    replicas = [large[0], good[0], large[1], good[1]]
    assert len({replica.group for replica in replicas}) == 1
    stacked = train(replicas, device="cpu")
    for replica, outcome in zip(good, stacked[1::2], strict=True):
        assert_same(outcome, train([replica], device="cpu")[0], atol=1e-5)
        assert not outcome.diverged
        assert outcome.n_epochs == 20
    for replica, outcome in zip(large, stacked[::2], strict=True):
        assert np.isfinite(outcome.history["objective"]).all()  # unlike the gradient
        assert outcome.diverged
        assert outcome.n_epochs == 1
        for name, value in outcome.module.state_dict().items():
            assert torch.equal(value, replica.module.state_dict()[name])  # the last finite ones
        with pytest.raises(unbag.exceptions.TrainingDivergedError, match="large values in X"):
            outcome.raise_if_failed()


def test_training_ends_when_every_replica_has_ended():
    bad = [make_replica("unbiased", seed=s, learning_rate=1e300, epochs=10**6) for s in (1, 2)]
    assert all(outcome.diverged for outcome in run(bad))


def test_a_risk_without_bound_is_named_as_the_cause():
    outcome = run([make_replica("unbiased", epochs=1)])[0]
    outcome.raise_if_failed()
    risk = np.array([1.0, -1e30])
    failed = type(outcome)(outcome.module, {"empirical_risk": risk}, 2, "it failed", True)
    with pytest.raises(unbag.exceptions.TrainingDivergedError, match=r"minus infinity.*u-prr"):
        failed.raise_if_failed()


def test_stopping_when_the_risk_is_negative():
    settings = {"learning_rate": 3e-2, "epochs": 30, "seed": 4}
    stopping = make_replica("u-stop", stop_when_negative=True, **settings)
    free = make_replica("unbiased", **settings)
    stopped, other = run([stopping, free])
    risk = other.history["empirical_risk"]
    last = int(np.flatnonzero(risk < 0)[0]) + 1
    assert 1 < last < 30
    assert stopped.n_epochs == last
    assert (
        stopped.stop_reason == f"Stopped after {last} epochs: the mean empirical risk was negative."
    )
    assert not stopped.diverged
    assert (stopped.history["empirical_risk"][:-1] >= 0).all()
    assert other.n_epochs == 30
    assert other.stop_reason == "All 30 epochs were run."
    for name, values in stopped.history.items():
        np.testing.assert_allclose(values, other.history[name][:last], atol=1e-12, err_msg=name)
    # The weights are those at the end of that epoch, though the neighbour went on.
    shorter = run([dataclasses.replace(free, epochs=last)])[0]
    for name, value in shorter.module.state_dict().items():
        torch.testing.assert_close(stopped.module.state_dict()[name], value, rtol=0, atol=1e-12)


class WithDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(D, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.4)
        self.last = nn.Linear(8, K)

    def forward(self, x):
        return self.last(self.drop(self.norm(torch.relu(self.first(x)))))


def test_a_module_of_the_users_alone_equals_in_a_stack():
    replicas = []
    for seed in range(3):
        torch.manual_seed(seed)
        replicas.append(make_replica("u-prr", seed=seed, module=WithDropout().double(), epochs=5))
    before = torch.random.get_rng_state()
    stacked = run(replicas)
    assert torch.equal(torch.random.get_rng_state(), before)
    for replica, outcome in zip(replicas, stacked, strict=True):
        assert isinstance(outcome.module, WithDropout)
        assert_same(outcome, run([replica])[0])
        assert outcome.history["objective"][-1] < outcome.history["objective"][0]
        for tensor, first in zip(
            outcome.module.parameters(), replica.module.parameters(), strict=True
        ):
            assert not torch.equal(tensor, first)


def sequential(activation, dropout):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(D, 8), activation, nn.Dropout(dropout), nn.Linear(8, K)).double()


class Scaled(nn.Module):
    def __init__(self, scale, activation):
        super().__init__()
        self.linear, self.scale, self.activation = nn.Linear(D, K), scale, activation

    def forward(self, x):
        return self.scale * self.activation(self.linear(x))


def test_modules_of_one_class_keep_their_own_settings():
    modules = []
    for settings in ((1.0, torch.tanh), (3.0, torch.tanh), (1.0, torch.relu)):
        torch.manual_seed(0)
        modules.append(Scaled(*settings).double())
    replicas = [make_replica("u-prr", module=module, epochs=3) for module in modules]
    for replica, outcome in zip(replicas, run(replicas), strict=True):
        assert_same(outcome, run([replica])[0])


def test_modules_of_equal_shapes_keep_their_own_layers():
    modules = [sequential(nn.ReLU(), 0.0), sequential(nn.Tanh(), 0.0), sequential(nn.Tanh(), 0.5)]
    replicas = [make_replica("u-prr", module=module, epochs=3) for module in modules]
    for replica, outcome in zip(replicas, run(replicas), strict=True):
        assert_same(outcome, run([replica])[0])


class Smooth(MLP):
    def forward(self, x):
        for linear, norm in zip(self.linears[:-1], self.norms, strict=True):
            x = norm(torch.tanh(linear(x)))
        return self.linears[-1](x)


def test_a_subclass_of_our_module_keeps_its_own_forward_pass():
    modules = [mlp(0), Smooth(D, K, width=6).double()]
    modules[1].load_state_dict(modules[0].state_dict())
    replicas = [make_replica("u-prr", module=module, epochs=3) for module in modules]
    outcomes = run(replicas)
    for replica, outcome in zip(replicas, outcomes, strict=True):
        assert_same(outcome, run([replica])[0])
    one, other = (outcome.history["objective"] for outcome in outcomes)
    assert not np.allclose(one, other)


def images(n=24, channels=3):
    rng = np.random.default_rng(0)
    y = np.arange(n) % K
    shape = (n, channels, 8, 8)
    return rng.integers(0, 60, shape, dtype=np.uint8) + (90 * y[:, None, None, None]).astype(
        np.uint8
    ), y


def image_replica(X, y, module, **settings):
    bags = unbag.make_bags(X, y, unbag.priors.symmetric(K, 0.7), random_state=0)
    objective = objectives.get("u-prr", bags.priors, test_prior=bags.pooled_prior)
    return Replica(
        bags,
        objective,
        module,
        **{"seed": 0, "epochs": 1, "batch_size": 12, "learning_rate": 1e-2, **settings},
    )


def test_resnet_trains_on_images_of_bytes():
    torch.manual_seed(0)
    module = unbag.models.ResNet20(3, K)
    outcome = train([image_replica(*images(), module, epochs=2)], device="cpu")[0]
    assert np.isfinite(outcome.history["objective"]).all()
    assert not torch.equal(outcome.module.conv.weight, module.conv.weight)
    assert not outcome.module.training


def test_bytes_are_scaled_to_the_unit_interval():
    X, y = images()
    torch.manual_seed(0)
    module = MLP(3 * 64, K, width=5).double()
    bytes_, floats = (
        run([image_replica(rows, y, module, epochs=3, test=TestSet(rows, y))])[0]
        for rows in (X, X / 255)
    )
    assert_same(bytes_, floats, atol=1e-12)


def test_bytes_are_not_tested_with_numbers():
    X, y = images()
    module = MLP(3 * 64, K, width=5)
    with pytest.raises(unbag.exceptions.InvalidInputError, match=r"test\.X must be of type uint8"):
        image_replica(X, y, module, test=TestSet(X / 255, y))
    image_replica(X, y, module, test=TestSet(torch.tensor(X), y))


def test_tensors_train_like_arrays():
    X, y = make_data()
    array, tensor = (make_replica("u-prr", data=(rows, y)) for rows in (X, torch.tensor(X)))
    assert_same(*run([array, tensor]), atol=0)


def test_test_errors():
    X, y = make_data(60, seed=9)
    replica = make_replica("u-prr", epochs=5, test=TestSet(X, y))
    outcome = run([replica])[0]
    with torch.no_grad():
        predicted = outcome.module(torch.tensor(X)).argmax(1).numpy()
    assert outcome.history["test_error"][-1] == pytest.approx((predicted != y).mean())
    every = run([replica], test_every=2)[0].history["test_error"]
    assert np.isnan(every).tolist() == [True, False, True, False, False]
    np.testing.assert_allclose(every[1::2], outcome.history["test_error"][1::2])
    untested = run([make_replica("u-prr", epochs=5)])[0]
    assert "test_error" not in untested.history
    np.testing.assert_array_equal(untested.history["objective"], outcome.history["objective"])


def test_the_test_error_is_taken_under_the_shifted_logits():
    X, y = make_data(60, seed=9)
    pi = np.array([1e-22, 1.0, 1e-22])  # everything becomes class 1
    replica = make_replica("u-prr", epochs=1, test=TestSet(X, y), test_prior=pi)
    replica = dataclasses.replace(replica, output_prior=np.full(K, 1 / K))
    np.testing.assert_allclose(replica.logit_shift, np.log(pi * K))
    outcome = run([replica])[0]
    assert outcome.history["test_error"][0] == pytest.approx((y != 1).mean())


def test_label_free_errors_of_rows_held_out():
    theta = [unbag.priors.asymmetric(K, 0), unbag.priors.non_square(K, 1)]
    replicas, expected = [], []
    for i, sizes in enumerate([40, [5, 1, 9, 20, 8, 3]]):
        bags = unbag.make_bags(*make_data(240, seed=5), theta[i], sizes=sizes, random_state=i)
        pi = np.array([0.5, 0.3, 0.2])
        replicas.append(
            make_replica("u-prr", theta[i], seed=i, epochs=3, held_out=bags, test_prior=pi)
        )
        expected.append((bags, pi))
    # One stack, though the numbers of rows and bags differ.
    for outcome, (bags, pi) in zip(run(replicas), expected, strict=True):
        with torch.no_grad():
            predicted = outcome.module(torch.tensor(bags.X)).argmax(1).numpy()
        accuracy = label_free_accuracy(predicted, bags.bag_index, bags.priors, pi)
        assert outcome.history["label_free_error"][-1] == pytest.approx(1 - accuracy, abs=1e-12)
        assert len(outcome.history["label_free_error"]) == 3


def test_the_weights_of_the_best_epoch_are_kept():
    data = make_data(240, seed=5)
    replicas = []
    for seed in range(3):
        held_out = unbag.make_bags(*data, unbag.priors.asymmetric(K, 0), random_state=9)
        replicas.append(
            make_replica(
                "unbiased", seed=seed, epochs=40, held_out=held_out, patience=4, learning_rate=0.03
            )
        )
    outcomes = run(replicas)
    for replica, outcome in zip(replicas, outcomes, strict=True):
        errors = outcome.history["label_free_error"]
        best = int(errors.argmin()) + 1
        assert outcome.best_epoch == best
        assert outcome.n_epochs == min(best + 4, 40)
        # The module is that of the best epoch: what it predicts has that error.
        bags = replica.held_out
        with torch.no_grad():
            predicted = outcome.module(torch.tensor(bags.X)).argmax(1).numpy()
        accuracy = label_free_accuracy(predicted, bags.bag_index, bags.priors)
        assert 1 - accuracy == pytest.approx(errors.min(), abs=1e-12)
        shorter = run([dataclasses.replace(replica, epochs=best, patience=None)])[0]
        for tensor, other in zip(
            outcome.module.parameters(), shorter.module.parameters(), strict=True
        ):
            torch.testing.assert_close(tensor, other, rtol=0, atol=1e-9)
    assert any(outcome.n_epochs < 40 for outcome in outcomes)
    stopped = next(outcome for outcome in outcomes if outcome.n_epochs < 40)
    assert stopped.stop_reason.endswith(
        " epochs: the label-free error no longer fell (patience 4)."
    )


def test_a_run_with_patience_goes_on_after_a_crash(monkeypatch, tmp_path):
    held_out = unbag.make_bags(*make_data(240, 5), unbag.priors.asymmetric(K, 0), random_state=9)
    replica = make_replica("unbiased", epochs=30, held_out=held_out, patience=30)
    whole = run([replica])[0]

    class CrashError(Exception):
        pass

    def crash(self, epoch):
        if epoch == 20:
            raise CrashError
        return original(self, epoch)

    original = Stack.run_epoch
    monkeypatch.setattr(Stack, "run_epoch", crash)
    with pytest.raises(CrashError):
        run([replica], checkpoint=tmp_path, checkpoint_seconds=0.0)
    monkeypatch.undo()
    again = run([replica], checkpoint=tmp_path)[0]
    assert_same(whole, again, atol=0)
    assert whole.best_epoch == again.best_epoch


def test_patience_needs_rows_held_out():
    with pytest.raises(unbag.exceptions.InvalidInputError, match="held_out must be given together"):
        make_replica("u-prr", patience=3)


def test_rows_held_out_must_be_like_those_trained_on():
    X, y = make_data()
    bags = unbag.make_bags(X[:, :3], y, unbag.priors.asymmetric(K, 0), random_state=0)
    with pytest.raises(unbag.exceptions.InvalidInputError, match=r"held_out\.X must be of rows"):
        make_replica("u-prr", held_out=bags)


@pytest.mark.parametrize("batching", list(BATCHINGS))
def test_bags_of_one_row_and_batches_larger_than_the_data(batching):
    theta = np.eye(K)[[0, 1, 2, 0, 1, 2, 0]] * 0.7 + 0.1
    replica = make_replica("u-prr", theta, sizes=1, batching=batching, batch_size=1000, epochs=3)
    assert replica.rows_per_batch == 7
    outcome = run([replica])[0]
    assert np.isfinite(outcome.history["objective"]).all()
    assert outcome.history["partial_risks"].shape == (3, 7, K)


@pytest.mark.parametrize("batch_size", [1, 7, 119, 120])
def test_any_batch_size(batch_size):
    replica = make_replica("u-prr", batch_size=batch_size, epochs=2)
    assert np.isfinite(run([replica])[0].history["objective"]).all()


def test_settings_are_checked():
    for name, value in [
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("weight_decay", -1.0),
        ("batching", "other"),
    ]:
        with pytest.raises(unbag.exceptions.InvalidInputError, match=name):
            make_replica("u-prr", **{name: value})


def test_networks_that_run_one_after_another_are_stacks_of_one_on_a_gpu():
    images = np.random.default_rng(0).normal(size=(60, 1, 8, 8)), np.arange(60) % K
    replica = make_replica("unbiased", data=images, module=ResNet20(1, K))
    assert _replicas_per_stack(replica, torch.device("cuda")) == 1
    assert replica.widths == [p.shape[0] * 16 for p in replica.module.parameters() if p.ndim > 1]
    assert make_replica("unbiased").widths[-1] == K


def test_only_long_trainings_are_worth_compiling(monkeypatch):
    # 20 epochs of 4 batches; 30 rows of 6 + 6 + 3 numbers, and 117 weights.
    cases = (("unbiased", 1, 45_360), ("unbiased", 2, 90_720), ("prop-cr", 1, 3 * 45_360))
    for method, n_replicas, numbers in cases:
        replicas = [make_replica(method, seed=seed) for seed in range(n_replicas)]
        stack = Stack(replicas, torch.device("cpu"), "float64")
        for limit, long in ((numbers - 1, True), (numbers, False)):
            monkeypatch.setattr(engine, "_COMPILED_FROM", limit)
            assert stack._is_long() == long
