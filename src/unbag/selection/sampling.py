"""How a search draws its settings: a random number is a hash of seed, trial and parameter."""

import warnings
import zlib
from typing import Any

import numpy as np
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, TPESampler

__all__ = ["CountedSampler"]


class CountedSampler(BaseSampler):
    """Optuna's TPE sampler without a state of its own.

    Its draws depend on the seed, on the number of the trial and on the trials before. So a search
    that was stopped draws what it would have drawn otherwise, and two machines at one search draw
    different settings.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """Name the parameters that are drawn together."""
        return self._sampler(trial, "").infer_relative_search_space(study, trial)

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        """Draw the parameters that are drawn together."""
        return self._sampler(trial, "").sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Any, trial: Any, param_name: str, param_distribution: Any
    ) -> Any:
        """Draw one parameter by itself."""
        sampler = self._sampler(trial, param_name)
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def _sampler(self, trial: Any, name: str) -> TPESampler:
        counters = [self.seed, trial.number, zlib.crc32(name.encode())]
        seed = int(np.random.SeedSequence(counters).generate_state(1)[0])
        with warnings.catch_warnings():  # it is experimental in Optuna 4
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(seed=seed, constant_liar=True)
