"""Checkpoints: what a killed run leaves behind, and what a new run makes of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

import unbag
from unbag import objectives
from unbag.exceptions import DiscardedWorkWarning, InvalidInputError
from unbag.fingerprint import fingerprint
from unbag.models import MLP, ResNet20
from unbag.training import PseudoLabels, Replica, TestSet, train
from unbag.training.checkpoint import Checkpoint

CPU = "cpu"
K, D = 3, 4


def make_replicas(method="u-prr", n_replicas=2, **settings):
    rng = np.random.default_rng(0)
    y = np.arange(90) % K
    X = settings.pop("X", rng.normal(size=(90, D)) + 2 * np.eye(K, D)[y])
    theta = settings.pop("theta", unbag.priors.asymmetric(K, 0))
    dropout, loss = settings.pop("dropout", 0.3), settings.pop("loss", "cross-entropy")
    parameters = settings.pop("parameters", {})
    calls = []
    for seed in range(n_replicas):
        torch.manual_seed(seed)
        bags = unbag.make_bags(X, y, theta, random_state=seed)
        needs = {"test_prior": bags.pooled_prior} if method.startswith("u") else {}
        defaults = {
            "bags": bags,
            "objective": objectives.get(method, theta, loss=loss, **needs, **parameters),
            "module": MLP(D, K, width=6, dropout=dropout),
            "seed": seed,
            "epochs": 12,
            "batch_size": 20,
            "learning_rate": 1e-2,
            "weight_decay": 1e-3,
            "risk_weights": unbag.priors.risk_weights(theta, bags.pooled_prior),
            "test": TestSet(X, y),
        }
        calls.append(Replica(**{**defaults, **settings}))
    return calls


def assert_identical(outcomes, others):
    for one, other in zip(outcomes, others, strict=True):
        assert (one.n_epochs, one.stop_reason, one.diverged) == (
            other.n_epochs,
            other.stop_reason,
            other.diverged,
        )
        assert one.history.keys() == other.history.keys()
        for name, values in one.history.items():
            np.testing.assert_array_equal(values, other.history[name], err_msg=name)
        for name, value in one.module.state_dict().items():
            assert torch.equal(value, other.module.state_dict()[name]), name


class Killed(BaseException):
    pass


@contextlib.contextmanager
def killed_after(n_saves):
    """Let a run die right after some checkpoints were written."""
    save, left = Checkpoint.save, [n_saves]

    def saving(self, *args):
        save(self, *args)
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", saving)
        with pytest.raises(Killed):
            yield


def cut_and_resume(make, folder, n_saves):
    with killed_after(n_saves):
        train(make(), device="cpu", checkpoint=folder, checkpoint_seconds=0)
    return train(make(), device="cpu", checkpoint=folder, checkpoint_seconds=0)


@pytest.mark.parametrize("method", ["u-prr", "prop-cr", "biased"])
@pytest.mark.parametrize("n_saves", [1, 7])
@pytest.mark.parametrize("batching", ["stratified", "shuffled"])
def test_a_resumed_run_equals_an_undisturbed_one(tmp_path, method, n_saves, batching):
    def make():
        return make_replicas(method, batching=batching)

    undisturbed = train(make(), device="cpu")
    assert_identical(cut_and_resume(make, tmp_path, n_saves), undisturbed)
    # A finished run is not trained again.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.autograd, "grad", None)
        assert_identical(train(make(), device="cpu", checkpoint=tmp_path), undisturbed)


@pytest.mark.parametrize("n_saves", [1, 7])
def test_a_run_with_a_teacher_resumes(tmp_path, n_saves):
    def make():
        replicas = make_replicas("matched-likelihood", risk_weights=None)
        labels = PseudoLabels(purity=0.6)
        rows = [(r.bags.take(np.arange(60)), r.bags.take(np.arange(60, 90))) for r in replicas]
        return [
            Replica(**{**vars(r), "bags": bags, "predicted": out, "pseudo_labels": labels})
            for r, (bags, out) in zip(replicas, rows, strict=True)
        ]

    undisturbed = train(make(), device="cpu")
    assert_identical(cut_and_resume(make, tmp_path, n_saves), undisturbed)


def test_a_run_with_ended_replicas_resumes(tmp_path):
    def make():
        free, stopping = make_replicas("unbiased", epochs=25, learning_rate=3e-2)
        stopping = Replica(**{**vars(stopping), "stop_when_negative": True})
        diverging = Replica(**{**vars(free), "learning_rate": 1e38})
        return [free, stopping, diverging]

    undisturbed = train(make(), device="cpu")
    assert [outcome.diverged for outcome in undisturbed] == [False, False, True]
    assert undisturbed[1].n_epochs < 20
    resumed = cut_and_resume(make, tmp_path, 20)
    assert_identical(resumed, undisturbed)


@pytest.mark.parametrize(
    "make_module",
    [lambda: ResNet20(1, K), lambda: Own(), lambda: Own(momentum=None)],
    ids=["resnet20", "own", "counting batches"],
)
@pytest.mark.parametrize("n_saves", [1, 3])
def test_other_modules_resume(tmp_path, make_module, n_saves):
    def make():
        torch.manual_seed(0)
        X = np.random.default_rng(0).random((90, 4, 4), dtype=np.float32)
        return make_replicas(X=X, n_replicas=2, module=make_module(), epochs=4)

    undisturbed = train(make(), device="cpu")
    assert_identical(cut_and_resume(make, tmp_path, n_saves), undisturbed)


def test_a_mean_over_all_batches_needs_their_number(tmp_path):
    """Without a momentum, running statistics are means over all batches so far."""

    def make():
        torch.manual_seed(0)
        X = np.random.default_rng(0).random((90, 4, 4), dtype=np.float32)
        return make_replicas(X=X, n_replicas=1, module=Own(momentum=None), epochs=4)

    norm = cut_and_resume(make, tmp_path, 2)[0].module.layers[2]
    assert norm.num_batches_tracked == 4 * (90 // 20)


class Own(nn.Module):
    def __init__(self, momentum=0.1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16, 5),
            nn.BatchNorm1d(5, momentum=momentum),
            nn.Dropout(0.5),
            nn.Linear(5, K),
        )

    def forward(self, x):
        return self.layers(x)


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from test_checkpoint import make_replicas
from unbag.training import train
import torch
torch.set_num_threads(1)
train(make_replicas(epochs=3000), device="cpu", checkpoint=sys.argv[2], checkpoint_seconds=0)
"""


