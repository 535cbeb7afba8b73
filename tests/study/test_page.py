import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_study import HERE, grid_records, made_choices, made_record, write_cells

from study.page import BLOCKS, fill, fill_page
from study.plan import METHODS, SETTINGS
from study.records import Records
from study.results import Results
from unbag.exceptions import InvalidInputError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/records/reproduction.md"
ALL = "\n".join(
    f"Text on {name}.\n<!-- study: {name} -->\nof before\n<!-- end -->" for name in BLOCKS
)


@pytest.fixture
def results(tmp_path):
    errors = {(s, m): [5.0, 6.0, 7.0] for s in SETTINGS for m in METHODS}
    choices = write_cells(tmp_path, errors)
    old = made_choices(learning_rate=5e-5).run("asymmetric", "prop", 0)
    Records(tmp_path).add([*grid_records(choices), made_record(old, 9.0)], HERE)
    return Results(tmp_path)


def block(text, name):
    return re.search(rf"<!-- study: {name} -->\n\n(.*?)\n\n<!-- end -->", text, re.DOTALL)[1]


def test_every_block_is_filled_and_stays(results):
    filled = fill(ALL, results)
    assert "of before" not in filled
    for name in BLOCKS:
        assert f"Text on {name}." in filled
        assert block(filled, name).strip()
    assert fill(filled, results) == filled


def test_what_the_blocks_say(results):
    filled = fill(ALL, results)
    assert "| Pendigits | 140 | 96 | 0 | 1 |" in block(filled, "runs")
    assert "| CIFAR-10 | 0 | 0 | 0 | 0 |" in block(filled, "runs")
    assert "| 0.381 | 0.025 | 0.266 | 0.328 |" in block(filled, "weights")
    chosen = "α 0.7, s_GA 5 (α 0.5, s_GA 2)<br>level 0.05 (level 0)"
    assert block(filled, "choices").count(chosen) == 4
    assert "| Pendigits | 0.001 | n/20 |" in block(filled, "choices")
    # Errors of the grid are 10 α + s_GA: 7 + 5 is chosen, 1 + 0.1 the smallest, 9 + 10 the largest.
    assert block(filled, "grid-choice").count(" 12.00 (1.10, 19.00) |") == 4
    assert "costs 10.90 points in the mean, at most 10.90" in block(filled, "grid-choice")
    assert "the best cell in 0 of 4 settings" in block(filled, "grid-choice")
    assert "best or not significantly worse in 4 of 4 settings" in block(filled, "behind")
    where = "| a test | float32 | 2026-01-02 | python 3.12, torch 2.0 | 237 | 118 |"
    assert where in block(filled, "environment")
    assert "237 models in 118 s of device time" in block(filled, "environment")
    assert "![grid-pendigits](figures/grid-pendigits.svg)" in block(filled, "figures")
    assert "- rows: `python -m study run --datasets mnist --figures`" in block(filled, "figures")
    assert "3 trials only: Pendigits (all 32 cells)." in block(filled, "missing")


def test_a_grid_that_is_not_whole_is_left_out(tmp_path):
    choices = made_choices()
    choices.save(tmp_path)
    _, *rest = grid_records(choices)
    Records(tmp_path).add(rest, HERE)
    text = block(fill(ALL, Results(tmp_path)), "grid-choice")
    assert text.count(" 12.00 (1.10, 19.00) |") == 3
    assert " — |" in text
    assert "in 0 of 3 settings" in text
    choices.save(tmp_path / "none")
    assert block(fill(ALL, Results(tmp_path / "none")), "grid-choice") == "No grid is whole yet."


def test_a_dataset_without_a_grid(tmp_path):
    plain = made_choices("cifar10", by_test_error={setting: {} for setting in SETTINGS})
    write_cells(tmp_path, {(s, m): [50.0, 51.0] for s in SETTINGS for m in METHODS}, plain)
    filled = fill(ALL, Results(tmp_path))
    assert "| CIFAR-10 | 0.001 | n/20 | α 0.7, s_GA 5<br>level 0.05 |" in block(filled, "choices")
    assert "grid-cifar10" not in filled
    assert "best of the grid" not in block(filled, "missing")
    assert "<br>grid" not in filled
    assert "| CIFAR-10 | 0 | 64 | 0 | 0 |" in block(filled, "runs")
    assert block(filled, "rates") == "None are made yet."


