"""The content of a report as a whole: a plain dict, made of checked input."""

import json

import numpy as np
import pytest

import unbag
from unbag.reporting import FORMAT, VERSION, build_report


def test_content_of_a_real_run(run):
    report = build_report(**run.content(title="Iris", warnings=["Take care."]))
    assert (report["format"], report["version"]) == (FORMAT, VERSION) == ("unbag-report", 2)
    assert report["created"] == "2026-01-02T03:04:00+00:00"
    assert report["title"] == "Iris"
    assert report["warnings"] == ["Take care."]
    assert report["sizes"] == {
        "bags": 7,
        "classes": 3,
        "training rows": len(run.train_ids),
        "held-out rows": len(run.predicted),
    }


def test_content_is_valid_json(run):
    report = build_report(**run.content())
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_what_is_not_known_is_none(run):
    bare = build_report(run.clf, None, None)
    assert [key for key, part in bare.items() if part is None] == [
        "headline",
        "confusion",
        "groups",
        "drift",
        "bag_shares",
        "columns",
        "inspection",
        "data",
    ]
    assert bare["sizes"] == {"bags": 7, "classes": 3}
    assert bare["calibration"]["reliability"] is None
    assert bare["priors"]["held_out_rows"] is None


def test_pure_bags_without_priors():
    X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    y = np.repeat([3, 5], 30)
    X[y == 5] += 2
    clf = unbag.UnbagClassifier(method="prop", epochs=3, width=5, random_state=0).fit(X, y)
    report = build_report(clf, None, None, bag_ids=y, predicted=clf.predict(X))
    assert report["priors"]["bags"] == report["priors"]["classes"] == ["3", "5"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"fils": []}}, "data must be a dict of 'files'.*'fils'"),
        ({"predicted": ["setosa"]}, "predicted must be one class for each of the"),
        ({"predicted": ["rose"] * 80}, "predicted must be classes of the priors.*'rose'"),
        ({"bag_ids": ["nowhere"] * 80}, "bag_ids must be ids that the priors have"),
    ],
)
def test_bad_arguments(run, change, message):
    with pytest.raises(unbag.exceptions.InvalidInputError, match=message):
        build_report(**run.content(**change))
