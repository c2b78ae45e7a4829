"""Satisfiability of conditions, from the possible values of each term; the answer unsatisfiable is always correct.

A term is a name, or an arithmetic expression or a comparison of two of these, as a whole and identified by its text. A condition
becomes a list of regions, one of which must hold; a region gives each term a domain, and terms count as independent. If terms
depend on each other, an impossible region may look possible; then nothing is concluded. Unknown is one of a term's values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from strategist.expr.check import Expression
from strategist.expr.parse import Choice, Literal, Node, Operation, Reference
from strategist.expr.vocabulary import BOOL, CATEGORY, VOCABULARY
from strategist.lint.value_sets import NUMBERS, Domain, Span, choice_domain, comparison_spans, spans_without, typed_value, universe

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


def decided_regions(regions: Callable[[], Regions]) -> Regions:
    """The regions; none if they cannot be decided."""
    try:
        return regions()
    except UndecidedError:
        return ()


def is_impossible(regions: Callable[[], Regions]) -> bool:
    """Whether it is certain that there are no regions."""
    try:
        return not regions()
    except UndecidedError:
        return False


def holds(condition: Expression | None, value: bool = True) -> Regions:
    """Regions in which a condition has the value and is not unknown; everywhere without a condition.

    Raises:
        UndecidedError: that cannot be decided.
    """
    return EVERYWHERE if condition is None else _regions(condition.tree, value, _true_region)


def fails(condition: Expression | None) -> Regions:
    """Regions in which a condition is false or unknown.

    Raises:
        UndecidedError: that cannot be decided.
    """
    return () if condition is None else _regions(condition.tree, True, _not_true_region)


def intersection(*all_: Regions) -> Regions:
    """Intersections of the regions.

    Raises:
        UndecidedError: there are too many.
    """
    result: Regions = EVERYWHERE
    for regions in all_:
        result = _unique_regions(region for left in result for right in regions if (region := _meet(left, right)) is not None)
    return result


def _unique_regions(regions: Iterable[Region]) -> Regions:
    found: list[Region] = []
    for region in regions:
        if region not in found:
            found.append(region)
        if len(found) > MAX_REGIONS:
            raise UndecidedError
    return tuple(found)


def _meet(left: Region, right: Region) -> Region | None:
    region = dict(left)
    for term, domain in right.items():
        region[term] = region[term].meet(domain) if term in region else domain
        if region[term].empty:
            return None
    return region


def _true_region(term: str, true: Domain, false: Domain, value: bool) -> Region:
    return {term: true if value else false}


def _not_true_region(term: str, true: Domain, false: Domain, value: bool) -> Region:
    return {term: (false if value else true).with_unknown()}


def _regions(node: Node, value: bool, literal: Callable[[str, Domain, Domain, bool], Region]) -> Regions:
    """Regions of a condition; ``literal`` is _true_region (a comparison has the value) or _not_true_region (it may not have it).

    With _true_region, ``and`` is True if all parts are True; with _not_true_region, it is enough if one part is not.
    """
    if isinstance(node, Operation) and node.operator == "not":
        return _regions(node.operands[0], not value, literal)
    if isinstance(node, Operation) and node.operator in ("and", "or"):
        parts = [_regions(part, value, literal) for part in node.operands]
        is_conjunction = ((node.operator == "and") == value) == (literal is _true_region)
        return intersection(*parts) if is_conjunction else _unique_regions(region for part in parts for region in part)
    if isinstance(node, Literal):
        return EVERYWHERE if (node.value is value) == (literal is _true_region) else ()
    region = literal(*term_domains(node), value)
    return () if any(domain.empty for domain in region.values()) else (region,)


def term_domains(node: Node) -> tuple[str, Domain, Domain]:
    """The term of a condition without and, or, not; and its domains where the condition is true and where it is false."""
    if isinstance(node, Operation):
        left, right = node.operands[0], node.operands[-1]
        if node.operator == "in" and isinstance(right, Choice):
            return _membership_domains(left, [item.value for item in right.items])
        if node.operator in _MIRRORED:
            if isinstance(left, Literal) and not isinstance(right, Literal):
                return _literal_domains(right, _MIRRORED[node.operator], left)
            if isinstance(right, Literal):
                return _literal_domains(left, node.operator, right)
            if (is_number(left) and is_number(right)) or term_text(left) == term_text(right):
                return _order_domains(left, node.operator, right)
    return term_text(node), choice_domain((True,)), choice_domain((False,))


def _membership_domains(left: Node, values: list[float | int | bool | str]) -> tuple[str, Domain, Domain]:
    domain = _node_domain(left)
    if domain.spans is None:
        listed = frozenset(map(typed_value, values))
        return term_text(left), Domain(choices=domain.choices & listed), Domain(choices=domain.choices - listed)
    numbers = [value for value in values if isinstance(value, int | float)]
    spans = tuple(span for number in numbers for span in comparison_spans("==", number))
    return term_text(left), _numbers(domain, spans), _numbers(domain, spans_without(numbers))


def _literal_domains(left: Node, operator: str, literal: Literal) -> tuple[str, Domain, Domain]:
    domain, value = _node_domain(left), literal.value
    if domain.spans is None:
        equal, other = _membership_domains(left, [value])[1:]
        return (term_text(left), equal, other) if operator == "==" else (term_text(left), other, equal)
    if isinstance(value, str):  # rejected by the type checker before
        return term_text(left), domain, domain
    negated = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}[operator]
    return term_text(left), _numbers(domain, comparison_spans(operator, value)), _numbers(domain, comparison_spans(negated, value))


def _order_domains(left: Node, operator: str, right: Node) -> tuple[str, Domain, Domain]:
    """A comparison of two terms as less, equal or greater; the order in which they are written does not matter."""
    if term_text(left) > term_text(right):
        left, right, operator = right, left, _MIRRORED[operator]
    order = _ORDER[operator]
    possible = ("eq",) if term_text(left) == term_text(right) else ("lt", "eq", "gt")
    true, false = (tuple(sign for sign in possible if (sign in order) is expected) for expected in (True, False))
    return f"{term_text(left)} ? {term_text(right)}", choice_domain(true), choice_domain(false)


def _numbers(domain: Domain, spans: tuple[Span, ...]) -> Domain:
    return domain.meet(Domain(spans=spans, integral=domain.integral))


def _node_domain(node: Node) -> Domain:
    if isinstance(node, Reference):
        return universe(VOCABULARY[node.name])
    return Domain(spans=NUMBERS) if is_number(node) else choice_domain((True, False))


def is_number(node: Node) -> bool:
    """Whether the node is a number rather than a condition or a word."""
    if isinstance(node, Reference):
        return VOCABULARY[node.name].kind not in (BOOL, CATEGORY)
    if isinstance(node, Literal):
        return not isinstance(node.value, bool | str)
    return isinstance(node, Operation) and node.operator in _NUMERIC


def term_text(node: Node) -> str:
    """The text of a node, the same for equal nodes."""
    if isinstance(node, Reference):
        return node.name
    if isinstance(node, Literal):
        return repr(node.value)
    children_text = ", ".join(map(term_text, _children(node)))
    return f"{node.operator}({children_text})" if isinstance(node, Operation) else f"[{children_text}]"


def _children(node: Node) -> Iterator[Node]:
    yield from node.operands if isinstance(node, Operation) else node.items if isinstance(node, Choice) else ()
