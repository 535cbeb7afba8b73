"""Text that is safe to show."""

import datetime
import re
import unicodedata
from typing import Any

__all__ = ["text"]

# Marks that turn the direction of the text around them: letters of right-to-left scripts need none.
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")


def text(value: Any) -> str:
    """Write an id, class or any value as text.

    Control characters, marks that turn the direction of the text around them, and halves of
    characters are replaced by a visible sign.

    Examples
    --------
    >>> import numpy as np
    >>> text(np.str_("north")), text(np.datetime64("2024-05-01")), text(3), text("a" + chr(0x202E))
    ('north', '2024-05-01', '3', 'a�')
    """
    if isinstance(value, datetime.date):
        value = value.isoformat()
    whole = str(value).encode("utf-8", "replace").decode("utf-8")
    visible = "".join(
        "\ufffd" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in whole
    )
    return _TURNING.sub("\ufffd", visible)
