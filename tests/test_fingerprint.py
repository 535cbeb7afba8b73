"""Fingerprints: whatever a result depends on changes them, and nothing else does."""

import dataclasses
import functools
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import nn

import unbag
from unbag.fingerprint import fingerprint
from unbag.models import MLP
from unbag.objectives import MatchedLikelihood, Proportion
from unbag.training import Augmentation, Contrast, PseudoLabels, Replica, TestSet

K, D, N = 3, 4, 30
THETA = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6], [0.2, 0.6, 0.2]])


# ---------------------------------------------------------------------------------- any value


def moved(array, place):
    """A copy of an array with one number changed."""
    other = array.copy()
    other[place] += 1e-9
    return other


LONG = np.linspace(0, 1, 4000).reshape(2000, 2)
IDS = [f"bag {m}" for m in range(2000)]
SHARES = np.stack([LONG[:, 0], 1 - LONG[:, 0]], 1)
OTHER_SHARES = SHARES.copy()
OTHER_SHARES[1000] = [0.3, 0.7]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda shares: shares,
        torch.from_numpy,
        lambda shares: torch.from_numpy(shares).bfloat16(),
        lambda shares: pd.DataFrame(shares, index=IDS, columns=["yes", "no"]),
        lambda shares: pl.DataFrame(shares, schema=["yes", "no"]),
        lambda shares: unbag.ClassPriors(shares, IDS, ["yes", "no"]),
        lambda shares: dict(zip(IDS, shares, strict=True)),
        lambda shares: {name: dict(enumerate(row)) for name, row in zip(IDS, shares, strict=True)},
        lambda shares: shares.astype(object),
        lambda shares: pd.Series(shares[:, 0]),
        lambda shares: [shares.tolist(), "and more"],
    ],
    ids=[
        *("array", "tensor", "bfloat16", "pandas", "polars", "ClassPriors", "dict", "nested dict"),
        *("objects", "series", "lists"),
    ],
)
def test_values_that_differ_in_a_middle_row_only(wrap):
    originals, same, other = wrap(SHARES), wrap(SHARES.copy()), wrap(OTHER_SHARES)
    assert fingerprint(originals) == fingerprint(same)
    assert fingerprint(originals) != fingerprint(other)


def test_names_of_rows_and_columns_count():
    frames = [
        pd.DataFrame(SHARES, index=IDS, columns=["yes", "no"]),
        pd.DataFrame(SHARES, index=IDS, columns=["no", "yes"]),
        pd.DataFrame(SHARES, index=[*IDS[:-1], "last"], columns=["yes", "no"]),
        pl.DataFrame(SHARES, schema=["yes", "no"]),
        pl.DataFrame(SHARES, schema=["no", "yes"]),
    ]
    assert len({fingerprint(frame) for frame in frames}) == len(frames)


@dataclasses.dataclass
class Settings:
    rate: float
    note: str = dataclasses.field(default="", metadata={"fingerprint": False})


class Other:
    def __init__(self, value):
        self.value = value

    def double(self, x):
        return 2 * x * self.value


def power(x, exponent=2):
    return x**exponent


DISTINCT = {
    "none": None,
    "no": False,
    "zero": 0,
    "zero float": 0.0,
    "zero text": "0",
    "zero bytes": b"0",
    "zero scalar": np.float64(0),
    "zeros": np.zeros(2),
    "zeros in a column": np.zeros((2, 1)),
    "small zeros": np.zeros(2, np.float32),
    "empty": [],
    "nested empty": [[]],
    "empty dict": {},
    "texts": ["ab", "c"],
    "other texts": ["a", "bc"],
    "day": date(2024, 1, 1),
    "time": datetime(2024, 1, 1),
    "path": Path("a"),
    "set": {1, 2},
    "other set": {1, 3},
    "dict": {"a": 1},
    "other key": {"b": 1},
    "settings": Settings(0.1),
    "other settings": Settings(0.2),
    "object": Other(1),
    "other object": Other(2),
    "class": Other,
    "method of an object": Other(1).double,
    "method of another": Other(2).double,
    "function": power,
    "part": functools.partial(power, exponent=3),
    "other part": functools.partial(power, exponent=4),
    "builtin": torch.relu,
    "other builtin": torch.tanh,
    "type": torch.float32,
    "device": torch.device("cpu"),
    "estimator": unbag.UnbagClassifier(epochs=1),
    "other estimator": unbag.UnbagClassifier(epochs=2),
    "method": unbag.methods.UPRR(alpha=0.2),
    "other method": unbag.methods.UPRR(alpha=0.3),
}


def test_no_two_kinds_or_values_meet():
    prints = {name: fingerprint(value) for name, value in DISTINCT.items()}
    assert len(set(prints.values())) == len(prints)
    assert all(len(prints_of_run) == 64 for prints_of_run in prints.values())


def make_function(n):
    return lambda x: x * n


