"""Checks of decision flows."""

from collections.abc import Iterator

from strategist.cards.flow import Flow
from strategist.cards.flow_reader import FLOW_CONDITION, FLOW_FORM, FLOW_SETTING, FLOW_TWICE
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.expr.vocabulary import SETTINGS, near_miss
from strategist.lint.registry import Subject, check, finding


@check(FLOW_FORM, Level.ERROR, "A flow has the fields of the protocol, each in its form.")
def flow_form(subject: Subject) -> Iterator[Diagnostic]:
    """A field of the flow is unknown, missing or empty, or has the wrong form.

    Why: A field that is not understood has no effect, without any error.

    Do: write the field as the schema has it (strategist cards schema flow)

    Bad:
        steps:
          - {id: mesh, decide: [dp_replicate]}
    Good:
        steps:
          - {id: mesh, decides: [dp_replicate]}
    """
    yield from _findings_with_code(subject, FLOW_FORM)


@check(FLOW_CONDITION, Level.ERROR, "The condition of a step is of the expression language, in names of the vocabulary.")
def flow_condition(subject: Subject) -> Iterator[Diagnostic]:
    """The ``when`` of a step cannot be read: its syntax, a name, or its types and units are wrong.

    Why: A step is skipped if its condition is false; a condition that cannot be read decides nothing.

    Do: write a condition as in a card

    Bad:
        when: model.moe
    Good:
        when: model.is_moe
    """
    yield from _findings_with_code(subject, FLOW_CONDITION)


@check(FLOW_SETTING, Level.ERROR, "A step decides settings that there are.")
def flow_setting(subject: Subject) -> Iterator[Diagnostic]:
    """A step decides something that is not a setting.

    Why: The intended setting would be explained last, under other settings.

    Do: write the name of a setting, bare or in full

    Bad:
        decides: [tensor_parallel]
    Good:
        decides: [tp]
    """
    yield from _findings_with_code(subject, FLOW_SETTING)


@check(FLOW_TWICE, Level.ERROR, "A flow has each step once, and decides a setting in one of them.")
def flow_once(subject: Subject) -> Iterator[Diagnostic]:
    """A setting is decided in two steps, two steps have the same id, or the flow has the id of another flow in its folder.

    Why: Each has one place in the order; it is not clear which of the two counts.

    Do: keep one of the two

    Bad:
        steps:
          - {id: mesh, decides: [dp_shard]}
          - {id: fsdp2, decides: [dp_shard]}
    Good:
        steps:
          - {id: mesh, decides: [dp_replicate]}
          - {id: fsdp2, decides: [dp_shard]}
    """
    yield from _findings_with_code(subject, FLOW_TWICE)
    if subject.flow and subject.id_holder:
        message = f"id {subject.flow.id} is taken by {subject.id_holder}"
        yield finding(subject, FLOW_TWICE, message, ("id",), "give it its own id")


@check("FLOW005", Level.WARNING, "A flow decides every setting.")
def flow_whole(subject: Subject) -> Iterator[Diagnostic]:
    """A setting is decided in no step of the flow.

    Why: Explanations show it last, under other settings, instead of where it belongs.

    Do: name it in the step that it belongs to

    Bad:
        steps:
          - {id: all, decides: [dp_shard]}
    Good:
        steps:
          - {id: all, decides: [dp_shard, dp_replicate, tp, pp]}   # and all others
    """
    flow = _sound_flow(subject)
    decided = {path for step in flow.steps for path in step.decides} if flow else set()
    missing = [path.partition(".")[2] for path in SETTINGS if path not in decided]
    if flow and missing:
        yield finding(subject, "FLOW005", f"no step decides {', '.join(missing)}", ("steps",))


@check("FLOW006", Level.WARNING, "The cards that a step asks are in the deck.")
def flow_cards(subject: Subject) -> Iterator[Diagnostic]:
    """A step names a card that the deck does not have.

    Why: The card was renamed or removed, and the rule of the step refers to nothing.

    Do: write the id of a card of the deck

    Bad:
        rule: {cards: [TP-01]}
    Good:
        rule: {cards: [TP-001]}
    """
    flow = _sound_flow(subject)
    for index, step in enumerate(flow.steps if flow else ()):
        for position, card in enumerate(step.cards):
            if card not in subject.others:
                message = f"there is no card {card}{near_miss(card, subject.others)}"
                yield finding(subject, "FLOW006", message, ("steps", index, "rule", "cards", position))


@check("FLOW007", Level.WARNING, "A step states the reason for its position.")
def flow_reasons(subject: Subject) -> Iterator[Diagnostic]:
    """A step gives no reason.

    Why: The order is the knowledge of a flow; it cannot be judged without its reasons.

    Do: add because: in one sentence

    Bad:
        - {id: pp, decides: [pp]}
    Good:
        - {id: pp, decides: [pp], because: It sends least of all, and pays with a bubble.}
    """
    flow = _sound_flow(subject)
    for index, step in enumerate(flow.steps if flow else ()):
        if not step.because:
            yield finding(subject, "FLOW007", f"step {step.id} gives no reason", ("steps", index))


def _sound_flow(subject: Subject) -> Flow | None:
    """The flow, if reading it gave no findings; otherwise None."""
    return None if subject.findings else subject.flow


def _findings_with_code(subject: Subject, code: str) -> Iterator[Diagnostic]:
    return (diagnostic for diagnostic in subject.findings if diagnostic.code == code)
