import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unbag.exceptions import InvalidInputError
from unbag.io import priors_cells
from unbag.io.priors_file import match_bags, read_priors
from unbag.priors import ClassPriors

WIDE = "district,yes,no\nnorth,0.3,0.7\nsouth,0.6,0.4\n"
SHARES = [[0.3, 0.7], [0.6, 0.4]]


@pytest.fixture
def write(tmp_path):
    def write(content, name="shares.csv"):
        path = tmp_path / name
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            pq.write_table(pa.table(content), path := path.with_suffix(".parquet"))
        return path

    return write


def error(path, bag=None):
    with pytest.raises(InvalidInputError) as caught:
        read_priors(path, bag=bag)
    return str(caught.value)


def test_wide_csv(write):
    read = read_priors(write(WIDE), bag="district")
    np.testing.assert_array_equal(read.priors.values, SHARES)
    assert read.priors.bag_ids.tolist() == ["north", "south"]
    assert read.priors.classes.tolist() == ["yes", "no"]
    assert (read.form, read.unit, read.counts, read.notes) == ("wide", "shares", None, ())


@pytest.mark.parametrize(
    "content",
    [
        WIDE,
        "\ufeff" + WIDE,
        WIDE.replace("\n", "\r\n"),
        WIDE.replace("\n", "\n\n"),
        WIDE.replace(",", ";"),
        WIDE.replace(",", "\t"),
        WIDE.replace(",", ";").replace(".", ","),
        '"district","yes","no"\n"north",".3","0.7"\n"south",6e-1,4E-1\n',
        {"district": ["north", "south"], "yes": [0.3, 0.6], "no": [0.7, 0.4]},
        {"yes": ["0.3", "0.6"], "district": ["north", "south"], "no": [0.7, 0.4]},
        {"yes": [Decimal("0.3"), Decimal("0.6")], "district": ["north", "south"], "no": [0.7, 0.4]},
        "class,value,x\nyes,0.3,north\nno,0.7,north\nno,0.4,south\nyes,0.6,south\n",
        "x,y,z\nnorth,yes,0.3\nnorth,no,0.7\nsouth,no,0.4\nsouth,yes,0.6\n",
        "z,y,x\n30%,yes,north\n70 %,no,north\n40%,no,south\n60%,yes,south\n",
        "district,a,b\nnorth,yes,3\nnorth,no,7\nsouth,no,4\nsouth,yes,6\n",
    ],
)
def test_the_same_shares_however_they_are_written(write, content):
    read = read_priors(write(content), bag="district")
    np.testing.assert_allclose(read.priors.values, SHARES, atol=1e-15)
    assert read.priors.bag_ids.tolist() == ["north", "south"]
    assert read.priors.classes.tolist() == ["yes", "no"]


def test_pandas_files_with_an_index(tmp_path):
    frame = pd.DataFrame(SHARES, index=["north", "south"], columns=["yes", "no"])
    frame.to_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "b.parquet")
    frame.set_axis([3, 4]).to_parquet(tmp_path / "c.parquet")
    for name, ids in (("a.csv", ["north", "south"]), ("b.parquet", ["north", "south"])):
        assert read_priors(tmp_path / name).priors.bag_ids.tolist() == ids
    read = read_priors(tmp_path / "c.parquet")
    assert read.priors.bag_ids.tolist() == [3, 4]
    assert read.notes == ("Bag ids are in the column '', the one without a name.",)


