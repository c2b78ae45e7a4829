"""The use-cases, typed; the only door for the command line and for agents.

What only one use-case needs is imported when it is called: ``plan`` answers in a fraction of a second, of which imports are half.
"""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategist import planner
from strategist.cards.card import Card
from strategist.cards.deck import Deck, load_deck
from strategist.cards.flow import Flow
from strategist.cards.packaged import deck_folder
from strategist.cards.reader import read_card
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.explanation import Alternative, Explanation
from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.measurement import Measurement, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.diagnostic import Diagnostic
from strategist.errors import InputError
from strategist.expr.evaluate import Facts
from strategist.paths import data_dir
from strategist.profiles.backend import backends, load_backend
from strategist.profiles.hardware import device_names
from strategist.profiles.models import presets
from strategist.profiles.situation import Situation
from strategist.search.facts import situation_facts
from strategist.yamlfile import load

if TYPE_CHECKING:
    from strategist.executors.card_tests import CardTest, OnCard
    from strategist.executors.executor import OnEvent
    from strategist.explain import Price
    from strategist.lint.fix import Repair
    from strategist.lint.registry import Entry
    from strategist.tuner.result import TuningResult
    from strategist.tuner.testimony import Testimony
    from strategist.tuner.tune import OnTuneEvent

Folders = Sequence[str | Path]
"""Folders of cards, or names of decks that installed packages ship."""

Ids = Sequence[str]
"""Cards to leave out."""

BACKEND = "native"
"""The back end of the local executor."""

DEFAULTS = TrialSettings()


def load_cards(folders: Folders = (), without: Ids = ()) -> Deck:
    """The shipped cards and those in ``folders``, less some; an equal id in a later folder replaces the earlier card.

    Raises:
        InputError: a name is neither a folder nor a deck, or there is no such card to leave out.
        FileError: a folder or file cannot be read, or is no card.
    """
    deck = load_deck(data_dir("cards"), *map(deck_folder, folders))
    for card_id in dict.fromkeys(without):
        deck = deck.without(card_id)
    return deck


def not_as_shipped(deck: Deck, without: Ids = ()) -> tuple[str, ...]:
    """In what the deck differs from the shipped one, card by card, with the files."""
    shipped = data_dir("cards")
    items: tuple[Card | Flow, ...] = (*deck.cards, *deck.flows)
    files = {item.id: item.document.path for item in items}
    own = {key: file for key, file in files.items() if not Path(file).is_relative_to(shipped)}
    place = {key: f", in place of {deck.replaced[key]}" if key in deck.replaced else "" for key in own}
    return (
        *(f"{key} comes from {file}{place[key]}" for key, file in own.items()),
        *(f"{key} is left out" for key in dict.fromkeys(without)),
    )


def load_calibration(path: str | Path | None) -> Calibration:
    """What a study learned; neutral without a file.

    Raises:
        FileError: the file is no calibration.
    """
    return NEUTRAL if path is None else codec.load(Calibration, path)


def plan(
    request: Request, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None, top: int = 5
) -> Answer:
    """Ranked plans for a request, and the ways around them.

    Raises:
        InputError, FileError: the request, a card or the calibration is wrong.
    """
    deck = load_cards(cards, without)
    answer = planner.answer(request, deck=deck, calibration=load_calibration(calibration), top=top)
    return replace(answer, not_as_shipped=not_as_shipped(deck, without))


def run(plan: Plan, folder: str | Path, settings: TrialSettings = DEFAULTS, on_event: "OnEvent | None" = None) -> Measurement:
    """Runs a plan on this machine and leaves what it wrote in ``folder``.

    Raises:
        InputError: the plan breaks a law, or no back end here can run it; nothing was started.
        FileError: the folder cannot be written.
    """
    from strategist.executors.local import LocalExecutor

    _check_legal(plan)
    if refused := load_backend(BACKEND).refusals(plan.candidate, plan.model, plan.workload, plan.cluster.device.kind):
        raise InputError(f"plan {plan.id}", "; ".join(refused), f"plan again with --backend {BACKEND}")
    return LocalExecutor().execute(plan, Path(folder), settings, on_event)


