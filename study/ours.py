"""`crossfit` and `consistency` beside the paper's best method and networks trained on labels."""

from typing import Any

import pandas as pd

from study import plan
from study.formats import Block, bold, number_of, with_deviation
from study.plan import DATASET_NAMES, OURS, SETTINGS, TRIALS, our_run
from study.results import KEY, Results, differs, published

_BEST = "u-prr"  # the paper's method
_RECIPES = ["consistency", "crossfit-augmented", "crossfit"]  # the first that was run is the best
_SHOWN = "crossfit-mixup"  # beside u-prr, with noise in the priors
_LABELS = ["supervised", "supervised-mixup", "supervised-augmented"]
_NONE: list[Block] = ["None are made yet."]


def ours(results: Results) -> list[Block]:
    """Table of all cells that have a run of ours, and what it comes to."""
    cells = _cells(results)
    order = pd.MultiIndex.from_product([results.datasets, SETTINGS], names=KEY[:2])
    means = cells["mean"].unstack("method").reindex(order)
    means = means[means[_RECIPES].notna().any(axis=1)]
    if means.empty:
        return _NONE
    paper = published().xs(_BEST, level="method").loc[means.index]
    recipe = means[_RECIPES].notna().idxmax(axis=1)  # of every dataset and setting
    best = cells.loc[[(*place, method) for place, method in recipe.items()]]
    text = (
        "Test error in percent, mean (sample deviation). **Bold**: significantly below the "
        "published error of `u-prr`, by Welch's t-test at 5 %. The best recipe, with augmentation "
        f"where that was run, is below it in {best['below'].sum()} of {len(best)} cells, "
        f"significantly in {best['clearly'].sum()}."
    )
    texts = cells.apply(_text, axis=1).unstack("method").loc[means.index, [_BEST, *OURS]]
    texts.columns = ["our `u-prr`", *(f"`{method}`" for method in OURS)]
    table = texts.rename_axis(columns=None).reset_index().replace({"dataset": DATASET_NAMES})
    numbers = zip(paper["error_mean"], paper["error_std"], strict=True)
    table.insert(2, "paper's `u-prr`", [with_deviation(*pair) for pair in numbers])
    errors = pd.DataFrame(
        {
            "the paper's `u-prr`": paper["error_mean"],
            "our `u-prr`": means[_BEST],
            "the best recipe": best["mean"].droplevel("method"),
        }
    )
    distances = errors.sub(means[_LABELS].min(axis=1), axis=0).dropna()
    if distances.empty:
        return [text, table]
    parts = ", ".join(f"{name} {mean:.2f}" for name, mean in distances.mean().items())
    return [
        text,
        table,
        "Error above that of the network with labels, in points, as the mean over "
        f"{len(distances)} cells: {parts}.",
    ]


def _cells(results: Results) -> pd.DataFrame:
    """Count, mean and deviation by dataset, setting and method, and how they compare.

    ``below`` says that the mean lies below the published one of `u-prr`, ``clearly`` that it does
    so significantly.
    """
    runs = [our_run(d, s, m, 0) for d in results.datasets for s in SETTINGS for m in OURS]
    papers = results.cells.xs(_BEST, level="method", drop_level=False)
    names = {"trials": "count", "error_mean": "mean", "error_std": "std"}
    cells = pd.concat([papers[list(names)].rename(columns=names), results.summarise(runs)])
    paper = published().xs(_BEST, level="method").loc[cells.index.droplevel("method")]
    known = paper["error_mean"].to_numpy(), paper["error_std"].to_numpy()
    cells["below"] = cells["mean"] < known[0]
    different = differs(cells["mean"], cells["std"], cells["count"], *known)
    cells["clearly"] = cells["below"] & different
    return cells


def _text(cell: Any) -> str:
    method = cell.name[-1]
    text = with_deviation(cell["mean"], cell["std"])
    text = bold(text, cell["clearly"] and method not in _LABELS)
    if method != _BEST and cell["count"] not in (0, TRIALS):
        text += f"\n{number_of(cell['count'], 'trial')}"
    return text


def ablations(results: Results) -> list[Block]:
    """Table of the ablations that have a run."""
    rows = []
    for where, changes in plan.ABLATIONS.items():
        whole = results.error(our_run(*where, 0))
        for name, options in changes:
            changed = results.error(our_run(*where, 0, **options))
            rows.append((DATASET_NAMES[where[0]], *where[1:], name, whole, changed))
    headings = ["dataset", "setting", "method", "change", "as it is", "changed"]
    table = pd.DataFrame(rows, columns=headings).dropna()
    if table.empty:
        return _NONE
    table["cell"] = [
        f"{changed:.2f} ({changed - whole:+.2f})"
        for whole, changed in table[headings[-2:]].itertuples(index=False)
    ]
    table["where"] = table["dataset"] + ", " + table["setting"]
    index = ["method", "change"]
    wide = table.pivot_table("cell", index, "where", "first", fill_value="—", sort=False)
    text = "Error with the change; in brackets, by how much it is larger than without."
    return [text, wide.rename_axis(columns=None).reset_index()]


def noise(results: Results) -> list[Block]:
    """Table of errors with noise in the priors, of `crossfit-mixup` beside u-prr."""
    runs = plan.noise_runs(1)
    choices = results.choices.get(plan.FIGURE_DATASET)
    if choices is not None:
        runs += [run for row in plan.noisy_runs(choices).values() for run in row]
    errors = results.summarise(runs, by=["setting", "method", "prior_noise"])
    order = pd.MultiIndex.from_product([SETTINGS, [_BEST, _SHOWN]], names=KEY[1:])
    counts = errors["count"].unstack().reindex(order, fill_value=0)
    if not counts.xs(_SHOWN, level="method").any(axis=None):
        return _NONE
    texts = errors.apply(lambda row: with_deviation(row["mean"], row["std"]), axis=1).unstack()
    table = texts.reindex(order)[list(plan.NOISE_RATES)][counts.any(axis=1)]
    table.columns = [f"{100 * rate:g} %" for rate in plan.NOISE_RATES]
    return [table.reset_index()]
