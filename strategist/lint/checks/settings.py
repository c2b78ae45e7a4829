"""Checks of the settings that a card describes and changes."""

from collections.abc import Iterator

from strategist.cards.card import EffectKind, Policy, Setting
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.contract.knobs import CONVERGENCE_KNOBS, show_value
from strategist.contract.options import CONVERGENCE_OPTIONS
from strategist.expr.vocabulary import REQUEST_ONLY, same_choice
from strategist.files.yaml_file import KeyPath
from strategist.lint.regions import acting_regions, changes_nothing, forbids_nothing
from strategist.lint.registry import Subject, check, finding
from strategist.lint.satisfiability import Regions

HARMLESS = {**CONVERGENCE_KNOBS, **CONVERGENCE_OPTIONS}
"""Settings that can change the result of training, by bare name, with the value that does not change it."""


@check("CARD016", Level.WARNING, "A setting that a policy acts on is among the card's control points.")
def settings_are_declared(subject: Subject) -> Iterator[Diagnostic]:
    """A policy of a stable card acts on a setting that is not among the card's control points.

    Why: Cards are found by their control points.
    Do: add it to control_points
    Bad:
        control_points: []   # and a policy with forbid: {recompute: none}
    Good:
        control_points: [{name: recompute, path: knobs.recompute}]
    """
    card = subject.stable
    paths = {point.path for point in card.control_points} if card else set()
    for index, policy in enumerate(card.policies if card else ()):
        used = {setting.path for effect in policy.effects for setting in effect.settings}
        for path in sorted(used - paths):
            yield finding(
                subject, "CARD016", f"policy {policy.id} acts on {path}, which is not a control point", ("policies", index)
            )


@check("CARD028", Level.WARNING, "A control point has the path of its setting.")
def control_points_have_paths(subject: Subject) -> Iterator[Diagnostic]:
    """A control point has a description, but no path. In a preview this is information.

    Why: Its name alone does not connect it with a setting of the plan.
    Do: add path: with the full name of the setting
    Bad:
        control_points: [{name: recompute, effect: Memory against compute}]
    Good:
        control_points: [{name: recompute, path: knobs.recompute, effect: Memory against compute}]
    """
    level = Level.WARNING if subject.stable else Level.INFO
    for index, point in enumerate(subject.sound.control_points if subject.sound else ()):
        if not point.path and point.effect:
            yield finding(subject, "CARD028", f"control point {point.name} has no path", ("control_points", index), level=level)


@check("CARD029", Level.WARNING, "A control point states whether its setting can change the result of training.")
def changes_marked(subject: Subject) -> Iterator[Diagnostic]:
    """A control point is marked as changing execution only, but its setting can change convergence; or the reverse.

    Why: Settings that can change convergence are used only if the request allows them; a card must not state otherwise.
    Do: write changes: convergence for settings that can change the result, changes: execution (or nothing) for all others
    Bad:
        - {name: reduce_dtype, path: knobs.reduce_dtype, changes: execution}
    Good:
        - {name: reduce_dtype, path: knobs.reduce_dtype, changes: convergence}
    """
    for index, point in enumerate(subject.sound.control_points if subject.sound else ()):
        name = point.path.partition(".")[2]
        harmless = point.values and all(same_choice(value, HARMLESS.get(name)) for value in point.values)
        kind = "convergence" if name in HARMLESS or point.path in REQUEST_ONLY else "execution"
        if point.path and point.changes != kind and not harmless:
            message = f"{point.path} changes {kind}, and is marked as {point.changes}"
            yield finding(subject, "CARD029", message, ("control_points", index))


@check("CARD030", Level.ERROR, "A card asks only for values that its control point has.")
def values_declared(subject: Subject) -> Iterator[Diagnostic]:
    """An effect or a fallback asks for a value that is not among those of the card's own control point.

    Why: The card contradicts itself; one of the two lists is out of date.
    Do: add the value to the control point, or ask for one that it has
    Bad:
        control_points: [{name: offload, path: knobs.offload, values: [none, optimizer]}]   # and set: {offload: all}
    Good:
        control_points: [{name: offload, path: knobs.offload, values: [none, optimizer, all]}]
    """
    card = subject.sound
    known = {point.path: point.values for point in card.control_points if point.values} if card else {}
    for setting, key_path in _requested_settings(subject):
        for value in setting.values:
            values = known.get(setting.path, (value,))
            if not any(same_choice(value, other) for other in values):
                choices = ", ".join(map(show_value, values))
                message = f"{show_value(value)} is none of the control point's values of {setting.path}: {choices}"
                yield finding(subject, "CARD030", message, key_path)


