"""The least that an installation must do: fit, evaluate, save, load, and the commands; seconds.

usage: python examples/smoke.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from sklearn.datasets import load_digits

import unbag


def run(*arguments):
    """Run a command of unbag, in the current interpreter's environment."""
    code = "from unbag.cli import app; app()"
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True)


X, y = load_digits(return_X_y=True)
theta = unbag.priors.asymmetric(n_classes=10, random_state=0)
bags = unbag.make_bags(X, y, theta, random_state=0)
train, held_out = bags.train_test_split(random_state=0)
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for method, options in {"auto": {}, "u-prr": {"epochs": 30}}.items():
        clf = unbag.UnbagClassifier(priors=theta, method=method, random_state=0, **options)
        clf.fit(train.X, train.bag_ids)
        report = unbag.evaluate(clf, held_out.X, held_out.bag_ids)
        accuracy = (clf.predict(X) == y).mean()
        print(f"{clf.method_}: {report.accuracy:.3f} without labels, {accuracy:.3f} by true labels")
        assert accuracy > 0.8
        clf.save(folder / method)
        assert (unbag.load_model(folder / method).predict(X) == clf.predict(X)).all()
    run("fit", "--help")
    run("demo", "--files", folder / "example")
    rows, shares = folder / "example/rows.parquet", folder / "example/shares.csv"
    given = rows, "--bag", "district", "--priors", shares
    run("inspect", *given)
    run("fit", *given, "--output", folder / "model", "--method", "prop", "--epochs", "5")
    run("evaluate", folder / "model", rows)
    more, output = folder / "example/more.parquet", folder / "predictions.csv"
    run("predict", folder / "model", more, "--output", output)