@pytest.mark.parametrize(
    ("content", "bag", "note"),
    [
        (WIDE, None, "Bag ids are in the column 'district', the only one that is not of numbers."),
        ("a,b,g\n.3,.7,x\n.6,.4,y\n", None, "'g', the only one that is not of numbers."),
        ("a,b,bag\n.3,.7,1\n.6,.4,2\n", None, "Bag ids are in the column 'bag', by its name."),
        ("g,a,b\n1,.3,.7\n2,.6,.4\n", None, "Bag ids are in the column 'g', the first one."),
        (WIDE, "region", "The shares file has no column 'region'."),
        ("g, a ,b\nx,.3,.7\n", "g", "Spaces around column names were removed."),
        (WIDE.replace(",", ";").replace(".", ","), "district", "decimal marks, as in '0,3'."),
        (
            "g,c,v\nx,yes,.3\nx,no,.7\ny,yes,.5\ny,no,.5\n",
            "g",
            "long form: bag ids in the column 'g', classes in 'c', values in 'v'.",
        ),
        (
            "g,c,v\nx,yes,1\ny,yes,.5\ny,no,.5\n",
            "g",
            "that are not in the table (1, such as bag 'x' and class 'no') are read as 0, because",
        ),
        (
            "g,a,b\nx,30,70\ny,60,40\n",
            "g",
            "Every row sums to 100: the numbers are read as percent",
        ),
        ("g,a,b\nx,30%,70%\ny,60%,40%\n", "g", "Every row has percent signs: the numbers are read"),
        ("g,a,b\nx,3,7\ny,6,4\n", "g", "All numbers are whole, and rows sum to 10: they"),
        ("g,a,b\nx,3,7\ny,60,41\n", "g", "All numbers are whole, and rows sum to 10 to 101: they"),
        (
            "g,a,b\nx,0.301,0.7\ny,0.6,0.4\n",
            "g",
            "1 of 2 rows do not sum to exactly 1, as is usual for rounded figures. They were "
            "divided by their sum. The furthest off is 1.001, for bag 'x'.",
        ),
        ("g,a,b,c\nx,33,33,33\ny,50,25,25\n", "g", "The furthest off is 99, for bag 'x'."),
    ],
)
def test_what_was_taken_for_granted_is_in_the_notes(write, content, bag, note):
    assert note in " ".join(read_priors(write(content), bag=bag).notes)


@pytest.mark.parametrize(("share", "noted"), [("30.00005", False), ("30.0005", True)])
def test_sums_of_percent_that_are_off_by_a_millionth_need_no_note(write, share, noted):
    notes = " ".join(read_priors(write(f"g,a,b\nx,{share},70\ny,60,40\n")).notes)
    assert ("do not sum to exactly 100" in notes) == noted


@pytest.mark.parametrize(
    ("rows", "unit"),
    [
        ("x,0.3,0.7\ny,1,0", "shares"),
        ("x,1,0\ny,0,1", "shares"),
        ("x,0.3049,0.7\ny,1,0", "shares"),  # 1.0049: always allowed
        ("x,0.33,0.68\ny,0.5,0.5", "shares"),  # two digits, two classes: off by up to 0.01
        ("x,30,70\ny,60,40", "percent"),
        ("x,30.5,70\ny,60,40", "percent"),
        ("x,30,71\ny,60,40", "percent"),
        ("x,30,72\ny,60,40", None),
        ("x,30.25,70.3\ny,60,40", None),  # two digits do not explain 0.55, and 0.5 is allowed
        ("x,30,72\ny,60,41", "counts"),
        ("x,1,2\ny,0,1", "counts"),
        ("x,0.3,0.7\ny,30,70", None),
        ("x,0.3061,0.7\ny,1,0", None),
        ("x,0.5,1\ny,0.5,2.5", None),
    ],
)
def test_units(write, rows, unit):
    path = write("g,a,b\n" + rows + "\n")
    if unit is None:
        assert "shares that sum to 1 in every bag, percent that sum to 100, or whole" in error(path)
        return
    read = read_priors(path)
    raw = np.array([line.split(",")[1:] for line in rows.split("\n")], dtype=float)
    np.testing.assert_allclose(read.priors.values, raw / raw.sum(axis=1, keepdims=True))
    assert read.unit == unit
    if unit == "counts":
        np.testing.assert_array_equal(read.counts, raw)
    else:
        assert read.counts is None


def test_rounding_never_excuses_more_than_five_percent(write):
    columns = {"g": ["x", "y"]} | {f"c{k}": [0.1, 0.1] for k in range(9)}
    assert "the sum 0.9 for bag 'x', 0.9 for bag 'y'" in error(write(columns))