def tune(
    request: Request,
    *,
    study: str | Path,
    trials: int,
    settings: TrialSettings = DEFAULTS,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
    on_event: "OnTuneEvent | None" = None,
) -> "TuningResult":
    """Runs trials until the study holds so many, and says what they taught; a study that exists goes on.

    Raises:
        InputError, FileError: the request is wrong, nothing fits, or trials cannot be run here.
    """
    from strategist.executors.local import LocalExecutor
    from strategist.tuner.tune import tune as tune_study  # with Optuna, half a second

    deck, prior = load_cards(cards, without), load_calibration(calibration)
    executor = LocalExecutor(study=str(Path(study).resolve()))
    executor.sweep()  # ranks that a killed tuner may have left behind would spoil every measurement
    return tune_study(
        request, study=Path(study), trials=trials, settings=settings, deck=deck, executor=executor, on_event=on_event, prior=prior
    )


def explain(plan: Plan, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None) -> Explanation:
    """What decided each setting of a plan.

    Raises:
        InputError, FileError: the plan breaks a law, or a card or the calibration is wrong.
    """
    from strategist.explain import explain as explain_plan

    plan, deck, known, price, settle = _priced(plan, load_cards(cards, without), calibration)
    explanation = explain_plan(plan, deck=deck, known=known, price=price, settle=settle)
    return replace(explanation, not_as_shipped=not_as_shipped(deck, without))


def why_not(
    plan: Plan,
    setting: str,
    value: KnobValue,
    *,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
) -> Alternative:
    """What stands against another value of one setting.

    Raises:
        InputError, FileError: the plan breaks a law, or a card or the calibration is wrong.
    """
    from strategist.explain import why_not as why_not_plan

    plan, deck, known, price, settle = _priced(plan, load_cards(cards, without), calibration)
    return why_not_plan(plan, setting, value, deck=deck, known=known, price=price, settle=settle)


def lint(paths: Folders = (), *, look_up_sources: bool = False, run_examples: bool = False) -> tuple[Diagnostic, ...]:
    """What is wrong with the cards and flows in files and folders; without any, with the shipped ones.

    Args:
        look_up_sources: also look for the sources of the cards in the installed torch; see :func:`torch_installed`.
        run_examples: also run their examples: programs of whoever wrote them; for people who ask for it, never for agents.

    Raises:
        InputError: there is no torch to look in or to run examples with, or it is broken.
    """
    from strategist.lint.run import cards_in
    from strategist.lint.run import lint as lint_deck

    judged = paths or [data_dir("cards")]
    world = None
    if look_up_sources or run_examples:
        from strategist.executors.world import look_around

        world = look_around(cards_in(judged), look_up_sources=look_up_sources, run_the_examples=run_examples)
    return lint_deck(judged, world, beside=load_cards() if paths else Deck(()))


def torch_installed() -> bool:
    """Whether there is a torch to look sources up in, and to run with."""
    from strategist.executors import require

    return require.torch_installed()


def fix_cards(paths: Folders, codes: frozenset[str], *, write: bool) -> "tuple[Repair, ...]":
    """Corrects what is safe to correct in files of cards and flows; without ``write``, only says what would change.

    Raises:
        FileError: a path cannot be read or written.
    """
    from strategist.lint import fix

    made = tuple(fix.repairs(paths, codes))
    for repair in made if write else ():
        fix.write(repair)
    return made


def lint_checks() -> "tuple[Entry, ...]":
    """All checks of the linter, by code."""
    from strategist.lint.checks.all import RULES

    return RULES


def lint_check(code: str) -> "Entry":
    """One check.

    Raises:
        InputError: there is none of that code.
    """
    known = {entry.code: entry for entry in lint_checks()}
    if code.upper() not in known:
        near = get_close_matches(code.upper(), known, n=1, cutoff=0)
        raise InputError(f"code {code}", "is no check of the linter", f"did you mean {near[0]}? strategist cards explain lists all")
    return known[code.upper()]


