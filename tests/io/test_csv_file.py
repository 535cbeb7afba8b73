import pyarrow as pa
import pytest
from small_tables import refused, values, write

from unbag.io import TableFiles, csv_text


class TestCsv:
    def test_header_only(self, tmp_path):
        refused(write(tmp_path / "a.csv", "x,y\n"), "a.csv", "got only column names")
        refused(write(tmp_path / "a.csv", "\n\n"), "an empty file")

    def test_header_only_among_others(self, tmp_path):
        write(tmp_path / "a.csv", "x,y\n")
        write(tmp_path / "b.csv", "x,y\n1,a\n")
        assert values(TableFiles(tmp_path)) == {"x": [1], "y": ["a"]}

    def test_missing_values(self, tmp_path):
        lines = "".join(f"{word},{word},1\n" for word in ["", "NA", "NaN", "null"])
        table = TableFiles(write(tmp_path / "a.csv", "x,y,z\n" + lines + "1.5,a,1\n"))
        assert values(table)["x"] == [None] * 4 + [1.5]
        assert values(table)["y"] == [None] * 4 + ["a"]

    def test_ids_are_read_as_written(self, tmp_path):
        file = write(tmp_path / "a.csv", "x,id\n1,007\n2,NA\n3,\n4,true\n")
        assert values(TableFiles(file, ids=["id"]))["id"] == ["007", "NA", None, "true"]

    def test_text_on_demand(self, tmp_path):
        file = write(tmp_path / "a.csv", "x,y\n1,1\n2,NA\n")
        table = TableFiles(file, text=["y", "not there"])
        assert values(table) == {"x": [1, 2], "y": ["1", None]}

    @pytest.mark.parametrize(
        ("early", "late", "expected"),
        [
            ("1", "1.5", pa.float64()),
            ("1", "99999999999999999999", pa.float64()),
            ("1", "a", pa.string()),
            ("1.5", "a", pa.string()),
            ("true", "2", pa.string()),
            ("", "7", pa.int64()),
            ("", "a", pa.string()),
            ("2024-01-01", "2024-01-01 10:30:00", pa.timestamp("s")),
            ("2024-01-01 10:30:00", "2024-01-01 10:30:00.25", pa.timestamp("ns")),
            ("2024-01-01", "soon", pa.string()),
        ],
    )
    @pytest.mark.usefixtures("small_blocks")
    def test_types_fit_all_rows(self, tmp_path, early, late, expected):
        lines = [f"{early},1"] * 50 + [f"{late},b"] + [f"{early},2"] * 50 + [f"{late},3"]
        table = TableFiles(write(tmp_path / "a.csv", "x,y\n" + "\n".join(lines)))
        assert table.schema.types == [expected, pa.string()]
        found = values(table)
        assert len(found["x"]) == table.n_rows == 102
        assert found["y"] == ["1"] * 50 + ["b"] + ["2"] * 50 + ["3"]
        if expected == pa.string():
            assert found["x"] == ([early or None] * 50 + [late]) * 2

    def test_names_in_quotes_between_tabs(self, tmp_path):
        table = TableFiles(write(tmp_path / "a.csv", '"x"\t"y, \u2028z"\n1\t2\n'))
        assert values(table) == {"x": [1], "y, \u2028z": [2]}

    @pytest.mark.parametrize(
        ("mark", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")]
    )
    def test_delimiters(self, tmp_path, mark, word):
        text = f'x{mark}"a,b,c,d"{mark}z\n1{mark}u,v{mark}3\n'
        table = TableFiles(write(tmp_path / "a.csv", text))
        assert values(table) == {"x": [1], "a,b,c,d": ["u,v"], "z": [3]}
        assert table.notes == (f"a.csv is separated by {word}.",)

    def test_decimal_commas(self, tmp_path):
        table = TableFiles(write(tmp_path / "a.csv", "x;y\n1,5;2\n-0,25;3\n"))
        assert values(table) == {"x": [1.5, -0.25], "y": [2, 3]}
        assert table.notes[1] == "a.csv has decimal commas."

    def test_quotes_line_breaks_and_byte_order_mark(self, tmp_path):
        text = '\ufeffx,"y"\n1,"a\nb, ""c"""\n'
        table = TableFiles(write(tmp_path / "a.csv", text))
        assert values(table) == {"x": [1], "y": ['a\nb, "c"']}
        assert table.notes == ()

    @pytest.mark.usefixtures("small_blocks")
    def test_wrong_number_of_values(self, tmp_path):
        file = write(tmp_path / "a.csv", "x,y\n" + "1,2\n" * 30 + "1,2,3\n")
        refused(file, "a.csv", "one value per column", "row 31: Expected 2 columns, got 3")

    @pytest.mark.usefixtures("small_blocks")
    def test_quote_not_closed(self, tmp_path):
        text = 'x,y\n1,"a\n' + "1,2\n" * 500
        refused(write(tmp_path / "a.csv", text), "a quote that is not closed")

    @pytest.mark.parametrize("start", [0, 40])
    @pytest.mark.usefixtures("small_blocks")
    def test_other_encoding(self, tmp_path, monkeypatch, start):
        monkeypatch.setattr(csv_text, "SAMPLE", 32)  # the byte is found while reading, too
        text = "x,y\n" + "1,a\n" * start + "1,Jyväskylä\n" * 30
        refused(write(tmp_path / "a.csv", text.encode("latin-1")), "in UTF-8", "iconv")

    def test_utf16_and_bytes(self, tmp_path):
        refused(write(tmp_path / "a.csv", "x,y\n1,2\n".encode("utf-16")), "zero bytes", "iconv")
        refused(write(tmp_path / "a.csv", b"PAR1\0\0"), "got a Parquet file", "rename")

    def test_header_in_other_encoding(self, tmp_path):
        refused(write(tmp_path / "a.csv", "x,ä\n1,2\n".encode("latin-1")), "byte 0xe4 at 2")

    def test_sample_may_end_within_a_character(self, tmp_path, monkeypatch):
        monkeypatch.setattr(csv_text, "SAMPLE", 7)
        table = TableFiles(write(tmp_path / "a.csv", "x,y\n1,ä\n"))
        assert values(table)["y"] == ["ä"]

    def test_folder_instead_of_file(self, tmp_path):
        folder = tmp_path / "a.csv"
        folder.mkdir()
        refused(folder, "folder", "a.csv")
