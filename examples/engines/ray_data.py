"""Predict a dataset of Ray: pip install unbag "ray[data]"."""

import ray
from small_model import make_model, make_rows

import unbag

predict = unbag.predictor(make_model(), key=["id"])
rows = make_rows(seed=1)

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
dataset = ray.data.from_pandas(rows).repartition(8)
predicted = dataset.map_batches(predict, batch_format="pyarrow", batch_size=1024)

table = predicted.to_pandas().sort_values("id", ignore_index=True)
print(table.head(3))
difference = (table["p_yes"] - predict(rows)["p_yes"]).abs().max()
print(f"{len(table)} rows; largest difference from this process: {difference:.0e}")