def test_sums_of_wrong_rows_are_listed(write):
    rows = [f"b{m},0.5,{0.5 if m == 3 else 0.1 + m / 10}" for m in range(10)]
    message = error(write("g,a,b\n" + "\n".join(rows)))
    assert "got the sum 0.6 for bag 'b0', 0.7 for bag 'b1', 0.8 for bag 'b2'" in message
    assert "and 3 more; correct these rows, leave out columns that are not classes" in message
    assert "'b3'" not in message  # 1.0
    assert "'b4'" not in message  # 1.0


@pytest.mark.parametrize(
    ("texts", "ids"),
    [
        (["1", "20"], [1, 20]),
        (["-1", "0"], [-1, 0]),
        (["007", "010"], ["007", "010"]),
        (["7", "010"], ["7", "010"]),
        (["7", "x"], ["7", "x"]),
        (["NA", "DE"], ["NA", "DE"]),
        (["north ", "south"], ["north ", "south"]),
        (["2024-01-31", "2024-02-01"], [datetime.date(2024, 1, 31), datetime.date(2024, 2, 1)]),
        (["2024-13-01", "2024-02-01"], ["2024-13-01", "2024-02-01"]),
        (["True", "false"], [True, False]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["٣", "٤"], ["٣", "٤"]),
    ],
)
def test_bag_ids_keep_the_kind_they_are_written_in(write, texts, ids):
    got = read_priors(write(f"g,a,b\n{texts[0]},.3,.7\n{texts[1]},.6,.4\n"), bag="g").priors
    assert got.bag_ids.tolist() == ids
    assert [type(value) for value in got.bag_ids.tolist()] == [type(value) for value in ids]


def test_codes_with_zeros_are_found_as_bag_ids(write):
    assert read_priors(write("a,b,g\n1,0,007\n0,1,010\n")).priors.bag_ids.tolist() == ["007", "010"]


def test_bag_ids_of_parquet_keep_their_type(write):
    day = datetime.date(2024, 1, 31)
    stamps = pa.array([0, 10**9], pa.timestamp("ns"))
    for ids, got in (
        ([3, 4], [3, 4]),
        (["3", "4"], ["3", "4"]),
        ([Decimal(3), Decimal(4)], [3, 4]),
        ([day, day.replace(day=1)], [day, day.replace(day=1)]),
        (pa.array(["u", "v"]).dictionary_encode(), ["u", "v"]),
        (stamps, [datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1, 0, 0, 1)]),
    ):
        read = read_priors(write({"a": [0.3, 0.6], "g": ids, "b": [0.7, 0.4]}), bag="g")
        assert read.priors.bag_ids.tolist() == got


def test_class_names_of_a_csv_are_text_in_both_forms(write):
    wide = read_priors(write("g,0,1\nx,.3,.7\ny,.6,.4\n"))
    long = read_priors(write("bag,class,share\nx,0,.3\nx,1,.7\ny,0,.6\ny,1,.4\n"))
    assert wide.priors.classes.tolist() == long.priors.classes.tolist() == ["0", "1"]
    values = {"bag": ["x", "x", "y", "y"], "class": [0, 1, 0, 1], "share": [0.3, 0.7, 0.6, 0.4]}
    assert read_priors(write(values)).priors.classes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("content", "bags", "classes"),
    [
        # Whole numbers as bags or classes, told by the fractions or by the sums.
        ("u,v,w\n1,yes,.3\n1,no,.7\n2,yes,.5\n2,no,.5\n3,yes,.1\n3,no,.9\n", [1, 2, 3], "yes no"),
        ("u,v,w\n.3,x,1\n.7,x,2\n.5,y,1\n.5,y,2\n.2,z,1\n.8,z,2\n", ["x", "y", "z"], "1 2"),
        ("u,v,w\n1,7,.3\n1,8,.7\n2,7,.5\n2,8,.5\n3,7,.4\n3,8,.6\n", [1, 2, 3], "7 8"),
        ("Label,BAG,Count\nyes,1,30\nno,1,30\nyes,2,5\nno,2,0\n", [1, 2], "yes no"),
        ("label,g,n\nyes,1,30\nno,1,30\nyes,2,5\nno,2,0\n", [1, 2], "yes no"),
        ("label,g,n\nyes,1,1\nno,2,1\n", [1, 2], "yes no"),  # known names: no bag repeats
    ],
)
def test_long_forms_are_recognised(write, content, bags, classes):
    read = read_priors(write(content))
    assert read.form == "long"
    assert read.priors.bag_ids.tolist() == bags
    assert read.priors.classes.tolist() == classes.split()


