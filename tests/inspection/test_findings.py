import dataclasses
import datetime
import json

import numpy as np
import pytest
from small_bags import SIZES, TABLE, rows_of

from unbag.inspection import inspect
from unbag.priors import ClassPriors


def test_the_report_reads_well():
    text = str(inspect(ClassPriors.of(TABLE).with_errors(np.full((4, 3), 0.01)), SIZES))
    assert text.splitlines() == [
        "4 bags, 3 classes, 1,000 rows",
        "  classes the shares tell apart  3 of 3",
        "  condition number (1 is best)   2.9",
        "  noise of training (labels: 1)  2.8",
        "  accuracy can be known to       ± 8.7 points (95%), ± 4.8 points if the shares count "
        "these rows",
        "  rows needed for ± 1 point      75,298, 7,530 to 30,119 per bag",
        "  error if shares are 1% off     ± 0.68 points",
        "  error from the errors given    ± 2.4 points",
        "  - Even with all rows held out, the accuracy could only be estimated to ± 8.7 points. "
        "For ± 5 points, use 3 times as many rows (about 3,000). Bags whose shares differ more "
        "help as well.",
        "  note: Say what the shares describe (shares_of). If the rows are a sample of the "
        "population that they describe, as is assumed here, the accuracy can be known to ± 8.7 "
        "points; if they count these very rows, to ± 4.8 points.",
        "  note: It was not tested whether rows of a class look alike in all bags: no rows were "
        "given.",
        "verdict: care (learning from these bags can work, within limits)",
    ]
    assert "verdict: stop" in str(inspect(np.full((3, 3), 1 / 3))).splitlines()[-1]


def test_everything_goes_into_json():
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
    priors = ClassPriors([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]], days)
    X, bag = rows_of(priors.values, 30)
    X[:, 0] = bag
    inspection = inspect(priors, X=X, bag_ids=np.array(days)[bag])
    plain = json.loads(json.dumps(inspection.to_dict(), allow_nan=False))
    assert plain["equal_bags"] == [["2024-01-01", "2024-01-03"]]
    assert plain["condition_number"] is None
    assert plain["verdict"] == "stop"
    assert plain["alike"]["n_rows"] == 90
    assert plain["bag_features"] == {"0": 1.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        inspection.verdict = "go"


def test_without_sizes_what_needs_them_is_left_out_and_said():
    inspection = inspect(TABLE)
    assert inspection.n_rows is inspection.half_width is inspection.rows_needed is None
    assert inspection.inflation is not None
    assert inspection.verdict == "go"
    assert "Bag sizes are unknown" in inspection.notes[0]
    assert "rows unknown" in str(inspection)
