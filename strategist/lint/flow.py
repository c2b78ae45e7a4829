"""The checks of decision flows."""

from collections.abc import Iterator

from strategist.cards.flow import (
    FLOW_CONDITION,
    FLOW_FORM,
    FLOW_ROOT,
    FLOW_SETTING,
    FLOW_TWICE,
    Flow,
    inspect_flow,
    is_flow,
)
from strategist.diagnostic import Diagnostic, Level
from strategist.expr.vocabulary import SETTINGS, near_miss
from strategist.lint.registry import Subject, check
from strategist.yamlfile import Place


@check(FLOW_FORM, "A flow has the fields of the protocol, each in its form.")
def flow_form(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, FLOW_FORM)


@check(FLOW_CONDITION, "The condition of a step is of the expression language, in names of the vocabulary.")
def flow_conditions(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, FLOW_CONDITION)


@check(FLOW_SETTING, "A step decides settings that there are.")
def flow_settings(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, FLOW_SETTING)


@check(FLOW_TWICE, "A flow has each step once, and a setting is decided in one of them.")
def flow_once(subject: Subject) -> Iterator[Diagnostic]:
    yield from _found(subject, FLOW_TWICE)


@check("FLOW005", "A flow decides every setting.")
def flow_whole(subject: Subject) -> Iterator[Diagnostic]:
    flow = _flow(subject)
    decided = {path for step in flow.steps for path in step.decides} if flow else set()
    missing = [path for path in SETTINGS if path not in decided]
    if flow and missing:
        message = f"no step decides {', '.join(path.partition('.')[2] for path in missing)}"
        yield _finding(subject, "FLOW005", message, ("steps",), "explanations show them last; name them in the step they belong to")


@check("FLOW006", "The cards that a step asks are in the deck.")
def flow_cards(subject: Subject) -> Iterator[Diagnostic]:
    flow = _flow(subject)
    for index, step in enumerate(flow.steps if flow and subject.known_ids else ()):
        for position, card in enumerate(step.cards):
            if card not in subject.known_ids:
                message = f"there is no card {card}{near_miss(card, subject.known_ids)}"
                yield _finding(subject, "FLOW006", message, ("steps", index, "rule", "cards", position))


@check("FLOW007", "A step says because of what it comes where it does.")
def flow_reasons(subject: Subject) -> Iterator[Diagnostic]:
    flow = _flow(subject)
    for index, step in enumerate(flow.steps if flow else ()):
        if not step.because:
            message = f"step {step.id} gives no reason"
            yield _finding(subject, "FLOW007", message, ("steps", index), "add because: in one sentence")


def _flow(subject: Subject) -> Flow | None:
    """The flow, where its form has no fault."""
    if subject.document is None or not is_flow(subject.document):
        return None
    flow, findings = inspect_flow(subject.document)
    return None if findings else flow


def _found(subject: Subject, code: str) -> Iterator[Diagnostic]:
    if subject.document is not None and is_flow(subject.document):
        yield from (found for found in inspect_flow(subject.document)[1] if found.code == code)


def _finding(subject: Subject, code: str, message: str, place: Place, do: str = "") -> Diagnostic:
    """A warning at a place of the flow."""
    line, column = subject.document.mark((FLOW_ROOT, *place)) if subject.document else (None, None)
    return Diagnostic(code=code, level=Level.WARNING, message=message, do=do, path=subject.path, line=line, column=column)
