import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas
from tiny_study import HERE, grid_records, made_choices, with_curves

from study.figures import FIGURES, plan_figures, save_figures
from study.plan import ALPHAS, ASCENT_SCALES, NOISE_RATES, STUDY, cell_runs, figure_runs
from study.records import Records
from study.results import Results
from unbag.exceptions import InvalidInputError, MissingDependencyError

OF_MNIST = ["overfitting", "regularisation", "prior-noise", "rows", "grid-mnist"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All records that the figures of MNIST need, two trials."""
    path = tmp_path_factory.mktemp("figures")
    choices = made_choices("mnist")
    choices.save(path)
    runs = dict.fromkeys([*cell_runs(choices, trials=2), *figure_runs(choices, 2)])
    records = [
        with_curves(run, 4 + run.trial + 100 * run.prior_noise + run.dropout - run.share)
        for run in runs
    ]
    Records(path).add([*records, *grid_records(choices)], HERE)
    return path


@pytest.fixture(scope="module")
def results(folder):
    return Results(folder)


def draw(name, results):
    canvas, figure = Canvas(), FIGURES[name]
    figure.paint(results, figure.runs(results.choices[figure.dataset]), canvas)
    return canvas.axes


def test_figures_are_planned_from_what_is_there(results):
    ready, missing = plan_figures(results)
    assert list(ready) == OF_MNIST
    assert missing == {
        f"grid-{name}": f"python -m study run --datasets {name}"
        for name in STUDY
        if name not in ("mnist", "cifar10")  # of the last no grid is run
    }
    assert all(figure.caption.endswith(".") for figure in ready.values())


def test_files_are_drawn_and_the_same_twice(results, tmp_path, monkeypatch):
    small = {name: FIGURES[name] for name in OF_MNIST[:1]}
    monkeypatch.setattr("study.figures.FIGURES", small)
    paths = save_figures(results, tmp_path / "a/b", ["svg"])
    assert [path.name for path in paths] == [f"{name}.svg" for name in small]
    assert sorted((tmp_path / "a/b").iterdir()) == sorted(paths)
    for path in save_figures(results, tmp_path / "again", ["svg"]):
        first = (tmp_path / "a/b" / path.name).read_bytes()
        assert path.read_bytes() == first, path.name
        assert b"dc:date" not in first
        root = ElementTree.fromstring(first)
        assert root.get("width") == "453.543307pt"  # 16 cm


def test_png_files_are_sharp(results, tmp_path, monkeypatch):
    monkeypatch.setattr("study.figures.FIGURES", {"rows": FIGURES["rows"]})
    (path,) = save_figures(results, tmp_path, ["png"])
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    assert int.from_bytes(head[16:20], "big") >= 900  # 150 dpi at 16 cm


def test_curves_are_those_of_trial_0_in_percent(results):
    risk, error = draw("overfitting", results)
    for method, of_risk, of_error in zip(
        ("unbiased", "u-prr"), risk.lines, error.lines, strict=False
    ):
        run = results.choices["mnist"].run("asymmetric", method, 0)
        record = results.records[run]
        assert of_error.get_label() == method
        np.testing.assert_array_equal(of_error.get_xdata(), record.epochs)
        np.testing.assert_allclose(of_error.get_ydata(), 100 * np.array(record.errors))
        np.testing.assert_allclose(of_risk.get_ydata(), record.risks)


def test_every_rate_of_dropout_and_decay_has_its_curve(results):
    dropout, decay = draw("regularisation", results)
    assert [line.get_label() for line in dropout.lines] == ["0", "0.2", "0.4", "0.6", "0.8"]
    last = [line.get_ydata()[-1] for line in dropout.lines]
    np.testing.assert_allclose(last, [3, 3.2, 3.4, 3.6, 3.8])  # 4 + dropout - share
    assert [line.get_label() for line in decay.lines][::3] == ["$10^{-5}$", "$10^{-2}$", "$10^{1}$"]


def test_error_bars_are_mean_and_deviation_over_the_trials(results):
    panels = draw("prior-noise", results)
    assert len(panels) == 4
    for panel in panels:
        line, _, (bars,) = panel.containers[0].lines
        rates = 100 * np.array(NOISE_RATES)
        np.testing.assert_allclose(line.get_xydata(), np.c_[rates, 3.5 + rates])  # of 3 and 4
        for (low, high), rate in zip(bars.get_segments(), rates, strict=True):
            assert (low[1] + high[1]) / 2 == pytest.approx(3.5 + rate)
            assert (high[1] - low[1]) / 2 == pytest.approx(np.sqrt(0.5))


def test_errors_by_number_of_rows_have_one_line_per_method(results):
    (axes,) = draw("rows", results)
    lines = {bars.get_label(): bars.lines[0] for bars in axes.containers}
    assert list(lines) == ["u-prr", "unbiased"]
    sizes, shares = [2220, 6660, 20_000, 60_000], np.array([1 / 27, 1 / 9, 1 / 3, 1])
    for line in lines.values():
        np.testing.assert_allclose(line.get_xydata(), np.c_[sizes, 4.5 - shares], atol=1e-4)


def test_the_grid_shows_both_errors_and_frames_the_choice(results):
    panels = draw("grid-mnist", results)
    label_free, test = (panel.images[0].get_array() for panel in panels[:2])
    alphas, scales = np.array(ALPHAS)[:, None], np.array(ASCENT_SCALES)
    np.testing.assert_allclose(test, 10 * alphas + scales)
    np.testing.assert_allclose(label_free, np.broadcast_to(10 * alphas - 2, label_free.shape))
    for panel in panels:
        (frame,) = panel.patches
        row, column = ALPHAS.index(0.7), ASCENT_SCALES.index(5.0)
        assert frame.get_xy() == (column - 0.5, row - 0.5)
        assert len(panel.texts) == label_free.size
    assert panels[0].images[0].get_clim() == panels[1].images[0].get_clim()


@pytest.mark.parametrize(
    ("lost", "skipped"),
    [
        (lambda run: run.method == "unbiased" and run.setting == "asymmetric", OF_MNIST[:2]),
        (lambda run: run.dropout == 0.8, ["regularisation"]),
        (lambda run: run.weight_decay == 10.0, ["regularisation"]),
        (lambda run: run.prior_noise == 0.03 and run.trial == 0, ["prior-noise"]),
        (lambda run: run.prior_noise == 0.03 and run.trial == 1, []),
        (lambda run: run.share == 1 / 9, ["rows"]),
        (lambda run: run.held_out and run.alpha == 0.9, ["grid-mnist"]),
        (lambda _: True, OF_MNIST),
    ],
)
def test_a_figure_without_its_runs_is_skipped(folder, tmp_path, lost, skipped):
    made_choices("mnist").save(tmp_path)
    kept = [record for record in Records(folder) if not lost(record.run)]
    Records(tmp_path).add(kept, HERE)
    ready, missing = plan_figures(Results(tmp_path))
    assert [name for name in OF_MNIST if name in missing] == skipped
    assert list(ready) == [name for name in OF_MNIST if name not in skipped]
    if "rows" in skipped:
        assert missing["rows"] == "python -m study run --datasets mnist --figures"


def test_without_choices_there_is_no_figure(folder, tmp_path):
    Records(tmp_path).add(Records(folder), HERE)
    results = Results(tmp_path)
    ready, missing = plan_figures(results)
    assert ready == {}
    assert len(missing) == 4 + len(STUDY) - 1
    assert save_figures(results, tmp_path / "none", ["svg"]) == []
    assert not (tmp_path / "none").exists()


def test_failed_runs_of_the_grid_are_drawn(tmp_path):
    choices = made_choices("mnist")
    choices.save(tmp_path)
    first, *rest = grid_records(choices)
    failed = replace(first, label_free_error=None, error=1.0, diverged=True)
    Records(tmp_path).add([failed, *rest], HERE)
    panels = draw("grid-mnist", Results(tmp_path))
    assert [panel.texts[0].get_text() for panel in panels[:2]] == ["–", "100.0"]


def test_bad_requests_are_told(results, tmp_path, monkeypatch):
    with pytest.raises(InvalidInputError, match="format must be one of 'png', 'svg', got 'bmp'"):
        save_figures(results, tmp_path, ["bmp"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"output must be a folder, got .* is a file"):
        save_figures(results, tmp_path / "file", ["svg"])
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'unbag\[plot\]'"):
        save_figures(results, tmp_path, ["svg"])