FUNCTIONS = [
    lambda x: torch.relu(x),
    lambda x: torch.tanh(x),
    lambda x: x + 1,
    lambda x: x + 2,
    lambda x, y=1: x + y,
    lambda x, y=2: x + y,
    lambda x, *, y=2: x + y,
    lambda x: [i + 1 for i in x],
    lambda x: [i + 2 for i in x],
    make_function(1),
    make_function(2),
    lambda x: x[...],
]


def test_functions_of_one_name_are_told_apart_by_what_they_do():
    assert len({fingerprint(function) for function in FUNCTIONS}) == len(FUNCTIONS)
    modules = []
    for function in FUNCTIONS:
        module = nn.Linear(1, 1, bias=False)
        nn.init.ones_(module.weight)
        module.activation = function
        modules.append(module)
    without_values = [m for m in modules if m.activation.__closure__ is None]
    assert len({fingerprint(m) for m in without_values}) >= len(without_values) - 3  # defaults


def test_order_counts_in_sequences_only():
    assert fingerprint([1, 2]) != fingerprint([2, 1])
    assert fingerprint(1, 2) != fingerprint(2, 1)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a", "b", "c"}) == fingerprint({"c", "b", "a"})
    assert fingerprint([1, 2]) == fingerprint((1, 2))


def test_arrays_count_by_what_they_hold_not_by_where_they_lie():
    wide = np.arange(12.0).reshape(3, 4)
    assert fingerprint(wide) == fingerprint(np.asfortranarray(wide))
    assert fingerprint(wide[:, ::2]) == fingerprint(wide[:, ::2].copy())
    assert fingerprint(wide) != fingerprint(wide.T.reshape(3, 4))
    one, other = np.zeros(3), np.ones(3)
    # The second place of an array refers to the first.
    assert fingerprint(one, other, one) != fingerprint(one, other, other)
    assert fingerprint([np.array([i]) for i in range(50)]) == fingerprint(
        [np.array([i]) for i in range(50)]
    )
    assert fingerprint([np.int64(i) for i in range(50)]) != fingerprint(
        [np.int64(i // 2) for i in range(50)]
    )


def test_fields_that_change_nothing_are_left_out():
    assert fingerprint(Settings(0.1, "one")) == fingerprint(Settings(0.1, "two"))


def test_a_value_of_an_unknown_kind_is_refused():
    with pytest.raises(TypeError, match="A generator has no fingerprint; hash what it holds inst"):
        fingerprint({"rows": (i for i in range(3))})


PROGRAM = """
from unbag.fingerprint import fingerprint

function = lambda x: [i for i in x if i in {"a", "b", "c"}]
made = fingerprint(function, {"a", "b", "c"}, {"x": 1, "y": 2}, list, len)
"""


def test_another_process_makes_the_same():
    here = {"__name__": "__main__"}
    exec(PROGRAM, here)
    path = ":".join(part for part in sys.path if part)
    printed = subprocess.run(
        [sys.executable, "-c", f"{PROGRAM}print(made)"],
        env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == here["made"]


# ------------------------------------------------------------------------------- of a replica


def make_bags(X=None, theta=THETA):
    X = np.random.default_rng(0).normal(size=(N, D)) if X is None else X
    return unbag.Bags(X, np.arange(len(X)) % 3, theta)


def make_replica(**settings):
    torch.manual_seed(0)
    bags = make_bags()
    arguments = {
        "bags": bags,
        "objective": MatchedLikelihood(THETA),
        "module": MLP(D, K, width=5, depth=2),
        "seed": 0,
        "epochs": 4,
        "batch_size": N,
        "learning_rate": 0.02,
        "risk_weights": THETA,
        "held_out": bags.take(np.arange(9)),
        "predicted": bags.take(np.arange(9)),
    }
    return Replica(**arguments | settings)


def on_soft_labels(**settings):
    targets = np.full((N, K), 1 / K)
    return make_replica(
        **{"objective": None, "targets": targets, "batching": "shuffled"} | settings
    )


def other_module():
    torch.manual_seed(1)
    return MLP(D, K, width=5, depth=2)


def other_rows():
    return make_bags().take(np.arange(1, 10))


# A change of every field, and whether replicas that differ in it can share a stack.
CHANGES = {
    "bags": (lambda: {"bags": make_bags(moved(np.asarray(make_bags().X), (15, 0)))}, True),
    "objective": (lambda: {"objective": MatchedLikelihood(THETA, matching=3.0)}, True),
    "module": (lambda: {"module": other_module()}, True),
    "seed": (lambda: {"seed": 1}, True),
    "epochs": (lambda: {"epochs": 5}, False),
    "batch_size": (lambda: {"batch_size": N - 1}, False),
    "backbone_rate": (lambda: {"backbone_rate": 0.1}, True),
    "learning_rate": (lambda: {"learning_rate": 0.03}, True),
    "weight_decay": (lambda: {"weight_decay": 0.1}, True),
    "decoupled_weight_decay": (lambda: {"decoupled_weight_decay": 0.1}, True),
    "optimizer": (lambda: {"optimizer": "sgd"}, False),
    "batching": (lambda: {"batching": "shuffled"}, False),
    "sample_weight": (lambda: {"sample_weight": np.linspace(1, 2, N)}, False),
    "risk_weights": (lambda: {"risk_weights": moved(THETA, (1, 1))}, True),
    "stop_when_negative": (lambda: {"stop_when_negative": True}, True),
    "test": (lambda: {"test": TestSet(np.zeros((5, D)), np.zeros(5, np.int64))}, False),
    "held_out": (lambda: {"held_out": other_rows()}, True),
    "pooled_prior": (lambda: {"pooled_prior": THETA[0]}, True),
    "test_prior": (lambda: {"test_prior": THETA[0]}, True),
    "output_prior": (lambda: {"output_prior": THETA[0]}, True),
    "patience": (lambda: {"patience": 3}, False),
    "annealed": (lambda: {"annealed": True}, True),
    "targets": (lambda: {"targets": np.full((N, K), 1 / K), "objective": None}, False),
    "mixup": (lambda: {"mixup": True}, True),
    "adversarial_smoothing": (lambda: {"adversarial_smoothing": 0.5}, False),
    "augmentation": (lambda: {"augmentation": Augmentation()}, False),
    "pseudo_labels": (lambda: {"pseudo_labels": PseudoLabels()}, False),
    "contrast": (lambda: {"contrast": Contrast(), "objective": None}, False),
    "predicted": (lambda: {"predicted": other_rows()}, True),
    "stage": (lambda: {"stage": "another"}, True),
    "time_share": (lambda: {"time_share": 0.5}, True),
    "time_needed": (lambda: {"time_needed": 2.0}, True),
    "ahead": (lambda: {"ahead": 2.0}, True),
}
# A run that is started again with more time goes on where it stopped.
LEFT_OUT = ("stage", "time_share", "time_needed", "ahead")
OF_SOFT_LABELS = ("mixup", "adversarial_smoothing")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Replica)])
def test_every_field_of_a_replica_counts(name):
    changes, can_share = CHANGES[name]
    make = on_soft_labels if name in OF_SOFT_LABELS else make_replica
    originals, same, other = make(), make(), make(**changes())
    assert fingerprint(originals) == fingerprint(same)
    assert (fingerprint(originals) == fingerprint(other)) == (name in LEFT_OUT)
    assert originals.group == same.group
    assert (originals.group == other.group) == can_share


