"""Intervals on real tables with natural bags, whose rows differ between bags.

usage: python benchmarks/natural_bags.py [--seeds 3] [--record results/natural-bags.json]
       python benchmarks/natural_bags.py --table results/natural-bags.json

Tables are split by a hash of their names: how intervals allow for rows that differ was chosen with
the tables to build by (``bagged_tables.SPLIT``), before any result of the others was seen.

The rows of each group of a table are a bag. Columns that tell the bag are left out, as by ``unbag
fit``. Half of the rows train two models, `prop` from the shares of the bags and a logistic
regression from labels; the other half evaluates them without labels. The truth is their accuracy on
these rows.
"""

import datetime
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import unbag
from bagged_tables import SPLIT, encode, load
from script import run_script
from unbag.reporting import judge_model

_LEAST_ROWS = 20  # of a bag
_MOST_ROWS = 20_000
_NARROW = 0.2
_EPOCHS = 40


def split(name: str, seed: int) -> dict[str, Any] | None:
    """Rows, classes and bags to train on and to evaluate on; None without groups."""
    import pandas

    frame, y, group = load(name)
    if group is None:
        return None
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    order = rng.permutation(len(y))[:_MOST_ROWS]
    frame, y = frame.iloc[order].reset_index(drop=True), y[order]
    bag = pandas.factorize(frame[group])[0]
    sizes = np.bincount(bag[bag >= 0])
    kept = (bag >= 0) & (sizes[bag] >= _LEAST_ROWS)
    X, y, bag = encode(frame[kept].drop(columns=group)), y[kept], bag[kept]
    y, bag = (np.unique(values, return_inverse=True)[1] for values in (y, bag))
    half = np.arange(len(y)) % 2 == 0  # rows are in random order
    theta = np.zeros((bag.max() + 1, y.max() + 1))
    np.add.at(theta, (bag, y), 1)
    scale = X.std(0)
    X = ((X - X.mean(0)) / np.where(scale > 0, scale, 1)).astype(np.float32)
    return {"X": X, "y": y, "bag": bag, "half": half, "theta": theta / theta.sum(1, keepdims=True)}


def predictions(part: dict[str, Any], seed: int) -> Iterator[tuple[str, Any]]:
    """Name of each model, and its predictions of the rows to evaluate on."""
    from sklearn.linear_model import LogisticRegression

    X, half = part["X"], part["half"]
    clf = unbag.UnbagClassifier(
        priors=part["theta"], method="prop", epochs=_EPOCHS, random_state=seed, standardize=False
    )
    yield "prop", clf.fit(X[half], part["bag"][half]).predict(X[~half])
    with_labels = LogisticRegression(max_iter=300).fit(X[half], part["y"][half])
    yield "labels", with_labels.predict(X[~half])


def measure(seeds: int = 3) -> Iterator[dict[str, Any]]:
    """Evaluate models on all tables with groups."""
    runs: list[dict[str, Any]] = []
    record = {"date": datetime.date.today().isoformat(), "seeds": seeds, "runs": runs}
    for name, part_of in [(name, kind) for kind in ("judge", "build") for name in SPLIT[kind]]:
        for seed in range(seeds):
            part = split(name, seed)
            if part is None:
                break
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                inspected = unbag.inspect(part["theta"], X=part["X"], bag_ids=part["bag"])
                part["X"] = np.delete(part["X"], list(inspected.bag_features), axis=1)
                for model, predicted in predictions(part, seed):
                    runs.append({"table": name, "split": part_of, "seed": seed, "model": model})
                    runs[-1] |= _evaluate(part, predicted)
                    print(runs[-1], flush=True)
        yield record


