"""The demo: digits, ten bags, no labels; several methods side by side, or files to try out."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from unbag.bags import Bags, make_bags
from unbag.estimator import UnbagClassifier
from unbag.evaluation import label_free_accuracy
from unbag.files import new_file, new_folder
from unbag.methods import UPRR, Fit, Job, fit_many
from unbag.priors import asymmetric, symmetric
from unbag.training import TestSet
from unbag.validation import import_optional, invalid

__all__ = ["FILES", "DemoRow", "check_plot_path", "plot_history", "run_demo", "write_files"]

DEMO_METHODS = ("biased", "prop", "unbiased", "u-correct", "u-flood", "u-stop", "u-prr")
# Colours that colour-blind readers tell apart as well (Okabe and Ito), and lines for the printer.
_COLOURS = ("#D55E00", "#009E73", "#0072B2", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "-", "--", "--", ":", ":", "-.")

_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_DISTRICT_ROWS, _LATER_ROWS = 145, 30
FILES = ("rows.parquet", "shares.csv", "later.parquet", "more.parquet", "fit.toml", "truth.csv")
_OPTIONS = """\
# unbag fit rows.parquet --config fit.toml --output model
bag = "district"
priors = "shares.csv"
title = "Digits of ten districts"
"""

History = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class DemoRow:
    """What the demo found for one method; errors are shares, not percent.

    ``best_test_error`` and ``epochs`` are those of a method of one training, else None.
    """

    method: str
    test_error: float
    best_test_error: float | None
    label_free_error: float
    epochs: int | None
    history: History


def run_demo(*, seed: int = 0, verbose: bool = False) -> list[DemoRow]:
    """Train the methods on scikit-learn's digits in ten bags of known class shares.

    The first row is what ``UnbagClassifier`` does by itself; the others are methods of the paper.
    A quarter of every bag is held out for the label-free estimate of the error; true labels of
    other digits serve only to check it.
    """
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    pool, X_test, labels, y_test = train_test_split(
        X, y, test_size=0.3, random_state=seed, stratify=y
    )
    theta = asymmetric(n_classes=10, random_state=seed)
    bags = make_bags(pool, labels, theta, random_state=seed)
    train, held_out = bags.train_test_split(test_size=0.25, random_state=seed)
    test = TestSet(X_test, y_test)
    # A strong ascent holds the empirical risk of u-prr near zero, which the plot is to show.
    strong = {"u-prr": UPRR(alpha=0.5, ascent_scale=6.0)}
    jobs = [
        Job(train, strong.get(method, method), epochs=200, seed=seed, test=test)
        for method in DEMO_METHODS
    ]
    fits = fit_many(jobs, device="cpu", verbose=verbose)
    rows = [_row(method, fit, held_out) for method, fit in zip(DEMO_METHODS, fits, strict=True)]
    clf = UnbagClassifier(theta, device="cpu", verbose=verbose, random_state=seed)
    clf.fit(train.X, train.bag_ids)
    wrong = float((clf.predict(X_test) != y_test).mean())
    label_free = 1 - clf.score(held_out.X, held_out.bag_ids)
    return [DemoRow(f"auto ({clf.method_})", wrong, None, label_free, None, {}), *rows]


def _row(method: str, fit: Fit, held_out: Bags) -> DemoRow:
    with torch.no_grad():
        predicted = fit.module(torch.as_tensor(held_out.X)).argmax(1).numpy()
    accuracy = label_free_accuracy(predicted, held_out.bag_index, held_out.priors, fit.test_prior)
    history = fit.history
    return DemoRow(
        method=method,
        test_error=float(history["test_error"][-1]),
        best_test_error=float(history["test_error"].min()),
        label_free_error=1 - accuracy,
        epochs=fit.n_epochs,
        history=history,
    )


def check_plot_path(path: str | Path) -> None:
    """Refuse, before any work is done, a path to which no plot can be saved."""
    pyplot: Any = import_optional("matplotlib.pyplot", "plot")
    formats = sorted(pyplot.figure().canvas.get_supported_filetypes())
    pyplot.close()
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending not in formats:
        raise invalid("output", f"a file that ends in one of {', '.join(formats)}", str(path))
    if not Path(path).parent.is_dir():
        raise invalid("output", "a file in a folder that exists", str(path))


def plot_history(histories: dict[str, History], path: str | Path) -> None:
    """Draw empirical risk and test error by epoch, one line per method.

    Parameters
    ----------
    histories : dict
        Histories by method, each with a ``test_error``.
    path : path
        Of the image; its ending decides the format.
    """
    pyplot: Any = import_optional("matplotlib.pyplot", "plot")
    pyplot.switch_backend("Agg")
    figure, (risk_axes, error_axes) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for (method, history), colour, line in zip(histories.items(), _COLOURS, _LINES, strict=False):
        options = {"color": colour, "linestyle": line, "label": method, "linewidth": 1.8}
        risk_axes.plot(history["epoch"], history["empirical_risk"], **options)
        error_axes.plot(history["epoch"], 100 * history["test_error"], **options)
    risk_axes.axhline(0, color="black", linewidth=0.8)
    risk_axes.set_yscale("symlog", linthresh=1)
    risk_axes.set(xlabel="epoch", ylabel="empirical risk", title="Empirical risk on the bags")
    error_axes.set(xlabel="epoch", ylabel="error, %", title="True error on test rows")
    error_axes.set_ylim(bottom=0)
    error_axes.legend(frameon=False)
    for axes in (risk_axes, error_axes):
        axes.grid(alpha=0.25)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.spines[["top", "right"]].set_visible(False)
    with new_file(Path(path)) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)


def write_files(folder: str | Path, *, seed: int = 0) -> list[Path]:
    """Write the digits as files that the other commands can be tried with.

    ``rows.parquet`` has digits of ten districts, ``shares.csv`` the percent of every digit in each
    district, ``later.parquet`` other digits of the districts to evaluate a model on,
    ``more.parquet`` digits of no known district to predict, ``fit.toml`` options of ``unbag fit``,
    and ``truth.csv`` what all digits show, which no command needs.
    """
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise invalid("files", "a new or empty folder", str(place))
    with new_folder(place, FILES, FILES[-1]) as new:
        _write_files(new, seed)
    return [place / name for name in FILES]


def _write_files(place: Path, seed: int) -> None:
    X, y = load_digits(return_X_y=True)
    theta = symmetric(n_classes=10, a=0.6)
    bags = make_bags(
        np.arange(len(X))[:, None], y, theta, sizes=_DISTRICT_ROWS, disjoint=True, random_state=seed
    )
    numbers = np.random.default_rng(seed).permutation(len(X))
    ids = np.array([f"r{number:04d}" for number in numbers])
    sources = np.asarray(bags.X)[:, 0]
    order = np.argsort(ids[sources])
    rows = sources[order]
    more = np.setdiff1d(np.arange(len(X)), rows)
    districts = [f"district {m}" for m in range(10)]

    def write(name: str, index: NDArray[np.int64], **others: Sequence[str]) -> None:
        pixels = {f"pixel_{j:02d}": X[index, j].astype(np.int64) for j in range(X.shape[1])}
        table = pa.table({"id": ids[index], **others, **pixels})
        pa.parquet.write_table(table, place / name)

    write("rows.parquet", rows, district=[districts[m] for m in bags.bag_index[order]])
    write("more.parquet", more)
    later = make_bags(more[:, None], y[more], theta, sizes=_LATER_ROWS, random_state=seed)
    places = np.asarray(later.X)[:, 0]
    write("later.parquet", places, district=[districts[m] for m in later.bag_index])
    (place / "fit.toml").write_text(_OPTIONS, encoding="utf-8")
    shares = ([name, *map(float, (100 * theta[m]).round(2))] for m, name in enumerate(districts))
    _write_csv(place / "shares.csv", ["district", *_NAMES], shares)
    truth = ([ids[i], _NAMES[y[i]]] for i in np.concatenate([rows, more]))
    _write_csv(place / "truth.csv", ["id", "digit"], truth)


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