def lint_codes(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> frozenset[str]:
    """The codes that begin with one of ``select`` (all, without any) and with none of ``ignore``.

    Raises:
        InputError: no code begins so.
    """
    codes = [entry.code for entry in lint_checks()]
    for word in (*select, *ignore):
        if not any(code.startswith(word.upper()) for code in codes):
            lint_check(word)
    wanted, unwanted = (tuple(word.upper() for word in words) for words in (select, ignore))
    return frozenset(
        code for code in codes if (not wanted or code.startswith(wanted)) and not (unwanted and code.startswith(unwanted))
    )


def run_card_tests(
    targets: Folders = (), *, cards: Folders = (), timeout_seconds: float = 60.0, on_card: "OnCard | None" = None
) -> "tuple[CardTest, ...]":
    """Runs the cases and the example programs of cards: files, folders or ids; without any, of all cards in force.

    Programs of whoever wrote the cards run here as they are: for people who ask for it, never for agents.

    Raises:
        InputError, FileError: a target is no card, or there are examples and no torch to run them.
    """
    from strategist.executors.card_tests import run_tests

    return run_tests(_cards_of(targets, load_cards(cards)), timeout_seconds=timeout_seconds, on_card=on_card)


def new_card(card_id: str, folder: str | Path, *, module: str = "", title: str = "", cards: Folders = ()) -> Path:
    """Writes a card to start from into ``folder``; its module is that of the cards whose ids begin alike, unless given.

    Raises:
        InputError: the id is none, or its file exists.
    """
    from strategist.cards.scaffold import scaffold

    return scaffold(card_id, Path(folder), deck=load_cards(cards), schema=data_dir("cards"), module=module, title=title)


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of card files (``card``) or flow files (``flow``), as it lies beside the shipped cards.

    Raises:
        InputError: there is no such kind.
    """
    from strategist.cards.schema import SCHEMAS

    if kind not in SCHEMAS:
        raise InputError(f"schema {kind}", "is no kind of file", f"choose one of {', '.join(SCHEMAS)}")
    return SCHEMAS[kind]()


def reference(*, cards: Folders = ()) -> dict[str, str]:
    """Pages of Markdown on every card in force, every flow, setting, name and code of the linter, by their paths."""
    from strategist.report.reference.pages import reference as pages

    return pages(load_cards(cards), lint_checks())


def write_reference(folder: str | Path, *, cards: Folders = ()) -> tuple[int, int]:
    """Writes the reference into a folder; says how many pages there are, and how many of an earlier time were removed.

    Raises:
        FileError: a card cannot be read, or a page not be written.
    """
    from strategist.report.reference.pages import write

    pages = reference(cards=cards)
    return len(pages), len(write(pages, Path(folder)))


def evidence(*, cards: Folders = (), studies: Sequence[str | Path] = (), measurements: Sequence[str | Path] = ()) -> "Testimony":
    """What the trials of studies and files of measurements say of the cards; without either, of the shipped measurements.

    Raises:
        FileError: a file or card cannot be read.
    """
    from strategist.tuner.testimony import hear, sources

    return hear(load_cards(cards), sources(studies, measurements))


def profiles() -> dict[str, tuple[str, ...]]:
    """Names of what is known, by kind."""
    return {"models": presets(), "devices": device_names(), "backends": backends()}


def _cards_of(targets: Folders, deck: Deck) -> Sequence[Card]:
    """The cards that are named by file, folder or id; all of the deck where none are."""
    found: list[Card] = [] if targets else list(deck.cards)
    for target in targets:
        path = Path(target)
        if path.suffix == ".yaml":
            found.append(read_card(load(path)))
        elif path.is_dir() or len(path.parts) > 1:
            found += load_deck(path).cards
        else:
            found.append(deck.card(str(target)))
    return found


def _check_legal(plan: Plan) -> None:
    """Plan files are edited by hand: one that breaks a law can be neither run nor priced."""
    if broken := plan.candidate.violations(plan.model, plan.workload, plan.cluster.devices):
        raise InputError(f"plan {plan.id}", broken[0], "plan again")


def _priced(plan: Plan, deck: Deck, calibration: str | Path | None) -> tuple[Plan, Deck, Facts, "Price", "Price"]:
    """What an explanation needs: the plan as today's deck and calibration see it, like what it is compared with; the deck, the
    facts of its situation, and prices in it, as a candidate is and with its options settled."""
    _check_legal(plan)
    factors = load_calibration(calibration)
    asked = Request(model=plan.model.name, gpus=plan.cluster.name, workload=plan.workload)
    within = Situation(request=asked, model=plan.model, cluster=plan.cluster, notes=(), digest=plan.digests.profiles)

    def price(candidate: Candidate) -> Plan:
        return planner.price_candidate(within, candidate, deck=deck, calibration=factors)

    def settle(candidate: Candidate) -> Plan:
        return planner.settle_candidate(within, candidate, deck=deck, calibration=factors)

    today = replace(price(plan.candidate), id=plan.id)
    return today, deck, situation_facts(plan.model, plan.cluster, plan.workload), price, settle
