"""Predict a DataFrame of Dask: pip install unbag "dask[dataframe]"."""

import dask.dataframe
from small_model import make_model, make_rows

import unbag


def main():
    """Predict in two processes."""
    predict = unbag.predictor(make_model(), key=["id"])
    rows = make_rows(seed=1)

    frame = dask.dataframe.from_pandas(rows, npartitions=4)
    predicted = frame.map_partitions(predict, meta=predict(frame._meta))

    table = predicted.compute(scheduler="processes", num_workers=2)
    print(table.head(3))
    difference = (table["p_yes"] - predict(rows)["p_yes"]).abs().max()
    print(f"{len(table)} rows; largest difference from this process: {difference:.0e}")


if __name__ == "__main__":
    main()
