"""Saved models: a folder of safetensors and JSON, from which nothing is run.

``model.safetensors`` holds all arrays, ``model.json`` all else, ``encoding.json`` how the columns
of a table became numbers, where that is known. ``loading`` reads them.
"""

import os
import platform
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from unbag.estimator.classifier import UnbagClassifier
from unbag.estimator.folder import (
    DESCRIPTION,
    ENCODING,
    FORMAT,
    WEIGHTS,
    digest,
    staged,
    sync,
    write_json,
)
from unbag.estimator.loading import (
    FORMAT_VERSION,
    NO_SETTINGS,
    NOT_PLAIN,
    Arrays,
    load_model,
    logits_of,
    network_tensors,
)
from unbag.estimator.plain import ids_to_json, plain_setting
from unbag.exceptions import ModelFolderError, NotSavedWarning
from unbag.models import MLP, ResNet20
from unbag.priors import ClassPriors, check_test_prior
from unbag.validation import invalid, shorten

__all__ = ["save_model", "unbag_version"]


def unbag_version() -> str:
    """Version of the installed package."""
    try:
        return metadata.version("unbag")
    except metadata.PackageNotFoundError:  # the source without an installation
        return "unknown"


def save_model(clf: UnbagClassifier, path: str | os.PathLike[str]) -> Path:
    """Write a fitted classifier to a folder; see :meth:`UnbagClassifier.save`."""
    arrays, description = _arrays(clf), _description(clf)
    encoding = getattr(clf, "encoding_", None)
    with staged(path) as folder:
        try:
            save_file(arrays, folder / WEIGHTS, {"format": "pt"})
        except SafetensorError as error:  # such as a full disk
            raise OSError(str(error)) from None
        # safetensors makes a file for the owner alone; it should be like the others.
        (folder / WEIGHTS).chmod(folder.stat().st_mode & 0o666)
        sync(folder / WEIGHTS)
        names = [WEIGHTS]
        if encoding is not None:
            write_json(folder / ENCODING, encoding.to_dict())
            names.append(ENCODING)
        description["files"] = {name: digest(folder / name) for name in names}
        write_json(folder / DESCRIPTION, description)
        own = description["network"]["kind"] == "module"
        try:  # what could not be read again is not called saved
            load_model(folder, clf.module_ if own else None)
        except ModelFolderError as error:
            raise ModelFolderError(f"This classifier cannot be saved: {error}") from error
    if description["not_saved"]:
        message = (
            f"{shorten(description['not_saved'])} of this classifier cannot be saved; predictions "
            "do not need it, but set it again before another fit of the loaded model."
        )
        warnings.warn(message, NotSavedWarning, stacklevel=3)
    return Path(path)


def _description(clf: UnbagClassifier) -> dict[str, Any]:
    settings, not_saved = _settings(clf)
    table = clf.priors_
    given: Any = None
    if clf.priors is not None:
        full = ClassPriors.of(clf.priors)
        given = "used" if _same(full, table) else ids_to_json(full.bag_ids)
    names = getattr(clf, "feature_names_in_", None)
    prior = clf.test_prior
    if prior is not None:
        matched = check_test_prior(prior, clf.classes_)
        prior = matched if hasattr(prior, "keys") else np.asarray(prior, dtype=np.float64)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": {
            "unbag": unbag_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "files": {},
        "settings": settings,
        "not_saved": not_saved,
        "classes": ids_to_json(clf.classes_),
        "bags": ids_to_json(table.bag_ids),
        "given_bags": given,
        "given_test_prior": None if prior is None else prior.tolist(),
        "test_prior": clf.test_prior_.tolist(),
        "output_prior": clf.output_prior_.tolist(),
        "row_shape": [int(size) for size in clf.row_shape_],
        "bytes": bool(clf.bytes_),
        "feature_names": None if names is None else [str(name) for name in names],
        "scaler_rows": None if clf.scaler_ is None else int(np.max(clf.scaler_.n_samples_seen_)),
        "calibrated": clf.calibration_ is not None,
        "network": _network(clf.module_),
        "n_iter": int(clf.n_iter_),
        "best_epoch": None if clf.best_epoch_ is None else int(clf.best_epoch_),
        "stop_reason": str(clf.stop_reason_),
        "method": clf.method_,
    }


def _same(one: ClassPriors, other: ClassPriors) -> bool:
    pairs = ((one.values, other.values), (one.bag_ids, other.bag_ids))
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def _settings(clf: UnbagClassifier) -> tuple[dict[str, Any], list[str]]:
    """Turn constructor arguments into plain values; name those that have none."""
    settings: dict[str, Any] = {}
    not_saved = []
    for name in UnbagClassifier._get_param_names():
        value = getattr(clf, name)
        if name in NO_SETTINGS:
            continue
        try:
            settings[name] = plain_setting(name, value)
        except TypeError:
            if name not in NOT_PLAIN:
                raise invalid(name, "a plain value to be saved", repr(value)) from None
            settings[name] = None
            # A module of the user's own is given to load_model, and so is there again.
            if name != "model" or _network(clf.module_)["kind"] != "module":
                not_saved.append(name)
    return settings, not_saved


def _network(module: nn.Module) -> dict[str, Any]:
    if type(module) is MLP:
        linears, _ = module.blocks()
        if len(linears) == 1:
            return {"kind": "linear"}
        width = linears[0].out_features
        dropout = float(module.dropout)
        return {"kind": "mlp", "depth": len(linears), "width": width, "dropout": dropout}
    if type(module) is ResNet20:
        return {"kind": "resnet20"}
    state = module.state_dict()
    odd = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        got = f"{shorten(odd)} that is none"
        raise invalid("model", "a module whose state is tensors to be saved", got)
    return {"kind": "module", "class": type(module).__qualname__}


def _arrays(clf: UnbagClassifier) -> Arrays:
    arrays: dict[str, Any] = {"priors": clf.priors_.values, "row_hashes": clf.row_hashes_}
    if clf.priors is not None:
        full = ClassPriors.of(clf.priors)
        if not np.array_equal(full.classes, clf.classes_):
            got = "others (it was set after fit)"
            raise invalid("priors", f"of the classes {shorten(clf.classes_)}", got)
        if not _same(full, clf.priors_):
            arrays["given_priors"] = full.values
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