def test_a_class_called_bag_is_a_class(write):
    read = read_priors(write("shop,Bag,bag\nx,0.3,0.7\ny,0.6,0.4\n"))
    assert read.priors.classes.tolist() == ["Bag", "bag"]


LONG_AMBIGUOUS = "name the three columns of the long form bag, class and value"


@pytest.mark.parametrize(
    ("content", "bag", "message"),
    [
        ("", None, "shares.csv must be a file with column names in its first line, got an empty"),
        ("\n\n", None, "got an empty file"),
        ("g,a,b\n", None, "shares.csv must be a table with at least one bag, got no rows"),
        ("g,a\nx,1\n", None, "bag ids and at least two classes, got only 'g', 'a'"),
        ("gab\nx\n", None, "at least two classes, got only 'gab'"),
        ("g,a,b\nx,.3\n", None, "one value per column, got row 1: Expected 3 columns, got 2: x,.3"),
        ("g,a,b\nx,.3,.7,\n", None, "got row 1: Expected 3 columns, got 4"),
        ('g,a,b\n"x,.3,.7\n', None, "got a quote that is not closed"),
        ("g,a,a\nx,.3,.7\n", None, "every column name once, got 'a' more than once"),
        ("g,a,b\nx,.3,.7\nx,.3,.7\n", "g", "('g') must be all different, got 'x' more than once"),
        (",g,a,b\n0,x,.3,.7\n", "g", "columns of classes must be named, got one without"),
        ("g,a,b\n,.3,.7\n", "g", "'g' must be bag ids in every row, got none in row 1 below"),
        ("g,a,b\nx,.3,.7\n  ,.3,.7\n", "g", "got none in row 2 below the header"),
        ("g,a,b\n.5,.3,.2\n.7,.1,.2\n", None, "'g' must be bag ids: text, whole numbers or dates"),
        ("g,a,b\nx,.3,\ny,,\n", "g", "got none for bag 'x' and class 'b' and 2 more; write a"),
        ("g,a,b\nx,.3,NA\ny,.1,.9\n", None, "got none for bag 'x' and class 'b'; write a share"),
        ("g,a,b\nx,.3,inf\ny,.1,.9\n", "g", "'b' must be numbers, got 'inf' in row 1 below"),
        ("g,a,b\nx,.3,.7\ny,.1,o.9\n", "g", "'b' must be numbers, got 'o.9' in row 2 below"),
        (
            'g,a,b\nx,"1,234",5\n',
            "g",
            "got '1,234' in row 1 below the header; write numbers with a",
        ),
        ("g,a,b\nx,.3,.7\ny,.1,o.9\n", None, "2 columns with other cells: 'g' (as 'x'), 'b' (as"),
        ("g,h,a,b\nx,u,.3,.7\n", None, "name the column of bag ids with bag=, correct the cells"),
        ("g,a,b\nx,1.2,-.2\n", None, "numbers of 0 or more, got -0.2 for bag 'x' and class 'b'"),
        ("g,a,b\nx,0,0\ny,1,2\n", None, "rows with a positive sum, got only zeros for bag 'x'"),
        ("g,a,b\nx,30%,70\n", None, "percent signs everywhere or nowhere, got '70'"),
        ("g,a,b\nx,30%,7%\n", None, "percent that sum to 100 in every bag, got the sum 37 for"),
        ("g,a,b\nx,.3%,.7%\n", None, "percent that sum to 100 in every bag, got the sum 1 for"),
        ("g;a;b\nx;0,3;0.7\n", None, "one kind of decimal mark, got '0,3' as well as '0.7'"),
        ("g;a;b\nx;1.000;500\ny;2;1\n", None, "without thousands marks, got '1.000'"),
        ("g;a;b\nx;1,000;500\ny;2;1\n", None, "without thousands marks, got '1,000'"),
        ("g,a,b,t\nx,3,4,7\ny,1,2,3\n", None, "without a total, got 't', the sum of all others"),
        ("g,a,b,t\nx,.3,.7,1\ny,.1,.9,1\n", None, "got 't', the sum of all others; drop it"),
        ("g,a,b,Total\nx,33.3,66.6,100\n", None, "without a total, got 'Total', the sum of"),
        ("g,a,b\nx,3,4\ny,1,2\nall,4,6\n", None, "bags only, without a total, got 'all'; drop"),
        ("g,a,b\nx,.3,.7\nTOTAL ,.1,.9\n", None, "bags only, without a total, got 'TOTAL '"),
        ("g,c,v\nx,a,.3\nx,a,.7\ny,a,.3\ny,b,.7\n", "g", "pair once, got bag 'x' and class 'a'"),
        ("g,class,n\nx,a,1\ny,a,1\n", "g", "a table with at least two classes, got 'a'"),
        ("g,class,n\nx,a,3\nx,b,2\ny,a,9\n", "g", "none for bag 'y' and class 'b'; write a count"),
        ("g,class,n\nx,a,3\nx,,2\n", "g", "'class' must be class names in every row, got none"),
        ("g,class,value\nx,a,3\nx,b,many\n", "g", "'value' must be numbers, got 'many' in row 2"),
        ("g,h,n\nx,a,3\nx,b,2\ny,a,9\ny,b,9\n", None, "'g', 'h', either of which may be the bag"),
        ("g,h,n\nx,a,3\nx,b,2\ny,a,9\ny,b,9\n", None, LONG_AMBIGUOUS),
        ("g,h,i\nx,1,3\nx,2,2\ny,1,9\n", None, "any of which may be the value; " + LONG_AMBIGUOUS),
        ("g,c,v\na,b,c\nx,y,z\n", None, "3 columns with other cells: 'g' (as 'a'), 'c' (as 'b')"),
        ({"g": [[1], [2]], "a": [0.3, 0.6], "b": [0.7, 0.4]}, "g", "got [1] (list)"),
        ({"g": [b"x", b"y"], "a": [0.3, 0.6], "b": [0.7, 0.4]}, "g", "dates, got b'x' (bytes)"),
        ({"g": ["x", None], "a": [0.3, 0.6], "b": [0.7, 0.4]}, "g", "got none in row 2 below"),
        ({"g": ["x", "y"], "a": [0.3, np.nan], "b": [0.7, 1]}, "g", "none for bag 'y' and class"),
        ({"g": ["x", "y"], "a": [0.3, np.inf], "b": [0.7, 1]}, "g", "none for bag 'y' and class"),
        ({"g": ["x", "y"], "a": [True, False], "b": [0.7, 1]}, "g", "must be numbers, got True"),
        ("g,a,b\nx,.3,.7\n".encode("utf-16"), None, "must be a CSV file in UTF-8, got zero bytes"),
        (
            "g,ä,b\nx,.3,.7\n".encode("latin-1"),
            None,
            "in UTF-8, got byte 0xe4 at 2",
        ),
    ],
)
def test_bad_files(write, content, bag, message):
    assert message in error(write(content), bag)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shares.ods", "a .csv, .csv.gz, .parquet or .xlsx file, got '.ods'; rename it"),
        ("shares", "parquet or .xlsx file, got ''; rename it"),
        ("shares.parquet", "a whole, readable Parquet file, got Parquet magic bytes"),
    ],
)
def test_other_kinds_of_files(write, name, message):
    assert message in error(write(WIDE, name))


