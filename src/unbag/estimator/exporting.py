"""Fitted classifiers as ONNX files: rows in, class probabilities out.

The graphs of unbag's own networks are written node by node, which needs no exporter; a module of
the user's own goes through torch's.
"""

import copy
import io
import json
import os
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from unbag.estimator.classifier import UnbagClassifier
from unbag.estimator.description import Ids
from unbag.estimator.graph import Graph, add_linear, add_mlp
from unbag.estimator.graph_of_tables import add_tabular
from unbag.exceptions import UnbagError
from unbag.files import new_file
from unbag.models import MLP, ResNet20
from unbag.priors import prior_shift
from unbag.tabular import TabularModel
from unbag.validation import import_optional, invalid
from unbag.version import unbag_version

__all__ = ["export_onnx"]

FORMAT = "unbag-onnx-1"
_OPSETS, _IR_VERSION = {"": 17, "ai.onnx.ml": 3}, 8  # read by onnxruntime 1.13 and later
_TOLERANCE = 1e-4  # of probabilities, in float32
_MAX_BYTES = 2_000_000_000  # of one file of the format
_CHECKED_ROWS = 200


def export_onnx(clf: UnbagClassifier, path: str | os.PathLike[str]) -> Path:
    """Write a fitted classifier as an ONNX file, checked against the classifier in onnxruntime.

    The input ``rows`` is what ``predict`` takes, in float32 (images of bytes in uint8), any number
    at a time. Outputs are ``probabilities`` (n, K) under the test prior and ``class_index`` (n,).
    Scaling, calibration and the prior are part of the graph. The metadata name the classes and,
    where the classifier has an encoding of table columns, hold it as JSON: the input is then the
    encoded rows.

    Parameters
    ----------
    clf : UnbagClassifier
    path : path
        A name that ends in ``.onnx``; a file there is replaced once the new one is checked.

    Examples
    --------
    >>> import tempfile, onnxruntime, unbag
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = unbag.UnbagClassifier(epochs=50, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = unbag.export_onnx(clf, f"{folder}/iris.onnx")
    ...     session = onnxruntime.InferenceSession(file)
    >>> session.run(["class_index"], {"rows": X[:3].astype("float32")})[0].tolist()
    [0, 0, 0]
    """
    onnx = import_optional("onnx", "onnx")
    onnxruntime = import_optional("onnxruntime", "onnx")
    check_is_fitted(clf, "module_")
    path = Path(path)
    if path.suffix != ".onnx" or path.is_dir():
        raise invalid("path", "a file name that ends in .onnx", repr(str(path)))
    # On the CPU, and without the names of a DataFrame's columns.
    plain = copy.copy(clf).set_params(device="cpu")
    plain.__dict__.pop("feature_names_in_", None)
    rows = _rows_to_check(plain)
    # Rows of float32 would be scaled in float32, and less exactly than the graph does it.
    expected = plain.predict_proba(rows if clf.scaler_ is None else rows.astype(np.float64))

    model = _model(plain)
    onnx.helper.set_model_props(model, _metadata(clf))
    try:
        with new_file(path) as temporary:
            temporary.write_bytes(model.SerializeToString())
            onnx.checker.check_model(str(temporary))
            _check(onnxruntime, temporary, rows, expected)
    except OSError as error:
        raise invalid("path", "one that can be written", f"{str(path)!r} ({error})") from None
    return path


def _metadata(clf: UnbagClassifier) -> dict[str, str]:
    values: dict[str, Any] = {
        "classes": msgspec.to_builtins(Ids.of(clf.classes_)),
        "test_prior": clf.test_prior_.tolist(),
    }
    encoding = getattr(clf, "encoding_", None)
    names = getattr(clf, "feature_names_in_", None)
    if encoding is not None:
        values["encoding"] = encoding.to_dict()
        names = getattr(encoding, "feature_names", names)
    if names is not None:
        values["feature_names"] = [str(name) for name in names]
    texts = {name: json.dumps(value, allow_nan=False) for name, value in values.items()}
    return {"format": FORMAT, "unbag_version": unbag_version(), **texts}


