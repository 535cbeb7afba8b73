"""Follow training in MLflow, TensorBoard and a file: pip install "unbag[mlflow,tensorboard]"."""

import json
import tempfile
from pathlib import Path

import mlflow
from small_model import SHARES, make_rows
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import unbag
from unbag.callbacks import JsonLinesLogger, MlflowLogger, TensorBoardLogger

folder = Path(tempfile.mkdtemp())
address = f"sqlite:///{folder}/mlflow.db"
loggers = [
    MlflowLogger("census", tracking_uri=address),
    TensorBoardLogger(folder / "curves"),  # tensorboard --logdir curves
    JsonLinesLogger(folder / "run.jsonl"),
]
clf = unbag.UnbagClassifier(SHARES, method="prop", epochs=5, random_state=0, callbacks=loggers)
clf.fit(make_rows().drop(columns="id"), bag="district")

client = mlflow.MlflowClient(address)
(run,) = client.search_runs([client.get_experiment_by_name("census").experiment_id])
there = [m.value for m in client.get_metric_history(run.info.run_id, "training/objective")]
curves = EventAccumulator(str(folder / "curves" / "0")).Reload()
shown = [event.value for event in curves.Scalars("training/objective")]
lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
written = [line["values"]["objective"] for line in lines if line["event"] == "epoch"]

print("objective by epoch:", [round(value, 3) for value in written])
print("status in MLflow:", run.info.status, run.data.tags["stop_reason"])
differences = [abs(a - b) + abs(a - c) for a, b, c in zip(written, there, shown, strict=True)]
print(f"{len(written)} epochs; largest difference between the three: {max(differences):.0e}")
