"""Checks of a card's texts: reasons, and both languages."""

from collections.abc import Callable, Iterator
from typing import Any

from strategist.cards.card import ROOT, Card
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.files.yaml_file import KeyPath
from strategist.lint.registry import Subject, check, finding

_MACHINE_READABLE: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "preconditions": ("when:", lambda entry: entry.when is None),
    "control_points": ("path:", lambda entry: not entry.path and not entry.effect),
    "observables": ("metric:", lambda entry: not entry.metric),
    "policies": ("an effect such as prefer:", lambda entry: not entry.effects),
    "risks": ("when:", lambda entry: entry.when is None),
    "source_refs": ("symbol: or url:", lambda entry: not (entry.symbol or entry.url or entry.parameter)),
    "example": ("run:", lambda entry: not entry.run),
}
"""The field that gives an entry of each section an effect, and a test whether an entry lacks it."""


@check("CARD009", Level.ERROR, "A policy states its reason.")
def policies_have_reasons(subject: Subject) -> Iterator[Diagnostic]:
    """A policy gives no reason.

    Why: A plan shows the reason to its reader; without one a reader cannot agree or disagree.
    Do: add because: in one sentence
    Bad:
        - {id: full-when-short, when: ..., prefer: {recompute: full}}
    Good:
        - {id: full-when-short, when: ..., prefer: {recompute: full}, because: Activations fill the device.}
    """
    for index, policy in enumerate(subject.sound.policies if subject.sound else ()):
        if not policy.because:
            yield finding(subject, "CARD009", f"policy {policy.id} gives no reason", ("policies", index))


@check("CARD025", Level.WARNING, "Entries of a card are mappings that can be evaluated.")
def acting_entries(subject: Subject) -> Iterator[Diagnostic]:
    """A precondition, control point, observable, policy, risk, source or example is plain text only.

    Why: Plain text is shown as advice and has no effect; in a stable card every entry has one. In a preview this is information.
    Do: write the entry as a mapping with the field that the message names
    Bad:
        preconditions: [Parameters are sharded.]
    Good:
        preconditions: [{when: layout.fsdp_ranks > 1, text: Parameters are sharded.}]
    """
    card = subject.sound
    level = Level.WARNING if subject.stable else Level.INFO
    for section, index, needed in _text_only_entries(card) if card else ():
        message = f"{section}[{index + 1}] is text only: evaluation needs {needed}"
        yield finding(subject, "CARD025", message, (section, index), level=level)


def _text_only_entries(card: Card) -> Iterator[tuple[str, int, str]]:
    for section, (needed, lacks) in _MACHINE_READABLE.items():
        for index, entry in enumerate(getattr(card, section)):
            if lacks(entry):
                yield section, index, needed


@check("CARD041", Level.INFO, "A text with languages has both, en and zh.")
def both_languages(subject: Subject) -> Iterator[Diagnostic]:
    """A text is given as a mapping of languages, and one of the two is missing.

    Why: Readers of the missing language see a text in the other one.
    Do: add the other language, or write the text as a plain string
    Bad:
        title: {zh: 序列并行}
    Good:
        title: {en: Sequence parallelism, zh: 序列并行}
    """
    data = subject.document.data[ROOT] if subject.sound and subject.document else {}
    for key_path, value in _mappings(data, ()):
        languages = {"en", "zh"} & set(value)
        if len(languages) == 1 and set(value) == languages:
            missing = ({"en", "zh"} - languages).pop()
            yield finding(subject, "CARD041", f"{_name(key_path)} has no text in {missing}", key_path)


def _mappings(data: Any, key_path: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """All mappings of a card, except those in its cases, which have no languages."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    if isinstance(data, dict):
        yield key_path, data
    for key, value in entries:
        if key != "cases":
            yield from _mappings(value, (*key_path, key))


def _name(key_path: KeyPath) -> str:
    return next(str(key) for key in reversed(key_path) if isinstance(key, str))
