"""Soft labels, mixup, smoothing, annealed rates and predicted rows, against plain torch."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

import unbag
from unbag.exceptions import InvalidInputError
from unbag.fingerprint import fingerprint
from unbag.models import MLP
from unbag.objectives.consistency import consistency_weight
from unbag.training import Augmentation, Replica, train
from unbag.training.augmentation import augment
from unbag.training.randomness import derive, seed_keys, uniform

N, D, K = 40, 4, 3
PROP = unbag.objectives.get("prop", np.eye(2))


def make_replica(seed=0, n=N, **settings):
    rng = np.random.default_rng(seed)
    bags = unbag.Bags(rng.normal(size=(n, D)), np.arange(n) % 2, [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    torch.manual_seed(seed)
    defaults = {
        "bags": bags,
        "objective": None,
        "targets": rng.dirichlet(np.ones(K), size=n).astype(np.float32),
        "module": MLP(D, K, width=5, depth=2).double(),
        "seed": seed,
        "epochs": 6,
        "batch_size": n,
        "learning_rate": 0.02,
        "batching": "shuffled",
    }
    return Replica(**{**defaults, **settings})


def run(replicas, **options):
    return train(replicas, device="cpu", precision="float64", **options)


def plain(replica, *, mixup=False):
    """Train the same model by torch's Adam, all rows in a batch."""
    module = MLP(D, K, width=5, depth=2).double()
    module.load_state_dict(replica.module.state_dict())
    X = torch.as_tensor(replica.bags.X)
    q = torch.from_numpy(replica.targets).double()
    weight = replica.sample_weight
    weight = torch.ones(len(X)).double() if weight is None else torch.from_numpy(weight)
    optimizer = torch.optim.Adam(
        module.parameters(), lr=replica.learning_rate, weight_decay=replica.weight_decay
    )
    keys = seed_keys([replica.seed], torch.device("cpu"))
    losses = []
    for step in range(replica.epochs):
        if replica.annealed:
            rate = replica.learning_rate * (1 + math.cos(math.pi * step / replica.epochs)) / 2
            optimizer.param_groups[0]["lr"] = rate
        x, target, w = X, q, weight
        count = torch.tensor(step, dtype=torch.int32)
        if mixup or replica.augmentation or replica.adversarial_smoothing:
            order = shuffled_order(replica, step)
            x, target, w = X[order], q[order], weight[order]
        if replica.augmentation:
            strong = replica.augmentation.strong
            x = augment(x[None], derive(keys, 105, count), strong=strong, flip=False)[0]
        if mixup:
            share = uniform(derive(keys, 102, count), len(X), 1)[0].double()
            x = share * x + (1 - share) * x.flip(0)
            target = share * target + (1 - share) * target.flip(0)
        logits = module(x)
        loss = -(target * torch.log_softmax(logits, 1)).sum(1)
        loss = (w * loss).sum() / w.sum()
        if replica.adversarial_smoothing:
            noise = uniform(derive(keys, 101, count), len(X), D)[0].double() - 0.5
            share_done = consistency_weight(step / replica.epochs, maximum=1.0)
            loss = loss + share_done * adversarial(
                module, x, logits, noise, replica.adversarial_smoothing
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return module.eval(), losses


def adversarial(module, x, logits, noise, radius):
    """Divergence of the words for rows from those for rows moved where they change most."""
    copied = MLP(D, K, width=5, depth=2).double()  # so that no running statistics change
    copied.load_state_dict(module.state_dict())
    eta = torch.softmax(logits.detach(), 1)
    start = (noise / noise.norm(dim=1, keepdim=True)).requires_grad_()
    away = torch.log_softmax(copied(x + radius * start), 1)
    (gradient,) = torch.autograd.grad((eta * (eta.log() - away)).sum(), start)
    moved = x + radius * gradient / (gradient.norm(dim=1, keepdim=True) + 1e-8)
    tensor = dict(module.named_parameters())
    moved_log_eta = torch.log_softmax(torch.func.functional_call(copied, tensor, (moved,)), 1)
    return (eta * (eta.log() - moved_log_eta)).sum(1).mean()


def shuffled_order(replica, epoch):
    from unbag.training.batches import ShuffledBatches

    index = torch.as_tensor(replica.bags.bag_index)[None]
    keys = seed_keys([replica.seed], torch.device("cpu"))
    (positions,) = ShuffledBatches(index, 2, replica.batch_size, keys).epoch(epoch)
    return positions[0, 0]


@pytest.mark.parametrize("annealed", [False, True])
@pytest.mark.parametrize("mixup", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_training_equals_plain_torch(annealed, mixup, weighted):
    weight = np.random.default_rng(5).uniform(0.5, 2, N) if weighted else None
    replica = make_replica(annealed=annealed, mixup=mixup, weight_decay=0.01, sample_weight=weight)
    (outcome,) = run([replica])
    module, losses = plain(replica, mixup=mixup)
    np.testing.assert_allclose(outcome.history["objective"], losses, rtol=1e-6)
    for tensor, expected in zip(outcome.module.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6)
    # Bags play no part, and the history says so.
    assert np.isnan(outcome.history["partial_risks"]).all()
    assert np.isnan(outcome.history["empirical_risk"]).all()


@pytest.mark.parametrize("mixup", [False, True])
def test_training_on_changed_rows_equals_plain_torch(mixup):
    replica = make_replica(mixup=mixup, augmentation=Augmentation(strong=True))
    (outcome,) = run([replica])
    module, losses = plain(replica, mixup=mixup)
    np.testing.assert_allclose(outcome.history["objective"], losses, rtol=1e-6)
    unchanged = plain(dataclasses.replace(replica, augmentation=None), mixup=mixup)[1]
    assert not np.allclose(losses, unchanged, rtol=1e-3)
    for tensor, expected in zip(outcome.module.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mixup", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_smoothed_training_equals_plain_torch(mixup, weighted):
    weight = np.random.default_rng(5).uniform(0.5, 2, N) if weighted else None
    replica = make_replica(mixup=mixup, adversarial_smoothing=0.7, sample_weight=weight)
    (outcome,) = run([replica])
    module, losses = plain(replica, mixup=mixup)
    np.testing.assert_allclose(outcome.history["objective"], losses, rtol=1e-5)
    rough = run([dataclasses.replace(replica, adversarial_smoothing=0.0)])[0].history["objective"]
    assert not np.allclose(losses, rough, rtol=1e-3)
    for tensor, expected in zip(outcome.module.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-5)
    for tensor, expected in zip(outcome.module.buffers(), module.buffers(), strict=True):
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-5)


def test_a_smoothed_stack_equals_its_members_alone():
    replicas = [
        make_replica(0, adversarial_smoothing=0.7, mixup=True),
        make_replica(1, adversarial_smoothing=0.1),
        make_replica(2, adversarial_smoothing=2.0, annealed=True),
    ]
    assert len({replica.group for replica in [*replicas, make_replica(3)]}) == 2
    for replica, outcome in zip(replicas, run(replicas), strict=True):
        (alone,) = run([replica])
        for tensor, other in zip(
            outcome.module.parameters(), alone.module.parameters(), strict=True
        ):
            torch.testing.assert_close(tensor, other, rtol=0, atol=1e-9)


def test_a_smoothed_network_changes_less_near_its_rows():
    X = torch.as_tensor(make_replica().bags.X)
    near = X + 0.3 * torch.randn(X.shape, generator=torch.Generator().manual_seed(0)).double()

    def change(smoothing):
        replicas = make_replica(epochs=300, adversarial_smoothing=smoothing)
        (outcome,) = run([replicas])
        with torch.no_grad():
            words = [torch.softmax(outcome.module(x), 1) for x in (X, near)]
        return (words[0] - words[1]).abs().mean().item()

    assert change(1.0) < 0.7 * change(0.0)


def test_changed_rows_have_a_stack_of_their_own():
    changes = [None, Augmentation(), Augmentation(strong=True), Augmentation(flip=True)]
    assert len({make_replica(augmentation=settings).group for settings in changes}) == 4


def test_a_mixed_stack_equals_its_members_alone():
    replicas = [
        make_replica(0, annealed=True, mixup=True),
        make_replica(1, mixup=True),
        make_replica(2, annealed=True),
        make_replica(3),
    ]
    assert len({replica.group for replica in replicas}) == 1
    for replica, outcome in zip(replicas, run(replicas), strict=True):
        (alone,) = run([replica])
        for tensor, other in zip(
            outcome.module.parameters(), alone.module.parameters(), strict=True
        ):
            torch.testing.assert_close(tensor, other, rtol=0, atol=1e-9)


def test_one_hot_labels_are_supervised_learning():
    labels = np.arange(N) % K
    X = np.random.default_rng(0).normal(size=(N, D)) + 3 * np.eye(K, D)[labels]
    bags = unbag.Bags(X, labels % 2, [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    replica = make_replica(bags=bags, targets=np.eye(K)[labels], epochs=200)
    (outcome,) = run([replica])
    predicted = outcome.module(torch.from_numpy(X)).argmax(1).numpy()
    assert (predicted == labels).mean() > 0.9


def test_predicted_rows_come_back_with_the_outcome():
    first, second = make_replica(0), make_replica(1)
    some = [second.bags.take(np.array([7, 3, 3])), first.bags.take(np.arange(9))]
    replicas = [
        dataclasses.replace(replica, predicted=rows)
        for replica, rows in zip((first, second), some, strict=True)
    ]
    assert len({replica.group for replica in replicas}) == 1
    for outcome, rows in zip(run(replicas), some, strict=True):
        expected = outcome.module(torch.as_tensor(rows.X)).detach().numpy()
        np.testing.assert_allclose(outcome.logits, expected, rtol=0, atol=1e-9)
    assert run([first])[0].logits is None


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_a_stopped_run_goes_on_with_the_same_result(tmp_path, monkeypatch, smoothing):
    replica = make_replica(annealed=True, mixup=True, adversarial_smoothing=smoothing)
    replica = dataclasses.replace(replica, predicted=replica.bags)
    (whole,) = run([replica])

    class StoppedError(Exception):
        pass

    inner = unbag.training.engine.Stack.run_epoch

    def stop(self, epoch):
        if epoch == 4:
            raise StoppedError
        inner(self, epoch)

    monkeypatch.setattr(unbag.training.engine.Stack, "run_epoch", stop)
    with pytest.raises(StoppedError):
        run([replica], checkpoint=tmp_path, checkpoint_seconds=0)
    monkeypatch.undo()
    (resumed,) = run([replica], checkpoint=tmp_path, checkpoint_seconds=0)
    np.testing.assert_array_equal(resumed.logits, whole.logits)
    (again,) = run([replica], checkpoint=tmp_path)  # loads the end
    np.testing.assert_array_equal(again.logits, whole.logits)


@pytest.mark.parametrize(
    "change",
    [
        {"mixup": True},
        {"annealed": True},
        {"adversarial_smoothing": 0.5},
        {"augmentation": Augmentation()},
        {"targets": np.full((N, K), 1 / K, np.float32)},
    ],
)
def test_other_settings_have_other_checkpoints(change):
    cpu = torch.device("cpu")
    one, other = make_replica(), make_replica(**change)
    assert fingerprint([one], "float64", cpu) != fingerprint([other], "float64", cpu)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"targets": None}, "objective must be exactly one of objective, targets and contrast"),
        (
            {"objective": PROP},
            "objective must be exactly one of objective, targets and contrast",
        ),
        ({"targets": np.ones((N, 2))}, r"targets must be of shape \(40, 3\), got shape \(40, 2\)"),
        ({"mixup": True, "batching": "stratified"}, "batching must be 'shuffled' with mixup"),
        ({"adversarial_smoothing": -1.0}, "adversarial_smoothing must be a number of at least 0"),
        (
            {"adversarial_smoothing": 1.0, "targets": None, "objective": PROP},
            "adversarial_smoothing must be 0 without targets, got 1.0",
        ),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        make_replica(**settings)


def test_a_module_of_the_user_is_trained_on_soft_labels():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(D, K)).double()
    (outcome,) = run([make_replica(module=module, epochs=3)])
    objective = outcome.history["objective"]
    assert objective[-1] < objective[0]
    (smoothed,) = run([make_replica(module=module, epochs=3, adversarial_smoothing=0.5)])
    # Words change less where weights are smaller.
    assert smoothed.module[0].weight.norm() < outcome.module[0].weight.norm()
