"""What all fuzzing shares: how many cases there are, and what may come of a case.

The structure of a case is drawn by Hypothesis, so that a failure shrinks. Its many values come
from a random generator whose seed is drawn too: that is ten times as fast.

A case is accepted, and then a plain second reading must give the same result; or it is refused by
an error of unbag that says what is allowed and what came.
"""

import os
import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from unbag.exceptions import MissingDependencyError, UnbagError, UnbagWarning

CASES = int(os.environ.get("FUZZ_CASES", "400"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
# Of so many parts of the cases, which one to run: 3/10 is the third of ten.
PART, PARTS = map(int, os.environ.get("FUZZ_PART", "1/1").split("/"))
# Of the cases of all kinds together; some kinds take longer than others.
SHARES = {
    "rows in CSV": 0.18,
    "rows in Parquet": 0.1,
    "rows in npz": 0.1,
    "rows in other files": 0.03,
    "shares files": 0.18,
    "TOML": 0.06,
    "model folders": 0.03,
    "tables of priors": 0.1,
    "bags": 0.05,
    "estimates": 0.035,
    "fits": 0.005,
    "commands": 0.01,
    "tables in memory": 0.06,
    "conditions": 0.06,
}
LEAST_ACCEPTED = 0.2
COUNTS: dict[str, Counter[str]] = {}
SECONDS: dict[str, float] = {}
_CHUNK = 500  # cases of one call of Hypothesis, which remembers all of them

# One sentence in the form "X must be A, got B; remedy."
_TEMPLATE = re.compile(r".+ must .+, got .+", re.DOTALL)
_OTHER_FORMS = re.compile(
    r".* is refused: .+|UnbagClassifier (needs at least 2 classes|requires y)|.* diverged"
    r"|The method '.+' has no setting .+; it has: .+|Nothing was learned: .+",
    re.DOTALL,
)
_SCIKIT_LEARN = "sklearn/utils/validation.py"


def seeds() -> st.SearchStrategy[int]:
    return st.integers(0, 2**32 - 1)


def sweep(kind: str, cases: st.SearchStrategy[Any], check: Callable[[Any], bool]) -> None:
    """Check as many cases as this kind has; ``check`` tells whether the case was accepted."""
    counts = COUNTS.setdefault(kind, Counter())
    cases_of_kind = max(5, round(CASES * SHARES[kind]))
    first = list(SHARES).index(kind)  # so that kinds of few cases are in different parts
    for number, start in enumerate(range(0, cases_of_kind, _CHUNK)):
        if (first + number) % PARTS != PART - 1:
            continue

        @seed(SEED * 1_000_003 + number)
        @settings(
            max_examples=min(cases_of_kind - start, _CHUNK),
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        @given(cases)
        def run(case: Any) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnbagWarning)
                counts["accepted" if check(case) else "refused"] += 1

        run()
    share = counts["accepted"] / max(1, counts.total())
    assert share >= LEAST_ACCEPTED or counts.total() < 100, (
        f"only {share:.0%} of the cases of {kind} were accepted"
    )


def outcome(function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Call a function; an error must be one that a user can understand."""
    try:
        return function(), None
    except MissingDependencyError:
        raise
    except UnbagError as error:
        check_message(str(error))
        return None, error
    except (TypeError, ValueError) as error:  # rows of the classifier are scikit-learn's to check
        if all(_SCIKIT_LEARN not in frame.filename for frame in _frames(error)):
            raise
        return None, error


def check_message(message: str) -> None:
    assert _TEMPLATE.match(message) or _OTHER_FORMS.match(message), message
    assert len(message) < 6000, message[:200]
    assert "Traceback" not in message, message


def _frames(error: Exception) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def content(folder: Path) -> dict[str, bytes | None]:
    """Every regular file below a folder; None for all else."""
    paths = sorted(folder.rglob("*"))
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() and not p.is_symlink() else None
        for p in paths
    }
