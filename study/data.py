"""The rows and bags of the study, and the job of every run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.plan import OURS, SETTINGS, STUDY, Run, rows_in_bags
from unbag import Bags, make_bags
from unbag.datasets import load
from unbag.methods import Job, Method, get_method
from unbag.priors import perturb
from unbag.training import TestSet
from unbag.validation import check_choice

HELD_OUT = 0.2  # of the rows, in runs that choose hyperparameters
_LABELLED = ("supervised", "supervised-mixup")  # and not augmented
SMOOTHING = 0.2  # what `crossfit` uses for MLPs on images where nothing is given
_NAMES = {"smoothing": "adversarial_smoothing"}  # settings that have another name in the records


def make_job(bags: Bags, method: str | Method, settings: Mapping[str, Any], **training: Any) -> Job:
    """Build a job of a method and some of its settings; all jobs of the study are built here."""
    named = {_NAMES.get(name, name): value for name, value in settings.items()}
    return Job(bags, get_method(method, **named), **training)


@dataclass
class Data:
    """A dataset of the study in memory; makes the job of a run.

    Bags that runs share are made once, and all are views of the same rows.
    """

    name: str
    _bags: dict[tuple[Any, ...], tuple[Bags, Bags | None]] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Any:
        """Labelled rows, as their authors split them."""
        check_choice("dataset", self.name, STUDY)
        return load(self.name)

    @cached_property
    def test(self) -> TestSet:
        """Test rows of the dataset."""
        return TestSet(self.rows.X_test, self.rows.y_test)

    @cached_property
    def test_prior(self) -> NDArray[np.float64]:
        """π: class shares of the labelled rows that bags are drawn from."""
        labels = self.rows.y_train
        return np.bincount(labels, minlength=self.rows.n_classes) / len(labels)

    def bags(self, run: Run) -> tuple[Bags, Bags | None]:
        """Bags to train on and, where the run holds rows out, those."""
        key = (run.setting, run.trial, run.held_out, run.prior_noise, run.share)
        if key not in self._bags:
            self._bags[key] = self._make_bags(run)
        return self._bags[key]

    @cached_property
    def _labelled(self) -> Bags:
        """All training rows in bags of one class each."""
        return Bags(self.rows.X_train, self.rows.y_train, np.eye(self.rows.n_classes))

    def _make_bags(self, run: Run) -> tuple[Bags, Bags | None]:
        k = self.rows.n_classes
        theta = SETTINGS[run.setting](k)
        size = rows_in_bags(len(self.rows.y_train), k, run.share) // len(theta)
        bags = make_bags(
            self.rows.X_train, self.rows.y_train, theta, sizes=size, random_state=run.trial
        )
        if run.prior_noise:
            noisy = perturb(theta, rate=run.prior_noise, random_state=run.trial)
            bags = bags.with_priors(noisy)
        if not run.held_out:
            return bags, None
        return bags.train_test_split(test_size=HELD_OUT, random_state=run.trial)

    def job(self, run: Run, **changes: Any) -> Job:
        """Turn a run into a job; ``changes`` replace arguments of `make_job`."""
        spec = STUDY[self.name]
        bags, held_out = self.bags(run)
        if run.method.startswith("supervised"):
            bags = self._labelled.take(np.asarray(bags.rows))
        options = spec.model_options
        if run.dropout:
            options = {**options, "dropout": run.dropout}
        arguments = {
            "bags": bags,
            "model": spec.model,
            "model_options": options,
            "learning_rate": run.learning_rate,
            "epochs": run.epochs,
            "seed": run.trial,
            "test": self.test,
            "held_out": held_out,
            **(self._our_arguments(run) if run.method in OURS else self._arguments(run, bags)),
        }
        return make_job(**{**arguments, **changes})

    def _arguments(self, run: Run, bags: Bags) -> dict[str, Any]:
        # The paper corrects nothing in the softmax of methods without risk weights; so do we, with
        # the pooled prior as the test prior.
        corrected = get_method(run.method).needs_rank
        assert run.batch_divisor is not None
        return {
            "method": run.method,
            "settings": run.hyperparameters,
            "test_prior": self.test_prior if corrected else None,
            "batch_size": max(1, bags.n_rows // run.batch_divisor),
            "batching": "shuffled",
            "weight_decay": run.weight_decay,
        }

    def _our_arguments(self, run: Run) -> dict[str, Any]:
        method, settings = OURS[run.method]
        # No round tells a network with labels whether smoothing helps. MLPs on images have it.
        images = self.rows.X_train.ndim > 2
        if run.method in _LABELLED and images and STUDY[self.name].model == "mlp":
            settings = {**settings, "smoothing": SMOOTHING}
        return {
            "method": method,
            "settings": {**settings, **dict(run.options)},
            "test_prior": self.test_prior,
        }
