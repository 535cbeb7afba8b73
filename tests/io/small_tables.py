"""What tests of tables share: small files, their values, and what is refused."""

import pyarrow as pa
import pytest

from unbag.exceptions import InvalidInputError
from unbag.io import TableFiles


def write(path, text):
    """Write text or bytes to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def values(table, columns=None, **options):
    """All rows of a table as one list per column."""
    batches = list(table.batches(columns, **options))
    return pa.Table.from_batches(batches).to_pydict()


def refused(paths, *words, **options):
    """The table must be refused with a message that has all the words."""
    with pytest.raises(InvalidInputError) as caught:
        values(TableFiles(paths, **options))
    for word in words:
        assert word in str(caught.value)


def encode(encoding, columns):
    """Encode columns given as lists or arrays."""
    return encoding.transform(pa.record_batch(columns))


def feature(encoding, columns, name):
    """One feature of the encoded columns."""
    return encode(encoding, columns)[:, encoding.feature_names.index(name)].tolist()


def many(values, n=100):
    """Repeat values until there are n."""
    return [values[i % len(values)] for i in range(n)]
