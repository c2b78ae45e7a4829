"""API of studies: tune, show, watch, export, import, merge, repair. Exported by ``strategist.api``.

A study is identified by its folder, or by its address on a server: ``postgresql://USER@HOST/DATABASE?study=NAME``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategist.api.cards import Folders, Ids, load_cards
from strategist.contract.goals import Goals
from strategist.contract.measurement import Kind, Measurement, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.cost.calibration import load_calibration
from strategist.errors import InputError
from strategist.programs.backends import find_program
from strategist.programs.program import Program
from strategist.tuner.limits import Limits

if TYPE_CHECKING:
    from strategist.contract.study import ImportResult, Study, StudySummary, StudyTrial
    from strategist.executors.engine import Engine
    from strategist.executors.executor import Executor
    from strategist.rules.observe_policies import Proposal
    from strategist.search.tuning_result import TuningResult
    from strategist.tuner.repair import Repaired
    from strategist.tuner.tune import OnTuneEvent
    from strategist.tuner.watch import OnLook

TRIAL = TrialSettings()


def tune(
    request: Request,
    *,
    study: str | Path,
    limits: Limits,
    settings: TrialSettings = TRIAL,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
    on_event: "OnTuneEvent | None" = None,
    shadow: bool = False,
    server: str = "",
    warm: Sequence[str | Path] = (),
    goals: Goals | None = None,
    engine: "Engine | None" = None,
) -> "TuningResult":
    """Runs trials of a study until a limit is reached, and returns the result; an existing study continues.

    If the request's back end is a program, the trials run that program. A plan that a simulation shows to be too large is
    recorded as out of memory without being started, and does not count as a trial.

    Args:
        request: model, devices, workload, objective and fixed settings.
        study: folder of the study.
        limits: number of trials, and limits of time.
        settings: steps, deadlines and other settings of a trial.
        cards: folders of cards beside the shipped ones.
        without: ids of cards to leave out.
        calibration: file with the calibration of another study; None for the shipped one.
        on_event: called with each event of the tuning, and at least every second while a trial runs.
        shadow: each trial is a shadow run: one rank on a device of this machine, for a cluster of any size.
        server: address of a PostgreSQL server that holds the ledger, as postgresql://USER@HOST/DATABASE; tuners on many machines
            can share it.
        warm: studies of other models or GPUs whose finished trials guide the first proposals; the study stores them.
        goals: several objectives, the request's first, and constraints; None for the study's own goals, or the request's objective.
        engine: starts the ranks; None for torchrun on this machine. All hosts must share the study's folder.

    Raises:
        InputError, FileError: the request is wrong, nothing fits, or trials cannot run here.

    >>> from strategist import Limits, Request, Workload, plan, study, tune
    >>> workload = Workload(seq_len=64, global_batch=8, precision="fp32")
    >>> request = Request(model="tiny", gpus="2xcpu", workload=workload, backend="native")
    >>> result = tune(request, study="studies/tiny", limits=Limits(trials=1, confirm=0))
    >>> result.best.measurement.outcome.value
    'ok'
    >>> better = plan(request, calibration=study("studies/tiny").calibration)
    """
    from strategist.executors.executor import TrialRunner
    from strategist.executors.trial_process import sweep
    from strategist.ledger.address import is_server, parse
    from strategist.tuner.tune import tune as tune_study  # imports Optuna, which takes 0.5 s
    from strategist.tuner.warm_start import read

    if is_server(study):
        raise InputError("--study", "is the folder of a study, not a server", "name a folder, and the server with --ledger")
    if server:
        parse(server, "--ledger", Path(study).resolve().name)  # raises for a wrong address before any work
    kind = Kind.SHADOW if shadow else Kind.REAL
    warm_start = read(warm, kind, limits.sampler)
    deck, prior = load_cards(cards, without), load_calibration(calibration)
    program = find_program(request.backend)
    folder, tuning_goals = str(Path(study).resolve()), goals or Goals(objectives=(request.objective,))
    executor = _executor(program, tuning_goals, folder, shadow=shadow, engine=engine)
    runner = TrialRunner(executor=executor, settings=settings, kind=kind, program="" if program is None else program.digest)
    sweep(folder)  # what a killed tuner left behind would spoil every measurement
    return tune_study(
        request, study=Path(study), limits=limits, runner=runner, deck=deck, on_event=on_event, prior=prior, server=server,
        warm=warm_start, goals=goals,
    )  # fmt: skip


def _executor(program: Program | None, goals: Goals, study: str, *, shadow: bool, engine: "Engine | None") -> "Executor":
    """The executor of a study's trials."""
    from strategist.executors.command import CommandExecutor
    from strategist.executors.engine import TORCHRUN
    from strategist.executors.local import LocalExecutor
    from strategist.executors.shadow import ShadowExecutor
    from strategist.executors.simulate_first import SimulateFirstExecutor

    if engine is not None and shadow:
        raise InputError(f"engine {type(engine).__name__.lower()}", "starts whole trials", "leave out --shadow")
    if program is None:
        executor = ShadowExecutor(study=study) if shadow else LocalExecutor(study=study, engine=engine or TORCHRUN)
        return SimulateFirstExecutor(inner=executor)
    if shadow:
        raise InputError("--shadow", f"is of strategist's own trainer, and {program.name} is another", "leave it out")
    if goals.of_memory and not program.metrics.reports_memory:
        law = f"{program.name} does not report its memory"
        raise InputError(goals.of_memory, law, "read {peak_memory_gib} from its log, in the program's file")
    return CommandExecutor(program=program, study=study, engine=engine or TORCHRUN)


