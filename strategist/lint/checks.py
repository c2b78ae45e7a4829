"""The checks. A stable card is held to more than a preview; what a machine cannot know is a warning."""

from collections.abc import Iterator

from strategist.cards import reading
from strategist.cards.card import EffectKind, Phase, Policy
from strategist.diagnostic import Diagnostic, Level
from strategist.expr.check import Expression
from strategist.expr.vocabulary import ESTIMATE, OBSERVED, near_miss
from strategist.lint.cases import failures
from strategist.lint.constant import constant_part
from strategist.lint.registry import CHECKS, Subject, check, finding


@check(reading.UNREADABLE, "A card file is YAML of the common subset.")
def readable(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, reading.UNREADABLE)


@check(reading.FORM, "A card has the fields of the protocol, each in its form.")
def form(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, reading.FORM)


@check(reading.NAME, "Expressions and metrics speak of names of the vocabulary.")
def names(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, reading.NAME)


@check(reading.CLASH, "Types and units of an expression agree.")
def types(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, reading.CLASH)


@check(reading.SYNTAX, "An expression is of the expression language.")
def syntax(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, reading.SYNTAX)


@check(reading.DUPLICATE, "An id names one card of a folder, and one policy of a card.")
def unique(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, reading.DUPLICATE)
    if subject.card and subject.taken:
        yield finding(
            subject, reading.DUPLICATE, f"id {subject.card.id} is taken by {subject.taken}", ("id",), "give it its own id"
        )


@check(reading.SETTING, "An effect sets knobs and axes to values that they can have, in its phase.")
def settings(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, reading.SETTING)


@check(reading.CONTROL, "The path of a control point names a knob or an axis.")
def control_points(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, reading.CONTROL)


@check("CARD009", "A policy says because of what it acts.")
def reasoned(subject: Subject) -> Iterator[Diagnostic]:
    for index, policy in enumerate(subject.sound.policies if subject.sound else ()):
        if not policy.because:
            message = f"policy {policy.id} gives no reason"
            yield finding(subject, "CARD009", message, ("policies", index), "add because: in one sentence")


@check("CARD010", "A stable card acts, and has a title and a source.")
def complete(subject: Subject) -> Iterator[Diagnostic]:
    card = subject.stable
    if card and not card.acts:
        yield finding(subject, "CARD010", f"stable card {card.id} is text only", do="give a policy an effect, or make it a preview")
    for name in ("title", "source_refs") if card else ():
        if not getattr(card, name):
            yield finding(subject, "CARD010", f"a stable card has no {name}", do=f"add {name}:")


@check("CARD011", "A stable card has a case that fires and one that does not.")
def tested(subject: Subject) -> Iterator[Diagnostic]:
    if subject.stable and len(subject.stable.cases) < 2:
        yield finding(subject, "CARD011", f"stable card {subject.stable.id} has {len(subject.stable.cases)} of 2 cases", ("cases",))


@check("CARD012", "The cases of a card pass.")
def cases_pass(subject: Subject) -> Iterator[Diagnostic]:
    for index, case in enumerate(subject.sound.cases if subject.sound else ()):
        for failure in failures(subject.sound, case) if subject.sound else ():
            yield finding(subject, "CARD012", f"case {index + 1} fails: {failure}", ("cases", index))


@check("CARD013", "A condition can be true and can be false.")
def varying(subject: Subject) -> Iterator[Diagnostic]:
    for expression, place in _conditions(subject):
        constant = constant_part(expression)
        if constant is not None:
            message = f"{expression.text!r} has a part that is always {str(constant[1]).lower()}"
            yield finding(subject, "CARD013", message, place, level=Level.WARNING)


@check("CARD014", "A policy speaks of what is known in its phase.")
def in_phase(subject: Subject) -> Iterator[Diagnostic]:
    for index, policy in enumerate(subject.sound.policies if subject.sound else ()):
        late = {OBSERVED, ESTIMATE} & policy.when.phases if policy.when and _judges(policy) else set()
        if late:
            message = f"policy {policy.id} acts before a plan is priced and speaks of {' and '.join(sorted(late))} values"
            yield finding(subject, "CARD014", message, ("policies", index, "when"), "write phase: observe, or use facts")


@check("CARD015", "An interaction names a card of the deck.")
def interactions(subject: Subject) -> Iterator[Diagnostic]:
    for index, interaction in enumerate(subject.sound.interactions if subject.sound else ()):
        if interaction.card not in subject.known_ids:
            message = f"there is no card {interaction.card}{near_miss(interaction.card, subject.known_ids)}"
            yield finding(subject, "CARD015", message, ("interactions", index), level=Level.WARNING)


@check("CARD016", "A setting that a policy acts on is among the card's control points.")
def declared(subject: Subject) -> Iterator[Diagnostic]:
    card = subject.stable
    paths = {point.path for point in card.control_points} if card else set()
    for index, policy in enumerate(card.policies if card else ()):
        used = {setting.path for effect in policy.effects for setting in effect.settings}
        for path in sorted(used - paths):
            message = f"policy {policy.id} acts on {path}, which is no control point"
            yield finding(subject, "CARD016", message, ("policies", index), "add it to control_points", Level.WARNING)


def _found(subject: Subject, code: str) -> Iterator[Diagnostic]:
    return (found for found in subject.findings if found.code == code)


def _judges(policy: Policy) -> bool:
    return policy.phase is Phase.PLAN and any(effect.kind is not EffectKind.WARN for effect in policy.effects)


def _conditions(subject: Subject) -> Iterator[tuple[Expression, tuple[str | int, ...]]]:
    card = subject.sound
    for section in ("preconditions", "policies", "risks") if card else ():
        for index, entry in enumerate(getattr(card, section)):
            if entry.when is not None:
                yield entry.when, (section, index, "when")


RULES = tuple(CHECKS[code] for code in sorted(CHECKS))
"""All checks, by code."""
