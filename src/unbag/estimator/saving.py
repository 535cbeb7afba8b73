"""Saved models: a folder of safetensors and JSON, from which nothing is run.

``model.safetensors`` holds all arrays, ``model.json`` all else, ``encoding.json`` how the columns
of a table became numbers, where that is known. ``loading`` reads them.
"""

import os
import platform
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbag import models
from unbag.estimator.classifier import UnbagClassifier
from unbag.estimator.description import (
    ERROR_FIELDS,
    FORMAT,
    FORMAT_VERSION,
    GUESSED,
    NO_SETTINGS,
    NOT_PLAIN,
    DeepResNet,
    Description,
    Ids,
    LeNet,
    Linear,
    Mlp,
    Module,
    Network,
    ResNet,
    Tabular,
    WideResNet,
    plain_setting,
)
from unbag.estimator.folder import (
    DESCRIPTION,
    ENCODING,
    MLMODEL,
    WEIGHTS,
    digest,
    refusal,
    staged,
    write_json,
)
from unbag.estimator.loading import Arrays, load_model, logits_of, network_tensors
from unbag.exceptions import ModelFolderError, NotSavedWarning
from unbag.files import write_tensors, write_whole
from unbag.learners import STORED, LearnerModel
from unbag.methods import Method
from unbag.models import MLP
from unbag.plain import to_plain
from unbag.priors import ClassPriors, check_test_prior
from unbag.schema import SchemaError, convert
from unbag.tabular import TabularModel
from unbag.validation import invalid, reads_tables, shorten
from unbag.version import unbag_version

__all__ = ["save_model", "write_model"]

_FOR_MLFLOW = f"""\
# For MLflow: mlflow.pyfunc.load_model(folder), mlflow models serve. unbag does not read this file.
flavors:
  python_function:
    loader_module: unbag.mlflow
    python_version: {platform.python_version()}
"""


def save_model(clf: UnbagClassifier, path: str | os.PathLike[str]) -> Path:
    """Write a fitted classifier to a folder; see :meth:`UnbagClassifier.save`."""
    with staged(path) as folder:
        write_model(clf, folder, stacklevel=4)  # whoever called clf.save
    return Path(path)


def write_model(clf: UnbagClassifier, folder: Path, *, stacklevel: int = 2) -> None:
    """Write the files of a model to a new folder, and check that it can be loaded again."""
    description = _description(clf)
    try:
        write_tensors(folder / WEIGHTS, _arrays(clf), {"format": "pt"})
    except OSError as error:
        raise refusal(folder / WEIGHTS, f"it cannot be written ({error})") from None
    encoding = clf.encoding_
    if encoding is not None:
        write_json(folder / ENCODING, encoding.to_dict())
    description.files = {path.name: digest(path) for path in sorted(folder.iterdir())}
    write_json(folder / DESCRIPTION, description)
    write_whole(folder / MLMODEL, _FOR_MLFLOW)
    is_module = isinstance(description.network, Module)
    try:  # what could not be read again is not called saved
        load_model(folder, clf.module_ if is_module else None)
    except ModelFolderError as error:
        raise ModelFolderError(f"This classifier cannot be saved: {error}") from error
    if description.not_saved:
        message = (
            f"{shorten(description.not_saved)} of this classifier cannot be saved; predictions "
            "do not need it, but set it again before another fit of the loaded model."
        )
        warnings.warn(message, NotSavedWarning, stacklevel=stacklevel)


