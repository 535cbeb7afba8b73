"""One small real run to report on, and the same run under other names."""

import copy
import datetime
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_iris

import unbag
from unbag.evaluation import Importances

DATE = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)
BAGS = ["north", "south", "east", "west", "centre", "coast", "hills"]
CLASSES = ["setosa", "versicolor", "virginica"]
HOSTILE_BAGS = [
    "<script>alert('bag')</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(2)</script><!--",
    "long " * 300,
    "🐄 farm 👨‍👩‍👧‍👦",
    "מחוז הצפון",
    "javascript:alert(3)'\"&amp;{}{{ 7 * 7 }}",
]
HOSTILE_CLASSES = ["<b>bold</b>", "قطة", "y\"'`quote"]


def importances(columns):
    """Importances of columns, each half of the one before."""
    increase = 0.4 / 2.0 ** np.arange(len(columns))
    return Importances(tuple(columns), increase, increase / 10, 1.0, 0.5, 60, 2)


ATTACK = {
    "importances": importances(HOSTILE_BAGS),
    "title": HOSTILE_BAGS[2],
    "warnings": HOSTILE_BAGS,
    "data": {
        "files": HOSTILE_BAGS,
        "features": HOSTILE_BAGS,
        "left_out": dict.fromkeys(HOSTILE_BAGS, HOSTILE_BAGS[0]),
        "encoding": HOSTILE_BAGS,
        "notes": HOSTILE_BAGS,
    },
}


@dataclass
class Run:
    """A fitted classifier and all that a report needs."""

    clf: unbag.UnbagClassifier
    priors: unbag.ClassPriors
    train_ids: Any
    held_out_ids: Any
    predicted: Any
    probabilities: Any
    inspection: Any
    watched: Any = None

    @property
    def evaluation(self):
        return unbag.evaluate_predictions(
            self.predicted,
            self.held_out_ids,
            priors=self.priors,
            probabilities=self.probabilities,
            by=np.where(np.arange(len(self.predicted)) % 2 == 0, "even", "odd"),
        )

    def content(self, **change):
        """Arguments of ``build_report``, some of them changed."""
        arguments = {
            "clf": self.clf,
            "evaluation": self.evaluation,
            "inspection": self.inspection,
            "bag_ids": self.held_out_ids,
            "predicted": self.predicted,
            "training_bag_ids": self.train_ids,
            "watched": self.watched,
            "importances": importances(["a", "b", "c", "d"]),
            "data": {
                "files": ["rows.parquet", "more.parquet"],
                "rows": 300,
                "held_out_rows": len(self.predicted),
                "features": ["a", "b", "c", "d"],
                "left_out": {"name": "text"},
                "encoding": ["Four numbers."],
                "notes": ["The shares are percent."],
            },
            "date": DATE,
        }
        return arguments | change


def fit():
    """Fit on iris rows in bags of random shares, with a curve of the error on other rows."""
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.full(3, 0.7), len(BAGS))
    priors = unbag.ClassPriors(theta, BAGS, CLASSES)
    bags = unbag.make_bags(X, np.array(CLASSES)[y], priors, sizes=40, random_state=0)
    train, held_out = bags.train_test_split(0.4, random_state=0)
    train, validation = train.train_test_split(0.3, random_state=0)
    clf = unbag.UnbagClassifier(
        priors, "u-prr", epochs=10, width=20, depth=2, early_stopping=True, random_state=0
    )
    clf.fit_bags(train, held_out=validation)
    clf.calibrate(held_out.X, held_out.bag_ids)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iris rows repeat, so some are on both sides
        watched = unbag.evaluate(clf, validation)
    return Run(
        clf,
        priors,
        train.bag_ids,
        held_out.bag_ids,
        clf.predict(held_out.X),
        clf.predict_proba(held_out.X),
        unbag.inspect(priors, X=bags.X, bag_ids=bags.bag_ids),
        watched,
    )


def rename(run, bags, classes):
    """Give the bags and classes of a run other names."""
    priors = unbag.ClassPriors(run.priors.values, bags, classes)
    clf = copy.copy(run.clf)
    clf.priors = clf.priors_ = priors
    clf.classes_ = priors.classes
    return Run(
        clf,
        priors,
        priors.bag_ids[run.priors.encode(run.train_ids)],
        priors.bag_ids[run.priors.encode(run.held_out_ids)],
        priors.classes[[CLASSES.index(label) for label in run.predicted]],
        run.probabilities,
        unbag.inspect(priors, bag_ids=priors.bag_ids[run.priors.encode(run.held_out_ids)]),
        run.watched,
    )


def without_history(clf, priors):
    """Copy a classifier, as one of other bags and classes of which no training is known."""
    clf = copy.copy(clf)
    clf.priors = clf.priors_ = priors
    clf.classes_, clf.history_, clf.calibration_ = priors.classes, {}, None
    return clf


def draw(run, n_bags, n_classes, *, rows=20):
    """Make a run of that size from drawn predictions; its classifier has no history."""
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.full(n_classes, 0.3), n_bags)
    pure = min(n_bags, n_classes)
    theta[:pure] = 0.5 * theta[:pure] + 0.5 * np.eye(n_classes)[:pure]
    names = [f"municipality {m}" for m in range(n_bags)]
    priors = unbag.ClassPriors(theta, names, [f"class {k}" for k in range(n_classes)])
    clf = without_history(run.clf, priors)
    bag = np.repeat(np.arange(n_bags), rows)
    # Nine of ten predictions are right.
    label = np.minimum((rng.random(len(bag))[:, None] > theta[bag].cumsum(1)).sum(1), n_classes - 1)
    label = np.where(rng.random(len(bag)) < 0.9, label, rng.integers(0, n_classes, len(bag)))
    probabilities = 0.1 / n_classes + 0.9 * np.eye(n_classes)[label]
    inspection = unbag.inspect(priors, sizes=rows)
    ids = priors.bag_ids[bag]
    return Run(clf, priors, ids, ids, priors.classes[label], probabilities, inspection)
