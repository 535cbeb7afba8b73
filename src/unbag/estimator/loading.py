"""Reading of saved models; everything is checked before it is used."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from unbag.estimator.classifier import UnbagClassifier
from unbag.estimator.folder import (
    DESCRIPTION,
    ENCODING,
    FORMAT,
    WEIGHTS,
    TensorFile,
    digest,
    model_folder,
    read_json,
    refusal,
)
from unbag.estimator.plain import NotSaved, ids_from_json, setting_problem
from unbag.evaluation import Calibration
from unbag.exceptions import InvalidInputError, ModelFolderError
from unbag.identity import SKETCH_SIZE
from unbag.methods import METHODS
from unbag.models import ModuleFactory, build_model
from unbag.priors import ClassPriors, check_test_prior
from unbag.training import PRECISIONS
from unbag.validation import check_choice, invalid, shorten

__all__ = [
    "FORMAT_VERSION",
    "NOT_PLAIN",
    "NO_SETTINGS",
    "Arrays",
    "load_model",
    "logits_of",
    "network_tensors",
]

FORMAT_VERSION = 1
# Kept elsewhere in the folder, or, as a path could be anyone's, not at all.
NO_SETTINGS = ("priors", "test_prior", "checkpoint")
NOT_PLAIN = ("loss", "model", "random_state")  # may be objects that have no plain value
_HISTORY = (
    "epoch",
    "objective",
    "empirical_risk",
    "negative_share",
    "partial_risks",
    "label_free_error",
    "test_error",
)
_NETWORKS = {"linear": (), "mlp": ("depth", "width", "dropout"), "resnet20": (), "module": ()}
_LARGEST = 2**31  # number on any axis
Arrays = dict[str, Tensor]
_Expected = dict[str, tuple[tuple[int, ...], torch.dtype]]


def network_tensors(module: nn.Module) -> Arrays:
    """Parameters and buffers, also those that are not part of the state."""
    # A tensor of two names is listed twice.
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return {f"network.{name}": tensor for name, tensor in named}


@torch.no_grad()
def logits_of(module: nn.Module, rows: Tensor) -> Tensor:
    """Run a module without a gradient."""
    logits: Tensor = module(rows)
    return logits


def load_model(
    path: str | os.PathLike[str], module: nn.Module | ModuleFactory | None = None
) -> UnbagClassifier:
    """Read a classifier that :meth:`UnbagClassifier.save` wrote; it predicts the same, bit for bit.

    Nothing in the folder is run: it holds numbers and JSON. A folder that is damaged, foreign or
    of a newer format is refused with :class:`~unbag.exceptions.ModelFolderError`.

    Parameters
    ----------
    path : path
        The folder.
    module : nn.Module or callable, optional
        Where the model was a module of your own, that module, with any weights, or the factory
        ``f(row_shape, n_classes)`` of it. It is copied, not changed.

    Examples
    --------
    >>> import tempfile, unbag
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = unbag.UnbagClassifier(epochs=2, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = unbag.load_model(clf.save(f"{folder}/iris"))
    >>> bool((again.predict_proba(X) == clf.predict_proba(X)).all())
    True
    """
    folder = model_folder(path)
    description = _read_description(folder)
    try:
        return _Loading(folder, description).classifier(module)
    except ModelFolderError:
        raise
    except InvalidInputError as error:
        if str(error).startswith("module must"):  # an argument, not the folder, is at fault
            raise
        raise refusal(folder / DESCRIPTION, str(error).rstrip(".")) from None


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    values = read_json(path)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise refusal(
            path,
            "it is not of a model of unbag",
            "give a folder that `unbag fit` or clf.save wrote.",
        )
    version = values.get("format_version")
    if type(version) is not int or version < 1:
        raise refusal(path, f"its format version is {shorten([version])[:40]}")
    if version > FORMAT_VERSION:
        got = f"its format version is {version}, and this unbag reads {FORMAT_VERSION}"
        raise refusal(path, got, "update unbag.")
    return values


class _Loading:
    """A folder on its way to a classifier: first sizes, then values, then the network."""

    def __init__(self, folder: Path, values: dict[str, Any]) -> None:
        self.folder = folder
        self.values = values
        files = self.get("files", dict)
        if not {WEIGHTS} <= files.keys() <= {WEIGHTS, ENCODING}:
            allowed = f"{WEIGHTS!r} and maybe {ENCODING!r}"
            raise invalid("files", allowed, shorten(name[:80] for name in files))
        self.encoding = read_json(folder / ENCODING) if ENCODING in files else None
        self.tensors = TensorFile(folder / WEIGHTS)
        self.shape = self._row_shape()
        self.bytes = bool(self.get("bytes", bool))
        self.classes = ids_from_json("classes", self.get("classes", dict))
        self.bags = ids_from_json("bags", self.get("bags", dict))

    def get(self, name: str, *kinds: type) -> Any:
        """Value of a name, of one of these types exactly."""
        value = self.values.get(name)
        if name not in self.values or type(value) not in kinds:
            want = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
            got = type(value).__name__ if name in self.values else "nothing"
            raise invalid(name, want, got)
        return value

    def _row_shape(self) -> tuple[int, ...]:
        shape = self.get("row_shape", list)
        right = all(type(size) is int and 0 < size < _LARGEST for size in shape)
        if not (right and 0 < len(shape) < 8 and math.prod(shape) < _LARGEST):
            raise invalid("row_shape", "a list of sizes", shorten(shape)[:80])
        return tuple(shape)

    def classifier(self, given: nn.Module | ModuleFactory | None) -> UnbagClassifier:
        module = self._build(given)  # without memory of its own, where it is one of unbag's
        self._check_sizes(module)
        self._check_digests()
        arrays = self.tensors.read()
        clf = UnbagClassifier(**self._settings(given))
        self._set_priors(clf, arrays)
        self._set_inputs(clf, arrays)
        self._set_history(clf, arrays)
        clf.module_ = self._fill(module, arrays)
        return clf

    # ------------------------------------------------------------------------------ the network

    def _build(self, given: nn.Module | ModuleFactory | None) -> nn.Module:
        network = self.get("network", dict)
        kind = network.get("kind")
        check_choice("network", kind, _NETWORKS)
        k = len(self.classes)
        if kind != "module":
            if given is not None:
                got = type(given).__name__
                raise invalid("module", f"None for this model, which is of kind {kind!r}", got)
            options = {name: network.get(name) for name in _NETWORKS[kind]}
            depth, width = options.get("depth", 1), options.get("width", 1)
            for name, size in (("depth", depth), ("width", width)):
                if type(size) is not int or not 0 < size < _LARGEST:
                    raise invalid(name, f"a whole number from 1 to {_LARGEST - 1}", repr(size)[:80])
            layers = sum(n.endswith(".weight") for n in self.tensors.shapes)
            if depth > layers:
                raise invalid("depth", f"at most the {layers} layers of the file", depth)
            if type(options.get("dropout", 0.0)) not in (int, float):
                raise invalid("dropout", "a number in [0, 1)", type(options["dropout"]).__name__)
            try:
                with torch.device("meta"):
                    return build_model(kind, self.shape, k, 0, **options)
            except (RuntimeError, OverflowError) as error:
                raise invalid("network", "of sizes that a tensor can have", error) from None
        if given is None or isinstance(given, str):
            own = shorten([str(network.get("class"))[:80]])
            remedy = "give load_model(path, module=...) one of the same layers, with any weights."
            got = "nothing" if given is None else f"the text {given!r}"
            raise invalid("module", f"the module of this model, of class {own}", got, remedy)
        if self.tensors.shapes.get("probe.rows") != (2, *self.shape):
            raise self.tensors.refusal("its rows are not of the shape of model.json")
        try:
            module = build_model(given, self.shape, k, 0).cpu()
        except InvalidInputError as error:
            raise invalid("module", "the module of this model", f"another ({error})") from None
        dtypes = {d for n, d in self.tensors.dtypes.items() if n.startswith("network.")}
        floating = [dtype for dtype in dtypes if dtype.is_floating_point]
        return module.to(floating[0]) if len(floating) == 1 else module

    def _expected_network(self, module: nn.Module) -> _Expected:
        """Tensors of the network; one of unbag's may be of float32 or float64."""
        tensors = network_tensors(module)
        saved = [self.tensors.dtypes.get(name) for name in tensors]
        double = torch.float64 in saved and self.values["network"]["kind"] != "module"
        return {
            name: (tuple(t.shape), torch.float64 if double and t.is_floating_point() else t.dtype)
            for name, t in tensors.items()
        }

    def _check_sizes(self, module: nn.Module) -> None:
        """Compare all shapes in the file with those that the description implies."""
        expected = self._expected_network(module)
        own = self.values["network"]["kind"] == "module"
        if own and (problem := self.tensors.difference(expected, prefix="network.")):
            raise invalid("module", "the module of this model", f"another: in the file, {problem}")
        k, m, f64 = len(self.classes), len(self.bags), torch.float64
        dtype = next(d for n, (_, d) in expected.items() if d.is_floating_point)
        expected["priors"] = (m, k), f64
        if isinstance(self.get("given_bags", type(None), str, dict), dict):
            given = ids_from_json("given_bags", self.values["given_bags"])
            expected["given_priors"] = (len(given), k), f64
        if self.get("scaler_rows", type(None), int) is not None:
            d = math.prod(self.shape)
            expected |= {f"scaler.{name}": ((d,), f64) for name in ("mean", "scale", "var")}
        if self.get("calibrated", bool):
            expected["calibration.temperature"] = (), f64
            expected["calibration.biases"] = (k,), f64
        expected["probe.rows"] = (2, *self.shape), dtype
        expected["probe.logits"] = (2, k), f64
        n_iter = self.get("n_iter", int)
        for name in _HISTORY:
            if (full := f"history.{name}") in self.tensors.shapes:
                expected[full] = ((n_iter, m, k) if name == "partial_risks" else (n_iter,)), f64
        n = self.tensors.shapes.get("row_hashes", (0,))
        if len(n) != 1 or n[0] > SKETCH_SIZE:
            raise self.tensors.refusal(f"'row_hashes' has the shape {list(n)}")
        expected["row_hashes"] = n, torch.uint64
        if problem := self.tensors.difference(expected):
            raise self.tensors.refusal(problem)

    def _fill(self, module: nn.Module, arrays: Arrays) -> nn.Module:
        own = self.values["network"]["kind"] == "module"
        if not own:
            module = module.to(arrays["probe.rows"].dtype).to_empty(device="cpu")
        parameters = {f"network.{name}" for name, _ in module.named_parameters()}
        with torch.no_grad():
            for name, tensor in network_tensors(module).items():
                value = arrays[name]
                # A buffer of a user's module may hold a mask of infinities.
                strict = name in parameters or not own
                if value.is_floating_point() and (
                    value.isnan().any() or (strict and value.isinf().any())
                ):
                    raise self.tensors.refusal(f"{name!r} has values that are not finite")
                if not own and name.endswith(".running_var") and (value < 0).any():
                    raise self.tensors.refusal(f"{name!r} has negative variances")
                tensor.copy_(value)
        module.eval()
        rows, expected = arrays["probe.rows"], arrays["probe.logits"]
        logits = logits_of(module, rows).double()
        near = 1e-3 * (1 + expected.nan_to_num().abs().max())
        if not torch.allclose(logits, expected, rtol=0, atol=float(near), equal_nan=True):
            if own:
                got = "one that gives other numbers"
                raise invalid("module", "the module that was saved", got, "its code differs.")
            raise self.tensors.refusal("the network does not give the numbers that were saved")
        return module

    # -------------------------------------------------------------------------- everything else

    def _check_digests(self) -> None:
        for name, expected in self.values["files"].items():
            if digest(self.folder / name) != expected:
                reason = "it is not the file that was saved (its SHA-256 differs)"
                raise refusal(self.folder / name, reason, "copy the folder again, or save again.")

    def _settings(self, given: nn.Module | ModuleFactory | None) -> dict[str, Any]:
        settings = dict(self.get("settings", dict))
        not_saved = self.get("not_saved", list)
        if not all(name in NOT_PLAIN for name in not_saved):
            raise invalid("not_saved", f"of {shorten(NOT_PLAIN)}", shorten(not_saved)[:80])
        known = [n for n in UnbagClassifier._get_param_names() if n not in NO_SETTINGS]
        if unknown := [name[:80] for name in settings if name not in known]:
            raise invalid("settings", "of this unbag", f"{shorten(unknown)}", "update unbag.")
        network = self.values["network"]
        if "model" in settings and settings["model"] is None:
            settings["model"] = network["kind"]
            settings |= {name: network[name] for name in _NETWORKS[network["kind"]]}
        problems = [
            setting_problem(name, value)
            for name, value in settings.items()
            if name not in not_saved
        ]
        if any(problems):
            raise invalid("settings", "plain values", next(p for p in problems if p))
        check_choice("precision", settings.get("precision", "float32"), PRECISIONS)
        if settings.get("model") == "module":
            settings["model"] = given
        if "loss" in not_saved:
            settings["loss"] = NotSaved()
        if "random_state" in not_saved:
            settings["random_state"] = None
        return settings

    def _shares(self, name: str) -> NDArray[np.float64]:
        values = self.get(name, list)
        if not all(type(value) in (int, float) for value in values):
            raise invalid(name, "a list of shares", "something else")
        check_test_prior(values, self.classes, name=name)
        return np.array(values, dtype=np.float64)

    def _set_priors(self, clf: UnbagClassifier, arrays: Arrays) -> None:
        clf.priors_ = ClassPriors(arrays["priors"].numpy(), self.bags, self.classes)
        clf.classes_ = clf.priors_.classes
        clf.test_prior_ = self._shares("test_prior")
        clf.output_prior_ = self._shares("output_prior")
        if self.get("given_test_prior", type(None), list) is not None:
            clf.test_prior = self._shares("given_test_prior")
        given = self.values["given_bags"]
        if isinstance(given, str):
            check_choice("given_bags", given, ("used",))
            clf.priors = clf.priors_
        elif given is not None:
            ids = ids_from_json("given_bags", given)
            clf.priors = ClassPriors(arrays["given_priors"].numpy(), ids, self.classes)
        clf.calibration_ = None
        if self.values["calibrated"]:
            temperature = float(arrays["calibration.temperature"])
            biases = arrays["calibration.biases"].numpy()
            if not (0 < temperature < np.inf and np.isfinite(biases).all()):
                raise self.tensors.refusal("its calibration is not of finite numbers")
            clf.calibration_ = Calibration(temperature, biases)

    def _set_inputs(self, clf: UnbagClassifier, arrays: Arrays) -> None:
        clf.row_shape_, clf.bytes_ = self.shape, self.bytes
        clf.n_features_in_ = self.shape[0]
        names = self.get("feature_names", type(None), list)
        if names is not None:
            if len(names) != self.shape[0] or not all(isinstance(name, str) for name in names):
                raise invalid("feature_names", f"{self.shape[0]} names", "something else")
            clf.feature_names_in_ = np.array(names, dtype=object)
        clf.scaler_ = None
        if self.values["scaler_rows"] is not None:
            clf.scaler_ = self._scaler(arrays)
        clf.row_hashes_ = arrays["row_hashes"].numpy()
        clf.encoding_ = None
        if ENCODING in self.values["files"]:
            from unbag.io import encoding_from_dict  # pyarrow, for models of tables alone

            try:
                clf.encoding_ = encoding_from_dict(self.encoding)
            except InvalidInputError as error:
                raise refusal(self.folder / ENCODING, str(error).rstrip(".")) from None

    def _scaler(self, arrays: Arrays) -> StandardScaler:
        mean, scale, var = (arrays[f"scaler.{n}"].numpy() for n in ("mean", "scale", "var"))
        right = all(np.isfinite(a).all() for a in (mean, scale, var)) and (scale > 0).all()
        if self.bytes or not right:
            raise self.tensors.refusal("its scaler is not of finite numbers, for rows of floats")
        scaler = StandardScaler()
        scaler.mean_, scaler.scale_, scaler.var_ = mean, scale, var
        scaler.n_features_in_ = len(mean)
        scaler.n_samples_seen_ = self.values["scaler_rows"]
        return scaler

    def _set_history(self, clf: UnbagClassifier, arrays: Arrays) -> None:
        clf.history_ = {
            name: arrays[full].numpy() for name in _HISTORY if (full := f"history.{name}") in arrays
        }
        clf.n_iter_ = self.values["n_iter"]
        clf.best_epoch_ = self.get("best_epoch", type(None), int)
        clf.stop_reason_ = self.get("stop_reason", str)
        clf.method_ = self.get("method", str)
        clf.settings_ = {}
        check_choice("method", clf.method_, [name for name in METHODS if name != "auto"])
