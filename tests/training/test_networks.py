"""Stacked networks against plain torch modules."""

import numpy as np
import pytest
import torch
from torch import nn

import unbag
from unbag import objectives
from unbag.models import MLP, ResNet20
from unbag.training import Replica, train
from unbag.training.networks import StackedModules, stack_modules
from unbag.training.normalisation import _RectifyAndNormalize
from unbag.training.randomness import seed_keys

CPU = torch.device("cpu")


def mlps(n, **options):
    calls = []
    for seed in range(n):
        torch.manual_seed(seed)
        module = MLP(6, 3, width=5, **options).double()
        for norm in module.norms:
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
        calls.append(module)
    return calls


def stack(modules, row_shape=(2, 3)):
    return stack_modules(modules, CPU, torch.float64, torch.float64, row_shape)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("training", [False, True])
def test_stacked_forward_gradient_and_running_statistics(depth, training):
    modules = mlps(3, depth=depth)
    network = stack(modules)
    x = torch.randn(3, 7, 2, 3, dtype=torch.float64)
    keys = seed_keys([0, 1, 2], CPU)
    logits = network.forward(x, keys, 0, training=training)
    gradients = torch.autograd.grad(logits.square().sum(), network.parameters)
    joined = network.join(gradients)
    for r, module in enumerate(modules):
        module.train(training)
        plain = module(x[r])
        torch.testing.assert_close(logits[r], plain, rtol=0, atol=1e-12)
        plain.square().sum().backward()
        lengths = sorted(p.grad.double().norm().item() for p in module.parameters())
        total = sum(length**2 for length in lengths) ** 0.5
        assert joined[r].norm().item() == pytest.approx(total, rel=1e-10)
        extracted = network.extract(r)
        assert not extracted.training
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                torch.testing.assert_close(extracted.state_dict()[name], value)


def test_untracked_forward_leaves_running_statistics():
    network = stack(mlps(2))
    before = network.buffers.clone()
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    keys = seed_keys([0, 1], CPU)
    untracked = network.forward(x, keys, 0, training=True, track=False)
    assert torch.equal(network.buffers, before)
    tracked = network.forward(x, keys, 0, training=True)
    assert torch.equal(tracked, untracked)
    assert not torch.equal(network.buffers, before)


def test_dropout_has_its_rate_and_keeps_the_mean():
    rates = [0.0, 0.2, 0.6]
    modules = [MLP(4, 3, depth=2, width=2000, dropout=rate).double() for rate in rates]
    for module in modules:  # the output is the mean of the hidden units, which are all one
        nn.init.zeros_(module.norms[0].weight)
        nn.init.ones_(module.norms[0].bias)
        nn.init.constant_(module.linears[1].weight, 1 / 2000)
        nn.init.zeros_(module.linears[1].bias)
    network = stack(modules)
    x = torch.zeros(3, 50, 4, dtype=torch.float64)
    keys = seed_keys([0, 1, 2], CPU)
    first = network.forward(x, keys, 0, training=True)[..., 0].detach()
    for rate, rows in zip(rates, first, strict=True):
        deviation = (rate / (1 - rate) / 2000) ** 0.5
        assert abs(float(rows.mean()) - 1) <= 5 * deviation / 50**0.5 + 1e-9
        assert float(rows.std()) == pytest.approx(deviation, rel=0.4, abs=1e-12)
    assert torch.equal(network.forward(x, keys, 0, training=True)[..., 0], first)
    assert not torch.equal(network.forward(x, keys, 1, training=True)[..., 0], first)
    evaluated = network.forward(x, keys, 1, training=False)[..., 0].detach()
    torch.testing.assert_close(evaluated, torch.ones_like(first))


def test_modules_of_other_kinds_run_as_they_are():
    torch.manual_seed(0)
    modules = [ResNet20(1, 3).double() for _ in range(2)]
    network = stack(modules, (8, 8))
    x = torch.rand(2, 4, 8, 8, dtype=torch.float64)
    keys = seed_keys([0, 1], CPU)
    logits = network.forward(x, keys, 0, training=True)
    for r, module in enumerate(modules):
        torch.testing.assert_close(logits[r], module.train()(x[r]), rtol=0, atol=1e-12)
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                torch.testing.assert_close(network.extract(r).state_dict()[name], value)
    with torch.no_grad():
        logits = network.forward(x, keys, 0, training=False)
    torch.testing.assert_close(logits[1], modules[1].eval()(x[1]), rtol=0, atol=1e-12)


def test_extracted_modules_are_copies():
    modules = mlps(2)
    network = stack(modules)
    kept = [p.clone() for p in modules[0].parameters()]
    extracted = network.extract(0)
    with torch.no_grad():
        network.weights.add_(1)
    for tensor, expected, before in zip(
        extracted.parameters(), modules[0].parameters(), kept, strict=True
    ):
        assert torch.equal(tensor, before)
        assert torch.equal(expected, before)


def rectify_inputs(units=5, n=7, replicas=2):
    """Rows, bias, scale and shift; the first unit is never on, the second always."""
    torch.manual_seed(0)
    shapes = [(replicas, n, units), *[(replicas, 1, units)] * 3]
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    tensors[1][..., 0], tensors[1][..., 1] = -50, 50
    return [value.requires_grad_() for value in tensors]


def test_gradient_of_rectified_normalisation_in_closed_form():
    inputs = rectify_inputs()
    assert torch.autograd.gradcheck(
        lambda *given: _RectifyAndNormalize.apply(*given, None)[0], inputs
    )


