"""Satisfiability of conditions: reasoning over each term's values; an answer of unsatisfiable is always correct.

A term is a name, or an arithmetic expression or comparison of two taken as a whole, known by its words. A condition becomes a
list of regions, of which one must hold; in a region each term has a domain, and terms are independent of each other. Where two
terms do depend on each other a region may look possible that is not: then nothing is said. Unknown is one of a term's values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from strategist.expr.check import Expression
from strategist.expr.parse import Choice, Literal, Node, Operation, Reference
from strategist.expr.vocabulary import BOOL, CATEGORY, VOCABULARY
from strategist.lint.value_sets import NUMBERS, Domain, Span, chosen, compared, others, tagged, universe

Region = Mapping[str, Domain]
Regions = Sequence[Region]

EVERYWHERE: Regions = ({},)
MOST_REGIONS = 200

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
COMPARISONS = (*_MIRRORED, "in")
_ORDER = {"<": ("lt",), "<=": ("lt", "eq"), ">": ("gt",), ">=": ("gt", "eq"), "==": ("eq",), "!=": ("lt", "gt")}
_NUMERIC = {"+", "-", "*", "/", "//", "%", "neg", "min", "max", "ceil", "floor", "abs", "sqrt"}


class UndecidedError(Exception):
    """Nothing can be said: more regions than are looked at, or a value that is computed."""


def known(regions: Callable[[], Regions]) -> Regions:
    """The regions; none where nothing can be said."""
    try:
        return regions()
    except UndecidedError:
        return ()


def impossible(regions: Callable[[], Regions]) -> bool:
    """Whether there are surely none."""
    try:
        return not regions()
    except UndecidedError:
        return False


def holds(condition: Expression | None, value: bool = True) -> Regions:
    """Where a condition surely has the value; everywhere, for none.

    Raises:
        UndecidedError: nothing can be said.
    """
    return EVERYWHERE if condition is None else _regions(condition.tree, value, _surely)


def fails(condition: Expression | None) -> Regions:
    """Where a condition does not surely hold: it is false, or unknown.

    Raises:
        UndecidedError: nothing can be said.
    """
    return () if condition is None else _regions(condition.tree, True, _not_surely)


def together(*all_: Regions) -> Regions:
    """Where all of them hold.

    Raises:
        UndecidedError: nothing can be said.
    """
    left: Regions = EVERYWHERE
    for regions in all_:
        left = _bounded(met for one in left for two in regions if (met := _meet(one, two)) is not None)
    return left


def _bounded(regions: Iterable[Region]) -> Regions:
    found: list[Region] = []
    for region in regions:
        if region not in found:
            found.append(region)
        if len(found) > MOST_REGIONS:
            raise UndecidedError
    return tuple(found)


def _meet(one: Region, two: Region) -> Region | None:
    met = dict(one)
    for term, domain in two.items():
        met[term] = met[term].meet(domain) if term in met else domain
        if met[term].empty:
            return None
    return met


def _surely(term: str, true: Domain, false: Domain, value: bool) -> Region:
    return {term: true if value else false}


def _not_surely(term: str, true: Domain, false: Domain, value: bool) -> Region:
    return {term: (false if value else true).maybe_unknown()}


def _regions(node: Node, value: bool, literal: Callable[[str, Domain, Domain, bool], Region]) -> Regions:
    """``literal`` says of one term's comparison where it (surely, or not surely) has the value.

    For _surely, ``and`` has the value True where all parts do; for _not_surely where one does not.
    """
    if isinstance(node, Operation) and node.operator == "not":
        return _regions(node.operands[0], not value, literal)
    if isinstance(node, Operation) and node.operator in ("and", "or"):
        parts = [_regions(part, value, literal) for part in node.operands]
        every = ((node.operator == "and") == value) == (literal is _surely)
        return together(*parts) if every else _bounded(region for part in parts for region in part)
    if isinstance(node, Literal):
        return EVERYWHERE if (node.value is value) == (literal is _surely) else ()
    region = literal(*atom(node), value)
    return () if any(domain.empty for domain in region.values()) else (region,)


def atom(node: Node) -> tuple[str, Domain, Domain]:
    """The term of a condition without and, or, not; and its domains where the condition is true and where it is false."""
    if isinstance(node, Operation):
        left, right = node.operands[0], node.operands[-1]
        if node.operator == "in" and isinstance(right, Choice):
            return _among(left, [item.value for item in right.items])
        if node.operator in _MIRRORED:
            if isinstance(left, Literal) and not isinstance(right, Literal):
                return _against(right, _MIRRORED[node.operator], left)
            if isinstance(right, Literal):
                return _against(left, node.operator, right)
            if (is_number(left) and is_number(right)) or words(left) == words(right):
                return _ordered(left, node.operator, right)
    return words(node), chosen((True,)), chosen((False,))


def _among(left: Node, values: list[float | int | bool | str]) -> tuple[str, Domain, Domain]:
    domain = _universe(left)
    if domain.spans is None:
        wanted = frozenset(map(tagged, values))
        return words(left), Domain(choices=domain.choices & wanted), Domain(choices=domain.choices - wanted)
    numbers = [value for value in values if isinstance(value, int | float)]
    inside = tuple(span for number in numbers for span in compared("==", number))
    return words(left), _numbers(domain, inside), _numbers(domain, others(numbers))


def _against(left: Node, operator: str, literal: Literal) -> tuple[str, Domain, Domain]:
    domain, value = _universe(left), literal.value
    if domain.spans is None:
        equal, other = _among(left, [value])[1:]
        return (words(left), equal, other) if operator == "==" else (words(left), other, equal)
    if isinstance(value, str):  # the checker refuses it before
        return words(left), domain, domain
    negated = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}[operator]
    return words(left), _numbers(domain, compared(operator, value)), _numbers(domain, compared(negated, value))


def _ordered(left: Node, operator: str, right: Node) -> tuple[str, Domain, Domain]:
    """Two terms, compared: less, equal or greater, whichever of them is written first."""
    if words(left) > words(right):
        left, right, operator = right, left, _MIRRORED[operator]
    order = _ORDER[operator]
    possible = ("eq",) if words(left) == words(right) else ("lt", "eq", "gt")
    true, false = (tuple(sign for sign in possible if (sign in order) is wanted) for wanted in (True, False))
    return f"{words(left)} ? {words(right)}", chosen(true), chosen(false)


def _numbers(domain: Domain, spans: tuple[Span, ...]) -> Domain:
    return domain.meet(Domain(spans=spans, whole=domain.whole))


def _universe(node: Node) -> Domain:
    if isinstance(node, Reference):
        return universe(VOCABULARY[node.name])
    return Domain(spans=NUMBERS) if is_number(node) else chosen((True, False))


def is_number(node: Node) -> bool:
    """Whether the node is a number rather than a condition or a word."""
    if isinstance(node, Reference):
        return VOCABULARY[node.name].kind not in (BOOL, CATEGORY)
    if isinstance(node, Literal):
        return not isinstance(node.value, bool | str)
    return isinstance(node, Operation) and node.operator in _NUMERIC


def words(node: Node) -> str:
    """The node written out, the same for equal ones wherever they stand."""
    if isinstance(node, Reference):
        return node.name
    if isinstance(node, Literal):
        return repr(node.value)
    inside = ", ".join(map(words, _inside(node)))
    return f"{node.operator}({inside})" if isinstance(node, Operation) else f"[{inside}]"


def _inside(node: Node) -> Iterator[Node]:
    yield from node.operands if isinstance(node, Operation) else node.items if isinstance(node, Choice) else ()
