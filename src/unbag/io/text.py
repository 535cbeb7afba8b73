"""Columns of text: the words and parts of words, hashed, in the few directions that vary most."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from unbag.io.column import CONSTANT, Choice, Column, ColumnFit, Learning
from unbag.io.column_types import is_list_of_text, is_missing, is_text
from unbag.validation import invalid

__all__ = ["Text", "TextSample"]

SIZE = 2048  # places of the hashes of words, and as many of those of parts of words
MAX_FEATURES = 32
ROWS_PER_FEATURE = 10
SAMPLE = 10_000  # texts that the directions are learned from
MAX_CHARACTERS = 2_000  # of a text; what follows is not looked at

_WORDS = {"analyzer": "word", "token_pattern": r"(?u)\w+"}
_PARTS = {"analyzer": "char_wb", "ngram_range": (3, 4)}


class TextSample:
    """Texts drawn evenly from a column that is read batch by batch."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._keys = np.empty(0)  # the texts of the smallest keys are the sample
        self._texts: list[str] = []

    def update(self, array: pa.Array) -> None:
        """Take in the next values, of which none is missing."""
        keys = self._rng.random(len(array))
        if len(self._keys) == SAMPLE:
            chosen = np.flatnonzero(keys < self._keys.max())
            keys, array = keys[chosen], array.take(pa.array(chosen))
        self._keys = np.concatenate([self._keys, keys])
        self._texts += _texts(array)
        if len(self._keys) > SAMPLE:
            kept = np.sort(np.argpartition(self._keys, SAMPLE)[:SAMPLE])
            self._keys = self._keys[kept]
            self._texts = [self._texts[i] for i in kept]

    def learn(self, column: str) -> "Text | None":
        """Learn the directions that vary most; None where texts do not differ."""
        hashed = _hashed(self._texts)  # (n, 2 SIZE)
        n = hashed.shape[0]
        rank = min(MAX_FEATURES, max(1, n // ROWS_PER_FEATURE))
        found = np.bincount(hashed.indices, minlength=hashed.shape[1])
        rarity = np.log((1 + n) / (1 + found)) + 1
        _, _, directions = randomized_svd(hashed.multiply(rarity).tocsr(), rank, random_state=0)
        matrix = (directions * rarity).T
        features = hashed @ matrix
        deviation = features.std(0)
        matrix = matrix[:, deviation > 1e-3 * deviation.max()] / max(deviation.max(), 1e-9)
        matrix = matrix.astype("<f2")
        mean = (hashed @ matrix.astype(np.float64)).mean(0)
        if deviation.max() < 1e-6:
            return None
        return Text(column, matrix.tobytes(), tuple(mean.tolist()))


class Text(Column, frozen=True, tag="text", dict=True):
    """Words and parts of words, hashed and weighted by rarity, in the directions that vary most.

    This is latent semantic analysis of hashes: nothing but numbers is kept of the texts.

    Parameters
    ----------
    matrix : bytes
        From hashes to features, (2 SIZE, D) of float16.
    mean : tuple of float
        What is subtracted from the features: (D,).
    """

    matrix: Annotated[bytes, msgspec.Meta(max_length=4 * SIZE * MAX_FEATURES)]
    mean: Annotated[tuple[float, ...], msgspec.Meta(min_length=1, max_length=MAX_FEATURES)]

    def __post_init__(self) -> None:
        """Refuse numbers that no column gives."""
        expected = 4 * SIZE * len(self.mean)
        if len(self.matrix) != expected:
            raise invalid("matrix", f"of {expected:,} bytes", f"{len(self.matrix):,}")
        if not (np.isfinite(self._numbers).all() and np.isfinite(self.mean).all()):
            raise invalid("matrix and mean", "finite numbers", "others")

    def __repr__(self) -> str:
        return f"Text({self.column!r}, {len(self.mean)} features)"

    @cached_property
    def _numbers(self) -> NDArray[np.float32]:
        numbers = np.frombuffer(self.matrix, dtype="<f2").reshape(2 * SIZE, len(self.mean))
        return numbers.astype(np.float32)

    @property
    def wants(self) -> str:
        """What the column must hold."""
        return "text, or lists of words"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One numbered name per direction."""
        return tuple(f"{self.column} text {i + 1}" for i in range(len(self.mean)))

    @classmethod
    def learn(cls, fit: ColumnFit) -> Learning:
        """Learn the directions from a sample of the values."""
        sample = TextSample()
        while (array := (yield)) is not None:
            sample.update(array)
        text = sample.learn(fit.column)
        if text is None:
            return Choice(reason=CONSTANT)
        note = f"Column {fit.column!r} holds lists of words: {text.summary}."
        return Choice((text,), note=note)

    @property
    def summary(self) -> str:
        """What became of the column, as part of a sentence."""
        d = len(self.mean)
        return f"its words and parts of words became {d} feature{'s' if d > 1 else ''}"

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether the type is text, or lists of it."""
        return is_text(dtype) or is_list_of_text(dtype)

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write the features; 0 where the text is missing."""
        missing = is_missing(array)
        out[:] = 0
        if not missing.all():
            hashed = _hashed(_texts(array.filter(pa.array(~missing))))
            out[~missing] = hashed @ self._numbers - np.array(self.mean, dtype=np.float32)


def _texts(array: pa.Array) -> list[str]:
    """Values as texts, cut to the characters that are looked at; words of lists are joined."""
    if is_list_of_text(array.type):
        words = ([word for word in value if word] for value in array.to_pylist())
        return [" ".join(value)[:MAX_CHARACTERS] for value in words]
    texts: list[str] = pc.utf8_slice_codeunits(array, 0, MAX_CHARACTERS).to_pylist()
    return texts


def _hashed(texts: Sequence[str]) -> csr_matrix:
    """Hash words, and parts of words; rows (n, 2 SIZE) of length 1, or of 0 without any word."""
    parts = [
        HashingVectorizer(n_features=SIZE, norm=None, **kind).transform(texts)
        for kind in (_WORDS, _PARTS)
    ]
    counts = hstack(parts, format="csr")
    counts.data = np.sign(counts.data) * np.log1p(np.abs(counts.data))
    return normalize(counts, copy=False)