def _rows_to_check(clf: UnbagClassifier) -> NDArray[Any]:
    """Random rows, somewhat wider than those of the training."""
    rng = np.random.default_rng(0)
    shape = (_CHECKED_ROWS, *clf.row_shape_)
    if clf.bytes_:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    rows = 2 * rng.standard_normal(shape)
    if clf.scaler_ is not None:
        mean, scale = clf.scaler_.mean_, clf.scaler_.scale_
        rows = mean.reshape(clf.row_shape_) + rows * scale.reshape(clf.row_shape_)
    return rows.astype(np.float32)


def _check(onnxruntime: Any, path: Path, rows: NDArray[Any], expected: NDArray[Any]) -> None:
    """Compare the file with the classifier, many rows at a time and one."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    options.intra_op_num_threads = 1  # starting others ends the process where memory runs out
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        outputs = [
            session.run(["probabilities", "class_index"], {"rows": rows[start:stop]})
            for start, stop in ((0, len(rows)), (0, 1))
        ]
    except Exception as error:  # noqa: BLE001 — its errors share no class of their own
        if "bad_alloc" in str(error):
            raise MemoryError("The exported model cannot be run; no file was written.") from None
        message = f"onnxruntime cannot run the exported model ({error}); no file was written."
        raise UnbagError(message) from None
    for probabilities, index in outputs:
        known = expected[: len(probabilities)]
        difference = float(np.abs(probabilities - known).max())
        top = np.sort(known, 1)
        clear = top[:, -1] - top[:, -2] > 10 * _TOLERANCE
        wrong = bool((index != known.argmax(1))[clear].any())
        # Not "difference > tolerance", which no number that is none fulfils.
        if not difference < _TOLERANCE or wrong:
            message = (
                "The exported model gives other probabilities than the classifier, by "
                f"{difference:.2g} (at most {_TOLERANCE:g} is allowed); no file was written."
            )
            raise UnbagError(message)


# ---------------------------------------------------------------------------------------- graphs


def _model(clf: UnbagClassifier) -> Any:
    parameters = sum(p.numel() for p in clf.module_.parameters())
    if 4 * parameters > _MAX_BYTES:
        got = f"{parameters:,} weights"
        raise invalid("clf", f"of less than {_MAX_BYTES:,} bytes to be one file of ONNX", got)
    graph = Graph()
    helper, types = graph.onnx.helper, graph.onnx.TensorProto
    _add_probabilities(graph, clf, _add_network(graph, clf.module_, _add_scaling(graph, clf), clf))
    kind = types.UINT8 if clf.bytes_ else types.FLOAT
    k = len(clf.classes_)
    onnx_graph = helper.make_graph(
        graph.nodes,
        "unbag",
        [helper.make_tensor_value_info("rows", kind, ["n", *clf.row_shape_])],
        [
            helper.make_tensor_value_info("probabilities", types.FLOAT, ["n", k]),
            helper.make_tensor_value_info("class_index", types.INT64, ["n"]),
        ],
        graph.constants,
    )
    domains = {node.domain for node in graph.nodes}
    opsets = [helper.make_opsetid(domain, _OPSETS[domain]) for domain in sorted(domains)]
    return helper.make_model(
        onnx_graph,
        opset_imports=opsets,
        ir_version=_IR_VERSION,
        producer_name="unbag",
        producer_version=unbag_version(),
    )


def _add_scaling(graph: Graph, clf: UnbagClassifier) -> str:
    """Rows as the network takes them."""
    if clf.bytes_:
        return graph.add("Div", graph.cast("rows", "FLOAT"), graph.constant(np.float32(255)))
    if clf.scaler_ is None:
        return graph.add("Identity", "rows")
    # In float64, as a feature may be large next to its deviation.
    mean = graph.constant(clf.scaler_.mean_.reshape(clf.row_shape_))
    scale = graph.constant(clf.scaler_.scale_.reshape(clf.row_shape_))
    centred = graph.add("Sub", graph.cast("rows", "DOUBLE"), mean)
    return graph.cast(graph.add("Div", centred, scale), "FLOAT")


def _add_probabilities(graph: Graph, clf: UnbagClassifier, logits: str) -> None:
    """Calibration and the step from the output prior to the test prior."""
    x = graph.add("LogSoftmax", logits)
    if clf.calibration_ is not None:
        temperature = np.float32(clf.calibration_.temperature)
        x = graph.add("Div", x, graph.constant(temperature))
        x = graph.add("Add", x, graph.constant(clf.calibration_.biases.astype(np.float32)))
    shift = prior_shift(clf.test_prior_, clf.output_prior_)
    x = graph.add("Add", x, graph.constant(shift.astype(np.float32)))
    graph.add("Softmax", x, output="probabilities")
    graph.add("ArgMax", x, output="class_index", axis=1, keepdims=0)


def _add_network(graph: Graph, module: nn.Module, x: str, clf: UnbagClassifier) -> str:
    if type(module) is MLP:
        return add_mlp(graph, module, x)
    if isinstance(module, TabularModel):
        return add_tabular(graph, module, x)
    if type(module) is ResNet20:
        return _add_resnet20(graph, module, x, n_axes=len(clf.row_shape_))
    return _add_module(graph, module, x, clf.row_shape_)


def _add_resnet20(graph: Graph, module: ResNet20, x: str, n_axes: int) -> str:
    def convolve(x: str, conv: nn.Conv2d) -> str:
        weight = graph.constant(conv.weight)
        return graph.add("Conv", x, weight, strides=list(conv.stride), pads=[1, 1, 1, 1])

    if n_axes == 2:  # grey images
        x = graph.add("Unsqueeze", x, graph.constant(np.array([1])))
    x = graph.add("Relu", graph.normalize(convolve(x, module.conv), module.norm))
    blocks: list[Any] = list(module.blocks)
    for block in blocks:
        out = graph.add("Relu", graph.normalize(convolve(x, block.conv1), block.norm1))
        out = graph.normalize(convolve(out, block.conv2), block.norm2)
        if block.added:
            start, stop = np.array([0, 0]), np.array([2**31, 2**31])
            axes, step = np.array([2, 3]), np.array([block.stride, block.stride])
            x = graph.add("Slice", x, *map(graph.constant, (start, stop, axes, step)))
            half = block.added // 2
            pads = np.array([0, half, 0, 0, 0, block.added - half, 0, 0])
            x = graph.add("Pad", x, graph.constant(pads))
        x = graph.add("Relu", graph.add("Add", out, x))
    x = graph.add("ReduceMean", x, axes=[2, 3], keepdims=0)
    return add_linear(graph, x, module.output)


def _add_module(graph: Graph, module: nn.Module, x: str, row_shape: tuple[int, ...]) -> str:
    """Add a module of the user's own, as torch exports it."""
    module = copy.deepcopy(module).float().eval()
    file = io.BytesIO()
    try:
        with warnings.catch_warnings():
            # The exporter that needs no more packages calls itself the old one.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (torch.zeros(2, *row_shape),),
                file,  # type: ignore[arg-type] # the old exporter takes it
                dynamo=False,
                input_names=["rows"],
                output_names=["logits"],
                dynamic_axes={"rows": {0: "n"}, "logits": {0: "n"}},
                opset_version=_OPSETS[""],
            )
    except Exception as error:  # whatever the user's code or the exporter meets
        allowed = "a module that torch.onnx.export can express"
        raise invalid("model", allowed, f"an error ({error})") from error
    exported = graph.onnx.load_from_string(file.getvalue())
    compose = import_optional("onnx.compose", "onnx")
    exported = compose.add_prefix(exported, "module/")
    graph.add("Identity", x, output="module/rows")
    graph.nodes.extend(exported.graph.node)
    graph.constants.extend(exported.graph.initializer)
    return "module/logits"
