"""The verdict on a model."""

import json

import numpy as np
import pytest

from unbag.evaluation import evaluate_predictions
from unbag.inspection import inspect
from unbag.reporting import judge_model

THETA = np.array([[0.8, 0.2], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4], [0.3, 0.7]])


def evaluation(right=0.9, shift=(0, 0, 0, 0, 0), rows=8000):
    """Of a model that is right in one share of the rows of each class; bags are shifted."""
    shares = right * THETA[:, 0] + (1 - right) * THETA[:, 1] + shift
    zeros = np.rint(rows * shares).astype(int)
    predicted = np.concatenate([[0] * n + [1] * (rows - n) for n in zeros])
    return evaluate_predictions(predicted, np.repeat(np.arange(5), rows), priors=THETA)


@pytest.mark.parametrize(
    ("given", "verdict", "reason"),
    [
        ({}, "use it", None),
        ({"rows": 100}, "use it with care", "interval of the accuracy is wide"),
        ({"shift": (0.05, 0, 0, 0, -0.05)}, "use it with care", "bags disagree"),
        ({"right": 1.0, "shift": (0.1, -0.1, 0, 0.05, -0.1)}, "do not use it", "above 100%"),
        ({"right": 0.5}, "do not use it", "no better than always answering"),
    ],
)
def test_verdict_reason_and_next_step(given, verdict, reason):
    judged = judge_model(evaluation(**given))
    assert judged.verdict == verdict
    assert (reason is None) == (judged.reasons == ())
    if reason is not None:
        assert reason in " ".join(judged.reasons)
    assert any("unbag predict" in step for step in judged.next_steps) == (verdict[0] == "u")
    assert judged.next_steps
    assert json.loads(json.dumps(judged.to_dict()))["verdict"] == verdict
    assert str(judged).startswith(f"verdict on the model: {verdict}")


def test_without_an_evaluation_care_is_asked_for():
    judged = judge_model(None, warnings=["No rows were kept."])
    assert judged.verdict == "use it with care"
    assert judged.reasons == ("No rows were kept.", "How good the model is was not estimated.")


def test_bags_that_differ_ask_for_labels_by_hand():
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(5), 200)
    X = rng.normal(size=(1000, 2)) + (bag == 2)[:, None]
    judged = judge_model(evaluation(), inspect(THETA, X=X, bag_ids=bag))
    assert judged.verdict == "use it with care"
    assert any("truth may lie outside" in reason for reason in judged.reasons)
    assert any("by hand" in step for step in judged.next_steps)


def test_more_rows_are_not_advised_where_rows_differ_between_bags():
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(5), 60)
    X = rng.normal(size=(300, 2)) + (bag == 2)[:, None]
    zeros = np.rint(60 * (0.9 * THETA[:, 0] + 0.1 * THETA[:, 1])).astype(int)
    predicted = np.concatenate([[0] * n + [1] * (60 - n) for n in zeros])
    drifting = evaluate_predictions(predicted, bag, priors=THETA, X=X)
    assert drifting.row_drift.part > 0
    judged = judge_model(drifting, inspect(THETA, X=X, bag_ids=bag))
    assert any("interval of the accuracy is wide" in reason for reason in judged.reasons)
    assert not any("as many rows" in step for step in judged.next_steps)
    assert any("by hand" in step for step in judged.next_steps)
    assert not any("truth may lie outside" in reason for reason in judged.reasons)