def test_no_file(tmp_path):
    assert "must be an existing file, got nothing of that name" in error(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    assert "must be an existing file, got a folder" in error(tmp_path / "folder.csv")


def test_a_file_of_rows_is_not_read_to_its_end(write, monkeypatch):
    monkeypatch.setattr(priors_cells, "MAX_CELLS", 8)
    for content in (WIDE, {"g": ["x"] * 3, "a": [0.3] * 3, "b": [0.7] * 3}):
        assert "at most 8 cells, got more; is this the file of rows?" in error(write(content))
    monkeypatch.setattr(priors_cells, "MAX_CELLS", 9)
    assert read_priors(write(WIDE)).priors.n_bags == 2


def test_a_half_in_every_bag_is_no_total(write):
    assert read_priors(write("g,a,b,c\nx,.5,.3,.2\ny,.5,.1,.4\n")).priors.n_classes == 3
    assert read_priors(write("g,a,b,c\nx,50,30,20\ny,50,10,40\n")).priors.n_classes == 3
    assert read_priors(write("g,a,b,c\nx,5,3,2\n")).priors.n_classes == 3


PRIORS = ClassPriors([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]], ["north", "south", "west"])


def test_matching_bags_say_what_has_no_rows():
    assert match_bags(np.array(["south", "north", "west"]), PRIORS) == ()
    assert match_bags(["south", "south"], PRIORS) == (
        "2 of 3 bags with shares have no rows: 'north', 'west'.",
    )