def test_whole_runs_besides_those_of_the_tables(tmp_path):
    plain = made_choices("cifar10", by_test_error={setting: {} for setting in SETTINGS})
    write_cells(tmp_path, {("asymmetric", "prop"): [50.0, 51.0]}, plain)
    other = replace(plain.run("asymmetric", "prop", 0), learning_rate=1e-4)
    chose = replace(plain.run("symmetric-0.5", "u-prr", 0), held_out=True)
    extra = [
        made_record(other, 40.0),
        made_record(replace(other, trial=1), 42.0),
        made_record(chose, 30.0, label_free_error=0.31),
        made_record(replace(chose, epochs=20), 77.0, label_free_error=0.77),  # not whole
    ]
    Records(tmp_path).add(extra, HERE)
    text = block(fill(ALL, Results(tmp_path)), "rates")
    name = "| CIFAR-10 | symmetric-0.5 | u-prr, α 0.7, s_GA 5 | 0.001 |"
    assert f"{name} 31.00 | 30.00 |" in text
    assert "| CIFAR-10 | prop | 0.0001 | 2 | — | — | 41.00 instead of 50.50 | — |" in text
    assert text.count("CIFAR-10") == 2


def test_text_without_blocks_is_left_alone(results):
    for text in ("", "no end of line", "a\n\n  b  \n<!-- a remark -->\n"):
        assert fill(text, results) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n<!-- study: nothing -->\n<!-- end -->", r"p.md, line 2: .*'legend'.*got <!-- study: n"),
        (
            "<!-- study: runs -->\ntext",
            r"p.md, line 1: a block must .*; got <!-- study: runs -->\.$",
        ),
        ("a\nb\n<!-- end -->", r"p.md, line 3: .*; got <!-- end -->\.$"),
        (
            "<!-- study: runs -->\n<!-- study: claim -->\n<!-- end -->\n<!-- end -->",
            r"p.md, line 1: .*got <!-- study: runs --> and then <!-- study: claim -->\.$",
        ),
        (
            "<!-- study runs -->\n<!-- end -->",
            r"p.md, line 1: a block must stand .*got <!-- study r",
        ),
        ("<!-- bench: runs -->\n<!-- end -->", r"p.md, line 1: .*got <!-- bench: runs"),
        ("<!-- study: runs --> text\n<!-- end -->", r"line 1: .*got <!-- study: runs --> text and"),
    ],
)
def test_marks_that_do_not_fit_are_told_with_their_line(results, text, message):
    with pytest.raises(InvalidInputError, match=message):
        fill(text, results, name="p.md")


@pytest.mark.usefixtures("empty_figures")
def test_a_page_is_refilled_in_place_with_its_figures(results, tmp_path):
    page = tmp_path / "docs/page.md"
    page.parent.mkdir()
    page.write_text(ALL + "\n", encoding="utf-8")
    drawn = fill_page(page, results)
    assert [path.relative_to(page.parent).as_posix() for path in drawn] == [
        "figures/grid-pendigits.svg"
    ]
    text = page.read_text(encoding="utf-8")
    assert text == fill(ALL + "\n", results)
    for link in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (page.parent / link).is_file()
    before = page.stat().st_mtime_ns
    fill_page(page, results)
    assert page.stat().st_mtime_ns == before


def test_a_page_without_figures_draws_none(results, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- study: claim -->\n<!-- end -->\n")
    assert fill_page(page, results) == []
    assert not (tmp_path / "figures").exists()


def test_a_damaged_page_is_left_as_it_is(results, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- study: claim -->\n<!-- end -->\n<!-- end -->\n")
    before = page.read_bytes()
    with pytest.raises(InvalidInputError, match=r"page\.md, line 3"):
        fill_page(page, results)
    assert page.read_bytes() == before


@pytest.mark.skipif(not PAGE.exists(), reason="the page is not part of this copy")
class TestCommittedPage:
    def test_it_is_that_of_the_records(self):
        text = PAGE.read_text(encoding="utf-8")
        # By line first, so that a failure names the one that differs.
        filled = fill(text, Results(ROOT / "results/study"))
        assert text.splitlines() == filled.splitlines()
        assert text == filled

    def test_it_shows_every_block(self):
        text = PAGE.read_text(encoding="utf-8")
        assert set(re.findall(r"<!-- study: (\S+) -->", text)) == set(BLOCKS)

    def test_its_figures_are_there(self):
        for link in re.findall(r"!\[.*?\]\((.*?)\)", PAGE.read_text(encoding="utf-8")):
            assert (PAGE.parent / link).is_file()

    def test_it_changes_with_the_records(self, tmp_path):
        shutil.copytree(ROOT / "results/study", tmp_path / "bench")
        records = Records(tmp_path / "bench")
        first = next(iter(records))
        shutil.rmtree(tmp_path / "bench" / first.run.dataset)
        text = PAGE.read_text(encoding="utf-8")
        assert fill(text, Results(tmp_path / "bench")) != text
