"""How far compressed content may grow."""

import pytest

from unbag.exceptions import InvalidInputError
from unbag.io.packed import check_expansion

GIBIBYTE = 1 << 30


@pytest.mark.parametrize("size", [GIBIBYTE + 1, 10 * GIBIBYTE])
def test_large_content_that_was_compressed_more_than_200_fold_is_refused(size):
    check_expansion("rows", "a file", size, size // 199, "unpack it.")
    message = "rows must be a file that is at most 200 times larger than its file, got"
    with pytest.raises(InvalidInputError, match=message):
        check_expansion("rows", "a file", size, size // 201, "unpack it.")


def test_what_is_just_within_the_limits_is_taken():
    check_expansion("rows", "a file", GIBIBYTE, 1, "unpack it.")
    check_expansion("rows", "a file", 200 * GIBIBYTE, GIBIBYTE, "unpack it.")
