import csv
import io
import math
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from tiny_study import HERE, made_choices, made_record, rows_of, write_cells

from study.plan import METHODS, SETTINGS, STUDY, cell_runs
from study.records import Records
from study.results import Results, p_value, published
from study.tables import (
    PAPER_TABLES,
    agreement,
    behind,
    claim,
    gaps,
    legend,
    paper_table,
    ranking,
    write_tables,
)
from unbag.exceptions import InvalidInputError

HALF = "symmetric-0.5"


def whole(error=10.0, setting=HALF, **others):
    """Five trials of every method in a setting; errors of some are given."""
    plain = [error + d for d in (-2, -1, 0, 1, 2)]
    named = {method.replace("_", "-"): errors for method, errors in others.items()}
    return {(setting, method): named.get(method, plain) for method in METHODS}


def bold(results, setting=HALF):
    cells = results.cells[results.cells["bold"]].index
    return [method for *where, method in cells if where == ["pendigits", setting]]


# ------------------------------------------------------------------------------- the numbers


def test_the_paper_has_192_cells():
    assert set(published().index) == {(d, s, m) for d in STUDY for s in SETTINGS for m in METHODS}
    assert len(published()) == 192
    assert published()["bold"].sum() == 39
    assert list(published().loc["kmnist", "non-square", "u-prr"]) == [26.4, 0.74, 2.95, 1.15, False]


def test_a_cell_by_hand(tmp_path):
    write_cells(tmp_path, {(HALF, "prop"): [4.0, 5.0, 9.0]})
    cell = Results(tmp_path).cells.loc[("pendigits", HALF, "prop")]
    assert cell.trials == 3
    assert cell.error_mean == pytest.approx(6)
    assert cell.error_std == pytest.approx(math.sqrt(7))  # (4 + 1 + 9) / 2
    assert cell.drop_mean == pytest.approx(1)  # drops are 0, 1, 2
    assert cell.drop_std == pytest.approx(1)
    assert cell.difference == pytest.approx(6 - 5.8)


def test_a_cell_of_one_trial_or_none(tmp_path):
    write_cells(tmp_path, {(HALF, "prop"): [4.0]})
    one, none = (Results(tmp_path).cells.loc[("pendigits", HALF, m)] for m in ("prop", "biased"))
    assert one.error_mean == pytest.approx(4)
    assert math.isnan(one.error_std)
    assert (none.trials, none.bold, math.isnan(none.error_mean)) == (0, False, True)


def test_the_best_of_the_grid_is_that_of_the_test_error(tmp_path):
    choices = write_cells(tmp_path, {(HALF, "u-prr"): [6.0, 7.0], (HALF, "prop"): [5.0, 6.0]})
    runs = [choices.run(HALF, "u-prr", trial, oracle=True) for trial in range(2)]
    Records(tmp_path).add([made_record(run, 3.0 + run.trial) for run in runs], HERE)
    results = Results(tmp_path)
    assert results.cells.loc[("pendigits", HALF, "u-prr")].grid_mean == pytest.approx(3.5)
    assert results.cells.loc[("pendigits", HALF, "u-prr")].error_mean == pytest.approx(6.5)
    assert results.cells.loc[("pendigits", HALF, "prop")].grid_trials == 0
    assert bold(results) == ["prop"]  # what is chosen with labels does not compete


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        # t = mean √n / deviation; the two-sided 5% point of t with 4 degrees is 2.7764.
        ([-0.05, 0.95, 1.95, 2.95, 3.95], 0.0510),  # t = 1.95 √5 / √2.5 = 2.758
        ([-0.03, 0.97, 1.97, 2.97, 3.97], 0.0495),  # t = 2.786
        ([1.0, 0.0, 2.0], 0.2254),  # t = √3, 2 degrees
        ([0.0, 0.0, 0.0], 1.0),
        ([0.5, 0.5], 0.0),
    ],
)
def test_p_values_by_hand(differences, expected):
    first = 7.1 + 3.0 * pd.Series(range(len(differences)))
    second = first + differences
    assert p_value(second, first) == pytest.approx(expected, abs=5e-4)
    assert p_value(first, second) == p_value(second, first)


def test_trials_are_paired_by_their_number():
    first = pd.Series({0: 1.0, 1: 2.0, 2: 3.0, 9: 50.0})
    second = pd.Series({2: 3.5, 1: 2.5, 0: 1.5, 7: 90.0})
    assert p_value(first, second) == 0.0  # the same difference in all three
    assert math.isnan(p_value(first[[0, 1]], second[[1, 2]]))


