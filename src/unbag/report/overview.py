"""The parts of the page that are text: verdict, numbers, hyperparameters, data, citation."""

import datetime
from typing import Any

from unbag.report.charts import interval_bar
from unbag.report.markup import (
    definitions,
    details,
    escape,
    items,
    level_text,
    missing,
    name,
    number,
    percent,
    range_text,
    section,
    short,
    table,
)

__all__ = [
    "about",
    "banner",
    "cards",
    "citation",
    "data",
    "hyperparameters",
    "inspection",
    "moment",
]

Part = dict[str, Any]
_ICONS = {
    "go": '<path d="M7 12.5l3.5 3.5L17 8.5"/>',
    "care": '<path d="M12 7v6.5M12 16.6v.4"/>',
    "stop": '<path d="M8 8l8 8M16 8l-8 8"/>',
}
_SHOWN_FEATURES = 30


def banner(part: Part, warnings: list[str]) -> str:
    """Show the verdict of the inspection, and what must be known before all else."""
    alert = ""
    if warnings:
        listed = f'<p class="kicker">Mind first</p>{items(warnings)}'
        alert = f'<div class="alert" role="note">{listed}</div>'
    if "missing" in part:
        return f'{alert}<div class="banner none">{missing(part)}</div>'
    verdict = part["verdict"]
    icon = (
        '<svg viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="10"/>'
        f"{_ICONS[verdict]}</svg>"
    )
    reasons = items(part["reasons"], "reasons") if part["reasons"] else ""
    return (
        f'{alert}<div class="banner {verdict}">{icon}<div><p class="kicker">Verdict on bags and '
        f'priors</p><p class="verdict">{verdict}</p><p>{escape(part["summary"])}</p>{reasons}'
        "</div></div>"
    )


def cards(part: Part) -> str:
    """Show the numbers to read first."""
    sizes = [
        ("bags", "bags"),
        ("classes", "classes"),
        ("training rows", "training_rows"),
        ("held-out rows", "held_out_rows"),
    ]
    facts = "".join(
        f'<div class="fact"><b>{number(part[key])}</b><span>{label}</span></div>'
        for label, key in sizes
        if part.get(key) is not None
    )
    facts = f'<div class="facts">{facts}</div>'
    if "missing" in part:
        return section("headline", "Results", missing(part), facts)
    level = level_text(part["level"])
    base = part["most_common_share"]
    accuracy = part["accuracy"]
    common = name(part["most_common_class"])
    lead = (
        f"On {number(part['held_out_rows'])} held-out rows the classifier is right for about "
        f"<b>{percent(accuracy['value'])}</b> of them, estimated without a single label "
        f"({level} interval: {range_text(accuracy)}). Always answering the most common class, "
        f"{common}, would be right for {percent(base)}."
    )
    shown = [
        _card("Label-free accuracy", accuracy, level, base, "always the most common class"),
        _card("Balanced accuracy", part["balanced_accuracy"], level),
        _card("Macro F1", part["macro_f1"], level),
    ]
    others = [
        (label, part[key])
        for label, key in (
            ("area under the ROC curve", "auc"),
            ("log-loss", "log_loss"),
            ("Brier score", "brier"),
            ("mean cost", "cost"),
        )
        if part.get(key) is not None
    ]
    more = ""
    if others:
        rows = [
            [escape(label), number(e["value"]), range_text(e, share=False)] for label, e in others
        ]
        more = details(
            "More numbers", table(["", "estimate", f"{level} interval"], rows, "More numbers")
        )
    drawn = (
        "Rows were taken as drawn freely from their bags."
        if part["sampling"] == "iid"
        else "Class counts of the bags were taken as exact."
    )
    note = f"Estimates are not clipped: by chance one may leave 0 to 100 %. {drawn}"
    body = f'<p class="lead">{lead}</p><div class="cards">{"".join(shown)}</div>'
    return section("headline", "Results", body, facts, more, f'<p class="note">{note}</p>')


