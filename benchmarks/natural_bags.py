"""Intervals on real tables with natural bags, whose rows differ between bags.

usage: python benchmarks/natural_bags.py [--seeds 3] [--record results/natural-bags.json]
       python benchmarks/natural_bags.py --table results/natural-bags.json

Tables are split by a hash of their names: how intervals allow for rows that differ was chosen with
the tables to build by, before any result of the others was seen. Some of those judged it when it
was made, and others (``judge`` of ``bagged_tables.SPLIT``) once more, after intervals near 0 and 1
had changed.

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
_JUDGED_BEFORE = (
    *("wa_churn", "nasscds", "hawks", "loans", "hpc_data", "chile", "diamonds"),
    *("marketing", "storms", "weather", "rotterdam", "flchain", "attrition"),
)
KINDS = {
    "judge": SPLIT["judge"],
    "judged before": _JUDGED_BEFORE,
    "build": tuple(name for name in SPLIT["build"] if name not in _JUDGED_BEFORE),
}
_CALLED = {
    "judge": "never used before",
    "judged before": "that judged when the rule was made",
    "build": "to build by",
}


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
    for name, part_of in [(name, kind) for kind in KINDS for name in KINDS[kind]]:
        for seed in range(seeds):
            part = split(name, seed)
            if part is None:
                break
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                inspected = without_copies(part)
                for model, predicted in predictions(part, seed):
                    runs.append({"table": name, "split": part_of, "seed": seed, "model": model})
                    runs[-1] |= {"inspected": inspected} | _evaluate(part, predicted)
                    print(runs[-1], flush=True)
        yield record


def without_copies(part: dict[str, Any]) -> float | None:
    """Leave out columns that tell the bag; give the p-value of ``inspect`` about the others."""
    found = unbag.inspect(part["theta"], X=part["X"], bag_ids=part["bag"])
    part["X"] = np.delete(part["X"], list(found.bag_features), axis=1)
    alike = unbag.inspect(part["theta"], X=part["X"], bag_ids=part["bag"]).alike
    return None if alike is None else alike.p_value


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
    """Markdown of a record: all groupings in short, and every one of those to judge by."""
    runs = [run for run in record["runs"] if "estimate" in run]
    by_split = {kind: [run for run in runs if run["split"] == kind] for kind in KINDS}
    refused = len(record["runs"]) - len(runs)
    return "\n".join(
        [
            "| groupings | seeds | inside | inside without rows | median width, points "
            "| without rows | warns where the truth is inside |",
            "|---|---|---|---|---|---|---|",
            *(_summary(kind, own) for kind, own in by_split.items() if own),
            "",
            f"{refused} evaluations were refused for lack of rank.",
            "",
            *(sentence for kind, own in by_split.items() for sentence in _misses(kind, own)),
            "",
            "Groupings that judged, one number per seed, in percent:",
            "",
            *_rows([*by_split["judge"], *by_split["judged before"]]),
        ]
    )


def _summary(kind: str, runs: list[dict[str, Any]]) -> str:
    """One row: how often the truth is inside, and how wide the intervals are."""
    n = max(len(runs), 1)
    right = [run for run in runs if _inside(run)]
    plain = sum(low <= run["truth"] <= high for run in runs for low, high in [run["without_rows"]])
    width = 100 * _median(run["high"] - run["low"] for run in runs)
    without = 100 * _median(high - low for low, high in _plain(runs))
    warned = sum(bool(run["warnings"]) for run in right)
    return (
        f"| {_CALLED[kind]}, {len({run['table'] for run in runs})} "
        f"| {len({run['seed'] for run in runs})} "
        f"| {len(right)} of {len(runs)} ({100 * len(right) / n:.0f} %) "
        f"| {plain} ({100 * plain / n:.0f} %) | {width:.0f} | {without:.0f} "
        f"| {warned} of {len(right)} |"
    )


def _misses(kind: str, runs: list[dict[str, Any]]) -> list[str]:
    """Say which narrow intervals miss, and whether anything warns of it."""
    sentences = []
    for run in runs:
        if _inside(run) or run["high"] - run["low"] >= _NARROW:
            continue
        p_value = run["inspected"]
        before = "could not test it" if p_value is None else f"p = {p_value:.2g}"
        sentences.append(
            f"- Narrower than {100 * _NARROW:.0f} points, and missed, of those {_CALLED[kind]}: "
            f"{run['table']} (seed {run['seed']}, {run['model']}), {100 * run['low']:.1f} to "
            f"{100 * run['high']:.1f} %, truth {100 * run['truth']:.1f}, "
            f"{'with' if run['warnings'] else 'without'} a warning of the evaluation; `inspect` "
            f"before it: {before}."
        )
    return sentences


def _rows(runs: list[dict[str, Any]]) -> list[str]:
    """Every grouping and model."""
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
    return lines


def _inside(run: dict[str, Any]) -> bool:
    return bool(run["low"] <= run["truth"] <= run["high"])


def _plain(runs: list[dict[str, Any]]) -> list[list[float]]:
    return [run["without_rows"] for run in runs]


def _median(values: Any) -> float:
    return float(np.median(list(values)))


if __name__ == "__main__":
    run_script(__doc__, measure, table, seeds=3)