def _description(clf: UnbagClassifier) -> Description:
    settings, not_saved = _settings(clf)
    table = clf.priors_
    given_bags: Any = None
    if clf.priors is not None:
        full = ClassPriors.of(clf.priors)
        given_bags = "used" if full.equals(table) else Ids.of(full.bag_ids)
    names = getattr(clf, "feature_names_in_", None)
    if reads_tables(clf.encoding_):  # which has the names
        names = None
    prior = clf.test_prior
    if prior is not None:
        matched = check_test_prior(prior, clf.classes_)
        prior = matched if hasattr(prior, "keys") else np.asarray(prior, dtype=np.float64)
    return Description(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        versions={
            "unbag": unbag_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        files={},
        settings=settings,
        not_saved=not_saved,
        classes=Ids.of(clf.classes_),
        bags=Ids.of(table.bag_ids),
        given_bags=given_bags,
        shares_of=table.shares_of,
        given_shares_of=None if clf.priors is None else ClassPriors.of(clf.priors).shares_of,
        given_test_prior=None if prior is None else prior.tolist(),
        test_prior=clf.test_prior_.tolist(),
        output_prior=clf.output_prior_.tolist(),
        row_shape=tuple(int(size) for size in clf.row_shape_),
        bytes=bool(clf.bytes_),
        feature_names=None if names is None else [str(name) for name in names],
        scaler_rows=None if clf.scaler_ is None else int(np.max(clf.scaler_.n_samples_seen_)),
        calibrated=clf.calibration_ is not None,
        network=_network(clf.module_),
        n_iter=int(clf.n_iter_),
        best_epoch=None if clf.best_epoch_ is None else int(clf.best_epoch_),
        stop_reason=str(clf.stop_reason_),
        method=clf.method_,
        method_settings=to_plain(clf.settings_),
        given_method_settings=_method_settings(clf.method, not_saved),
    )


def _method_settings(method: str | Method, not_saved: list[Any]) -> dict[str, Any] | None:
    """Give the settings of a method that was given as an object, as plain values."""
    if not isinstance(method, Method):
        return None
    settings = dict(method.settings)
    if not isinstance(settings.get("learner"), str | None):
        settings["learner"] = None
        not_saved.append("learner")
    return dict(to_plain(settings))


def _tables(name: str, priors: ClassPriors) -> dict[str, Any]:
    """Shares, with their errors if they have any."""
    tables = {name: priors.values}
    if priors.errors is not None:
        tables |= {f"{name}.{field}": getattr(priors.errors, field) for field in ERROR_FIELDS}
        if priors.errors.is_guess.any():
            tables[f"{name}.{GUESSED}"] = priors.errors.is_guess.astype(np.float64)
    return tables


def _settings(clf: UnbagClassifier) -> tuple[dict[str, Any], list[Any]]:
    """Turn constructor arguments into plain values; name those that have none."""
    settings: dict[str, Any] = {}
    not_saved = []
    for name in UnbagClassifier._get_param_names():
        if name in NO_SETTINGS:
            continue
        value = getattr(clf, name)
        if isinstance(value, Method):
            value = value.name
        try:
            settings[name] = plain_setting(name, value)
        except SchemaError:
            if name not in NOT_PLAIN:
                raise invalid(name, "a plain value to be saved", repr(value)) from None
            settings[name] = None
            # A module of the user's own is given to load_model, and so is there again.
            if name != "model" or not isinstance(_network(clf.module_), Module):
                not_saved.append(name)
    return settings, not_saved


_OF_IMAGES: dict[type[nn.Module], type[LeNet | ResNet | DeepResNet | WideResNet]] = {
    models.LeNet5: LeNet,
    models.ResNet18: DeepResNet,
    models.ResNet20: ResNet,
    models.WideResNet: WideResNet,
}


def _network(module: nn.Module) -> Network:
    if type(module) is MLP:
        linears, _ = module.blocks()
        if len(linears) == 1:
            return Linear()
        return Mlp(len(linears), linears[0].out_features, float(module.dropout))
    kind = _OF_IMAGES.get(type(module))
    if kind is not None and (kind is not WideResNet or _is_usual(module)):
        return kind()
    if type(module) is TabularModel:
        for part in module.parts.values():
            if isinstance(part, LearnerModel):
                allowed = f"one that can be saved without a pickle ({STORED})"
                raise invalid("learner", allowed, type(part.learner).__name__)
        return convert({"kind": "tabular", "parts": module.sizes}, Tabular)
    state = module.state_dict()
    odd = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        got = f"{shorten(odd)} that is none"
        raise invalid("model", "a module whose state is tensors to be saved", got)
    return Module(type(module).__qualname__)


def _is_usual(module: nn.Module) -> bool:
    """Whether a wide residual network has the sizes of the one that has a name."""
    return isinstance(module, models.WideResNet) and (module.depth, module.width) == (28, 2)


def _arrays(clf: UnbagClassifier) -> Arrays:
    arrays: dict[str, Any] = {"row_hashes": clf.row_hashes_, **_tables("priors", clf.priors_)}
    if clf.priors is not None:
        full = ClassPriors.of(clf.priors)
        if not np.array_equal(full.classes, clf.classes_):
            got = "others (it was set after fit)"
            raise invalid("priors", f"of the classes {shorten(clf.classes_)}", got)
        if not full.equals(clf.priors_):
            arrays |= _tables("given_priors", full)
    if clf.scaler_ is not None:
        for name in ("mean", "scale", "var"):
            arrays[f"scaler.{name}"] = getattr(clf.scaler_, f"{name}_")
    if clf.calibration_ is not None:
        arrays["calibration.temperature"] = np.float64(clf.calibration_.temperature)
        arrays["calibration.biases"] = clf.calibration_.biases
    arrays |= {f"history.{name}": values for name, values in clf.history_.items()}
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
    tensors |= network_tensors(clf.module_)
    dtype = next(clf.module_.parameters()).dtype
    count = 2 * int(np.prod(clf.row_shape_))
    rows = (torch.arange(count, dtype=torch.float64) * 0.6180339887) % 1  # spread over [0, 1)
    tensors["probe.rows"] = rows.to(dtype).view(2, *clf.row_shape_)
    tensors["probe.logits"] = logits_of(clf.module_, tensors["probe.rows"]).double()
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