def _card(
    title: str, estimate: Part, level: str, marker: float | None = None, marked: str = ""
) -> str:
    value = percent(estimate["value"])
    lines = [f"{title}: {value}", f"{level} interval: {range_text(estimate)}"]
    if marker is not None:
        lines.append(f"{marked}: {percent(marker)}")
    bar = interval_bar(estimate["value"], estimate["low"], estimate["high"], lines, marker)
    return (
        f'<div class="card"><h3>{title}</h3><p class="big">{value}</p>{bar}'
        f'<p class="small">{range_text(estimate)}</p></div>'
    )


def inspection(part: Part) -> str:
    """Show what the inspection found."""
    if "missing" in part:
        return section("inspection", "Inspection of bags and priors", missing(part))
    facts = definitions((escape(key), escape(value)) for key, value in part["findings"])
    notes = f"<h3>Notes</h3>{items(part['notes'])}" if part["notes"] else ""
    return section("inspection", "Inspection of bags and priors", facts, notes)


def hyperparameters(part: Part, training: Part, method: str) -> str:
    """Show the settings of the classifier."""
    values = part["values"]
    shown = []
    for key, value in values.items():
        if key == "method":
            continue
        text = "default" if value is None else short(str(value), 200)
        shown.append((escape(key), f"<code>{escape(text)}</code>"))
    ended = ""
    if "stop_reason" in training:
        ended = f" Training ran {number(training['epochs'])} epochs and ended: "
        ended += f"{escape(training['stop_reason'])}."
    lead = f"<p>Method <code>{escape(method)}</code>: {escape(part['method_summary'])}.{ended}</p>"
    return section("hyperparameters", "Hyperparameters", lead, definitions(shown))


def data(part: Part) -> str:
    """Show where the rows come from."""
    facts = [
        (escape(label), number(part[key]))
        for label, key in (("rows", "rows"), ("held-out rows", "held_out_rows"))
        if part.get(key) is not None
    ]
    files = part["files"]
    if files:
        facts.append(
            (
                "files",
                "<br>".join(name(file, 60) for file in files[:10])
                + (f"<br>and {len(files) - 10:,} more" if len(files) > 10 else ""),
            )
        )
    parts = [definitions(facts)] if facts else []
    features = part["features"]
    if features:
        listed = ", ".join(name(f, 40) for f in features[:_SHOWN_FEATURES])
        more = len(features) - _SHOWN_FEATURES
        listed += f" and {more:,} more" if more > 0 else ""
        parts.append(f"<h3>{len(features):,} features</h3><p>{listed}</p>")
    if part["encoding"]:
        parts.append(f"<h3>Encoding</h3>{items(part['encoding'])}")
    if part["left_out"]:
        rows = [[name(c, 40), escape(short(why, 300))] for c, why in part["left_out"].items()]
        parts.append("<h3>Columns left out</h3>")
        parts.append(table(["column", "reason"], rows, "Columns left out", numbers=2))
    if part["notes"]:
        parts.append(f"<h3>Notes</h3>{items(part['notes'])}")
    if not parts:
        parts.append('<p class="missing">Nothing was said of where the rows come from.</p>')
    return section("data", "Data", *parts)


def citation(part: Part) -> str:
    """Show how to cite."""
    return section(
        "citation",
        "How to cite",
        f"<p>If you use the method, cite the paper: {escape(part['paper'])}</p>",
        f'<pre tabindex="0">{escape(part["paper_bibtex"])}</pre>',
        "<p>And the software:</p>",
        f'<pre tabindex="0">{escape(part["software_bibtex"])}</pre>',
    )


def moment(created: str) -> str:
    """Write a date and time to the minute, in UTC.

    Examples
    --------
    >>> moment("2026-05-01T14:03:59+02:00")
    '2026-05-01 12:03 UTC'
    """
    return f"{datetime.datetime.fromisoformat(created).astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC"


def about(report: Part) -> str:
    """Say when and with what the report was made."""
    made = ", ".join(f"{escape(key)} {escape(value)}" for key, value in report["versions"].items())
    return (
        f"<p>Made {moment(report['created'])} with {made}. Report format {report['version']}. "
        "This page is one file: it loads nothing and sends nothing.</p>"
    )