def _evaluate(part: dict[str, Any], predicted: Any) -> dict[str, Any]:
    bag, y = part["bag"][~part["half"]], part["y"][~part["half"]]
    truth = float((predicted == y).mean())
    shape = {"bags": len(part["theta"]), "classes": part["theta"].shape[1], "rows": len(y)}
    try:
        X = part["X"][~part["half"]]
        report = unbag.evaluate_predictions(predicted, bag, priors=part["theta"], X=X)
    except unbag.exceptions.RankError:
        return shape | {"truth": truth, "refused": True}
    plain = unbag.evaluate_predictions(predicted, bag, priors=part["theta"])
    misfit, drift = report.misfit, report.row_drift
    return shape | {
        "truth": truth,
        "estimate": float(report.accuracy),
        "low": report.accuracy.low,
        "high": report.accuracy.high,
        "without_rows": plain.accuracy.interval,
        "row_drift": None if drift is None else vars(drift),
        "warnings": [warning.split(",")[0][:60] for warning in report.warnings],
        "p_value": None if misfit is None else misfit.p_value,
        "drift": None if misfit is None else misfit.drift,
        "verdict": judge_model(report).verdict,
    }


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    runs = [run for run in record["runs"] if "estimate" in run]
    titles = {"judge": "Tables to judge by:", "build": "Tables that the rule was built with:"}
    refused = len(record["runs"]) - len(runs)
    lines = []
    for kind, title in titles.items():
        lines += [title, "", *_rows([run for run in runs if run["split"] == kind]), ""]
    lines.append(f"{refused} evaluations were refused for lack of rank.")
    return "\n".join(lines)


def _rows(runs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| table | M, K | model | truth | estimates | intervals | without rows | inside | warns |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for key in dict.fromkeys((run["table"], run["model"]) for run in runs):
        own = [run for run in runs if (run["table"], run["model"]) == key]
        columns = [
            ", ".join(f"{100 * run['truth']:.0f}" for run in own),
            ", ".join(f"{100 * run['estimate']:.0f}" for run in own),
            ", ".join(f"{100 * run['low']:.0f} to {100 * run['high']:.0f}" for run in own),
            ", ".join(f"{100 * low:.0f} to {100 * high:.0f}" for low, high in _plain(own)),
            f"{sum(map(_inside, own))} of {len(own)}",
            f"{sum(bool(run['warnings']) for run in own)} of {len(own)}",
        ]
        shape = f"{own[0]['bags']}, {own[0]['classes']}"
        lines.append(f"| {key[0]} | {shape} | {key[1]} | {' | '.join(columns)} |")
    plain = [
        low <= run["truth"] <= high for run, (low, high) in zip(runs, _plain(runs), strict=True)
    ]
    missed = [run for run in runs if not _inside(run)]
    narrow = [run for run in missed if run["high"] - run["low"] < _NARROW]
    silent = [run for run in narrow if not run["warnings"]]
    right = [run for run in runs if _inside(run)]
    names = "".join(f" ({run['table']}, {run['model']}, seed {run['seed']})" for run in silent)
    return [
        *lines,
        "",
        f"The truth is inside {len(right)} of {len(runs)} intervals "
        f"({100 * len(right) / max(len(runs), 1):.0f} %), whose median width is "
        f"{100 * _median(run['high'] - run['low'] for run in runs):.0f} points; without rows it is "
        f"inside {sum(plain)} ({100 * sum(plain) / max(len(runs), 1):.0f} %), with "
        f"{100 * _median(high - low for low, high in _plain(runs)):.0f} points. Of {len(missed)} "
        f"that miss, {len(narrow)} are narrower than {100 * _NARROW:.0f} points, {len(silent)} of "
        f"them without a warning{names}. Where the truth is inside, "
        f"{sum(bool(run['warnings']) for run in right)} of {len(right)} have a warning.",
    ]


def _inside(run: dict[str, Any]) -> bool:
    return bool(run["low"] <= run["truth"] <= run["high"])


def _plain(runs: list[dict[str, Any]]) -> list[list[float]]:
    return [run["without_rows"] for run in runs]


def _median(values: Any) -> float:
    return float(np.median(list(values)))


if __name__ == "__main__":
    run_script(__doc__, measure, table, seeds=3)
