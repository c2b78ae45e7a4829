"""The vocabulary of cards, and the language of their conditions."""

from collections.abc import Iterator
from itertools import groupby

from strategist.contract.knobs import show_value
from strategist.expr.check import show_dimension
from strategist.expr.operator_docs import OPERATOR_DOCS
from strategist.expr.parse import FUNCTIONS, LITERAL_UNITS, MAX_DEPTH, MAX_LENGTH, MAX_STEPS
from strategist.expr.vocabulary import CANDIDATE, ESTIMATE, OBSERVED, REQUEST, SETTINGS, UNITS, VOCABULARY, Dimension, Name
from strategist.report.reference.links import name_link
from strategist.report.reference.markdown import bullets, code, codes, page, prose, table

_KNOWN = {
    REQUEST: "known from the request on, equal for all candidates",
    CANDIDATE: "known of each candidate",
    ESTIMATE: "known of each candidate once it has a price",
    OBSERVED: "known after a trial only",
}


def vocabulary_page() -> str:
    """Every name of the vocabulary, part by part."""
    blocks = [
        "# Vocabulary",
        "Every name that a condition may use. What is not known makes a condition neither true nor false.",
    ]
    for part, names in groupby(VOCABULARY.values(), key=lambda entry: entry.name.partition(".")[0]):
        listed = list(names)
        known = f"These are {_KNOWN[listed[0].phase]}."
        blocks += [f"## {part}", known, table(("name", "type", "unit", "values", "meaning"), map(_name, listed))]
    return page(*blocks)


def _name(entry: Name) -> tuple[str, ...]:
    name = name_link(entry.name, parent="") if entry.name in SETTINGS else code(entry.name)
    return name, entry.kind, "-" if entry.unit == "none" else entry.unit, values(entry), prose(entry.doc)


def values(entry: Name) -> str:
    """Possible values of a name: those of a category, or bounds."""
    if entry.choices:
        return codes(map(show_value, entry.choices))
    if entry.kind == "bool":
        return codes(("false", "true"))
    if entry.low is None:
        return "any"
    return f"{entry.low} to {entry.high}" if entry.high is not None else f"{entry.low} or more"


def expressions_page() -> str:
    """Operators, functions and units."""
    return page(*_expressions())


def _expressions() -> Iterator[str]:
    yield "# Expressions"
    yield (
        "Conditions and quantities of cards are written in a small language: Python's expression syntax over the names of the"
        " [vocabulary](vocabulary.md). Names, types and units are checked before anything runs; nothing loops, and nothing else can"
        " be reached."
    )
    yield bullets(
        [
            f"at most {MAX_LENGTH} characters, {MAX_DEPTH} levels and {MAX_STEPS} steps",
            "values are numbers, `true`, `false` and quoted text",
            "an unknown part makes the whole unknown, unless the rest decides, as in `false and unknown` and `true or unknown`",
            "a policy acts where its condition is surely true",
        ]
    )
    yield "## Operators"
    yield table(("operator", "example", "meaning"), (_meaning(operator) for operator in OPERATOR_DOCS if operator not in FUNCTIONS))
    yield "## Functions"
    yield table(("function", "values", "example", "meaning"), (_function(operator) for operator in FUNCTIONS))
    yield "## Units"
    yield (
        "A number may be followed by one of these. Only numbers of one dimension are added or compared; that of a name follows from"
        " its unit in the [vocabulary](vocabulary.md)."
    )
    yield table(("dimension", "units"), _units())
    yield table(("unit of a name", "dimension"), ((code(unit), show_dimension(dimension)) for unit, dimension in UNITS.items()))


def _meaning(name: str) -> tuple[str, ...]:
    example, meaning = OPERATOR_DOCS[name]
    return code("-" if name == "neg" else name), code(example), prose(meaning)


def _function(name: str) -> tuple[str, ...]:
    minimum, maximum = FUNCTIONS[name]
    example, meaning = OPERATOR_DOCS[name]
    return code(name), str(minimum) if minimum == maximum else f"{minimum} to {maximum}", code(example), prose(meaning)


def _units() -> Iterator[tuple[str, str]]:
    units_by_dimension: dict[Dimension, list[str]] = {}
    for unit, (size, dimension) in LITERAL_UNITS.items():
        units_by_dimension.setdefault(dimension, []).append(
            f"{code(unit)} = {size:,}" if isinstance(size, int) else f"{code(unit)} = {size:,g}"
        )
    return ((show_dimension(dimension), ", ".join(units)) for dimension, units in units_by_dimension.items())