def test_rectified_normalisation_equals_torchs():
    inputs = rectify_inputs()
    out, mean, var = _RectifyAndNormalize.apply(*inputs, None)
    incoming = torch.randn_like(out)
    gradients = torch.autograd.grad(out, inputs, incoming)
    for r in range(2):
        x, bias, scale, shift = (value[r].detach().requires_grad_() for value in inputs)
        norm = nn.BatchNorm1d(5, momentum=1.0).double()
        norm.weight, norm.bias = nn.Parameter(scale[0]), nn.Parameter(shift[0])
        plain = norm(torch.relu(x + bias))
        torch.testing.assert_close(out[r], plain, rtol=0, atol=1e-12)
        torch.testing.assert_close(mean[r, 0], norm.running_mean, rtol=0, atol=1e-12)
        torch.testing.assert_close(var[r, 0] * 7 / 6, norm.running_var, rtol=0, atol=1e-12)
        expected = torch.autograd.grad(plain, (x, bias, norm.weight, norm.bias), incoming[r])
        for gradient, other in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient[r].view(other.shape), other, rtol=1e-10, atol=1e-10)


class Own(nn.Module):
    """A module of the user's, with parts that not every module has."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(6, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 3)
        self.unused = nn.Parameter(torch.randn(4))
        scale = torch.linspace(0.5, 2 + seed, 5)
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, x):
        return self.last(self.scale * self.norm(torch.relu(self.first(x))))


def replica_of(module, **settings):
    X = np.random.default_rng(0).normal(size=(60, 6)) + 2 * np.eye(3, 6)[np.arange(60) % 3]
    bags = unbag.make_bags(X, np.arange(60) % 3, unbag.priors.symmetric(3, 0.6), random_state=0)
    objective = objectives.get("unbiased", bags.priors, test_prior=bags.pooled_prior)
    defaults = {"seed": 0, "epochs": 6, "batch_size": 60, "learning_rate": 1e-2}
    return Replica(bags, objective, module, **{**defaults, **settings})


def train_plainly(replica, module):
    """The same training of all rows at once, by torch's own Adam."""
    expected = [p for p in module.parameters() if p.requires_grad]
    adam = torch.optim.Adam(expected, lr=replica.learning_rate)
    x, bag_index = torch.tensor(replica.bags.X), torch.tensor(replica.bags.bag_index)
    module.train()
    for _ in range(replica.epochs):
        adam.zero_grad()
        replica.objective(module(x), bag_index).backward()
        adam.step()
    return module.eval()


def assert_equal_modules(one, other):
    assert one.state_dict().keys() == other.state_dict().keys()
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=0, atol=1e-9)


def test_frozen_parameters_stay_and_the_others_train():
    modules = [Own(seed).double() for seed in range(2)]
    for module in modules:
        module.first.requires_grad_(False)
        module.norm.bias.requires_grad_(False)
    frozen = {"first.weight", "first.bias", "norm.bias"}
    replicas = [replica_of(module) for module in modules]
    outcomes = train(replicas, device="cpu", precision="float64")
    for replica, module, outcome in zip(replicas, modules, outcomes, strict=True):
        for name, value in outcome.module.named_parameters():
            unchanged = torch.equal(value, module.get_parameter(name))
            assert unchanged == (name in frozen or name == "unused"), name
            assert value.requires_grad == (name not in frozen)
        assert_equal_modules(outcome.module, train_plainly(replica, module))


def test_unused_parameters_and_buffers_that_are_not_saved():
    modules = [Own(seed).double() for seed in range(2)]
    replicas = [replica_of(module) for module in modules]
    outcomes = train(replicas, device="cpu", precision="float64")
    x = torch.randn(8, 6, dtype=torch.float64)
    for replica, module, outcome in zip(replicas, modules, outcomes, strict=True):
        assert torch.equal(outcome.module.unused, module.unused)
        assert torch.equal(outcome.module.scale, module.scale)
        plain = train_plainly(replica, module)
        assert_equal_modules(outcome.module, plain)
        torch.testing.assert_close(outcome.module(x), plain(x), rtol=0, atol=1e-9)


def sequential(activation):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), activation, nn.Linear(5, 3)).double()


def test_equal_tensors_with_other_layers_train_as_their_own():
    modules = [sequential(nn.ReLU()), sequential(nn.Tanh())]
    assert_equal_modules(*modules)
    replicas = [replica_of(module) for module in modules]
    outcomes = train(replicas, device="cpu", precision="float64")
    for replica, module, outcome in zip(replicas, modules, outcomes, strict=True):
        assert type(outcome.module[1]) is type(module[1])
        assert_equal_modules(outcome.module, train_plainly(replica, module))
    one, other = outcomes
    assert not torch.allclose(one.module[0].weight, other.module[0].weight)


class Smooth(MLP):
    def forward(self, x):
        for linear, norm in zip(self.linears[:-1], self.norms, strict=True):
            x = norm(torch.tanh(linear(x)))
        return self.linears[-1](x)


def test_a_subclass_is_run_by_its_own_forward_pass():
    plain = mlps(1)[0]
    smooth = Smooth(6, 3, width=5).double()
    smooth.load_state_dict(plain.state_dict())
    network = stack([plain, smooth])
    assert isinstance(network, StackedModules)
    x = torch.randn(1, 9, 6, dtype=torch.float64).expand(2, -1, -1)
    logits = network.forward(x, seed_keys([0, 1], CPU), 0, training=True)
    for r, module in enumerate((plain, smooth)):
        torch.testing.assert_close(logits[r], module.train()(x[r]), rtol=0, atol=1e-12)
    assert not torch.allclose(logits[0], logits[1])
    replica = replica_of(smooth)
    outcome = train([replica], device="cpu", precision="float64")[0]
    assert type(outcome.module) is Smooth
    assert_equal_modules(outcome.module, train_plainly(replica, smooth))
