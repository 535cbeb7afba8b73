"""The charts of priors, training and confusion."""

from typing import Any

import numpy as np

from unbag.report.charts import Line, interval_bar, line_chart
from unbag.report.heat import LARGEST_TABLE, heat_picture, heat_table
from unbag.report.markup import (
    definitions,
    details,
    escape,
    figure,
    isolated,
    level_text,
    missing,
    name,
    number,
    percent,
    range_text,
    section,
    table,
)

__all__ = ["confusion", "priors", "training"]

Part = dict[str, Any]
Grids = dict[str, Part]  # what pictures tell on hover, by key
_MOST_ROWS = 1000  # of a table


def priors(part: Part, grids: Grids) -> str:
    """Draw the known class shares of every bag."""
    shares = np.array(part["shares"], dtype=np.float64)  # (M, K)
    bags, classes = part["bags"], part["classes"]
    counts = {
        label: part[key]
        for label, key in (("training rows", "training_rows"), ("held-out rows", "held_out_rows"))
        if part[key] is not None
    }
    m, k = shares.shape
    title = f"Known share of {k:,} classes in {m:,} bags"
    if m <= LARGEST_TABLE[0] and k <= LARGEST_TABLE[1]:
        tips = [
            [
                [
                    f"bag {isolated(bag)}",
                    f"class {isolated(label)}",
                    f"share {percent(shares[i, j], 2)}",
                    *(f"{what}: {number(rows[i])}" for what, rows in counts.items()),
                ]
                for j, label in enumerate(classes)
            ]
            for i, bag in enumerate(bags)
        ]
        extra = {what: [number(n) for n in rows] for what, rows in counts.items()}
        drawing = heat_table(shares, bags, classes, tips, corner="bag", label=title, extra=extra)
        caption = "Percent of the rows of each bag (line) that are of each class (column)."
        return section("priors", "Class priors", figure(drawing, caption, title))
    order = np.lexsort((-shares.max(1), shares.argmax(1)))
    names = [bags[i] for i in order]
    layers = [{"label": "share", "values": _per_mille(shares[order]), "scale": 10, "unit": " %"}]
    drawing, grids["priors"] = heat_picture(
        "priors",
        np.sqrt(shares[order] / shares.max()),
        names,
        classes,
        layers,
        kinds=("bag", "class"),
        label=title,
    )
    caption = (
        "Each line of the picture is a bag, each column a class; the stronger the colour, the "
        f"larger the share, up to {percent(shares.max())}. Bags are sorted by their largest class."
    )
    return section(
        "priors", "Class priors", figure(drawing, caption, title), _largest_shares(part, shares)
    )


def _per_mille(values: Any) -> list[list[int | None]]:
    shown = np.array(values, dtype=np.float64)
    return [[None if np.isnan(v) else round(1000 * float(v)) for v in row] for row in shown]


def _largest_shares(part: Part, shares: Any) -> str:
    """Tabulate the largest classes of every bag, for bags or classes too many for a table."""
    counts = [part[key] for key in ("training_rows", "held_out_rows") if part[key] is not None]
    heads = [
        h
        for h, key in (("training rows", "training_rows"), ("held-out rows", "held_out_rows"))
        if part[key] is not None
    ]
    total = np.sum(counts, axis=0) if counts else np.zeros(len(shares))
    order = np.argsort(-total, kind="stable")[:_MOST_ROWS]
    rows = []
    for i in order:
        top = np.argsort(-shares[i], kind="stable")[:3]
        listed = ", ".join(f"{name(part['classes'][j], 20)} {percent(shares[i, j])}" for j in top)
        rows.append([name(part["bags"][i]), listed, *(number(rows_[i]) for rows_ in counts)])
    head = ["bag", "largest classes", *heads]
    left = len(shares) - len(order)
    note = f"<p>{left:,} smaller bags are not listed.</p>" if left else ""
    return details(
        "Show the numbers", table(head, rows, "Largest classes of every bag", numbers=2) + note
    )


def training(part: Part) -> str:
    """Draw risk, partial risks and label-free error by epoch."""
    if "missing" in part:
        return section("training", "Training", missing(part))
    epochs = part["epoch"]
    mark = None
    if part["best_epoch"] is not None:
        mark = (part["best_epoch"], "kept epoch")
    risks = [Line("objective", part["objective"], "a")]
    if any(v is not None for v in part["empirical_risk"]):
        risks.append(Line("empirical risk", part["empirical_risk"], "b"))
    caption = "What was minimised, and the empirical risk of the training batches."
    if part["negative_share"][-1]:
        caption += " A negative risk is a sign of overfitting."
    partial = part["partial_risks"]
    spread = Line(
        "mean weighted by the class shares",
        partial["mean"],
        "c",
        partial["smallest"],
        partial["largest"],
        "smallest to largest",
    )
    charts = [
        figure(line_chart(epochs, risks, label="Risk by epoch", mark=mark), caption, "Risk"),
        figure(
            line_chart(epochs, [spread], label="Partial risks by epoch", mark=mark),
            "The partial risk of a bag and a class is the mean loss of the bag if all its rows "
            "were of that class.",
            "Partial risks",
        ),
    ]
    if "label_free_error" in part or "test_error" in part:
        charts = [_error_chart(part, mark), *charts, figure(_ending(part), title="How it ended")]
    else:
        charts.append(figure(_ending(part), _no_error_chart(part), "How it ended", wide=True))
    rows = _epoch_rows(part)
    head = ["epoch", "objective", "empirical risk", "partial risks, mean", "label-free error"]
    numbers = details("Show the numbers", table(head, rows, "History of the training"))
    return section("training", "Training", f'<div class="two">{"".join(charts)}</div>', numbers)


