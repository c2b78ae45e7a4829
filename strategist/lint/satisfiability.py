"""Satisfiability of conditions, from the possible values of each term; the answer unsatisfiable is always correct.

A term is a name, or an arithmetic expression or a comparison of two of these, as a whole and identified by its text. A condition
becomes a list of regions, one of which must hold; a region gives each term a domain, and terms count as independent. If terms
depend on each other, an impossible region may look possible; then nothing is concluded. Unknown is one of a term's values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from strategist.expr.check import Expression
from strategist.expr.parse import Choice, Literal, Node, Operation, Reference
from strategist.expr.vocabulary import BOOL, CATEGORY, VOCABULARY
from strategist.lint.value_sets import NUMBERS, Domain, Span, chosen, compared, others, tagged, universe

Region = Mapping[str, Domain]
Regions = Sequence[Region]

EVERYWHERE: Regions = ({},)
MAX_REGIONS = 200

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
COMPARISONS = (*_MIRRORED, "in")
_ORDER = {"<": ("lt",), "<=": ("lt", "eq"), ">": ("gt",), ">=": ("gt", "eq"), "==": ("eq",), "!=": ("lt", "gt")}
_NUMERIC = {"+", "-", "*", "/", "//", "%", "neg", "min", "max", "ceil", "floor", "abs", "sqrt"}


class UndecidedError(Exception):
    """Satisfiability is undecided: there are too many regions, or a value is computed."""


def known(regions: Callable[[], Regions]) -> Regions:
    """The regions; none if they cannot be decided."""
    try:
        return regions()
    except UndecidedError:
        return ()


def impossible(regions: Callable[[], Regions]) -> bool:
    """Whether there are certainly no regions."""
    try:
        return not regions()
    except UndecidedError:
        return False


def holds(condition: Expression | None, value: bool = True) -> Regions:
    """Regions in which a condition has the value and is not unknown; everywhere without a condition.

    Raises:
        UndecidedError: that cannot be decided.
    """
    return EVERYWHERE if condition is None else _regions(condition.tree, value, _surely)


def fails(condition: Expression | None) -> Regions:
    """Regions in which a condition is false or unknown.

    Raises:
        UndecidedError: that cannot be decided.
    """
    return () if condition is None else _regions(condition.tree, True, _not_surely)


def together(*all_: Regions) -> Regions:
    """Intersections of the regions.

    Raises:
        UndecidedError: there are too many.
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
        if len(found) > MAX_REGIONS:
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
    return {term: (false if value else true).with_unknown()}


def _regions(node: Node, value: bool, literal: Callable[[str, Domain, Domain, bool], Region]) -> Regions:
    """Regions of a condition; ``literal`` is _surely (a comparison has the value) or _not_surely (it may not have it).

    With _surely, ``and`` is True if all parts are True; with _not_surely, it is enough if one part is not.
    """
    if isinstance(node, Operation) and node.operator == "not":
        return _regions(node.operands[0], not value, literal)
    if isinstance(node, Operation) and node.operator in ("and", "or"):
        parts = [_regions(part, value, literal) for part in node.operands]
        every = ((node.operator == "and") == value) == (literal is _surely)
        return together(*parts) if every else _bounded(region for part in parts for region in part)
    if isinstance(node, Literal):
        return EVERYWHERE if (node.value is value) == (literal is _surely) else ()
    region = literal(*term_domains(node), value)
    return () if any(domain.empty for domain in region.values()) else (region,)


def term_domains(node: Node) -> tuple[str, Domain, Domain]:
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
    if isinstance(value, str):  # rejected by the type checker before
        return words(left), domain, domain
    negated = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}[operator]
    return words(left), _numbers(domain, compared(operator, value)), _numbers(domain, compared(negated, value))


def _ordered(left: Node, operator: str, right: Node) -> tuple[str, Domain, Domain]:
    """A comparison of two terms as less, equal or greater; the order in which they are written does not matter."""
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
    """The text of a node, the same for equal nodes."""
    if isinstance(node, Reference):
        return node.name
    if isinstance(node, Literal):
        return repr(node.value)
    inside = ", ".join(map(words, _inside(node)))
    return f"{node.operator}({inside})" if isinstance(node, Operation) else f"[{inside}]"


def _inside(node: Node) -> Iterator[Node]:
    yield from node.operands if isinstance(node, Operation) else node.items if isinstance(node, Choice) else ()
