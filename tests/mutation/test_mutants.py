"""The changes that the mutation run makes."""

import ast

from mutants import find_mutants

SOURCE = '''
"""Text."""
from a import b

__all__ = ["f"]
LEAST = 3


def f(x: int = 1, y=None) -> float:
    """Say 1 + 1."""
    if x < LEAST and not y:
        raise invalid("x", f"at least {LEAST + 1}", x)
    check(x, exact=True, strict=True, device=0)
    while y:
        y = None
    return sum(v * 2 for v in x if v)
'''
EXPECTED = [
    "LEAST = 4",
    "def f(x: int=2, y=None) -> float:",
    "    if x < LEAST or not y:",
    "    if x < LEAST and y:",
    "    if x <= LEAST and (not y):",
    "    None",
    "    check(x, exact=False, strict=True, device=0)",
    "    check(x, strict=True, device=0)",
    "    while not y:",
    "    return None",
    "    return sum((v * 2 for v in x))",
    "    return sum((v / 2 for v in x if v))",
    "    return sum((v * 3 for v in x if v))",
]


def test_every_change_changes_one_line():
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    changed = []
    for mutant in find_mutants("a.py", SOURCE):
        after = ast.unparse(mutant.apply(SOURCE)).splitlines()
        new = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(new) == 1
        changed.append(new[0][1])
    assert sorted(changed) == sorted(EXPECTED)
