"""What MLflow calls: the file ``MLmodel`` in a model folder names this module.

``mlflow.pyfunc.load_model(folder).predict(table)`` and ``mlflow models serve`` need no more. MLflow
itself is not imported here.
"""

from typing import Any

from unbag.estimator.predictor import Predictor, predictor
from unbag.validation import invalid, is_table

__all__ = ["ServedModel"]


class ServedModel:
    """A model as MLflow calls it."""

    def __init__(self, predict: Predictor) -> None:
        self._predict = predict

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Give a DataFrame of ``class`` and the probabilities, a row for each row of the input.

        Parameters
        ----------
        model_input : DataFrame or dict of arrays
        params : dict, optional
            None are known.
        """
        if params:
            raise invalid("params", "left out", repr(params))
        if not (is_table(model_input) or isinstance(model_input, dict)):
            import pandas as pd  # MLflow brings it

            model_input = pd.DataFrame(model_input)
        return self._predict(model_input)


def _load_pyfunc(path: str) -> ServedModel:  # the name is MLflow's
    return ServedModel(predictor(path))