def test_bold_are_the_smallest_mean_and_those_a_test_does_not_tell_from_it(tmp_path):
    best = [5.0, 6.0, 7.0, 8.0, 9.0]
    near = [e + d for e, d in zip(best, (-0.05, 0.95, 1.95, 2.95, 3.95), strict=True)]
    far = [e + d for e, d in zip(best, (-0.03, 0.97, 1.97, 2.97, 3.97), strict=True)]
    same, shifted = list(best), [e + 0.01 for e in best]
    write_cells(
        tmp_path,
        whole(40.0, u_prr=best, prop=near, prop_cr=far, u_flood=same, u_stop=shifted),
    )
    assert bold(Results(tmp_path)) == ["prop", "u-flood", "u-prr"]


def test_without_two_common_trials_only_the_best_is_bold_and_that_is_said(tmp_path):
    write_cells(tmp_path, whole(u_prr=[5.0], prop=[5.0], prop_cr={3: 5.5, 4: 5.6}))
    results = Results(tmp_path)
    assert bold(results) == ["prop"]
    text = " ".join(gaps(results))
    others = ", ".join(method for method in METHODS if method != "prop")
    assert f"so no t-test and no bold: Pendigits ({others} in symmetric-0.5)" in text


def test_equal_means_of_all_trials_are_all_bold(tmp_path):
    write_cells(tmp_path, whole())
    assert bold(Results(tmp_path)) == list(METHODS)


# --------------------------------------------------------------------------------- what lacks


def test_gaps_name_what_is_missing_briefly(tmp_path):
    errors = {
        (setting, method): [5.0, 6.0, 7.0, 8.0, 9.0] for setting in SETTINGS for method in METHODS
    }
    errors["asymmetric", "prop"] = []
    errors["non-square", "prop"] = []
    errors["non-square", "u-stop"] = [1.0, 2.0, 3.0]
    choices = write_cells(tmp_path, errors)
    best = cell_runs(choices, oracle=True)
    failed = made_record(choices.run(HALF, "biased", 0), 90.0, diverged=True)
    Records(tmp_path).add([*(made_record(run, 5.0) for run in best), failed], HERE)
    assert gaps(Results(tmp_path)) == [
        "No hyperparameters chosen yet, so no cells: USPS, MNIST, Fashion-MNIST, "
        "Kuzushiji-MNIST, CIFAR-10.",
        "No trial: Pendigits (prop in asymmetric, non-square).",
        "3 trials only: Pendigits (u-stop in non-square).",
        "Training failed in some trial: Pendigits (biased in symmetric-0.5).",
    ]


def test_a_best_of_the_grid_of_fewer_trials_is_said(tmp_path):
    choices = write_cells(tmp_path, {(s, "u-prr"): [5.0, 6.0] for s in SETTINGS})
    runs = [run for run in cell_runs(choices, oracle=True, trials=2) if run.setting != HALF]
    Records(tmp_path).add([made_record(run, 5.0) for run in runs], HERE)
    text = "Fewer trials with the best of the grid: Pendigits (u-prr in symmetric-0.5)."
    assert text in gaps(Results(tmp_path))


def test_nothing_lacks_where_all_is_there(tmp_path):
    for dataset in STUDY:
        choices = made_choices(dataset)
        choices = made_choices(dataset, by_test_error=choices.label_free)
        cells = [(setting, method) for setting in SETTINGS for method in METHODS]
        write_cells(tmp_path, dict.fromkeys(cells, [5.0] * 5), choices)
    assert gaps(Results(tmp_path)) == ["Nothing: all 192 cells have at least 5 trials."]


def test_missing_cells_are_marked_and_show_the_papers(tmp_path):
    write_cells(tmp_path, {(HALF, "prop"): [4.0, 5.0]})
    results = Results(tmp_path)
    table = paper_table(results, "symmetric")
    assert len(rows_of(table)) == 12
    first = dict(zip(list(table), rows_of(table)[0], strict=True))
    assert first["prop"] == "**4.50 (0.71)**\nΔ 0.50\npaper **5.80** (−1.30)\n2 trials"
    assert first["biased"] == "—\npaper 11.54"
    assert (first["dataset"], first["a"]) == ("Pendigits", "0.5")
    assert [row[0] for row in rows_of(paper_table(results, "non-square"))][-1] == "CIFAR-10"


# ------------------------------------------------------------------------ what they come to


