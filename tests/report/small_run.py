"""Small real runs to report on."""

import datetime
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_iris

import unbag
from unbag.evaluation import reliability_diagram

DATE = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)
HOSTILE_BAGS = [
    "<script>alert('bag')</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(2)</script><!--",
    "long " * 300,
    "🐄 farm 👨‍👩‍👧‍👦",
    "מחוז הצפון",
    "javascript:alert(3)'\"&amp;{}",
]
HOSTILE_CLASSES = ["<b>bold</b>", "قطة", "y\"'`quote"]


@dataclass
class Run:
    """A fitted classifier and all that a report needs."""

    clf: unbag.UnbagClassifier
    priors: unbag.ClassPriors
    train: unbag.Bags
    held_out: unbag.Bags
    predicted: Any
    inspection: Any
    evaluation: Any
    watched: Any
    reliability: Any

    def content(self, **change):
        """Arguments of ``build_report``, some of them changed."""
        given = {
            "clf": self.clf,
            "evaluation": self.evaluation,
            "inspection": self.inspection,
            "bag_ids": self.held_out.bag_ids,
            "predicted": self.predicted,
            "training_bag_ids": self.train.bag_ids,
            "watched": self.watched,
            "reliability": self.reliability,
            "data": {
                "files": ["rows.parquet", "more.parquet"],
                "rows": 300,
                "held_out_rows": len(self.predicted),
                "features": ["a", "b", "c", "d"],
                "left_out": {"name": "text"},
                "encoding": ["Four numbers."],
                "notes": ["The priors are percent."],
            },
            "date": DATE,
        }
        return given | change


def fit(bag_names, class_names, *, rows_a_bag=40, early_stopping=True, repeat=1):
    """Fit on iris rows in bags of random shares."""
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    X = np.concatenate([X + 0.05 * rng.normal(size=X.shape) for _ in range(repeat)])
    y = np.tile(y, repeat)
    theta = rng.dirichlet(np.full(3, 0.7), len(bag_names))
    priors = unbag.ClassPriors(theta, bag_names, class_names)
    labels = np.array(class_names)[y]
    bags = unbag.make_bags(X, labels, priors, sizes=rows_a_bag, random_state=0)
    train, held_out = bags.train_test_split(0.4, random_state=0)
    clf = unbag.UnbagClassifier(
        priors=priors,
        epochs=15,
        width=20,
        depth=2,
        early_stopping=early_stopping,
        random_state=0,
    )
    validation = None
    if early_stopping:
        train, validation = train.train_test_split(0.3, random_state=0)
    clf.fit_bags(train, held_out=validation)
    clf.calibrate(held_out.X, held_out.bag_ids)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iris rows repeat, so some are on both sides
        evaluation = unbag.evaluate(clf, held_out.X, held_out.bag_ids)
        watched = None if validation is None else unbag.evaluate(clf, validation)
    return Run(
        clf,
        priors,
        train,
        held_out,
        clf.predict(held_out.X),
        unbag.inspect(priors, X=bags.X, bag_ids=bags.bag_ids),
        evaluation,
        watched,
        reliability_diagram(
            clf.predict_proba(held_out.X),
            held_out.bag_ids,
            priors=priors,
            test_prior=clf.test_prior_,
        ),
    )
