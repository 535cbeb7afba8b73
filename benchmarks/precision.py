"""Whether bfloat16 products change what is learned: final test errors against float32 on MNIST.

usage: UNBAG_DATA=DIR python benchmarks/precision.py [--record FILE.json] [--epochs N]
       python benchmarks/precision.py --table FILE.json

Five trials of three methods in each precision, from the same bags and initial weights, compared
by a paired t-test. Meant for a GPU.
"""

import datetime
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import stats

import unbag
from script import run_script
from unbag.methods import Job, fit_many
from unbag.training import TestSet

METHODS = ("u-prr", "prop", "unbiased")
PRECISIONS = ("bf16", "float32")
TRIALS = 5


def measure(epochs: int) -> Iterator[dict[str, Any]]:
    data = unbag.datasets.load("mnist")
    theta = unbag.priors.symmetric(n_classes=10, a=0.5)
    test = TestSet(data.X_test, data.y_test)
    bags = [
        unbag.make_bags(data.X_train, data.y_train, theta, random_state=trial)
        for trial in range(TRIALS)
    ]
    settings: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": 6000,
        "learning_rate": 1e-4,
        "weight_decay": 1e-5,
        "batching": "shuffled",
        "model_options": {"depth": 5, "width": 300},
    }
    jobs = [
        Job(bags[trial], method=method, seed=trial, test=test, **settings)
        for method in METHODS
        for trial in range(TRIALS)
    ]
    errors = {}
    for precision in PRECISIONS:
        fits = fit_many(jobs, precision=precision, test_every=epochs)
        final = [100 * fit.history["test_error"][-1] for fit in fits]
        rows = np.array(final).reshape(len(METHODS), TRIALS).round(4).tolist()
        errors[precision] = dict(zip(METHODS, rows, strict=True))
    yield {
        "date": datetime.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "dataset": "mnist",
        "priors": "symmetric, a=0.5",
        "settings": settings,
        "seeds": list(range(TRIALS)),
        "test_error_percent": errors,
    }


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    epochs = record["settings"]["epochs"]
    lines = [
        f"Final test error in percent on MNIST, {record['priors']}, {epochs} epochs, mean "
        f"(deviation) over {len(record['seeds'])} trials; {record['hardware']}, {record['date']}.",
        "",
        "| method | bf16 | float32 | paired t-test, p |",
        "|---|---|---|---|",
    ]
    errors = record["test_error_percent"]
    for method in errors["bf16"]:
        pair = [np.array(errors[precision][method]) for precision in PRECISIONS]
        shown = " | ".join(f"{e.mean():.2f} ({e.std(ddof=1):.2f})" for e in pair)
        lines.append(f"| `{method}` | {shown} | {stats.ttest_rel(*pair).pvalue:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(__doc__, measure, table, epochs=500)
