"""Reads Python files that build configurations, without executing them.

It follows calls with keyword arguments, assignments to fields, and functions that modify the result of another function.
"""

import ast
import operator
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from strategist.errors import FileError
from strategist.formats.python_tree import python_tree
from strategist.frozen import frozen


class Unknown(Enum):
    """The value of an expression that is known only at run time."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN

MAX_STEPS = 50_000
MAX_NUMBER = 10**15
"""Larger numbers occur in no configuration."""

_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.Gt: operator.gt, ast.LtE: operator.le,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip


@dataclass(kw_only=True)
class Node:
    """The value of an expression.

    value: a constant or a list of nodes; UNKNOWN for anything else.
    call, origin: the called name and its module, if the expression is a call.
    fields: arguments of the call (positional ones by their number), and fields that were assigned.
    base: fields of a configuration that is known from elsewhere, by dotted name.
    """

    value: Any = UNKNOWN
    call: str = ""
    origin: str = ""
    fields: "dict[str, Node]" = field(default_factory=dict)
    base: dict[str, Any] = field(default_factory=dict)
    line: int | None = None

    def get(self, *names: str) -> "Node | None":
        """The first of these fields that exists."""
        return next((self.fields[name] for name in names if name in self.fields), None)

    def put(self, name: str, node: "Node") -> None:
        """Sets a field; everything that was known of it before is dropped."""
        self.fields[name] = node
        self.base = {known: value for known, value in self.base.items() if known != name and not known.startswith(f"{name}.")}

    def leaves(self) -> Iterator[tuple[str, "Node"]]:
        """Nested fields by dotted name, each call before its arguments; unknown values are left out."""
        for name, node in self.fields.items():
            if node.call or node.value is not UNKNOWN:
                yield name, node
            for below, leaf in node.leaves():
                yield f"{name}.{below}", leaf


def plain(node: Node | None) -> Any:
    """The value of a node; a list of nodes becomes a list of values or names of calls; UNKNOWN without a value."""
    if node is None:
        return UNKNOWN
    if isinstance(node.value, list):
        return [item.call if item.call else plain(item) for item in node.value]
    return node.value


@frozen
class Module:
    """One file: its functions, module-level values, and imports (module and original name, by the name used in the file)."""

    path: str
    functions: Mapping[str, ast.FunctionDef]
    values: Mapping[str, ast.expr]
    imports: dict[str, tuple[str, str]]


def read_module(text: str, path: str) -> Module:
    """The functions, values and imports of a file.

    Raises:
        FileError: it is not Python.
    """
    tree = python_tree(text, path)
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    return Module(
        path=path,
        functions={node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)},
        values={target.id: node.value for node in assigned for target in node.targets if isinstance(target, ast.Name)},
        imports=dict(_imports(tree.body, path)),
    )


def _imports(body: Sequence[ast.stmt], path: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in body:
        if isinstance(node, ast.ImportFrom):
            above = [folder.name for folder in Path(path).resolve().parents][: node.level][::-1][:1]
            module = ".".join((*above, *filter(None, [node.module])))
            yield from ((item.asname or item.name, (module, item.name)) for item in node.names)


def entry_points(module: Module) -> tuple[str, ...]:
    """Public functions that return a value and need no arguments."""
    found = (
        name for name, node in module.functions.items()
        if not name.startswith("_") and len(node.args.args) == len(node.args.defaults) and not node.args.posonlyargs
        and all(node.args.kw_defaults) and any(isinstance(item, ast.Return) and item.value for item in ast.walk(node))
    )  # fmt: skip
    return tuple(found)


@dataclass(kw_only=True)
class Interpreter:
    """Evaluates the function that builds a configuration.

    known: fields of the configuration that a function (module, name) of another package returns; None if unknown.
    names: fields, by dotted name, for which ``hasattr`` is true.
    opaque: names of functions whose calls are kept as calls.
    adapters: functions that convert one configuration into another, by the name of the function that does so in the file.
    """

    known: Callable[[str, str], Mapping[str, Any] | None]
    names: Collection[str] = ()
    opaque: frozenset[str] = frozenset()
    adapters: Mapping[str, Callable[[Node], Node]] = field(default_factory=dict)
    notes: list[tuple[int, str]] = field(default_factory=list)
    """Lines that could not be evaluated, with the reason."""

    _steps: int = 0
    _depth: int = 0
    _modules: dict[str, Module] = field(default_factory=dict)

    def run(self, module: Module, name: str, arguments: Mapping[str, Node] | None = None) -> Node:
        """The value that a function returns."""
        self._depth += 1
        if self._depth > 20:
            raise FileError(
                module.path,
                f"{name} calls other functions without end; name a function that does not call itself",
                module.functions[name].lineno,
            )
        function = module.functions[name]
        scope: dict[str, Node] = {}
        defaults = function.args.defaults
        for argument, default in zip(function.args.args[len(function.args.args) - len(defaults) :], defaults, strict=True):
            scope[argument.arg] = self._node_of(default, scope, module)
        for argument, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            if value is not None:
                scope[argument.arg] = self._node_of(value, scope, module)
        scope |= arguments or {}
        returned = self._body(function.body, scope, module)
        self._depth -= 1
        return returned or Node(line=function.lineno)

    def _body(self, body: Sequence[ast.stmt], scope: dict[str, Node], module: Module) -> Node | None:
        for statement in body:
            if (returned := self._statement(statement, scope, module)) is not None:
                return returned
        return None

    def _statement(self, node: ast.stmt, scope: dict[str, Node], module: Module) -> Node | None:
        if isinstance(node, ast.Return):
            return self._node_of(node.value, scope, module) if node.value else Node()
        if isinstance(node, ast.Assign):
            value = self._node_of(node.value, scope, module)
            for target in node.targets:
                self._assign(target, value, scope, module)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self._node_of(node.value, scope, module), scope, module)
        elif isinstance(node, ast.AugAssign):
            self._assign(node.target, Node(line=node.lineno), scope, module)
        elif isinstance(node, ast.Expr):
            self._node_of(node.value, scope, module)
        elif isinstance(node, ast.If):
            return self._branch(node, scope, module)
        elif isinstance(node, ast.With):
            return self._body(node.body, scope, module)
        elif isinstance(node, ast.ImportFrom):
            module.imports.update(_imports([node], module.path))
        elif isinstance(node, ast.For | ast.While | ast.Try) and _assigns_fields(node):
            self.notes.append((node.lineno, "what is set in a loop or behind try is not read"))
        return None

    def _branch(self, node: ast.If, scope: dict[str, Node], module: Module) -> Node | None:
        test = plain(self._node_of(node.test, scope, module))
        if test is UNKNOWN:
            if _assigns_fields(node):
                self.notes.append((node.lineno, "what is set under this condition is not read"))
            return None
        return self._body(node.body if test else node.orelse, scope, module)

    def _assign(self, target: ast.expr, value: Node, scope: dict[str, Node], module: Module) -> None:
        """Assigns to a name, or to a field of a name's value."""
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Attribute) and (owner := self._node_at(target.value, scope)) is not None:
            value.line = value.line or target.lineno
            owner.put(target.attr, value)
            self._drop_base_field(target, scope)

    def _node_at(self, target: ast.expr, scope: dict[str, Node]) -> Node | None:
        """The node of a chain of attributes; missing nodes on the way are created."""
        if isinstance(target, ast.Name):
            return scope.get(target.id)
        if isinstance(target, ast.Attribute) and (owner := self._node_at(target.value, scope)) is not None:
            return owner.fields.setdefault(target.attr, Node(line=target.lineno))
        return None

    def _drop_base_field(self, target: ast.Attribute, scope: dict[str, Node]) -> None:
        """Drops a nested field from the base of its root, because it was assigned."""
        root, names = _root_and_names(target, scope)
        if root is not None:
            full = ".".join(names)
            root.base = {name: value for name, value in root.base.items() if name != full and not name.startswith(f"{full}.")}

    def _node_of(self, node: ast.expr, scope: dict[str, Node], module: Module) -> Node:
        """The node of an expression."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise FileError(module.path, "is too complex to be read; write the values out", node.lineno)
        found = self._value(node, scope, module)
        if isinstance(found, Node):
            found.line = found.line or node.lineno
            return found
        return Node(value=found, line=node.lineno)

    def _value(self, node: ast.expr, scope: dict[str, Node], module: Module) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in scope:
                return scope[node.id]
            return self._node_of(module.values[node.id], {}, module) if node.id in module.values else UNKNOWN
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope, module)
        if isinstance(node, ast.List | ast.Tuple):
            return [self._node_of(item, scope, module) for item in node.elts]
        if isinstance(node, ast.Call):
            return self._call(node, scope, module)
        return self._operation(node, scope, module)

    def _operation(self, node: ast.expr, scope: dict[str, Node], module: Module) -> Any:
        """Arithmetic, comparisons and conditional expressions on known values."""
        if isinstance(node, ast.UnaryOp):
            value = plain(self._node_of(node.operand, scope, module))
            if isinstance(node.op, ast.Not) and value is not UNKNOWN:
                return not value
            return -value if isinstance(node.op, ast.USub) and isinstance(value, int | float) else UNKNOWN
        if isinstance(node, ast.BinOp | ast.Compare):
            return self._binary_operation(node, scope, module)
        if isinstance(node, ast.BoolOp):
            values = [plain(self._node_of(item, scope, module)) for item in node.values]
            if any(value is UNKNOWN for value in values):
                return UNKNOWN
            return all(values) if isinstance(node.op, ast.And) else any(values)
        if isinstance(node, ast.IfExp):
            test = plain(self._node_of(node.test, scope, module))
            return UNKNOWN if test is UNKNOWN else self._node_of(node.body if test else node.orelse, scope, module)
        return UNKNOWN

    def _binary_operation(self, node: ast.BinOp | ast.Compare, scope: dict[str, Node], module: Module) -> Any:
        compares = isinstance(node, ast.Compare)
        right = node.comparators[0] if isinstance(node, ast.Compare) else node.right
        kind = type(node.ops[0]) if isinstance(node, ast.Compare) else type(node.op)
        operation = (_COMPARISONS if compares else _ARITHMETIC).get(kind)
        values = [plain(self._node_of(item, scope, module)) for item in (node.left, right)]
        numbers = all(isinstance(value, int | float) and abs(value) < MAX_NUMBER for value in values)
        if operation is None or (isinstance(node, ast.Compare) and len(node.ops) > 1):
            return UNKNOWN
        if not numbers and not (kind in (ast.Eq, ast.NotEq, ast.Is, ast.IsNot) and UNKNOWN not in values):
            return UNKNOWN
        try:
            return operation(*values)
        except ZeroDivisionError:
            return UNKNOWN

    def _attribute(self, node: ast.Attribute, scope: dict[str, Node], module: Module) -> Any:
        root, names = _root_and_names(node, scope)
        if root is None:
            return UNKNOWN
        found: Node | None = root
        for name in names:
            found = found.fields.get(name) if found else None
        return found if found is not None else root.base.get(".".join(names), UNKNOWN)

    def _call(self, node: ast.Call, scope: dict[str, Node], module: Module) -> Node:
        """The value that the called function returns; if it cannot be followed, the call itself."""
        dotted = ast.unparse(node.func)
        origin, name = module.imports.get(dotted, ("", dotted))
        positional = [self._node_of(item, scope, module) for item in node.args if not isinstance(item, ast.Starred)]
        named = {item.arg: self._node_of(item.value, scope, module) for item in node.keywords if item.arg}
        first = positional[0] if positional else None
        if name == "hasattr" and len(node.args) == 2:
            return Node(value=f"{ast.unparse(node.args[0]).partition('.')[2]}.{plain(positional[1])}" in self.names)
        if name in ("cast", "typing.cast") and len(positional) == 2:
            return positional[1]
        if name.rpartition(".")[2] in ("replace", "deepcopy", "copy") and first is not None:
            return _with_fields(deepcopy(first), named)
        if name in self.adapters and first is not None:
            return self.adapters[name](deepcopy(first))
        if name not in self.opaque and (found := self._returned_value(origin, name, node, positional, named, module)) is not None:
            return found
        if node.func and isinstance(node.func, ast.Name) and any(item.base or "Config" in item.call for item in positional):
            self.notes.append((node.lineno, f"what {dotted} does with the configuration is not read"))
        return Node(call=name, origin=origin, fields={**{str(index): item for index, item in enumerate(positional)}, **named})

    def _returned_value(
        self, origin: str, name: str, node: ast.Call, positional: list[Node], named: dict[str, Node], module: Module
    ) -> Node | None:
        """The value that a function of this file, of a nearby file, or of a known package returns; None for any other function."""
        target: Module | None = module if not origin else self._module_near(origin, module)
        if target is not None and name in target.functions:
            arguments = dict(zip((item.arg for item in target.functions[name].args.args), positional, strict=False))
            return self.run(target, name, {**arguments, **named})
        if origin and (base := self.known(origin, name)) is not None:
            return Node(call=name, origin=origin, base=dict(base))
        return None

    def _module_near(self, origin: str, module: Module) -> Module | None:
        """The module with that dotted name in a folder above the file; None without one."""
        if origin in self._modules:
            return self._modules[origin]
        parts = origin.split(".")
        for folder in Path(module.path).resolve().parents:
            for candidate in (folder.joinpath(*parts).with_suffix(".py"), folder.joinpath(*parts, "__init__.py")):
                if os.path.isfile(candidate):
                    try:
                        found = read_module(candidate.read_text(encoding="utf-8"), str(candidate))
                    except (OSError, UnicodeDecodeError):
                        return None
                    self._modules[origin] = found
                    return found
        return None


def _with_fields(node: Node, named: Mapping[str, Node]) -> Node:
    for name, value in named.items():
        node.put(name, value)
    return node


def _root_and_names(target: ast.Attribute, scope: Mapping[str, Node]) -> tuple[Node | None, list[str]]:
    """The node at the head of a chain of attributes, if the scope has it, and the names after it."""
    names: list[str] = []
    owner: ast.expr = target
    while isinstance(owner, ast.Attribute):
        names.insert(0, owner.attr)
        owner = owner.value
    return (scope.get(owner.id) if isinstance(owner, ast.Name) else None), names


def _assigns_fields(node: ast.AST) -> bool:
    """Whether a statement assigns to a field."""
    assigned = (item for item in ast.walk(node) if isinstance(item, ast.Assign | ast.AugAssign))
    targets = (target for item in assigned for target in (item.targets if isinstance(item, ast.Assign) else [item.target]))
    return any(isinstance(target, ast.Attribute) for target in targets)
