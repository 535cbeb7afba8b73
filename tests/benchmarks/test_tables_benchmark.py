"""The benchmark on real tables, with made-up tables in their place: nothing is downloaded."""

import dataclasses
import functools
import json

import numpy as np
import pandas
import pytest
import torch

import bagged_tables
import references
import script
import tables
import unbag
from unbag.methods import Tables


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """Two tables of 600 rows: three classes, a number per class and a column of groups."""

    def read(package, table):
        rng = np.random.default_rng(len(package))
        y = rng.integers(3, size=600)
        frame = pandas.DataFrame(4 * np.eye(3)[y] + rng.normal(size=(600, 3)), columns=list("abc"))
        frame["colour"] = np.where(frame["a"] > 2, "red", "blue")
        frame["district"] = (y + rng.integers(4, size=600)).astype(float)
        frame["class"] = [f"class {k}" for k in y]
        frame["name"] = table
        frame.loc[:9, "a"] = np.nan
        frame.loc[10:29, "district"] = np.nan
        frame.loc[30:32, "class"] = "rare"
        return frame

    listed = {
        "first": ("one", "first", "class", ["name"], "district"),
        "second": ("another", "second", "class", ["name"], None),
    }
    monkeypatch.setattr(bagged_tables, "_TABLES", listed)
    monkeypatch.setattr(bagged_tables, "_read", read)
    monkeypatch.setattr(tables, "SPLIT", {"build": ("second",), "judge": ("first",)})
    bagged_tables.load.cache_clear()
    yield
    bagged_tables.load.cache_clear()


class TestBags:
    @pytest.mark.parametrize("kind", bagged_tables.KINDS)
    def test_shares_are_those_of_the_rows(self, kind):
        cell = bagged_tables.draw("first", kind, 0)
        counts = np.zeros_like(cell.theta)
        np.add.at(counts, (cell.bag, cell.labels), 1)
        sizes = counts.sum(1, keepdims=True)
        # Whole rows: shares that are given are met to within a row.
        limit = 1 if kind in ("asymmetric", "dirichlet") else 1e-9
        assert np.abs(counts - sizes * cell.theta).max() <= limit
        assert cell.n_classes == 3

    def test_sizes_are_those_of_the_kind(self):
        sizes = {
            kind: np.bincount(bagged_tables.draw("first", kind, 0).bag)
            for kind in bagged_tables.KINDS
        }
        assert len(sizes["asymmetric"]) == 3
        assert len(sizes["dirichlet"]) == 6
        assert set(sizes["random"]) == {20}
        assert len(sizes["natural"]) == 6  # districts; rows without one are left out

    @pytest.mark.parametrize("kind", bagged_tables.KINDS)
    def test_no_row_is_tested_that_lies_in_a_bag(self, kind):
        cell = bagged_tables.draw("first", kind, 0)
        in_bags = {tuple(row) for row in cell.X}
        assert not any(tuple(row) in in_bags for row in cell.X_test)

    def test_test_rows_weigh_as_the_classes_of_the_bags(self):
        cell = bagged_tables.draw("first", "dirichlet", 0)
        by_class = np.bincount(cell.y_test, cell.test_weight)
        np.testing.assert_allclose(by_class, cell.shares)
        wrong = np.eye(3)[(cell.y_test + 1) % 3]
        assert cell.error(wrong) == pytest.approx(1)

    def test_groups_are_no_feature(self):
        grouped, ungrouped = (
            bagged_tables.draw("first", kind, 0) for kind in ("natural", "random")
        )
        assert (grouped.X.shape[1], ungrouped.X.shape[1]) == (4, 5)

    def test_a_table_without_groups_has_no_natural_bags(self):
        assert bagged_tables.draw("second", "natural", 0) is None


def test_columns_become_numbers():
    frame = pandas.DataFrame(
        {"a": [1.0, np.nan, 3.0, 5.0], "b": ["x", "y", "y", "y"], "c": ["u", "v", None, "u"]}
    )
    np.testing.assert_array_equal(
        bagged_tables.encode(frame),
        [[1, 1, 1, 0, 0], [3, 0, 0, 1, 0], [3, 0, 0, 0, 1], [5, 0, 1, 0, 0]],
    )


@pytest.mark.parametrize("name", [*references.UNSUPERVISED, *references.SUPERVISED])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_references_learn_what_can_be_learned(name, monkeypatch):
    for constant, value in {"_EPOCHS": 40, "_LEAST_STEPS": 200, "_BAG_EPOCHS": 10}.items():
        monkeypatch.setattr(references, constant, value)
    cell = bagged_tables.draw("first", "natural", 0)
    p = (references.UNSUPERVISED | references.SUPERVISED)[name](cell, 0)
    assert p.shape == (len(cell.y_test), 3)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    assert cell.error(p) > 0.5 if name == "majority" else cell.error(p) < 0.15


def test_em_around_a_forest_bears_a_class_that_is_in_no_bag(monkeypatch):
    monkeypatch.setattr(references, "_TREES", 60)
    cell = bagged_tables.draw("first", "natural", 0)
    more = np.hstack([cell.theta, np.zeros((len(cell.theta), 1))])
    p = references.em_forest(dataclasses.replace(cell, theta=more), 0)
    assert (p.argmax(1) < 3).all()
    np.testing.assert_allclose(p[:, 3], 0, atol=0.01)