def _requested_settings(subject: Subject) -> Iterator[tuple[Setting, KeyPath]]:
    """Settings that the card's effects (except forbid) and fallbacks ask for, each with its place."""
    card = subject.sound
    for index, policy in enumerate(card.policies if card else ()):
        for effect in policy.effects:
            if effect.kind is not EffectKind.FORBID:
                yield from ((setting, ("policies", index, effect.kind)) for setting in effect.settings)
    for index, risk in enumerate(card.risks if card else ()):
        yield from ((setting, ("risks", index, "fallback")) for setting in risk.fallback)


@check("CARD031", Level.WARNING, "A fallback differs from what the risk's condition requires.")
def fallback_helps(subject: Subject) -> Iterator[Diagnostic]:
    """The fallback of a risk sets a value that the risk's own condition already requires.

    Why: If the risk applies, the setting already has that value, so the fallback changes nothing.
    Do: fall back to a value with which the risk's condition no longer holds
    Bad:
        - {when: knobs.reshard_after_forward == false, text: ..., fallback: {reshard_after_forward: false}}
    Good:
        - {when: knobs.reshard_after_forward == false, text: ..., fallback: {reshard_after_forward: true}}
    """
    card = subject.sound
    for index, risk in enumerate(card.risks if card else ()):
        regions = acting_regions(card, risk.when) if card and risk.when else ()
        if changes_nothing(risk.fallback, regions):
            message = f"the fallback of risk {risk.id} is what its condition requires already"
            yield finding(subject, "CARD031", message, ("risks", index, "fallback"))


@check("CARD032", Level.WARNING, "A policy's effect does not follow from its condition already.")
def policy_changes(subject: Subject) -> Iterator[Diagnostic]:
    """Whenever a policy acts, the candidate already has what it requires, sets or tries, or cannot have what it forbids.

    Why: It can never change a plan or propose anything; its condition or its effect is a mistake.
    Do: correct the condition or the effect, or drop the policy
    Bad:
        - {id: keep, phase: observe, when: knobs.recompute == "full", try: {recompute: full}, because: ...}
    Good:
        - {id: less, phase: observe, when: knobs.recompute == "full", try: {recompute: selective}, because: ...}
    """
    card = subject.sound
    for index, policy in enumerate(card.policies if card else ()):
        regions = acting_regions(card, policy.when) if card else ()
        for kind in _effects_without_change(policy, regions):
            problem = (
                "forbids values that candidates cannot have"
                if kind is EffectKind.FORBID
                else "asks for values that candidates already have"
            )
            yield finding(subject, "CARD032", f"policy {policy.id} {problem} where it acts", ("policies", index, kind))


def _effects_without_change(policy: Policy, regions: Regions) -> Iterator[EffectKind]:
    """Kinds of the policy's effects that never change anything when it acts."""
    for effect in policy.effects:
        if effect.kind is EffectKind.FORBID:
            has_no_effect = forbids_nothing(effect.settings, regions)
        else:
            has_no_effect = effect.kind in (EffectKind.REQUIRE, EffectKind.SET, EffectKind.TRY) and changes_nothing(
                effect.settings, regions
            )
        if has_no_effect:
            yield effect.kind


@check("CARD038", Level.WARNING, "A control point lists each value once, and a setting is one control point.")
def control_points_are_unique(subject: Subject) -> Iterator[Diagnostic]:
    """Two control points of a card have the same path, or one of them lists a value twice.

    Why: It is undefined which of the two counts, and a later edit may change only one of them.
    Do: keep one
    Bad:
        - {name: recompute, path: knobs.recompute, values: [none, full, none]}
    Good:
        - {name: recompute, path: knobs.recompute, values: [none, full]}
    """
    paths: set[str] = set()
    for index, point in enumerate(subject.sound.control_points if subject.sound else ()):
        if point.path and point.path in paths:
            yield finding(subject, "CARD038", f"{point.path} is a control point already", ("control_points", index))
        elif len(set(map(repr, point.values))) < len(point.values):
            yield finding(subject, "CARD038", f"{point.path} lists a value twice", ("control_points", index, "values"))
        paths.add(point.path)
