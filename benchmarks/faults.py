"""Small faults for benchmarks/mutation.py: every place of a source text where one line can be changed, and those that a seed draws.

Left out are docstrings, annotations, decorators, f-strings, ``__repr__``, assertions (``strict=`` of zip, too), what stands under
``if TYPE_CHECKING`` or ``if __name__ == "__main__"``, and in the executing half what a machine without GPUs cannot run: functions
named after CUDA or NCCL, and what a condition such as ``device.type == "cuda"`` guards.
"""

import ast
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePosixPath
from random import Random

FLIPPED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}  # fmt: skip
TERMS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv)
EITHER = (ast.Add, ast.Mult)
"""Operations of which the left term can be dropped, too."""

LEFT_OUT = {"repr", "strict"}
"""Arguments that say how a value looks, or assert."""

AXES = {"axis", "dim", "dim0", "dim1"}
LARGEST = 10
"""Larger numbers are sizes, which few changes by one are a fault of."""

_ON_CUDA = re.compile(r"== 'cuda'|cuda\.is_available\(\)")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Bytes ``start`` to ``end`` of a line (from 1) replaced; ``text`` is the line as it was, ``function`` the name of the function
    around it, after those of its classes; empty outside of functions.
    """

    path: str
    function: str
    line: int
    start: int
    end: int
    kind: str
    text: str
    replacement: str

    @property
    def package(self) -> str:
        return str(PurePosixPath(self.path).parent)

    @property
    def changed(self) -> str:
        """The line with the fault."""
        raw = self.text.encode()
        return (raw[: self.start] + self.replacement.encode() + raw[self.end :]).decode()

    @property
    def change(self) -> tuple[str, str, str, str]:
        """File, function, and the line before and after; the same wherever the line stands in its function."""
        return self.path, self.function, self.text.strip(), self.changed.strip()

    @property
    def diff(self) -> str:
        at = f"--- a/{self.path}\n+++ b/{self.path}\n@@ -{self.line} +{self.line} @@"
        return f"{at}\n-{self.text}\n+{self.changed}"

    def applied(self, source: str) -> str:
        """The file with the fault."""
        lines = source.split("\n")
        lines[self.line - 1] = self.changed
        return "\n".join(lines)

    def name(self, seed: int) -> str:
        """The same as long as the line stands where it stood; begins with a letter, so that YAML reads no number."""
        identity = (seed, self.path, self.line, self.start, self.end, self.replacement, self.text)
        return f"m{hashlib.sha256(repr(identity).encode()).hexdigest()[:10]}"


class _Places(ast.NodeVisitor):
    """Walks a file and collects its faults."""

    def __init__(self, path: str, source: str) -> None:
        self.found: list[Fault] = []
        self._path = path
        self._lines = [line.encode() for line in source.split("\n")]
        self._on_devices = path.startswith("runtime/")
        self._indices: set[ast.expr] = set()
        self._around: tuple[str, ...] = ()

    def _add(self, kind: str, line: int, start: int, end: int, replacement: str) -> None:
        text = self._lines[line - 1].decode()
        fault = Fault(
            path=self._path, function=".".join(self._around), line=line, start=start, end=end, kind=kind, text=text,
            replacement=replacement,
        )  # fmt: skip
        self.found.append(fault)

    def _inside(self, name: str, parts: Iterable[ast.AST]) -> None:
        """Visits the parts of a function or a class."""
        outside, self._around = self._around, (*self._around, name)
        for part in parts:
            self.visit(part)
        self._around = outside

    def _text(self, node: ast.expr) -> str:
        return self._lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()

    def _span(self, node: ast.expr, outer: ast.expr) -> tuple[int, int]:
        """First byte and end of an operand on the line of ``outer``, with the parentheses around it."""
        line, (start, end) = self._lines[node.lineno - 1], _columns(node)
        while True:
            before, after = line[outer.col_offset : start].rstrip(), line[end : outer.end_col_offset].lstrip()
            if not (before.endswith(b"(") and after.startswith(b")")):
                return start, end
            start, end = outer.col_offset + len(before) - 1, _columns(outer)[1] - len(after) + 1

    def _drop(self, outer: ast.expr, operands: list[ast.expr], also_first: bool) -> None:
        """Each operand after the first goes together with the sign before it, the first one with the sign after it."""
        if not _one_line(outer):
            return
        spans = [self._span(operand, outer) for operand in operands]
        for (_, before), (_, end) in pairwise(spans):
            self._add("dropped term", outer.lineno, before, end, "")
        if also_first:
            self._add("dropped term", outer.lineno, spans[0][0], spans[1][0], "")

    def _negate(self, test: ast.expr) -> None:
        """A single comparison is left to :meth:`visit_Compare`."""
        if not _one_line(test) or (isinstance(test, ast.Compare) and len(test.ops) == 1):
            return
        inverted = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        text = self._text(test.operand) if isinstance(test, ast.UnaryOp) and inverted else f"not ({self._text(test)})"
        self._add("negated condition", test.lineno, *_columns(test), text)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, TERMS):
            self._drop(node, [node.left, node.right], isinstance(node.op, EITHER))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._drop(node, node.values, True)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            sign, other = FLIPPED[type(operator)]
            if left.end_lineno == right.lineno:
                start = self._lines[right.lineno - 1].index(sign.encode(), left.end_col_offset, right.col_offset)
                self._add("flipped comparison", right.lineno, start, start + len(sign), other)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add("flipped boolean", node.lineno, *_columns(node), str(not node.value))
        elif isinstance(node.value, int) and node.value <= LARGEST and self._text(node).isdecimal():
            kind = "wrong index" if node in self._indices else "wrong number"
            for value in (node.value + 1, node.value - 1):
                if value >= 0:
                    self._add(kind, node.lineno, *_columns(node), str(value))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._indices.update(_indices(node.slice))
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg in AXES:
            self._indices.update(_indices(node.value))
        if node.arg not in LEFT_OUT:
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None and "NotImplementedError" in ast.unparse(node.exc):
            return
        if node.lineno == node.end_lineno:
            self._add("swallowed error", node.lineno, node.col_offset, node.end_col_offset or 0, "pass")
        elif node.cause is None:  # the error is made, and raised no more
            self._add("swallowed error", node.lineno, node.col_offset, node.col_offset + len("raise "), "")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        test = ast.unparse(node.test)
        if "TYPE_CHECKING" in test or "__name__" in test:
            return
        self._branch(node.test, node.body, node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._branch(node.test, [node.body], [node.orelse])

    def _branch(self, test: ast.expr, body: Iterable[ast.AST], otherwise: Iterable[ast.AST]) -> None:
        self._negate(test)
        on_cuda = self._on_devices and _ON_CUDA.search(ast.unparse(test))
        for node in (test, *(() if on_cuda else body), *otherwise):
            self.visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name != "__repr__" and not (self._on_devices and re.search("cuda|nccl", node.name.lower())):
            self._inside(node.name, (node.args, *node.body))

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node.name, node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def _leave_out(self, node: ast.AST) -> None:
        """Of f-strings Python 3.11 does not say where their parts stand."""

    visit_arg = visit_Assert = visit_JoinedStr = _leave_out  # noqa: N815


def _one_line(node: ast.expr) -> bool:
    return node.lineno == node.end_lineno


def _columns(node: ast.expr) -> tuple[int, int]:
    return node.col_offset, node.end_col_offset or 0


def _indices(node: ast.expr | None) -> Iterator[ast.expr]:
    """The constants that stand for themselves in a subscript or as an axis."""
    match node:
        case ast.Constant():
            yield node
        case ast.UnaryOp(operand=inner):
            yield from _indices(inner)
        case ast.Slice(lower=lower, upper=upper):
            yield from (*_indices(lower), *_indices(upper))
        case ast.Tuple(elts=parts):
            yield from (index for part in parts for index in _indices(part))


def faults(sources: Mapping[str, str]) -> list[Fault]:
    """All that can be made in these files: source texts by path."""
    found: list[Fault] = []
    for path, source in sorted(sources.items()):
        places = _Places(path, source)
        places.visit(ast.parse(source, path))
        found += places.found
    return found


def drawn(every: Iterable[Fault], sources: Mapping[str, str], seed: int, count: int) -> list[Fault]:
    """``count`` of them, one of each package first, and then by how many a package has; fewer are the first of more."""
    packages: dict[str, list[Fault]] = defaultdict(list)
    for place in every:
        packages[place.package].append(place)
    draws = {name: _draws(Random(f"{seed} {name}"), own, sources) for name, own in packages.items()}
    taken: Counter[str] = Counter()
    found: list[Fault] = []
    while draws and len(found) < count:
        name = max(sorted(draws), key=lambda name: (not taken[name], len(packages[name]) / (taken[name] + 1)))
        if (fault := next(draws[name], None)) is None:
            del draws[name]
            continue
        taken[name] += 1
        found.append(fault)
    return found


def _draws(chance: Random, own: list[Fault], sources: Mapping[str, str]) -> Iterator[Fault]:
    """The faults of a package in the order of chance: the kind first, so that no kind outnumbers the others."""
    kinds: dict[str, list[Fault]] = defaultdict(list)
    for place in own:
        kinds[place.kind].append(place)
    while kinds:
        kind = chance.choice(sorted(kinds))
        fault = kinds[kind].pop(chance.randrange(len(kinds[kind])))
        if not kinds[kind]:
            del kinds[kind]
        if _differs(fault, sources[fault.path]):
            yield fault


def _differs(fault: Fault, source: str) -> bool:
    """Whether the file with the fault is Python still, and another program."""
    try:
        return ast.dump(ast.parse(fault.applied(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False
