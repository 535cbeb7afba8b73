"""The classifier and all around it take tables, and say what the commands say."""

import hashlib
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import unbag
from unbag.exceptions import BagColumnWarning, InvalidInputError, ModelFolderError
from unbag.workflow import fit_files, predict_files

FORMS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 400
    y = rng.integers(0, 2, n)
    low, high = rng.choice(3, n, p=[0.6, 0.3, 0.1]), rng.choice(3, n, p=[0.2, 0.3, 0.5])
    return pd.DataFrame(
        {
            "id": [f"r{i}" for i in range(n)],
            "district": np.array(["north", "south", "east"])[np.where(y, high, low)],
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40 + 10 * y, 5)),
            "city": pd.Categorical(np.where(rng.random(n) < 0.8, np.where(y, "Oulu", "Turku"), "")),
            "member": rng.random(n) < 0.3 + 0.4 * y,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D"),
            "answer": np.where(y, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def shares(rows):
    return pd.crosstab(rows["district"], rows["answer"])


@pytest.fixture(scope="module")
def train(rows):
    return rows[100:].drop(columns="answer").reset_index(drop=True)


@pytest.fixture(scope="module")
def test(rows):
    return rows[:100].drop(columns=["answer", "id"])


def make(shares, **options):
    settings = {"method": "prop", "epochs": 10, "random_state": 0, **options}
    return unbag.UnbagClassifier(shares, **settings)


@pytest.fixture(scope="module")
def fitted(train, shares):
    return make(shares).fit(train, bag="district")


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_a_table_gives_the_same(form, fitted, rows, train, test, shares):
    expected = fitted.predict_proba(test)
    assert (fitted.predict(test) == rows["answer"][:100]).mean() > 0.8
    ids = train["district"]
    for clf in (
        make(shares).fit(form(train), bag="district"),
        make(shares).fit(form(train), ids),
        make(None).fit_bags(unbag.Bags(form(train), ids, shares)),
    ):
        np.testing.assert_array_equal(clf.predict_proba(form(test)), expected)
        assert clf.feature_names_in_.tolist() == ["age", "city", "member", "day"]
    bags = test["district"]
    report = unbag.evaluate(fitted, form(test), bags)
    assert float(report.accuracy) == fitted.score(form(test), bags)
    assert unbag.inspect(shares, X=form(train), bag_ids=ids).verdict
    probabilities = unbag.cross_val_predict(make(shares), form(train), ids, cv=2)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    again = make(shares).fit(train, bag="district").calibrate(form(test), bags)
    prior = unbag.estimate_prior(again, form(test), X=form(train), bag_ids=ids).prior
    assert prior.sum() == pytest.approx(1)


def test_a_saved_model_predicts_tables_as_the_command_does(
    fitted, train, test, shares, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    again = unbag.load_model(fitted.save("python"))
    np.testing.assert_array_equal(again.predict_proba(test), fitted.predict_proba(test))
    assert again.feature_names_in_.tolist() == fitted.feature_names_in_.tolist()
    assert again.n_features_in_ == fitted.n_features_in_ == 4
    train.to_parquet("rows.parquet")
    test.to_parquet("more.parquet")
    shares.to_csv("shares.csv")
    options = {"bag": "district", "priors": "shares.csv", "method": "prop", "epochs": 5}
    fit_files("rows.parquet", output="command", **options)
    for model in ("python", "command"):
        predict_files(model, "more.parquet", output=f"{model}.parquet")
        command = pd.read_parquet(f"{model}.parquet")[["p_no", "p_yes"]]
        python = unbag.load_model(model).predict_proba(test).astype(np.float32)
        np.testing.assert_array_equal(python, command)


def test_columns_are_found_by_name(fitted, test):
    expected = fitted.predict_proba(test)
    backwards = test[test.columns[::-1]].assign(more=1)
    np.testing.assert_array_equal(fitted.predict_proba(backwards), expected)
    with pytest.raises(InvalidInputError, match="got none called 'age'; it has 'district', 'city'"):
        fitted.predict(test.drop(columns="age"))
    with pytest.raises(InvalidInputError, match="column 'age' must be numbers, as in training"):
        fitted.predict(test.assign(age="old"))


def test_rows_that_are_encoded_already_are_told_from_columns_of_numbers(fitted, test):
    X = fitted.encoding_.transform(test)
    np.testing.assert_array_equal(fitted.predict_proba(X), fitted.predict_proba(test))
    with pytest.raises(InvalidInputError, match=r"columns 'age', 'city', .*got type float64"):
        fitted.predict(X.astype(float))


def test_the_bag_ids_are_given_once(train, shares):
    with pytest.raises(InvalidInputError, match="y must be left out where bag names"):
        make(shares).fit(train, train["district"], bag="district")
    with pytest.raises(InvalidInputError, match="the target y is None"):
        make(shares).fit(train)
    with pytest.raises(InvalidInputError, match="bag= may name the column of bag ids"):
        make(shares).fit(train)


def test_a_refit_on_numbers_forgets_the_columns(train, shares):
    clf = make(shares).fit(train, bag="district")
    numbers = np.random.default_rng(0).normal(size=(len(train), 2))
    clf.fit(numbers, train["district"])
    assert clf.encoding_ is None
    assert not hasattr(clf, "feature_names_in_")
    assert clf.predict(numbers).shape == (len(train),)


def test_tuning_takes_tables(train, test, shares):
    pytest.importorskip("optuna")
    search = {"depth": [2, 3]}
    options = {"search": search, "n_trials": 1, "storage": None}
    found = unbag.tune(train, train["district"], make(shares, epochs=3), **options)
    assert found.best_estimator.predict(test).shape == (len(test),)


def test_a_labelled_test_set_may_be_a_table(rows, train, test, shares):
    clf = make(shares, epochs=2).fit(train, bag="district", test_set=(test, rows["answer"][:100]))
    assert clf.history_["test_error"].shape == (2,)


def test_an_encoding_of_another_width_is_refused(rows, shares, tmp_path):
    clf = unbag.UnbagClassifier(shares, "prop", epochs=1, random_state=0)
    folder = clf.fit(rows.drop(columns="answer"), bag="district").save(tmp_path / "model")
    file, description = folder / "encoding.json", folder / "model.json"
    encoding = json.loads(file.read_text())
    encoding["encoders"].pop()
    file.write_text(json.dumps(encoding))
    model = json.loads(description.read_text())
    model["files"]["encoding.json"] = hashlib.sha256(file.read_bytes()).hexdigest()
    description.write_text(json.dumps(model))
    with pytest.raises(ModelFolderError, match="must be one that makes rows of shape"):
        unbag.load_model(folder)


class TestColumnsThatTellTheBag:
    """Bags are days, and the rows have the time of day in a column of their own."""

    @pytest.fixture
    def trips(self):
        rng = np.random.default_rng(0)
        theta = np.array([[0.8, 0.2], [0.5, 0.5], [0.2, 0.8], [0.6, 0.4]])
        day = np.repeat(np.arange(4), 100)
        late = rng.random(400) < theta[day, 1]
        frame = pd.DataFrame(
            {
                "day": [f"2024-03-{d + 1:02}" for d in day],
                "start": pd.Timestamp("2024-03-01")
                + pd.to_timedelta(day * 24 + rng.uniform(0, 24, 400), unit="h"),
                "delay": rng.normal(2 * late, 1),
            }
        )
        return frame, dict(zip(frame["day"].unique().tolist(), theta.tolist(), strict=True))

    def classifier(self, shares):
        return unbag.UnbagClassifier(priors=shares, method="prop", epochs=1, random_state=0)

    def test_they_are_left_out_with_a_warning(self, trips):
        frame, shares = trips
        clf = self.classifier(shares)
        with pytest.warns(BagColumnWarning, match=r"'start': it tells .* keep=\['start'\] to fit"):
            clf.fit(frame, bag="day")
        assert clf.encoding_.columns == ("delay",)
        assert clf.encoding_.left_out.keys() == {"day", "start"}
        assert list(clf.feature_names_in_) == ["delay"]
        assert "start" not in clf.encoding_.seen
        assert clf.row_shape_ == (1,)
        with_other_times = frame.assign(start=pd.Timestamp("1999-01-01"))
        np.testing.assert_array_equal(
            clf.predict_proba(frame), clf.predict_proba(with_other_times[["delay"]])
        )

    def test_what_is_kept_is_learned_from(self, trips):
        frame, shares = trips
        clf = self.classifier(shares).fit(frame, bag="day", keep=["start"])
        assert clf.encoding_.columns == ("start", "delay")

    def test_a_table_of_such_columns_alone_is_learned_from(self, trips):
        frame, shares = trips
        clf = self.classifier(shares).fit(frame[["day", "start"]], bag="day")
        assert clf.encoding_.columns == ("start",)

    def test_columns_to_keep_must_be_there(self, trips):
        frame, shares = trips
        with pytest.raises(InvalidInputError, match="keep must be columns of X, got 'time'"):
            self.classifier(shares).fit(frame, bag="day", keep=["time"])
        with pytest.raises(InvalidInputError, match="keep must be left out where rows are numbers"):
            self.classifier(shares).fit(frame[["delay"]], frame["day"], keep=["delay"])

    def test_a_search_leaves_them_out_too(self, trips):
        frame, shares = trips
        ids = frame.pop("day").to_numpy()
        with pytest.warns(BagColumnWarning, match="start"):
            found = unbag.tune(
                frame,
                ids,
                self.classifier(shares),
                search={"learning_rate": [0.01]},
                n_trials=1,
                storage=None,
            )
        assert found.best_estimator.encoding_.columns == ("delay",)