def test_agreement_is_within_points_or_deviations(tmp_path):
    # Published: prop 5.80 (1.08), so 2.16 points; u-prr 4.61 (0.77), so 1.54; biased 11.54 (1.19).
    write_cells(
        tmp_path,
        {
            (HALF, "prop"): [7.95, 7.95],
            (HALF, "u-prr"): [6.16, 6.16],
            (HALF, "biased"): [14.0, 14.0],
            ("symmetric-0.1", "biased"): [61.0, 61.0],
        },
    )
    _, table, by_dataset = agreement(Results(tmp_path))
    assert list(by_dataset) == ["near, by dataset", "Pendigits"]
    assert rows_of(by_dataset)[:2] == [("`biased`", "1/2"), ("`prop`", "1/1")]
    rows = {row[0]: row[1:] for row in rows_of(table)}
    assert rows["`prop`"] == ("1 of 1", "+2.15", "1, 0", "")
    assert rows["`u-prr`"] == ("0 of 1", "+1.55", "1, 0", "")
    assert rows["`biased`"] == ("1 of 2", "+1.08", "1, 0", "")
    assert rows["`u-stop`"] == ("0 of 0", "—", "0, 0", "")
    assert rows["all"][0] == "2 of 4"


def test_small_deviations_leave_a_point_and_a_half(tmp_path):
    # Published: prop on USPS 7.92 (0.15).
    for error, near in ((9.41, "1 of 1"), (9.43, "0 of 1")):
        write_cells(tmp_path, {(HALF, "prop"): [error]}, made_choices("usps"))
        _, table, _ = agreement(Results(tmp_path))
        assert rows_of(table)[1][1] == near


def test_the_rank_of_u_prr(tmp_path):
    best, other = [5.0, 6.0, 7.0, 8.0, 9.0], [5.5, 6.5, 7.5, 8.5, 9.6]
    errors = whole(20.0, u_prr=best)
    errors |= whole(20.0, "symmetric-0.1", u_prr=other, prop=best)
    errors |= whole(20.0, "asymmetric", u_prr=[9.0, 5.0, 8.0, 8.0, 7.0], prop=best)
    errors |= whole(20.0, "non-square", u_prr=best, prop=[])  # not whole, so not counted
    write_cells(tmp_path, errors)
    _, table = ranking(Results(tmp_path))
    assert [row[1:] for row in rows_of(table)] == [
        ("1 of 1", "1 of 1", "6 of 6"),
        ("0 of 1", "0 of 1", "6 of 6"),
        ("0 of 1", "1 of 1", "6 of 6"),
        ("0 of 0", "0 of 0", "5 of 6"),
        ("1 of 3", "2 of 3", "23 of 24"),
    ]


def test_where_u_prr_is_behind_and_what_prop_cr_has_in_it(tmp_path):
    """Published for Pendigits: prop-cr has 5.85, 36.20, 6.58 and 5.05."""
    low, middle, high = ([x, x + 0.1, x + 0.3] for x in (4.0, 8.0, 20.0))
    others = {method: [60.0, 61.0, 62.0] for method in METHODS}
    rows = {
        HALF: {"u-prr": low, "prop-cr": [3.0, 3.1, 3.2]},  # best but for our prop-cr
        "symmetric-0.1": {"u-prr": low},  # best
        "asymmetric": {"u-prr": high},  # best here, behind the published prop-cr
        "non-square": {"u-prr": high, "prop": middle, "prop-cr": low},  # behind two
    }
    errors = {(s, m): e for s, cell in rows.items() for m, e in (others | cell).items()}
    write_cells(tmp_path, errors)
    text, table, counts = behind(Results(tmp_path))
    assert "2 of 4" in text
    assert rows_of(table) == [
        ("Pendigits", HALF, "4.13 (0.15)", "`prop-cr`", "3.10 (0.10)", "5.85"),
        ("Pendigits", "non-square", "20.13 (0.15)", "`prop-cr`", "4.13 (0.15)", "5.05"),
    ]
    assert "in 2 of 4 settings. Without `prop-cr` it is in 3; with" in counts
    assert "in the place of ours in 2 (" in counts


def test_the_papers_claim_is_held_against_its_cells():
    text, table = claim()
    assert "5 in all" in text
    assert {row[:3] for row in rows_of(table)} == {
        ("Fashion-MNIST", "non-square", "`prop`"),
        ("Fashion-MNIST", "non-square", "`prop-cr`"),
        ("Kuzushiji-MNIST", "non-square", "`prop`"),
        ("Kuzushiji-MNIST", "non-square", "`prop-cr`"),
        ("Kuzushiji-MNIST", "non-square", "`u-flood`"),
    }
    assert ("**20.28 (0.58)**", "26.40 (0.74)") in {row[3:] for row in rows_of(table)}


