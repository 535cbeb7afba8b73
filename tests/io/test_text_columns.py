import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unbag.exceptions import InvalidInputError
from unbag.io import TableEncoding, TableFiles, text
from unbag.io.text import SIZE, Text

RNG = np.random.default_rng(0)
N = 300
TOPIC = np.arange(N) % 2
WORDS = np.array(
    [["fever", "cough", "headache", "throat"], ["engine", "brake", "wheel", "clutch"]], dtype=object
)
SENTENCES = [" ".join(WORDS[t][RNG.integers(0, 4, 12)]) for t in TOPIC]


def encode(tmp_path, **columns):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    table = TableFiles(path)
    encoding = TableEncoding.fit(table)
    return encoding, encoding.transform(next(table.batches()))


def separates(X):
    """How far the means of both topics are apart, in deviations, in the best feature."""
    gap = X[TOPIC == 0].mean(0) - X[TOPIC == 1].mean(0)
    return float(np.abs(gap / (X.std(0) + 1e-9)).max())


def test_sentences_become_the_directions_that_vary_most(tmp_path):
    encoding, X = encode(tmp_path, note=SENTENCES)
    assert encoding.feature_names[:2] == ("note text 1", "note text 2")
    assert X.shape[1] <= 30
    assert separates(X) > 1.5
    np.testing.assert_allclose(X.mean(0), 0, atol=1e-3)
    assert X.std(0).max() == pytest.approx(1, abs=0.01)
    (note,) = encoding.notes
    assert note.startswith("Column 'note' is read for its words: it is text of ")
    assert note.endswith(f"its words and parts of words became {X.shape[1]} features.")


def test_lists_of_words(tmp_path):
    encoding, X = encode(tmp_path, tags=[sentence.split() for sentence in SENTENCES])
    assert separates(X) > 1.5
    assert "Column 'tags' holds lists of words" in encoding.notes[0]


def test_many_values_are_read_by_their_parts(tmp_path):
    codes = [f"{'XQ' if t else 'AB'}{i // 2:04d}" for i, t in enumerate(TOPIC)]
    encoding, X = encode(tmp_path, code=codes * 2)
    assert {type(encoder) for encoder in encoding.encoders} >= {Text}
    assert separates(X[:N]) > 1.5


def test_frequent_values_keep_a_feature_each(tmp_path):
    city = ["Oulu"] * 60 + ["Turku"] * 60 + [f"place {i // 2}" for i in range(N - 120)]
    encoding, _ = encode(tmp_path, city=city)
    assert encoding.feature_names[:4] == (
        "city=Oulu",
        "city=Turku",
        "city is another",
        "city text 1",
    )
    assert "2 frequent values have a feature each" in encoding.notes[0]


def test_missing_texts_and_empty_lists(tmp_path):
    values = [None if i % 5 == 0 else s for i, s in enumerate(SENTENCES)]
    encoding, X = encode(tmp_path, note=values)
    assert encoding.feature_names[-1] == "note is missing"
    assert (X[::5, :-1] == 0).all()
    tags = [[] if i % 5 == 0 else [*s.split(), None] for i, s in enumerate(SENTENCES)]
    encoding, X = encode(tmp_path, tags=tags)
    assert np.isfinite(X).all()


def test_the_encoding_survives_json(tmp_path):
    encoding, X = encode(tmp_path, note=SENTENCES)
    again = TableEncoding.from_dict(msgspec.json.decode(msgspec.json.encode(encoding.to_dict())))
    batch = next(TableFiles(tmp_path / "rows.parquet").batches())
    np.testing.assert_array_equal(again.transform(batch), X)
    assert len(msgspec.json.encode(encoding)) < 400_000


def test_ids_stay_out(tmp_path):
    encoding, _ = encode(tmp_path, id=[f"r{i}" for i in range(N)], x=RNG.normal(size=N))
    assert encoding.columns == ("x",)
    assert "all of them rare, like ids" in encoding.left_out["id"]


def test_the_sample_is_drawn_evenly_and_the_same_in_any_batches(monkeypatch):
    monkeypatch.setattr(text, "SAMPLE", 100)
    values = pa.array([f"word{i}" for i in range(1000)])
    whole, parts = text.TextSample(), text.TextSample()
    whole.update(values)
    for start in range(0, 1000, 37):
        parts.update(values.slice(start, 37))
    assert whole._texts == parts._texts
    assert len(whole._texts) == 100
    places = [int(value.removeprefix("word")) for value in whole._texts]
    assert 400 < np.mean(places) < 600


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (b"\0" * 8, r"matrix must be of 8,192 bytes, got 8"),
        (np.full(2 * SIZE, np.nan, "<f2").tobytes(), "matrix and mean must be finite numbers"),
    ],
)
def test_numbers_of_strangers_are_checked(matrix, message):
    with pytest.raises(InvalidInputError, match=message):
        Text("note", matrix, (0.0,))


def test_texts_are_hashed_by_words_and_parts_of_three_and_four_signs():
    """Saved models rest on it: their matrix is of these hashes."""
    hashed = text._hashed(["cat"])
    assert hashed.shape == (1, 2 * SIZE)
    words, parts = (hashed.indices < SIZE).sum(), (hashed.indices >= SIZE).sum()
    assert {words, parts} == {1, 5}  # " ca", "cat", "at ", " cat" and "cat "
