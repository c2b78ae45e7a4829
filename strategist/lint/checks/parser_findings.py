"""Checks that report findings of the parser, from before a file is a card."""

from collections.abc import Iterator

from strategist.cards import field_reader
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.lint.registry import Subject, check, finding


@check(field_reader.UNREADABLE, Level.ERROR, "A card file is YAML of the common subset.")
def readable(subject: Subject) -> Iterator[Diagnostic]:
    """The file cannot be read: it is missing, not UTF-8, not YAML, too large, or uses YAML that parsers interpret differently.

    Why: Anchors, aliases, tags, merge keys, duplicate keys and numbers such as 010 mean different things to different parsers.
    Do: write plain YAML: values written out, each key once, odd numbers quoted
    Bad:
        id: &x TP-001
    Good:
        id: TP-001
    """
    yield from _findings_with_code(subject, field_reader.UNREADABLE)


@check(field_reader.FORM, Level.ERROR, "A card has the fields of the protocol, each in its form.")
def form(subject: Subject) -> Iterator[Diagnostic]:
    """A required field is missing or empty, or a value does not have the form that the protocol requires.

    Why: A value that cannot be read has no effect, and a deck with such a file is rejected as a whole.
    Do: give the field the form that the message names; the published JSON Schema completes fields in an editor
    Bad:
        status: finished
    Good:
        status: stable
    """
    yield from _findings_with_code(subject, field_reader.FORM)


@check(field_reader.NAME, Level.ERROR, "Expressions and metrics use names of the vocabulary.")
def names(subject: Subject) -> Iterator[Diagnostic]:
    """A condition, a metric or a case uses a name that does not exist.

    Why: A name without a value is always unknown, so the policy would never act.
    Do: use a name of the vocabulary: layout, knobs, options, model, workload, device, cluster, estimate or observed
    Bad:
        when: model.layer > 8
    Good:
        when: model.layers > 8
    """
    yield from _findings_with_code(subject, field_reader.NAME)


@check(field_reader.CLASH, Level.ERROR, "The types of an expression agree.")
def types(subject: Subject) -> Iterator[Diagnostic]:
    """An operator gets a value of the wrong type, or a choice is compared with a value that it cannot have.

    Why: Such a comparison is never true, whatever its author intended.
    Do: compare numbers with numbers, conditions with true and false, and choices with one of their quoted values
    Bad:
        when: knobs.recompute > 1
    Good:
        when: knobs.recompute == "full"
    """
    yield from _findings_with_code(subject, field_reader.CLASH)


@check(field_reader.SYNTAX, Level.ERROR, "An expression is of the expression language.")
def syntax(subject: Subject) -> Iterator[Diagnostic]:
    """A condition or quantity cannot be parsed.

    Why: The language is small on purpose: comparisons, arithmetic, and or not in, units, and a few functions.
    Do: write a comparison such as layout.tp > 1; leave when out for a policy that always acts
    Bad:
        when: layout.tp >
    Good:
        when: layout.tp > 1
    """
    yield from _findings_with_code(subject, field_reader.SYNTAX)


@check(field_reader.DUPLICATE, Level.ERROR, "An id names one card of a folder, and one policy of a card.")
def unique(subject: Subject) -> Iterator[Diagnostic]:
    """Two cards of one folder, or two policies of one card, have the same id.

    Why: Reasons, evidence and explanations name cards and policies by id; only another folder may replace a card, by its id.
    Do: give each its own id
    Bad:
        policies: [{id: law, ...}, {id: law, ...}]
    Good:
        policies: [{id: law, ...}, {id: other-law, ...}]
    """
    yield from _findings_with_code(subject, field_reader.DUPLICATE)
    if subject.card and subject.id_holder:
        yield finding(subject, field_reader.DUPLICATE, f"id {subject.card.id} is taken by {subject.id_holder}", ("id",))


@check(field_reader.SETTING, Level.ERROR, "An effect sets knobs and axes to values that they can have, in its phase.")
def settings(subject: Subject) -> Iterator[Diagnostic]:
    """An effect, a fallback or a case names a setting that does not exist, a value that it cannot have, or acts in the wrong phase.

    Why: No candidate would ever have it.
    Do: use a setting by its name with one of its values; try belongs to phase observe, all other effects to plan
    Bad:
        forbid: {recompute: nothing}
    Good:
        forbid: {recompute: none}
    """
    yield from _findings_with_code(subject, field_reader.SETTING)


@check(field_reader.CONTROL, Level.ERROR, "The path of a control point names a setting.")
def control_points(subject: Subject) -> Iterator[Diagnostic]:
    """The path of a control point is not a setting of a candidate.

    Why: The path connects the card with a setting of the plan; evidence and explanations use it.
    Do: write the full name, such as knobs.recompute
    Bad:
        control_points: [{name: recompute, path: knobs.recomputation}]
    Good:
        control_points: [{name: recompute, path: knobs.recompute}]
    """
    yield from _findings_with_code(subject, field_reader.CONTROL)


@check(field_reader.UNIT, Level.ERROR, "The units of an expression agree.")
def units(subject: Subject) -> Iterator[Diagnostic]:
    """Quantities of different units are compared, added or subtracted.

    Why: Bytes cannot be compared with seconds; one of the sides is wrong.
    Do: give both sides the same unit
    Bad:
        when: cluster.inter_node_bytes_per_second < 25 GB
    Good:
        when: cluster.inter_node_bytes_per_second < 25 GB/s
    """
    yield from _findings_with_code(subject, field_reader.UNIT)


@check(field_reader.FIELD, Level.ERROR, "Every field is one of the protocol's.")
def fields(subject: Subject) -> Iterator[Diagnostic]:
    """A mapping has a field that the protocol does not know.

    Why: A misspelt field would drop a rule without any error.
    Do: write the field as the protocol names it, or drop it
    Bad:
        becuase: It is.
    Good:
        because: It is.
    """
    yield from _findings_with_code(subject, field_reader.FIELD)


@check(field_reader.BARE_NUMBER, Level.ERROR, "A quantity is compared with a number that has a unit.")
def bare_numbers(subject: Subject) -> Iterator[Diagnostic]:
    """A name that carries a unit is compared with, or added to, a bare number.

    Why: 24 can be bytes or GiB; without a unit it is bytes, which is never intended.
    Do: write the unit behind the number, such as 24 GiB, 25 GB/s or 2 s
    Bad:
        when: device.memory_bytes > 24
    Good:
        when: device.memory_bytes > 24 GiB
    """
    yield from _findings_with_code(subject, field_reader.BARE_NUMBER)


def _findings_with_code(subject: Subject, code: str) -> Iterator[Diagnostic]:
    return (diagnostic for diagnostic in subject.findings if diagnostic.code == code)