class TestMeasuring:
    @pytest.fixture(autouse=True)
    def fits(self, monkeypatch):
        fits = []

        def fit(method, cell, seed):
            fits.append((method, len(cell.theta), seed))
            return {"error": 0.25, "seconds": 1.0}

        monkeypatch.setattr(tables, "run", fit)
        return fits

    def test_a_run_that_was_stopped_goes_on(self, fits, tmp_path, monkeypatch):
        file = tmp_path / "record.jsonl"
        for _, record in zip(range(2), tables.measure(None, 1, ["first"]), strict=False):
            script.write(file, record)
        assert len(fits) == 2 * len(tables._ORDER)
        monkeypatch.setattr("sys.argv", ["tables.py", "--record", str(file)])
        measure = functools.partial(tables.measure, tables=["first"])
        script.run_script("", measure, lambda record: f"{len(record['runs'])} runs", seeds=1)
        assert len(fits) == 4 * len(tables._ORDER)
        assert len(script.read(file)["runs"]) == len(fits)

    def test_a_table_without_groups_has_three_kinds(self):
        *_, record = tables.measure(None, 2, ["second"])
        assert len(record["runs"]) == 2 * 3 * len(tables._ORDER)

    def test_a_record_of_another_machine_is_not_continued(self):
        record = next(tables.measure(None, 1, ["first"]))
        with pytest.raises(ValueError, match="other hardware"):
            next(tables.measure(record | {"hardware": "abacus"}))


def test_a_run_says_what_was_chosen_or_why_it_failed(monkeypatch):
    def fit(self, rows, bag_ids):
        assert len(rows) == len(bag_ids)
        if self.method == "u-prr":
            raise ValueError("too few bags")
        self.method_, self.stop_reason_ = "tables", "All is well."
        self.module_ = torch.nn.Identity()
        return self

    def predict_proba(self, rows):
        assert self.method_
        return np.tile([0, 1, 0], (len(rows), 1))

    monkeypatch.setattr(unbag.UnbagClassifier, "fit", fit)
    monkeypatch.setattr(unbag.UnbagClassifier, "predict_proba", predict_proba)
    cell = bagged_tables.draw("first", "random", 0)
    done = tables.run("auto", cell, 0)
    assert (done["chosen"], done["reason"]) == ("tables", "All is well.")
    assert done["error"] == pytest.approx((cell.y_test != 1).mean(), abs=1e-5)
    assert tables.run("u-prr", cell, 0) == {"failed": "too few bags"}


def test_a_run_tells_the_errors_of_what_was_mixed():
    cell = bagged_tables.draw("first", "random", 0)
    clf = unbag.UnbagClassifier(cell.theta, Tables(rounds=1, trees=5), random_state=0)
    told = tables._parts(clf.fit(cell.X, cell.bag), cell)
    assert told["parts"]
    assert told["parts"].keys() == told["weights"].keys()
    assert told["parts"].keys() <= {"shares", "forest", "boosting", "networks"}
    assert max(told["parts"].values()) < 0.2
    assert sum(told["weights"].values()) == pytest.approx(1, abs=1e-3)


def test_tables_of_a_record(tmp_path):
    errors = {
        "auto": [0.2, 0.3, 0.46],
        "majority": [0.4, 0.4, 0.45],
        "EM-forest": [0.3, 0.5, 0.45],
        "u-prr": [None, 0.4, 0.45],
        "MixBag": [0.3],
        "supervised boosting": [0.2, 0.2, 0.44],
        "supervised forest": [0.3, 0.3, 0.44],
        "supervised MLP": [0.3, 0.3, 0.44],
    }
    size = {"rows": 1500, "n_bags": 75, "classes": 3}
    runs = [
        {"table": "first", "bags": "random", "seed": seed, "method": method, **size}
        | ({"failed": "too few bags"} if error is None else {"error": error, "seconds": 2.0})
        for method, by_seed in errors.items()
        for seed, error in enumerate(by_seed)
    ]
    record = {"date": "today", "split": {"build": ["second"], "judge": ["first"]}, "runs": runs}
    file = tmp_path / "record.jsonl"
    script.write(file, record)
    assert len(file.read_text().splitlines()) == 1 + len(runs)
    assert json.loads(file.read_text().splitlines()[0])["split"] == record["split"]
    shown = tables.table(script.read(file))
    assert "Tables to judge by" in shown
    assert "to build" not in shown
    # Nothing can be gained in the third cell, so two tell of the gain: 0 and half of it are lost.
    assert "| random | auto | 0.25 | 0.25 | 2.0 | +1.0 | 2.0 | 2 of 3 |" in shown
    assert "| random | MixBag" not in shown  # not measured in every cell
    assert "| random | EM-forest | 1.00 | 1.00 | 2.7 | +10.0 | 2.0 | 2 of 3 |" in shown
    assert "| random | first | 1,500 | 75 | 3 | 32.0 | 41.7 | 28.0 |" in shown


def test_the_split_is_that_of_the_hashes(monkeypatch):
    monkeypatch.undo()
    build, judge, later = bagged_tables.SPLIT.values()
    assert list(build) == sorted(build, key=bagged_tables._by_hash)
    # Those that judged an earlier version are to build with now.
    judged = [name for name in build if name in bagged_tables._NEW]
    assert {*build} == {*judged, *bagged_tables._TO_BUILD}
    assert [*judged, *judge, *later] == sorted(bagged_tables._NEW, key=bagged_tables._by_hash)
    assert not {*build} & {*judge, *later}
    assert (judged[0], judge[0], later[0]) == ("segment", "prenatal", "yrbss")
    assert (len(judged), len(judge), len(later)) == (15, 15, 10)
