"""Small changes of a module, one per mutant: what a slip of the hand would make of it."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
# Texts are not changed: a test that repeats a sentence catches no bug.
_MESSAGES = ("invalid", "warn", "InvalidInputError", "TypeVar", "getLogger")
# Guards against what cannot happen, speed, places for messages, and devices, of which most machines
# have one: nobody could see a change.
_UNSEEN = ("copy", "deepcopy", "device", "maxsize", "non_blocking", "stacklevel", "strict")


@dataclass(frozen=True)
class Mutant:
    """A change: the number of the node in the order of ``ast.walk``, and what is done with it."""

    path: str
    line: int
    node: int
    change: str
    text: str  # of the line

    def apply(self, source: str) -> ast.Module:
        """Return the changed module."""
        tree = ast.parse(source)
        node = list(ast.walk(tree))[self.node]
        kind, _, number = self.change.partition(" ")
        _CHANGES[kind](tree, node, int(number or 0))
        return ast.fix_missing_locations(tree)


def find_mutants(path: str, source: str) -> list[Mutant]:
    """List all changes of a module, from its top to its end."""
    tree = ast.parse(source)
    lines = source.splitlines()
    skipped = {id(n) for node in _left_alone(tree) for n in ast.walk(node)}
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for change in _changes_of(node):
            place: Any = node.target if isinstance(node, ast.comprehension) else node
            text = lines[place.lineno - 1].strip()
            found.append(Mutant(path, place.lineno, number, change, text))
    return sorted(found, key=lambda m: (m.line, m.node, m.change))


def _left_alone(tree: ast.Module) -> Iterator[ast.AST]:
    """Annotations, docstrings, imports, messages, names that are exported, what nobody sees."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):  # frozen=True, eq=False and their like
            yield from (*node.decorator_list, *node.keywords)
        if isinstance(node, ast.keyword) and node.arg in _UNSEEN:
            yield node
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        if isinstance(node, ast.FunctionDef):
            yield from filter(None, [node.returns])
            if any(
                "abstract" in ast.unparse(d) or "overload" in ast.unparse(d)
                for d in node.decorator_list
            ):
                yield node
        if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert):
            yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield node
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield node
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in _MESSAGES:
            yield node


def _changes_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare):
        yield from (f"compare {i}" for i, op in enumerate(node.ops) if type(op) in _SWAPS)
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        if type(node.op) in _SWAPS:
            yield "operator"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield "sign"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield "constant"
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        # These have changes of their own, and "not" has the same.
        if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield "negate"
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "nothing"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "statement"
    elif isinstance(node, ast.Call):
        keywords = [k.arg for k in node.keywords]
        yield from (f"keyword {i}" for i, k in enumerate(keywords) if k and k not in _UNSEEN)
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield "filter"


def _set_compare(_: ast.Module, node: ast.AST, i: int) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[i] = _SWAPS[type(node.ops[i])]()  # type: ignore[call-overload]


def _set_operator(_: ast.Module, node: ast.AST, __: int) -> None:
    node.op = _SWAPS[type(node.op)]()  # type: ignore[attr-defined]


def _drop_sign(tree: ast.Module, node: ast.AST, _: int) -> None:
    assert isinstance(node, ast.UnaryOp)
    _replace(tree, node, node.operand)


def _set_constant(_: ast.Module, node: ast.AST, __: int) -> None:
    assert isinstance(node, ast.Constant)
    value = node.value
    node.value = not value if isinstance(value, bool) else value + 1


def _negate(_: ast.Module, node: ast.AST, __: int) -> None:
    assert isinstance(node, ast.If | ast.While | ast.IfExp)
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _return_nothing(_: ast.Module, node: ast.AST, __: int) -> None:
    assert isinstance(node, ast.Return)
    node.value = ast.Constant(None)


def _drop_statement(_: ast.Module, node: ast.AST, __: int) -> None:
    assert isinstance(node, ast.Expr)
    node.value = ast.Constant(None)


def _drop_keyword(_: ast.Module, node: ast.AST, i: int) -> None:
    assert isinstance(node, ast.Call)
    del node.keywords[i]


def _drop_filter(_: ast.Module, node: ast.AST, __: int) -> None:
    assert isinstance(node, ast.comprehension)
    node.ifs = []


def _replace(tree: ast.Module, old: ast.AST, new: ast.AST) -> None:
    class Replacing(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return copy.copy(new) if node is old else super().generic_visit(node)

    Replacing().visit(tree)


_CHANGES = {
    "compare": _set_compare,
    "operator": _set_operator,
    "sign": _drop_sign,
    "constant": _set_constant,
    "negate": _negate,
    "nothing": _return_nothing,
    "statement": _drop_statement,
    "keyword": _drop_keyword,
    "filter": _drop_filter,
}