# --------------------------------------------------------------------------------- the formats


@pytest.fixture
def results(tmp_path):
    write_cells(tmp_path, whole(u_prr=[4.0, 5.0, 6.0, 5.0, 4.5], prop=[], biased=[30.0]))
    return Results(tmp_path)


def test_csv_has_the_columns_of_the_published_cells_and_the_trials(results):
    rows = list(csv.DictReader(io.StringIO(write_tables(results, "csv"))))
    assert len(rows) == 192
    columns = "dataset setting method error_mean error_std drop_mean drop_std bold trials"
    assert list(rows[0]) == columns.split()
    by_key = {(r["dataset"], r["setting"], r["method"]): r for r in rows}
    assert list(by_key) == list(results.cells.index)
    cell = by_key["pendigits", HALF, "u-prr"]
    assert (cell["error_mean"], cell["error_std"]) == ("4.90", "0.74")
    assert (cell["drop_mean"], cell["drop_std"]) == ("2.00", "1.58")
    assert (cell["bold"], cell["trials"]) == ("1", "5")
    one = by_key["pendigits", HALF, "biased"]
    assert (one["error_mean"], one["error_std"], one["trials"]) == ("30.00", "", "1")
    none = by_key["mnist", HALF, "prop"]
    assert (none["error_mean"], none["bold"], none["trials"]) == ("", "0", "0")


def test_markdown_has_whole_rows(results):
    text = write_tables(results, "md")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert text.count("\n## ") == 8
    assert text.count("**4.90 (0.74)**") == 1
    assert "grid" in legend(results)


class Balance(HTMLParser):
    """Checks that every tag that begins ends, and collects the text."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        assert not [value for name, value in attrs if name in ("src", "href")]  # needs no other
        if tag not in ("br", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_html_is_balanced_and_alone(results):
    text = write_tables(results, "html")
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert parser.seen.count("table") == 6
    assert parser.seen.count("tr") == 13 + 7 + 7 + 10 + 9 + 6
    assert "u-prr" in parser.text
    assert "**" not in parser.text
    assert "`" not in parser.text
    for needed in ("prefers-color-scheme: dark", "@media print", "overflow-x", "viewport"):
        assert needed in text


def test_latex_is_balanced_and_plain(results):
    text = write_tables(results, "latex")
    assert text.isascii()
    depth = 0
    for sign in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if sign == "{" else -1
        assert depth >= 0
    assert depth == 0
    started, ended = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert sorted(started) == sorted(ended)
    assert text.count("$") % 2 == 0
    assert not re.search(r"(?<!\\)[%#_]", text)
    for columns, body in re.findall(
        r"\\begin{tabular}{(l+)}\n\\toprule\n(.*?)\\bottomrule", text, re.DOTALL
    ):
        lines = [line for line in body.splitlines() if line.endswith(r" \\")]
        assert lines
        assert {line.count("&") for line in lines} == {len(columns) - 1}
    # booktabs and geometry are all it takes.
    assert re.findall(r"\\usepackage(?:\[.*?\])?{(\w+)}", text) == ["geometry", "booktabs"]


def test_an_unknown_format_is_refused(results):
    with pytest.raises(
        InvalidInputError, match="format must be one of 'md', 'latex', 'html', 'csv'"
    ):
        write_tables(results, "pdf")


def test_tables_of_quick_runs_have_only_what_is_there(tmp_path):
    by_setting = {setting: {} for setting in SETTINGS}
    quick = made_choices("usps", label_free=by_setting, by_test_error=by_setting, epochs=50)
    write_cells(tmp_path, {(HALF, "u-prr"): [6.0]}, quick)
    results = Results(tmp_path)
    assert results.quick
    assert len(results.cells) == len(SETTINGS) * len(METHODS)
    text = write_tables(results, "md")
    assert "quick runs of 50 epochs" in text
    assert "**6.00**<br>Δ 0.00<br>paper **6.01** (−0.01) |" in text
    for absent in ("MNIST", "grid ", "Agreement"):
        assert absent not in text


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_a_table_has_the_settings_of_its_name(results, name):
    columns = list(paper_table(results, name))
    assert columns[-8:] == list(METHODS)
    assert ("a" in columns) == (name == "symmetric")


def test_settings_with_a_method_of_one_trial_have_no_rank(tmp_path):
    write_cells(tmp_path, whole(prop=[30.0]))
    _, table = ranking(Results(tmp_path))
    assert rows_of(table)[0][:3] == (HALF, "0 of 0", "0 of 0")
    assert "in 0 of 0 settings" in behind(Results(tmp_path))[0]
