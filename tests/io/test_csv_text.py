import csv
import io

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_tables import refused, values, write

from unbag.exceptions import InvalidInputError
from unbag.io import TableFiles, csv_text
from unbag.io.csv_text import CsvText

CELLS = st.text(alphabet="ab1 ,;\"\n\r'é", max_size=6)
# What may be between two rows besides the end of the line.
BLANK_LINES = st.sampled_from(["", "", "\n", "\r\n", "\n\n\n"])


@st.composite
def csv_files(draw):
    """The bytes of a CSV file, and its rows as the csv module of Python reads them."""
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = draw(BLANK_LINES)
    for i, row in enumerate([["x", "y\nz"], *draw(st.lists(st.tuples(CELLS, CELLS)))]):
        line = io.StringIO()
        # The writer leaves a line break of another kind than its own without quotes.
        always = i == 0 or not any(row) or {*"\r\n"} & {*"".join(row)} or draw(st.booleans())
        quoting = csv.QUOTE_ALL if always else csv.QUOTE_MINIMAL
        csv.writer(line, lineterminator=end, quoting=quoting).writerow(row)
        text += line.getvalue() + draw(BLANK_LINES)
    text = text.rstrip("\r\n") if draw(st.booleans()) else text
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    return draw(st.sampled_from(["", "\ufeff"])).encode() + text.encode(), rows[1:]


@given(case=csv_files(), block=st.integers(20, 60))
@example(case=(b'x,"y\nz"\n1,2\n\n3,"a\n\nb"\n', [["1", "2"], ["3", "a\n\nb"]]), block=20)
@settings(max_examples=100, deadline=None)
def test_rows_from_any_row_on_are_those_of_a_plain_reading(tmp_path_factory, case, block):
    content, rows = case
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_text, "BLOCK", block)
        try:
            table = TableFiles(path, ids=["x", "y\nz"])
        except InvalidInputError as error:
            too_long = "a row longer than" in str(error)
            assert too_long or not rows
            return
        assert table.n_rows == len(rows)
        expected = [[cell or None for cell in row] for row in rows]
        for skip in range(len(rows)):
            columns = values(table, skip_rows=skip, batch_rows=2)
            assert list(map(list, zip(*columns.values(), strict=True))) == expected[skip:]


@pytest.mark.usefixtures("small_blocks")
class TestBlankLines:
    def test_are_no_rows(self, tmp_path):
        text = "x,y\n\n1,a\n\n\n2,b\n" + "\n" * 70 + "3,c\n\n4,d\n"
        table = TableFiles(write(tmp_path / "a.csv", text))
        assert table.n_rows == 4
        for skip in range(4):
            assert values(table, skip_rows=skip)["x"] == [1, 2, 3, 4][skip:]

    def test_before_a_change_of_type(self, tmp_path):
        text = "x,y\n" + "1,a\n" * 30 + "\n" + "1.5,b\n" * 30
        table = TableFiles(write(tmp_path / "a.csv", text))
        assert table.schema.field("x").type == pa.float64()
        assert values(table)["x"] == [1.0] * 30 + [1.5] * 30


@pytest.mark.usefixtures("small_blocks")
class TestQuotes:
    def test_in_the_middle_of_a_value_are_characters(self, tmp_path):
        text = "x,y\n" + '1,5" pipe\n2,"a\nb"\n' * 20
        assert values(TableFiles(write(tmp_path / "a.csv", text)))["y"] == ['5" pipe', "a\nb"] * 20

    @pytest.mark.parametrize("rows", [0, 3, 40])
    @pytest.mark.parametrize("end", ["", "\n", "\n4,5\n", '""', '"",'])
    def test_not_closed_at_the_end(self, tmp_path, rows, end):
        text = "x,y\n" + "1,2\n" * rows + '1,"a' + end
        refused(write(tmp_path / "a.csv", text), "a.csv", "got a quote that is not closed; quote")

    @pytest.mark.parametrize("last", ['"a"', '"a"\n', '""', '"a"""', '""""\n', '"a"b'])
    def test_closed_at_the_end(self, tmp_path, last):
        table = TableFiles(write(tmp_path / "a.csv", "x,y\n1,2\n3," + last), text=["y"])
        expected = {'""': None, '"a"""': 'a"', '""""\n': '"', '"a"b': "ab"}.get(last, "a")
        assert values(table)["y"] == ["2", expected]

    @pytest.mark.parametrize("size", range(60, 70))
    def test_row_as_long_as_a_block(self, tmp_path, size):
        file = write(tmp_path / "a.csv", f"x,y\n1,{'a' * (size - 3)}\n2,b\n")
        if size <= 64:
            assert values(TableFiles(file))["x"] == [1, 2]
        else:
            refused(file, "got a row longer than 0 MB, perhaps behind a quote that is not closed")


class TestMessages:
    @pytest.mark.parametrize("rows", [0, 1, 40])
    @pytest.mark.parametrize("blank", ["", "\n\n"])
    @pytest.mark.usefixtures("small_blocks")
    def test_count_rows_below_the_column_names(self, tmp_path, rows, blank):
        file = write(tmp_path / "a.csv", "x,y\n" + "1,2\n" * rows + blank + "1,2,3\n")
        refused(file, f"row {rows + 1}: Expected 2 columns, got 3: 1,2,3")

    def test_name_the_file_as_it_was_asked_for(self, tmp_path):
        file = write(tmp_path / "a.csv", "x,y\n1\n")
        text = CsvText(write(tmp_path / "b.csv", "x,y\n1,2\n"), "file of shares")
        assert text.names == ["x", "y"]
        with pytest.raises(InvalidInputError, match=r"^file of shares must be a CSV file whose"):
            list(map(text.parse, CsvText(file, "file of shares").blocks()))


def test_only_the_delimiters_asked_for_count(tmp_path):
    file = write(tmp_path / "a.tsv", "a,b,c\td\n1,2,3\t4\n")
    assert CsvText(file, "table", "\t").names == ["a,b,c", "d"]
    assert CsvText(file, "table").delimiter == ","


def test_delimiters_in_quoted_names_do_not_count(tmp_path):
    file = write(tmp_path / "a.csv", '\ufeff"a,b\nc,d";"e,f"\n1;2\n')
    text = CsvText(file, "table")
    assert (text.delimiter, text.names) == (";", ["a,b\nc,d", "e,f"])