def test_a_run_that_is_killed_at_any_moment_goes_on(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    arguments = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(checkpoints)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(arguments, env=environment) as process:
        deadline = time.monotonic() + 60
        while not list(checkpoints.glob("*.safetensors")) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(np.random.default_rng().uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    (saved,) = checkpoints.glob("*.safetensors")
    with safe_open(saved, framework="pt") as file:
        reached = json.loads(file.metadata()["progress"])["epoch"]
    assert 0 < reached < 3000
    # All epochs would take too long: both runs are compared a few epochs after the kill.
    stop = reached + 3
    resumed = train_until(stop, checkpoints)
    undisturbed = train_until(stop, tmp_path / "others")
    assert resumed.keys() == undisturbed.keys()
    for name, value in resumed.items():
        np.testing.assert_array_equal(value, undisturbed[name], err_msg=name)


def train_until(epoch, folder):
    """All tensors of the checkpoint that the run of PROGRAM writes after that epoch."""
    seen = {}

    def save(_, tensors, progress):
        if progress["epoch"] == epoch:
            seen.update({name: value.clone().numpy() for name, value in tensors.items()})
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", save)
        with pytest.raises(Killed):
            train(
                make_replicas(epochs=3000),
                device="cpu",
                checkpoint=folder,
                checkpoint_seconds=0,
            )
    return seen


OTHERS = {
    "method": {"method": "unbiased"},
    "hyperparameter": {"parameters": {"alpha": 0.4}},
    "loss": {"loss": "generalized-cross-entropy"},
    "own loss": {"loss": lambda logits: -torch.log_softmax(2 * logits, -1)},
    "seed": {"seed": 7},
    "learning rate": {"learning_rate": 2e-2},
    "weight decay": {"weight_decay": 0.0},
    "batch size": {"batch_size": 19},
    "epochs": {"epochs": 13},
    "batching": {"batching": "shuffled"},
    "stopping": {"stop_when_negative": True},
    "dropout": {"dropout": 0.2},
    "network": {"module": MLP(D, K, width=7)},
    "own network": {"module": nn.Sequential(nn.Linear(D, K), nn.Dropout(0.5))},
    "rows": {"X": np.random.default_rng(1).normal(size=(90, D))},
    "priors": {"theta": unbag.priors.asymmetric(K, 1)},
    "weights": {"sample_weight": np.linspace(1, 2, 90)},
    "test rows": {"test": TestSet(np.zeros((5, D)), np.zeros(5, np.int64))},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_settings_never_meet(name):
    if "module" in OTHERS[name]:
        torch.manual_seed(0)
    originals, others = make_replicas(), make_replicas(**OTHERS[name])
    assert fingerprint(originals, "float32", CPU) == fingerprint(make_replicas(), "float32", CPU)
    assert fingerprint(originals, "float32", CPU) != fingerprint(others, "float32", CPU)


def test_other_stacks_and_precisions_never_meet():
    originals = make_replicas()
    prints = {
        fingerprint(originals, "float32", CPU),
        fingerprint(originals, "float64", CPU),
        fingerprint(originals, "float32", "cuda"),
        fingerprint(originals[:1], "float32", CPU),
        fingerprint(originals[::-1], "float32", CPU),
    }
    assert len(prints) == 5


def test_layers_without_weights_count():
    replicas = []
    for layer in (nn.ReLU(), nn.Tanh(), nn.Dropout(0.1), nn.Dropout(0.2)):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(D, 5), layer, nn.Linear(5, K))
        replicas.append(make_replicas(module=module, n_replicas=1))
    assert len({fingerprint(r, "float32", CPU) for r in replicas}) == 4


def test_two_labelings_of_the_same_test_rows_count():
    originals = make_replicas(test=None)
    X, y = np.zeros((6, D)), np.arange(6) % K
    prints = []
    for labels in (y, y[::-1]):
        first, second = originals
        tests = TestSet(X, y), TestSet(X, labels)
        pair = [
            Replica(**{**vars(r), "test": t}) for r, t in zip((first, second), tests, strict=True)
        ]
        prints.append(fingerprint(pair, "float32", CPU))
    assert prints[0] != prints[1]


def test_a_run_of_other_settings_starts_anew(tmp_path):
    train(make_replicas(), device="cpu", checkpoint=tmp_path)
    others = train(make_replicas(learning_rate=1e-3), device="cpu", checkpoint=tmp_path)
    assert_identical(others, train(make_replicas(learning_rate=1e-3), device="cpu"))
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


def test_a_damaged_checkpoint_is_thrown_away(tmp_path):
    undisturbed = train(make_replicas(), device="cpu", checkpoint=tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[-1] ^= 1  # of a tensor; the file can be read
    for damaged in (whole[:-10], whole[:20], b"", b"{}", changed):
        path.write_bytes(damaged)
        with pytest.warns(DiscardedWorkWarning, match="The checkpoint .* was damaged"):
            again = train(make_replicas(), device="cpu", checkpoint=tmp_path)
        assert_identical(again, undisturbed)


def test_a_checkpoint_under_a_wrong_name_is_not_used(tmp_path):
    replicas, others = make_replicas(), make_replicas(epochs=3)
    train(others, device="cpu", checkpoint=tmp_path)
    (path,) = tmp_path.iterdir()
    path.rename(Checkpoint(tmp_path, fingerprint(replicas, "float32", CPU)).path)
    with pytest.warns(DiscardedWorkWarning, match="The checkpoint .* was damaged"):
        train(replicas, device="cpu", checkpoint=tmp_path)


def test_a_crash_while_writing_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "new" / "folder", "a" * 64)
    assert checkpoint.load() is None
    checkpoint.save({"x": torch.ones(2)}, {"epoch": 1})

    def crash(*_):
        raise Killed

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(Killed):
        checkpoint.save({"x": torch.zeros(2)}, {"epoch": 2})
    loaded = checkpoint.load()
    assert loaded is not None
    assert loaded[0]["x"].tolist() == [1, 1]
    assert loaded[1] == {"epoch": 1}


def test_a_path_that_is_no_folder_is_refused_before_training(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    for bad in (path, 3):
        with pytest.raises(InvalidInputError, match="checkpoint must be a folder"):
            train(make_replicas(), device="cpu", checkpoint=bad)


def test_a_full_disk_names_the_checkpoint_and_leaves_the_last_one(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path, "a" * 64)
    checkpoint.save({"x": torch.ones(3)}, {"epoch": 1})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_):
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(InvalidInputError, match=r"No space left .*; free some"):
        checkpoint.save({"x": torch.zeros(3)}, {"epoch": 2})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
