"""Reading of saved models; everything is checked before it is used."""

import math
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from unbag.estimator.classifier import UnbagClassifier
from unbag.estimator.description import (
    ERROR_FIELDS,
    FORMAT,
    FORMAT_VERSION,
    GUESSED,
    NO_SETTINGS,
    Description,
    Format,
    Ids,
    Mlp,
    Module,
    NotSaved,
    Tabular,
    check_settings,
)
from unbag.estimator.folder import (
    DESCRIPTION,
    ENCODING,
    WEIGHTS,
    TensorFile,
    digest,
    model_folder,
    read_json,
    refusal,
)
from unbag.estimator.moved import SETTINGS_OF_METHODS
from unbag.evaluation import Calibration
from unbag.exceptions import InvalidInputError, ModelFolderError
from unbag.identity import SKETCH_SIZE
from unbag.methods import get_method
from unbag.models import ModuleFactory, build_model
from unbag.priors import ClassPriors, ShareErrors, SharesOf, check_test_prior
from unbag.tabular import TabularModel
from unbag.training import PRECISIONS
from unbag.validation import check_choice, invalid, reads_tables, shorten

__all__ = ["Arrays", "load_model", "logits_of", "network_tensors"]

_HISTORY = (
    *("epoch", "objective", "empirical_risk", "negative_share", "partial_risks"),
    *("label_free_error", "test_error"),
)
_LARGEST = 2**31  # number of values in a row
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
    """Read a classifier that ``UnbagClassifier.save`` wrote; it predicts the same, bit for bit.

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
    description = _read_description(folder / DESCRIPTION, _count_bags(folder / WEIGHTS))
    try:
        return _Loading(folder, description).classifier(module)
    except ModelFolderError:
        raise
    except InvalidInputError as error:
        if str(error).startswith("module must"):  # an argument, not the folder, is at fault
            raise
        raise refusal(folder / DESCRIPTION, str(error).rstrip(".")) from None


def _count_bags(path: Path) -> int:
    """Tell the number of bags by the shape of their priors, whose bytes must be in the file."""
    try:
        shape = TensorFile(path).shapes.get("priors", ())
    except ModelFolderError:  # said when the weights are read
        return 0
    return shape[0] if shape else 0


def _read_description(path: Path, n_bags: int) -> Description:
    given = read_json(path, Format, n_bags)
    if given.format != FORMAT:
        remedy = "give a folder that `unbag fit` or clf.save wrote."
        raise refusal(path, "it is not of a model of unbag", remedy)
    version = given.format_version
    if type(version) is not int or version < 1:
        raise refusal(path, f"its format version is {shorten([version])[:40]}")
    if version > FORMAT_VERSION:
        got = f"its format version is {version}, and this unbag reads {FORMAT_VERSION}"
        raise refusal(path, got, "update unbag.")
    return read_json(path, Description, n_bags)


class _Loading:
    """A folder on its way to a classifier: first sizes, then values, then the network."""

    def __init__(self, folder: Path, given: Description) -> None:
        self.folder = folder
        self.given = given
        if not {WEIGHTS} <= given.files.keys() <= {WEIGHTS, ENCODING}:
            allowed = f"{WEIGHTS!r} and maybe {ENCODING!r}"
            raise invalid("files", allowed, shorten(name[:80] for name in given.files))
        has_encoding = ENCODING in given.files
        self.encoding = read_json(folder / ENCODING, dict) if has_encoding else None
        self.tensors = TensorFile(folder / WEIGHTS)
        if math.prod(given.row_shape) >= _LARGEST:
            allowed = f"sizes whose product is below {_LARGEST}"
            raise invalid("row_shape", allowed, shorten(given.row_shape))
        self.classes = given.classes.array("classes")
        self.bags = given.bags.array("bags")
        self.is_module = isinstance(given.network, Module)

    def classifier(self, given: nn.Module | ModuleFactory | None) -> UnbagClassifier:
        module = self._build(given)  # without memory, where it is one of unbag's
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
        network, k = self.given.network, len(self.classes)
        if isinstance(network, Module):
            return self._build_given(network, given)
        options = msgspec.to_builtins(network)
        options.pop("kind")
        kind = str(network.__struct_config__.tag)
        if given is not None:
            got = type(given).__name__
            raise invalid("module", f"None for this model, which is of kind {kind!r}", got)
        layers = sum(name.endswith(".weight") for name in self.tensors.shapes)
        if isinstance(network, Mlp) and network.depth > layers:
            raise invalid("depth", f"at most the {layers} layers of the file", network.depth)
        try:
            with torch.device("meta"):
                if isinstance(network, Tabular):
                    return TabularModel.of_sizes(math.prod(self.given.row_shape), k, **options)
                return build_model(kind, self.given.row_shape, k, 0, **options)
        except (RuntimeError, OverflowError) as error:
            raise invalid("network", "of sizes that a tensor can have", error) from None

    def _build_given(self, network: Module, given: Any) -> nn.Module:
        """Make the network of the user's module, or of the factory of one."""
        if given is None or isinstance(given, str):
            remedy = "give load_model(path, module=...) one of the same layers, with any weights."
            got = "nothing" if given is None else f"the text {given!r}"
            allowed = f"the module of this model, of class {shorten([network.name[:80]])}"
            raise invalid("module", allowed, got, remedy)
        if self.tensors.shapes.get("probe.rows") != (2, *self.given.row_shape):
            raise self.tensors.refusal("its rows are not of the shape of model.json")
        try:
            module = build_model(given, self.given.row_shape, len(self.classes), 0).cpu()
        except InvalidInputError as error:
            raise invalid("module", "the module of this model", f"another ({error})") from None
        dtypes = {d for n, d in self.tensors.dtypes.items() if n.startswith("network.")}
        floating = [dtype for dtype in dtypes if dtype.is_floating_point]
        return module.to(floating[0]) if len(floating) == 1 else module

    def _expected_network(self, module: nn.Module) -> _Expected:
        """Tensors of the network; one of unbag's may be of float32 or float64."""
        tensors = network_tensors(module)
        double = torch.float64 in map(self.tensors.dtypes.get, tensors) and not self.is_module
        return {
            name: (tuple(t.shape), torch.float64 if double and t.is_floating_point() else t.dtype)
            for name, t in tensors.items()
        }

    def _check_sizes(self, module: nn.Module) -> None:
        """Compare all shapes in the file with those that the description implies."""
        given, expected = self.given, self._expected_network(module)
        if self.is_module and (problem := self.tensors.difference(expected, prefix="network.")):
            raise invalid("module", "the module of this model", f"another: in the file, {problem}")
        k, m, f64 = len(self.classes), len(self.bags), torch.float64
        dtype = next(d for _, d in expected.values() if d.is_floating_point)
        tables = {"priors": m}
        if isinstance(given.given_bags, Ids):
            tables["given_priors"] = len(given.given_bags.values)
        for name, bags in tables.items():
            fields = [f"{name}.{field}" for field in ERROR_FIELDS]
            if set(fields) & self.tensors.shapes.keys():
                expected |= dict.fromkeys(fields, ((bags, k), f64))
                if (guessed := f"{name}.{GUESSED}") in self.tensors.shapes:
                    expected[guessed] = (bags,), f64
            expected[name] = (bags, k), f64
        if given.scaler_rows is not None:
            d = math.prod(given.row_shape)
            expected |= {f"scaler.{name}": ((d,), f64) for name in ("mean", "scale", "var")}
        if given.calibrated:
            expected["calibration.temperature"] = (), f64
            expected["calibration.biases"] = (k,), f64
        expected["probe.rows"] = (2, *given.row_shape), dtype
        expected["probe.logits"] = (2, k), f64
        for name in _HISTORY:
            if (full := f"history.{name}") in self.tensors.shapes:
                shape = (given.n_iter, m, k) if name == "partial_risks" else (given.n_iter,)
                expected[full] = shape, f64
        n = self.tensors.shapes.get("row_hashes", (0,))
        if len(n) != 1 or n[0] > SKETCH_SIZE:
            raise self.tensors.refusal(f"'row_hashes' has the shape {list(n)}")
        expected["row_hashes"] = n, torch.uint64
        if problem := self.tensors.difference(expected):
            raise self.tensors.refusal(problem)

    def _fill(self, module: nn.Module, arrays: Arrays) -> nn.Module:
        if not self.is_module:
            module = module.to(arrays["probe.rows"].dtype).to_empty(device="cpu")
        parameters = {f"network.{name}" for name, _ in module.named_parameters()}
        with torch.no_grad():
            for name, tensor in network_tensors(module).items():
                value = arrays[name]
                # A buffer of a user's module may hold a mask of infinities.
                strict = name in parameters or not self.is_module
                if value.is_floating_point() and (
                    value.isnan().any() or (strict and value.isinf().any())
                ):
                    raise self.tensors.refusal(f"{name!r} has values that are not finite")
                negative = name.endswith(".running_var") and bool((value < 0).any())
                if negative and not self.is_module:
                    raise self.tensors.refusal(f"{name!r} has negative variances")
                tensor.copy_(value)
        module.eval()
        columns = math.prod(self.given.row_shape)
        if isinstance(module, TabularModel) and (problem := module.find_problem(columns)):
            raise self.tensors.refusal(problem)
        rows, expected = arrays["probe.rows"], arrays["probe.logits"]
        logits = logits_of(module, rows).double()
        near = 1e-3 * (1 + expected.nan_to_num().abs().max())
        if not torch.allclose(logits, expected, rtol=0, atol=float(near), equal_nan=True):
            if self.is_module:
                got = "one that gives other numbers"
                raise invalid("module", "the module that was saved", got, "its code differs.")
            raise self.tensors.refusal("the network does not give the numbers that were saved")
        return module

    # -------------------------------------------------------------------------- everything else

    def _check_digests(self) -> None:
        for name, expected in self.given.files.items():
            if digest(self.folder / name) != expected:
                reason = "it is not the file that was saved (its SHA-256 differs)"
                raise refusal(self.folder / name, reason, "copy the folder again, or save again.")

    def _settings(self, module: nn.Module | ModuleFactory | None) -> dict[str, Any]:
        settings, not_saved = dict(self.given.settings), self.given.not_saved
        of_method = self.given.given_method_settings
        if of_method is None:  # in unbag 0.1 these were arguments of the classifier
            old = {name: settings.pop(name, None) for name in SETTINGS_OF_METHODS}
            of_method = {name: value for name, value in old.items() if value is not None}
        if "model" in settings and settings["model"] is None:
            network = self.given.network
            settings["model"] = network.__struct_config__.tag
            if isinstance(network, Mlp):
                settings |= msgspec.structs.asdict(network)
        known = [n for n in UnbagClassifier._get_param_names() if n not in NO_SETTINGS]
        check_settings(settings, known, list(not_saved))
        check_choice("precision", settings.get("precision", "float32"), PRECISIONS)
        if settings.get("model") == "module":
            settings["model"] = module
        settings |= {name: NotSaved(name) for name in ("loss", "learner") if name in not_saved}
        if "random_state" in not_saved:
            settings["random_state"] = None
        if of_method:
            settings["method"] = get_method(settings.get("method", "auto"), **of_method)
        return settings

    def _shares(self, name: str) -> NDArray[np.float64]:
        values = np.array(getattr(self.given, name), dtype=np.float64)
        check_test_prior(values, self.classes, name=name)
        return values

    def _table(
        self, arrays: Arrays, name: str, ids: Any, shares_of: SharesOf | None
    ) -> ClassPriors:
        errors = None
        if f"{name}.{ERROR_FIELDS[0]}" in arrays:
            variances, weights = (arrays[f"{name}.{field}"].numpy() for field in ERROR_FIELDS)
            guessed = arrays.get(f"{name}.{GUESSED}")
            is_guess = None if guessed is None else guessed.numpy() != 0
            errors = ShareErrors(variances, weights, is_guess)
        shares = arrays[name].numpy()
        return ClassPriors(shares, ids, self.classes, errors=errors, shares_of=shares_of)

    def _set_priors(self, clf: UnbagClassifier, arrays: Arrays) -> None:
        clf.priors_ = self._table(arrays, "priors", self.bags, self.given.shares_of)
        clf.classes_ = clf.priors_.classes
        clf.test_prior_ = self._shares("test_prior")
        clf.output_prior_ = self._shares("output_prior")
        if self.given.given_test_prior is not None:
            clf.test_prior = self._shares("given_test_prior")
        if isinstance(self.given.given_bags, Ids):
            ids = self.given.given_bags.array("given_bags")
            clf.priors = self._table(arrays, "given_priors", ids, self.given.given_shares_of)
        elif self.given.given_bags == "used":
            clf.priors = clf.priors_
        clf.calibration_ = None
        if self.given.calibrated:
            temperature = float(arrays["calibration.temperature"])
            biases = arrays["calibration.biases"].numpy()
            if not (0 < temperature < np.inf and np.isfinite(biases).all()):
                raise self.tensors.refusal("its calibration is not of finite numbers")
            clf.calibration_ = Calibration(temperature, biases)

    def _set_inputs(self, clf: UnbagClassifier, arrays: Arrays) -> None:
        clf.row_shape_, clf.bytes_ = self.given.row_shape, self.given.bytes
        clf.n_features_in_ = clf.row_shape_[0]
        names = self.given.feature_names
        if names is not None:
            if len(names) != clf.n_features_in_:
                raise invalid("feature_names", f"{clf.n_features_in_} names", len(names))
            clf.feature_names_in_ = np.array(names, dtype=object)
        clf.scaler_ = None
        if self.given.scaler_rows is not None:
            clf.scaler_ = self._scaler(arrays, self.given.scaler_rows)
        clf.row_hashes_ = arrays["row_hashes"].numpy()
        clf.encoding_ = None
        if self.encoding is not None:
            from unbag.io import encoding_from_dict  # pyarrow, for models of tables alone

            try:
                clf.encoding_ = encoding_from_dict(self.encoding, self.given.row_shape)
            except InvalidInputError as error:
                raise refusal(self.folder / ENCODING, str(error).rstrip(".")) from None
            if reads_tables(clf.encoding_):
                clf._remember_columns(clf.encoding_)

    def _scaler(self, arrays: Arrays, n_rows: int) -> StandardScaler:
        mean, scale, var = (arrays[f"scaler.{n}"].numpy() for n in ("mean", "scale", "var"))
        right = all(np.isfinite(a).all() for a in (mean, scale, var)) and (scale > 0).all()
        if self.given.bytes or not right:
            raise self.tensors.refusal("its scaler is not of finite numbers, for rows of floats")
        scaler = StandardScaler()
        scaler.mean_, scaler.scale_, scaler.var_ = mean, scale, var
        scaler.n_features_in_ = len(mean)
        scaler.n_samples_seen_ = n_rows
        return scaler

    def _set_history(self, clf: UnbagClassifier, arrays: Arrays) -> None:
        clf.history_ = {
            name: arrays[full].numpy() for name in _HISTORY if (full := f"history.{name}") in arrays
        }
        clf.n_iter_ = self.given.n_iter
        clf.best_epoch_ = self.given.best_epoch
        clf.stop_reason_ = self.given.stop_reason
        clf.method_ = self.given.method
        clf.settings_ = dict(self.given.method_settings)