def _ending(part: Part) -> str:
    """List what is known of the end of the training."""
    pairs = [
        ("epochs", number(part["epochs"])),
        ("ended by", escape(part["stop_reason"])),
        ("objective, last epoch", number(part["objective"][-1])),
        ("empirical risk, last epoch", number(part["empirical_risk"][-1])),
        ("batches of negative risk, last epoch", percent(part["negative_share"][-1], 0)),
    ]
    if part["best_epoch"] is not None:
        pairs.insert(1, ("weights kept from epoch", number(part["best_epoch"])))
    return definitions(pairs)


def _error_chart(part: Part, mark: tuple[int, str] | None) -> str:
    title = "Label-free error"
    lines = []
    half = part.get("label_free_half_width")
    values = part.get("label_free_error")
    caption = "Error of rows held out during training, estimated without labels."
    if values is not None:
        line = Line("label-free error", values, "a")
        if half is not None:
            line.low = [None if v is None else v - half for v in values]
            line.high = [None if v is None else v + half for v in values]
            line.band = "± half-width"
            caption += (
                f" The band is ± {100 * half:.1f} points at every epoch: the half-width of the "
                "interval of the final error on these rows."
            )
        lines.append(line)
    if "test_error" in part:
        lines.append(Line("error with labels", part["test_error"], "b"))
    drawing = line_chart(
        part["epoch"],
        lines,
        shares=True,
        label="Label-free error by epoch",
        mark=mark,
    )
    return figure(drawing, caption, title)


def _no_error_chart(part: Part) -> str:
    """Say why there is none, and what is known instead."""
    final = part.get("final_error")
    known = f" At the end it was {percent(final['value'])} ({range_text(final)})." if final else ""
    return (
        "The label-free error was not recorded by epoch: that needs rows held out during training, "
        f"as with early stopping.{known}"
    )


def _epoch_rows(part: Part) -> list[list[str]]:
    n = len(part["epoch"])
    picked = sorted({int(i) for i in np.linspace(0, n - 1, min(n, 20)).round()})
    errors = part.get("label_free_error") or [None] * n
    return [
        [
            number(part["epoch"][i]),
            number(part["objective"][i]),
            number(part["empirical_risk"][i]),
            number(part["partial_risks"]["mean"][i]),
            percent(errors[i]),
        ]
        for i in picked
    ]


def confusion(part: Part, grids: Grids) -> str:
    """Draw the confusion matrix and the numbers of every class."""
    title = "Confusion and recall"
    if "missing" in part:
        return section("confusion", title, missing(part))
    classes, k = part["classes"], len(part["classes"])
    shown = np.array(part["projected"], dtype=np.float64)
    level = level_text(part["level"])
    label = "Estimated confusion matrix"
    caption = (
        "Of each true class (line), the percent predicted as each class (column). Shades and "
        "numbers are of the likeliest valid matrix (projected; biased near 0 and 100). On hover: "
        "the raw estimate, which is unbiased and may leave 0 to 100 %, "
        + (f"with its {level} interval." if part["low"] is not None else "without an interval.")
    )
    if k <= LARGEST_TABLE[1]:
        tips = [[_cell_tip(part, y, j, level) for j in range(k)] for y in range(k)]
        drawing = heat_table(
            shown, classes, classes, tips, corner="true \\ predicted", label=label, diagonal=True
        )
    else:
        known = [("projected", "projected"), ("raw estimate", "raw")]
        if part["low"] is not None:
            known += [(f"{level} interval from", "low"), ("to", "high")]
        layers = [
            {"label": what, "values": _per_mille(part[key]), "scale": 10, "unit": " %"}
            for what, key in known
        ]
        drawing, grids["confusion"] = heat_picture(
            "confusion",
            np.sqrt(shown),
            classes,
            classes,
            layers,
            kinds=("true class", "predicted class"),
            label=label,
            square=True,
        )
    return section("confusion", title, figure(drawing, caption, label), _class_table(part, level))


def _cell_tip(part: Part, y: int, j: int, level: str) -> list[str]:
    lines = [
        f"true {isolated(part['classes'][y])}",
        f"predicted {isolated(part['classes'][j])}",
        f"projected {percent(part['projected'][y][j])}",
        f"raw estimate {percent(part['raw'][y][j])}",
    ]
    if part["low"] is not None and part["low"][y][j] is not None:
        ends = f"{percent(part['low'][y][j])} to {percent(part['high'][y][j])}"
        lines.append(f"{level} interval {ends}")
    return lines


def _class_table(part: Part, level: str) -> str:
    rows = []
    for j, label in enumerate(part["classes"]):
        recall, precision = part["recall"][j], part["precision"][j]
        lines = [
            f"recall of {isolated(label)}: {percent(recall['value'])}",
            f"{level} interval: {range_text(recall)}",
        ]
        rows.append(
            [
                name(label, 24),
                interval_bar(recall["value"], recall["low"], recall["high"], lines),
                percent(recall["value"]),
                range_text(recall),
                percent(precision["value"]),
                percent(part["f1"][j]["value"]),
                percent(part["test_prior"][j]),
                percent(part["predicted_share"][j]["value"]),
            ]
        )
    head = [
        "class",
        "0 to 100 %",
        "recall",
        f"{level} interval",
        "precision",
        "F1",
        "known share",
        "predicted share",
    ]
    shown = table(head, rows, "Numbers of every class", numbers=2)
    return figure(
        shown,
        f"Raw estimates; bars are {level} intervals of the recall. Recall is the share of a class "
        "that is found, precision the share of its predictions that are right.",
        "Every class",
    )
