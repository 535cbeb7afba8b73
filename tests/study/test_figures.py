import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from tiny_study import HERE, grid_records, made_choices, with_curves
from unbag.bench.cells import Results
from unbag.bench.figures import plan_figures, save_figures
from unbag.bench.records import Records
from unbag.bench.running import cell_runs, figure_runs
from unbag.bench.study import STUDY

from unbag.exceptions import InvalidInputError, MissingDependencyError

OF_MNIST = ["overfitting", "regularisation", "prior-noise", "rows", "grid-mnist"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All records that the figures of MNIST need, two trials."""
    path = tmp_path_factory.mktemp("figures")
    choices = made_choices("mnist")
    choices.save(path)
    runs = dict.fromkeys([*cell_runs(choices, trials=2), *figure_runs(choices, 2)])
    made = [with_curves(run, 4 + run.trial + 100 * run.prior_noise) for run in runs]
    Records(path).add([*made, *grid_records(choices)], HERE)
    return path


def test_figures_are_planned_from_what_is_there(folder):
    made, skipped = plan_figures(Results(folder))
    assert [figure.name for figure in made] == OF_MNIST
    assert skipped == {
        f"grid-{name}": f"unbag bench run --datasets {name}"
        for name in STUDY
        if name not in ("mnist", "cifar10")  # of the last no grid is run
    }
    assert all(figure.caption.endswith(".") for figure in made)


def test_files_are_drawn_and_the_same_twice(folder, tmp_path):
    made, _ = plan_figures(Results(folder))
    paths = save_figures(made, tmp_path / "a/b", ["png", "svg"])
    assert sorted(p.name for p in (tmp_path / "a/b").iterdir()) == sorted(p.name for p in paths)
    assert len(paths) == 2 * len(OF_MNIST)
    again = save_figures(plan_figures(Results(folder))[0], tmp_path / "again", ["svg"])
    for path in again:
        first = (tmp_path / "a/b" / path.name).read_bytes()
        assert path.read_bytes() == first, path.name
        assert b"dc:date" not in first
        root = ElementTree.fromstring(first)
        assert root.get("width") == "453.543307pt"  # 16 cm
    for path in paths:
        if path.suffix == ".png":
            head = path.read_bytes()[:24]
            assert head.startswith(b"\x89PNG")
            assert int.from_bytes(head[16:20], "big") >= 900  # 150 dpi at 16 cm


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
    made, missing = plan_figures(Results(tmp_path))
    assert [name for name in OF_MNIST if name in missing] == skipped
    assert [figure.name for figure in made] == [n for n in OF_MNIST if n not in skipped]
    if "rows" in skipped:
        assert missing["rows"] == "unbag bench run --datasets mnist --figures"


def test_without_choices_there_is_no_figure(folder, tmp_path):
    Records(tmp_path).add(Records(folder), HERE)
    made, skipped = plan_figures(Results(tmp_path))
    assert made == []
    assert len(skipped) == 4 + len(STUDY) - 1
    assert save_figures(made, tmp_path / "none", ["svg"]) == []
    assert not (tmp_path / "none").exists()


def test_failed_runs_of_the_grid_are_drawn(tmp_path):
    choices = made_choices("mnist")
    choices.save(tmp_path)
    first, *rest = grid_records(choices)
    failed = replace(first, label_free_error=None, error=1.0, diverged=True)
    Records(tmp_path).add([failed, *rest], HERE)
    made, _ = plan_figures(Results(tmp_path))
    assert [path.name for path in save_figures(made, tmp_path, ["svg"])] == ["grid-mnist.svg"]


def test_bad_requests_are_told(folder, tmp_path, monkeypatch):
    made, _ = plan_figures(Results(folder))
    with pytest.raises(InvalidInputError, match="format must be one of 'png', 'svg', got 'bmp'"):
        save_figures(made, tmp_path, ["bmp"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"output must be a folder, got .* is a file"):
        save_figures(made, tmp_path / "file", ["svg"])
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'unbag\[plot\]'"):
        save_figures(made, tmp_path, ["svg"])