def advise(plan: Plan, measurement: Measurement, *, cards: Folders = (), without: Ids = ()) -> "tuple[Proposal, ...]":
    """Trials that the cards propose after a trial of the plan, in card order. Conditions on figures that were not measured are
    unknown.

    Args:
        cards: folders of cards beside the shipped ones.
        without: ids of cards to leave out.

    Raises:
        InputError, FileError: a card is wrong.
    """
    from strategist.profiles.history import Record
    from strategist.rules.observe_policies import observed_proposals
    from strategist.tuner.card_evidence import facts_after_trial

    return observed_proposals(load_cards(cards, without), facts_after_trial(Record(plan=plan, measurement=measurement)), {})


def list_studies(locations: Sequence[str | Path] = (".",)) -> "list[StudySummary]":
    """Summaries of the studies in folders and below them, and in databases of servers. The summary of an unreadable study has its
    ``problem``.

    Raises:
        FileError, InputError: there is no such folder, or the server cannot be reached.
    """
    from strategist.tuner.study import find, summary

    return [summary(study) for location in locations for study in find(location)]


def study(location: str | Path) -> "Study":
    """A study with all its trials.

    Raises:
        FileError, InputError: there is none, or its ledger cannot be read.

    >>> from pathlib import Path
    >>> from strategist import Request, study
    >>> from strategist.api import import_trials
    >>> rows = ["dp_shard,tp,micro_batch,step_seconds,outcome", "8,1,1,9.1,ok", "4,2,1,8.2,ok", "8,1,4,,oom"]
    >>> Path("runs.csv").write_text("\\n".join(rows)) > 0
    True
    >>> import_trials("runs.csv", "studies/ours", request=Request(model="8b", gpus="8xH100")).imported
    3
    >>> ours = study("studies/ours")
    >>> [trial.outcome.value for trial in ours.finished]
    ['ok', 'ok', 'oom']
    >>> ours.best_trial.plan.candidate.layout.tp, ours.best_trial.measurement.step_seconds
    (2, 8.2)
    """
    from strategist.tuner.study import read

    return read(location)


def trial_row(trial: "StudyTrial") -> dict[str, Any]:
    """A trial as a flat row, as in exported tables: ``pandas.DataFrame(map(trial_row, study(location).trials))``."""
    from strategist.tuner.flat_table import row

    return row(trial)


def watch_study(location: str | Path, on_look: "OnLook", idle_seconds: float | None = None) -> "Study":
    """Follows a study that other processes tune: calls ``on_look`` twice a second with the study and the trials finished since the
    last call.

    Returns the study when a tuner has ended it, or when nothing has run for ``idle_seconds`` (default: 30).

    Raises:
        FileError, InputError: there is no such study, or it cannot be read any more.
    """
    from strategist.tuner.watch import IDLE_SECONDS, watch

    return watch(location, on_look, IDLE_SECONDS if idle_seconds is None else idle_seconds)


def export_study(location: str | Path, target: str, *, force: bool = False) -> int:
    """Writes a study to a .csv, .parquet or .jsonl file, or to an Optuna storage (sqlite:///FILE.db). Returns the number of trials
    written.

    Args:
        force: overwrites a file with other content.

    Raises:
        FileError, InputError: the study cannot be read, or the target cannot be written.
    """
    from strategist.tuner.export import export

    return export(location, target, force=force)


def import_trials(
    path: str | Path,
    study: str | Path,
    *,
    request: Request | None = None,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
    server: str = "",
) -> "ImportResult":
    """Imports measured candidates from a .csv, .parquet or .jsonl file into a study.

    Args:
        request: begins the study if there is none; None for an existing study.
        cards: folders of cards beside the shipped ones.
        without: ids of cards to leave out.
        calibration: prices the candidates; None for the shipped one.
        server: address of a PostgreSQL server that holds the ledger.

    Raises:
        FileError, InputError: the file has other content, or the study has another request; nothing is imported then.
    """
    from strategist.tuner.import_trials import import_file

    deck, prior = load_cards(cards, without), load_calibration(calibration)
    return import_file(Path(path), Path(study), deck=deck, request=request, calibration=prior, server=server)


def merge_studies(studies: Sequence[str | Path], into: str | Path, *, server: str = "") -> "ImportResult":
    """Copies the trials of several studies of one request into the study ``into``, each candidate once.

    Raises:
        FileError, InputError: the studies have different requests, or one cannot be read or written.
    """
    from strategist.tuner.import_trials import merge

    return merge(studies, Path(into), server)


def repair_study(study: str | Path, into: str | Path, request: Request | None = None) -> "Repaired":
    """Creates a new study from all intact records of a study whose SQLite ledger is damaged. The damaged study is not changed.

    Args:
        into: folder of the new study.
        request: the study's request; needed only if the damaged ledger has lost it.

    Raises:
        InputError: ``into`` exists already, or the study has another request.
        FileError: there is no study, or its request is unknown.
    """
    from strategist.tuner.repair import repair

    return repair(Path(study), Path(into), request)
