from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import unbag
from unbag import statistics
from unbag.exceptions import InvalidInputError
from unbag.objectives import cross_entropy
from unbag.statistics import BagStatistics, _sum_by_product, bag_sum, zero_one_losses

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor made while it is active."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = out if isinstance(out, tuple | list) else [out]
        sizes = [t.numel() for t in tensors if isinstance(t, torch.Tensor)]
        self.numel = max([self.numel, *sizes])
        return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_bags", [5, 100])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_bag_sum_equals_a_loop_whatever_the_leading_dimensions(lead, n_bags, device):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(*lead, 40, 4, dtype=torch.float64, generator=generator)
    bag_index = torch.randint(0, n_bags, (*lead, 40), generator=generator)
    expected = torch.zeros(*lead, n_bags, 4, dtype=torch.float64)
    for position in torch.cartesian_prod(*(torch.arange(s) for s in (*lead, 40))).view(
        -1, len(lead) + 1
    ):
        *replica, row = position.tolist()
        m = bag_index[(*replica, row)]
        expected[(*replica, m)] += values[(*replica, row)]
    got = bag_sum(values.to(device), bag_index.to(device), n_bags)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-12, atol=1e-12)
    product = _sum_by_product(values.to(device), bag_index.to(device), n_bags)
    torch.testing.assert_close(product.cpu(), expected, rtol=1e-12, atol=1e-12)


def test_bag_sum_takes_any_integer_type():
    values = torch.arange(6.0).view(3, 2)
    expected = bag_sum(values, torch.tensor([1, 0, 1]), 2)
    for dtype in (torch.int32, torch.int16, torch.uint8):
        assert torch.equal(bag_sum(values, torch.tensor([1, 0, 1], dtype=dtype), 2), expected)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_no_tensor_of_rows_times_bags_is_ever_made(lead):
    n, n_bags, k = 2000, 500, 5
    logits = torch.randn(*lead, n, k, requires_grad=True)
    bag_index = torch.randint(0, n_bags, (*lead, n))
    with LargestTensor() as largest:
        statistics = BagStatistics(logits, bag_index, n_bags, cross_entropy)
        total = statistics.risks.sum() + statistics.mean_probabilities.sum()
        (total + statistics.zero_one_risks.sum()).backward()
    assert largest.numel == logits.numel()


def test_statistics_of_a_batch_small_enough_to_check_by_hand():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).log_softmax(-1)
    statistics = BagStatistics(logits, torch.tensor([0, 2, 2]), 3, cross_entropy)
    eta = logits.exp()
    assert statistics.counts.tolist() == [1, 0, 2]
    assert statistics.presence.tolist() == [1, 0, 1]
    zeros = torch.zeros(2)
    torch.testing.assert_close(
        statistics.risks, torch.stack([-logits[0], zeros, -logits[1:].mean(0)])
    )
    torch.testing.assert_close(
        statistics.mean_probabilities, torch.stack([eta[0], zeros, eta[1:].mean(0)])
    )
    assert statistics.zero_one_risks.tolist() == [[0, 1], [0, 0], [0.5, 0.5]]
    assert not statistics.zero_one_risks.requires_grad


def test_weights_make_weighted_means_and_a_bag_of_weight_zero_is_absent():
    logits = torch.randn(5, 3, dtype=torch.float64)
    bag_index = torch.tensor([0, 0, 1, 1, 2])
    repeats = torch.tensor([3, 1, 2, 0, 0])
    weighted = BagStatistics(logits, bag_index, 3, cross_entropy, weight=repeats)
    repeated = BagStatistics(
        logits.repeat_interleave(repeats, 0), bag_index.repeat_interleave(repeats), 3, cross_entropy
    )
    for name in ("counts", "presence", "risks", "zero_one_risks", "mean_probabilities"):
        torch.testing.assert_close(getattr(weighted, name), getattr(repeated, name))
    assert weighted.presence.tolist() == [1, 1, 0]
    fractions = BagStatistics(logits, bag_index, 3, cross_entropy, weight=repeats / 10)
    torch.testing.assert_close(fractions.risks, weighted.risks)


def test_the_losses_of_a_batch_are_computed_once():
    calls = []

    def loss(logits):
        calls.append(1)
        return cross_entropy(logits)

    statistics = BagStatistics(torch.zeros(2, 4, 3), torch.zeros(2, 4).long(), 1, loss)
    assert statistics.risks is statistics.risks
    assert statistics.zero_one_risks is statistics.zero_one_risks
    assert statistics.part(slice(1)).risks.shape == (1, 1, 3)
    assert calls == [1]


@pytest.mark.parametrize(
    ("is_cuda", "n_bags", "expected"),
    [(True, 64, "product"), (True, 65, "addition"), (False, 5, "addition")],
)
def test_few_bags_are_summed_by_a_product_on_cuda(is_cuda, n_bags, expected, monkeypatch):
    for name in ("product", "addition"):
        monkeypatch.setattr(f"unbag.statistics._sum_by_{name}", lambda *_, name=name: name)
    assert bag_sum(SimpleNamespace(is_cuda=is_cuda), None, n_bags) == expected


