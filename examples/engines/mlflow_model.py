"""Predict by MLflow, from the model folder as it is: pip install unbag mlflow."""

import mlflow
from small_model import make_model, make_rows

import unbag

folder = make_model()
rows = make_rows(seed=1)

served = mlflow.pyfunc.load_model(folder)  # also: mlflow models serve -m model --env-manager local
table = served.predict(rows)
print(table.head(3))
difference = (table["p_yes"] - unbag.predictor(folder)(rows)["p_yes"]).abs().max()
print(f"{len(table)} rows; largest difference from this process: {difference:.0e}")
