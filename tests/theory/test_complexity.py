import math

import numpy as np
import pytest
import torch
from torch import nn

from unbag.exceptions import InvalidInputError
from unbag.models import MLP
from unbag.theory import (
    NormComplexity,
    fold_batch_norm,
    mlp_complexity,
)


def root(n):
    return 1 / math.sqrt(n)


def random_mlp(depth, width=6, n_features=4, n_classes=3, seed=0):
    torch.manual_seed(seed)
    net = MLP(n_features, n_classes, depth=depth, width=width)
    for norm in net.blocks()[1]:
        for tensor in (norm.weight, norm.bias, norm.running_mean):
            nn.init.normal_(tensor)  # scales of both signs
        nn.init.uniform_(norm.running_var, 0.1, 3.0)
    return net.double().eval()


def run(layers, x):
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ weight.T + bias, 0)
    weight, bias = layers[-1]
    return x @ weight.T + bias


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_folded_layers_compute_the_same(depth):
    net = random_mlp(depth)
    x = torch.randn(50, 4, dtype=torch.float64)
    layers = fold_batch_norm(net)
    assert len(layers) == depth
    np.testing.assert_allclose(run(layers, x.numpy()), net(x).detach().numpy(), atol=1e-12)


def set_layers(net, layers):
    """Give a network these layers, and normalisations that do nothing."""
    linears, norms = net.blocks()
    with torch.no_grad():
        for linear, (weight, bias) in zip(linears, layers, strict=True):
            linear.weight.copy_(torch.as_tensor(weight))
            linear.bias.copy_(torch.as_tensor(bias))
        for norm in norms:
            norm.running_mean.zero_()
            norm.running_var.fill_(1 - norm.eps)
            norm.weight.fill_(1.0)
            norm.bias.zero_()
    return net


def test_without_biases_two_layers_have_the_path_norm():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(6, 4)), rng.normal(size=(3, 6))
    net = set_layers(random_mlp(2), [(first, np.zeros(6)), (second, np.zeros(3))])
    complexity = mlp_complexity(net, radius=2.5)
    paths = np.linalg.norm(first, axis=1) @ np.linalg.norm(second, axis=0)
    assert complexity.depth == 2
    assert np.linalg.norm(complexity.products) == pytest.approx(2.5 * paths)


def test_a_linear_model_with_a_bias():
    # min over c of √(B² + c²) √(‖W‖² + ‖b‖²/c²) is B ‖W‖ + ‖b‖.
    weight, bias = np.array([[3.0, 0.0], [0.0, 4.0]]), np.array([0.0, 2.0])
    net = set_layers(MLP(2, 2, depth=1).double(), [(weight, bias)])
    products = mlp_complexity(net, radius=10.0).products
    assert np.linalg.norm(products) == pytest.approx(10 * 5 + 2)


@pytest.mark.parametrize("depth", [2, 4])
def test_the_product_does_not_depend_on_how_the_function_is_written(depth):
    net = random_mlp(depth)
    layers = fold_batch_norm(net)
    rng = np.random.default_rng(0)
    scaled = [(weight.copy(), bias.copy()) for weight, bias in layers]
    for j in range(depth - 1):
        t = rng.lognormal(sigma=2, size=len(scaled[j][1]))
        scaled[j] = (scaled[j][0] * t[:, None], scaled[j][1] * t)
        scaled[j + 1] = (scaled[j + 1][0] / t, scaled[j + 1][1])
    other = set_layers(random_mlp(depth), scaled)
    x = torch.randn(20, 4, dtype=torch.float64)
    torch.testing.assert_close(other(x), net(x), atol=1e-8, rtol=1e-8)
    expected = mlp_complexity(net, 3.0).products
    np.testing.assert_allclose(mlp_complexity(other, 3.0).products, expected, rtol=1e-4)
    plain = math.hypot(3.0, 1.0) * math.prod(
        math.sqrt((weight**2).sum() + (bias**2).sum() + (j < depth - 1))
        for j, (weight, bias) in enumerate(layers)
    )
    assert np.linalg.norm(expected) < plain


def test_units_that_do_nothing_add_nothing():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(6, 4)), rng.normal(size=(3, 6))
    b1, b2 = rng.normal(size=6), rng.normal(size=3)
    first[0], b1[0], second[:, 1] = 0, 0, 0  # one is never on, one is never read
    net = set_layers(random_mlp(2), [(first, b1), (second, b2)])
    small = set_layers(random_mlp(2, width=4), [(first[2:], b1[2:]), (second[:, 2:], b2)])
    np.testing.assert_allclose(
        mlp_complexity(net, 1.0).products, mlp_complexity(small, 1.0).products, rtol=1e-6
    )
    zero = set_layers(random_mlp(2), [(first, b1), (0 * second, 0 * b2)])
    assert mlp_complexity(zero, 1.0).products == (0.0, 0.0, 0.0)


def test_the_complexity_of_two_layers_against_the_exact_one():
    # Of two layers with ‖W_1‖_F |w_2| ≤ P the best are those of one unit: P max_u |Σ ε_i σ(u·x_i)|
    # over unit vectors u, which a grid of angles finds in the plane.
    rng, n = np.random.default_rng(0), 50
    angles = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    directions = np.stack([np.cos(angles), np.sin(angles)])  # (2, angles)
    x = rng.normal(size=(n, 2))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    signs = rng.choice([-1.0, 1.0], size=(2000, n))
    exact = np.abs(signs @ np.maximum(x @ directions, 0)).max(1).mean() / n
    bound = NormComplexity(depth=2, products=(1.0,))(n)[0]
    assert exact <= bound <= 4 * exact


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NormComplexity(0, (1.0,)), "depth must be a whole number"),
        (lambda: NormComplexity(1, (-1.0,)), "products must be a number of at least 0"),
        (lambda: NormComplexity(1, (1.0,))(0), "n must be a whole number of at least 1"),
        (lambda: mlp_complexity(nn.Linear(2, 2), 1.0), "MLP, got Linear; give the complexity as"),
        (lambda: mlp_complexity(MLP(2, 2), 0.0), "radius must be a number above 0"),
    ],
)
def test_messages(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()