def test_presence_is_one_over_the_chance():
    inclusion = torch.tensor([0.5, 1.0, 0.25])
    statistics = BagStatistics(
        torch.zeros(2, 2), torch.tensor([0, 1]), 3, cross_entropy, inclusion=inclusion
    )
    assert statistics.presence.tolist() == [2, 1, 0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_part_of_a_stack_has_the_statistics_of_its_replicas(weighted, sampled):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 30, 3, dtype=torch.float64, generator=generator)
    bag_index = torch.randint(0, 5, (4, 30), generator=generator)
    weight = torch.rand(4, 30, generator=generator) if weighted else None
    inclusion = torch.rand(4, 5, generator=generator) if sampled else None
    stack = BagStatistics(logits, bag_index, 5, cross_entropy, weight, inclusion)
    part, index = stack.part(slice(1, 3)), slice(1, 3)
    for name in ("counts", "risks", "zero_one_risks", "mean_probabilities", "presence"):
        whole = getattr(stack, name)
        assert whole.shape[0] == 4
        torch.testing.assert_close(getattr(part, name), whole[index])
    if not sampled:
        assert torch.equal(stack.presence, (stack.counts > 0).to(stack.counts))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_counted_and_averaged_in_single(dtype):
    logits = torch.randn(3000, 4).to(dtype).requires_grad_()
    bag_index = torch.arange(3000) % 3
    half = BagStatistics(logits, bag_index, 3, cross_entropy)
    single = BagStatistics(logits.float(), bag_index, 3, cross_entropy)
    assert half.counts.tolist() == [1000, 1000, 1000]
    assert torch.equal(half.risks, single.risks)
    half.risks.sum().backward()
    assert logits.grad.dtype == dtype


def test_zero_one_losses_are_zero_for_the_predicted_class_alone():
    losses = zero_one_losses(torch.tensor([[0.1, 0.7, 0.2], [1.0, 1.0, 0.0]]))
    assert losses.tolist() == [[1, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_right_predictions_have_zero_one_risks_of_one_minus_theta(dtype):
    """The paper's lemma: at the optimum of separable classes E_mk = 1 − θ_mk."""
    theta = [[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]]
    y = torch.arange(3).repeat(100).numpy()
    bags = unbag.make_bags(y[:, None], y, theta, sizes=[100, 50, 60], random_state=0)
    logits = 20 * torch.nn.functional.one_hot(torch.tensor(bags.labels), 3).to(dtype)
    logits.requires_grad_()
    objective = unbag.objectives.get("u-prr", theta, test_prior=[0.2, 0.3, 0.5], alpha=0.0)
    bag_index = torch.tensor(bags.bag_index)
    statistics = objective.statistics(logits, bag_index)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    level = 1 - torch.tensor(theta, dtype=dtype)
    torch.testing.assert_close(statistics.zero_one_risks, level, rtol=0, atol=tolerance)
    # So no entry counts as below its level: the regulariser only descends.
    (gradient,) = torch.autograd.grad(objective(logits, bag_index), logits)
    downward = (objective.risk_weights.to(dtype).abs() * statistics.risks).sum()
    torch.testing.assert_close(gradient, torch.autograd.grad(downward, logits)[0])


def test_a_loss_of_the_wrong_shape_is_refused():
    statistics = BagStatistics(torch.zeros(4, 3), torch.zeros(4).long(), 1, lambda x: x.sum(-1))
    with pytest.raises(InvalidInputError, match=r"loss must be .*\(4, 3\) here, got .*\(4,\)"):
        _ = statistics.risks


def test_statistics_of_a_stack_are_those_of_each_replica():
    logits = torch.randn(2, 30, 3, dtype=torch.float64)
    bag_index = torch.arange(30).repeat(2, 1) % 4
    stacked = BagStatistics(logits, bag_index, 4, cross_entropy)
    for r in range(2):
        alone = BagStatistics(logits[r], bag_index[r], 4, cross_entropy)
        for name in ("risks", "zero_one_risks", "mean_probabilities"):
            torch.testing.assert_close(getattr(stacked, name)[r], getattr(alone, name))


@pytest.mark.parametrize("lead", [(), (2,)])
def test_sums_in_pieces_are_sums(monkeypatch, lead):
    """Of many numbers, in float64 piece by piece: so are the gradients."""
    monkeypatch.setattr(statistics, "_CHUNK", 7)
    values = torch.randn(*lead, 23, 3, requires_grad=True)
    bag_index = torch.randint(0, 4, (*lead, 23))
    found = statistics._wide_bag_sum(values, bag_index, 4)
    assert found.dtype == torch.float64
    expected = bag_sum(values.double(), bag_index, 4)
    torch.testing.assert_close(found, expected)
    factors = torch.randn_like(expected)
    gradients = [torch.autograd.grad((s * factors).sum(), values)[0] for s in (found, expected)]
    assert torch.equal(*gradients)