@pytest.mark.parametrize(
    "changes",
    [
        {"adversarial_smoothing": 0.6},
        {"targets": moved(np.full((N, K), 1 / K), (15, 1))},
        {"sample_weight": np.ones(N)},
        {"augmentation": Augmentation(strong=True)},
    ],
)
def test_how_much_counts_as_well(changes):
    arguments = {
        "adversarial_smoothing": 0.5,
        "sample_weight": moved(np.ones(N), 15),
        "augmentation": Augmentation(),
    }
    assert fingerprint(on_soft_labels(**arguments)) != fingerprint(
        on_soft_labels(**arguments | changes)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"purity": 0.8},
        {"threshold": 0.7},
        {"teacher": False},
        {"balanced": False},
        {"flip": True},
        {"weight": 0.5},
        {"soft": True},
        {"strong": False},
    ],
)
def test_every_setting_of_pseudo_labels_counts(changes):
    originals, other = (
        make_replica(pseudo_labels=PseudoLabels(**settings), held_out=None)
        for settings in ({}, changes)
    )
    assert fingerprint(originals) != fingerprint(other)
    assert originals.group != other.group


def test_replicas_of_other_shapes_losses_or_networks_share_no_stack():
    originals = make_replica()
    images = unbag.Bags(np.zeros((N, 2, 2)), np.arange(N) % 3, THETA)
    others = [
        make_replica(bags=images, held_out=None, predicted=None),
        make_replica(bags=make_bags(np.zeros((N, D), np.float32))),
        make_replica(module=MLP(D, K, width=6, depth=2)),
        make_replica(module=nn.Linear(D, K)),
        make_replica(objective=Proportion(THETA, loss="generalized-cross-entropy")),
        make_replica(bags=make_bags().take(np.arange(N - 1))),
        make_replica(predicted=None),
    ]
    assert all(other.group != originals.group for other in others)
    assert make_replica(objective=Proportion(THETA)).group == originals.group
    # Fewer rows than a batch make batches of all rows.
    assert make_replica(batch_size=N + 5).group == originals.group


def test_modules_of_the_users_that_compute_something_else_share_no_stack():
    replicas = []
    for layer in (nn.ReLU(), nn.Tanh(), nn.Dropout(0.1), nn.Dropout(0.2)):
        module = nn.Sequential(nn.Linear(D, 5), layer, nn.Linear(5, K))
        replicas.append(make_replica(module=module))
    assert len({replica.group for replica in replicas}) == 4
