"""Predict a DataFrame of Spark: pip install unbag pyspark, and a Java runtime."""

from pyspark.sql import SparkSession
from small_model import make_model, make_rows

import unbag

predict = unbag.predictor(make_model(), key=["id"])
rows = make_rows(seed=1)

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.createDataFrame(rows).repartition(4)
predicted = frame.mapInArrow(predict, "id long, class string, p_no float, p_yes float")

table = predicted.toPandas().sort_values("id", ignore_index=True)
print(table.head(3))
difference = (table["p_yes"] - predict(rows)["p_yes"]).abs().max()
print(f"{len(table)} rows; largest difference from this process: {difference:.0e}")
