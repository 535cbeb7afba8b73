import numpy as np
import pytest
import torch

from unbag.bags import Bags
from unbag.exceptions import InvalidInputError
from unbag.methods import Job, fit_many
from unbag.training import resolve_device, train
from unbag.training.engine import Stack


def test_device_names():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto").type == expected
    with pytest.raises(InvalidInputError, match=r"device must be 'auto', 'cpu'.*got 'gpu'"):
        resolve_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none():
    with pytest.raises(InvalidInputError, match=r"device .* got 'cuda'; use 'cpu'"):
        train([], device="cuda")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"precision": "float16"}, "precision must be one of"), ({"test_every": 0}, "test_every")],
)
def test_options_are_checked(options, message):
    with pytest.raises(InvalidInputError, match=message):
        train([], device="cpu", **options)


def test_nothing_to_train():
    assert train([], device="cpu") == []


def test_the_matmul_precision_is_left_as_it_was():
    before = torch.get_float32_matmul_precision()
    train([], device="cpu", precision="tf32")
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(("batch_size", "threads"), [(64, 1), (4000, 2)])
def test_small_networks_have_one_thread(batch_size, threads, monkeypatch):
    seen = []
    run_epoch = Stack.run_epoch

    def look(stack, epoch):
        seen.append(torch.get_num_threads())
        run_epoch(stack, epoch)

    monkeypatch.setattr(Stack, "run_epoch", look)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        bags = Bags(np.random.default_rng(0).normal(size=(4000, 2)), np.arange(4000) % 2, np.eye(2))
        job = Job(bags, "prop", epochs=1, batch_size=batch_size, model_options={"width": 32})
        fit_many([job], device="cpu")
        assert seen == [threads]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