def mismatch(bag_ids, priors):
    with pytest.raises(InvalidInputError) as caught:
        match_bags(bag_ids, priors)
    return str(caught.value)


def test_bags_that_do_not_match_are_listed_both_ways():
    message = mismatch(["north", "east", "east", "up"], PRIORS)
    assert (
        "must be bags that have class shares, got 3 of 4 rows in bags without shares: " in message
    )
    assert "'east' (2 rows), 'up' (1 row); 2 of 3 bags with shares have no rows: " in message
    assert message.endswith("'south', 'west'.")
    message = mismatch([f"x{i}" for i in range(9)], PRIORS)
    assert "'x4' (1 row) and 4 more; " in message


@pytest.mark.parametrize(
    ("known", "rows", "hint"),
    [
        ([1, 2], ["1", "2"], "the priors have 1 (int), the rows have '1' (str)"),
        (["1", "2"], np.array([2, 2]), "the priors have '2' (str), the rows have 2 (int)"),
        (["007", "010"], [7], "the priors have '007' (str), the rows have 7 (int)"),
        ([1, 2], [1.0], "the priors have 1 (int), the rows have 1.0 (float)"),
        (["a ", "b"], ["a"], "the priors have 'a ' (str), the rows have 'a' (str)"),
        (["North", "b"], ["north"], "the priors have 'North' (str), the rows have 'north' (str)"),
        (
            np.array(["2024-01-31", "2024-02-01"], dtype="datetime64[D]"),
            ["2024-01-31"],
            "the rows have '2024-01-31' (str): convert one of the two.",
        ),
    ],
)
def test_bags_that_would_match_if_written_alike(known, rows, hint):
    assert hint in mismatch(rows, ClassPriors(SHARES, known))


def test_different_kinds_of_unknown_ids_are_counted_apart():
    message = mismatch([1, True, True, "1"], PRIORS)
    assert "4 of 4 rows in bags without shares: 1 (1 row), True (2 rows), '1' (1 row)" in message


def test_rows_without_a_bag():
    assert "given for every row, got 2 of 3 rows without one" in mismatch(
        ["north", None, None], PRIORS
    )


@pytest.mark.parametrize(
    "dates",
    [
        pa.array([0, 10**7], pa.date32()),
        pa.array([0, 10**18], pa.timestamp("us")),
        pa.array([0, -(10**12)], pa.timestamp("s", "UTC")),
        pa.array([0, 10**17], pa.date64()),
    ],
)
@pytest.mark.parametrize("column", ["g", "a"])
def test_far_dates(write, dates, column):
    columns = {"g": ["x", "y"], "a": [0.3, 0.6], "b": [0.7, 0.4]} | {column: dates}
    message = error(write(columns), "g")
    assert f"column {column!r} must be of dates from year 1 to 9999, got one that" in message


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("30.5,69.5", "30.5,6.5"), ("0.5,0.5", "0.25,0.5"), ("0.5,0.5", "0.5,99.5")],
)
def test_only_the_bags_with_wrong_sums_are_listed(write, right, wrong):
    content = f"g,a,b\nx,{right}\ny,{right}\nz,{wrong}\n"
    total = sum(map(float, wrong.split(",")))
    assert f"got the sum {total:g} for bag 'z'; correct" in error(write(content), "g")
