"""API of studies: tune, show, watch, export, import, merge, repair. Exported by ``strategist.api``.

A study is named by its folder, or by its address on a server: ``postgresql://USER@HOST/DATABASE?study=NAME``.
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
    """Runs trials until the study holds so many or another of the ``limits`` is reached, and says what they taught; a study that
    exists goes on. Where the request's back end is a program, trials are of that. A trial of a ``shadow`` study is one rank on a
    device of this machine, so the cluster may be any. A plan that a simulation shows too large is recorded, not started, and counts
    for no trial.

    Args:
        server: a PostgreSQL one that holds the ledger, as postgresql://USER@HOST/DATABASE, which tuners of many machines share.
        warm: studies of other models or GPUs, whose finished trials tell what to try first here; the study remembers them.
        goals: objectives at once, the request's first, and constraints; None for those of the study, or the request's objective.
        engine: what starts the ranks, if not torchrun on this machine; all hosts see the study's folder.

    Raises:
        InputError, FileError: the request is wrong, nothing fits, or trials cannot be run here.

    >>> from strategist import Limits, Request, Workload, plan, study, tune
    >>> workload = Workload(seq_len=64, global_batch=8, precision="fp32")
    >>> request = Request(model="tiny", gpus="2xcpu", workload=workload, backend="native")
    >>> result = tune(request, study="studies/tiny", limits=Limits(trials=1, confirm=0))
    >>> result.best.measurement.outcome.value
    'ok'
    >>> better = plan(request, calibration=study("studies/tiny").calibration)
    """
    from strategist.executors.trial_process import sweep
    from strategist.ledger.address import is_server, parse
    from strategist.tuner.tune import tune as tune_study  # with Optuna, half a second
    from strategist.tuner.warm_start import read

    if is_server(study):
        raise InputError("--study", "is the folder of a study, not a server", "name a folder, and the server with --ledger")
    if server:
        parse(server, "--ledger", Path(study).resolve().name)  # wrong ones are said before all work
    kind = Kind.SHADOW if shadow else Kind.REAL
    warmth = read(warm, kind, limits.sampler)
    deck, prior = load_cards(cards, without), load_calibration(calibration)
    program = find_program(request.backend)
    folder, wanted = str(Path(study).resolve()), goals or Goals(objectives=(request.objective,))
    executor = _executor(program, wanted, folder, shadow=shadow, engine=engine)
    sweep(folder)  # what a killed tuner left behind would spoil every measurement
    return tune_study(
        request, study=Path(study), limits=limits, settings=settings, deck=deck, executor=executor,
        on_event=on_event, prior=prior, kind=kind, server=server, program="" if program is None else program.digest, warm=warmth,
        goals=goals,
    )  # fmt: skip


def _executor(program: Program | None, goals: Goals, study: str, *, shadow: bool, engine: "Engine | None") -> "Executor":
    """What runs the trials of a study."""
    from strategist.executors.command import CommandExecutor
    from strategist.executors.local import TORCHRUN, LocalExecutor
    from strategist.executors.shadow import ShadowExecutor
    from strategist.executors.simulate_first import SimulateFirstExecutor

    if engine is not None and shadow:
        raise InputError(f"engine {type(engine).__name__.lower()}", "starts whole trials", "leave out --shadow")
    if program is None:
        ours = ShadowExecutor(study=study) if shadow else LocalExecutor(study=study, engine=engine or TORCHRUN)
        return SimulateFirstExecutor(inner=ours)
    if shadow:
        raise InputError("--shadow", f"is of strategist's own trainer, and {program.name} is another", "leave it out")
    if goals.of_memory and not program.metrics.tells_memory:
        law = f"{program.name} says nothing of its memory"
        raise InputError(goals.of_memory, law, "read {peak_memory_gib} from its log, in the program's file")
    return CommandExecutor(program=program, study=study, engine=engine or TORCHRUN)


def advise(plan: Plan, measurement: Measurement, *, cards: Folders = (), without: Ids = ()) -> "tuple[Proposal, ...]":
    """What cards would try next after a trial of a plan, in card order; a figure that was not measured is unknown to them.

    Raises:
        InputError, FileError: a card is wrong.
    """
    from strategist.profiles.history import Record
    from strategist.rules.observe_policies import observed_proposals
    from strategist.tuner.learning import after_trial

    return observed_proposals(load_cards(cards, without), after_trial(Record(plan=plan, measurement=measurement)), {})


def list_studies(places: Sequence[str | Path] = (".",)) -> "list[StudySummary]":
    """The studies in folders and below them, and in databases of servers; one that cannot be read says why.

    Raises:
        FileError, InputError: there is no such folder, or the server cannot be asked.
    """
    from strategist.tuner.study import find, summary

    return [summary(study) for place in places for study in find(place)]


def study(place: str | Path) -> "Study":
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

    return read(place)


def trial_row(trial: "StudyTrial") -> dict[str, Any]:
    """A trial as a flat row, as an exported table has it: ``pandas.DataFrame(map(trial_row, study(place).trials))``."""
    from strategist.tuner.flat_table import row

    return row(trial)


def watch_study(place: str | Path, on_look: "OnLook", idle_seconds: float | None = None) -> "Study":
    """Calls ``on_look`` twice a second with the study and what has finished since, until a tuner has ended the study, or nothing
    has run for some time.

    Raises:
        FileError, InputError: there is no such study, or it cannot be read any more.
    """
    from strategist.tuner.watch import IDLE_SECONDS, watch

    return watch(place, on_look, IDLE_SECONDS if idle_seconds is None else idle_seconds)


def export_study(place: str | Path, target: str, *, force: bool = False) -> int:
    """Writes a study to a .csv, .parquet or .jsonl file, or to a storage of Optuna's (sqlite:///FILE.db). Returns the number of
    trials written.

    Args:
        force: replaces a file that is no such table or history.

    Raises:
        FileError, InputError: the study cannot be read, or the target not be written.
    """
    from strategist.tuner.export import export

    return export(place, target, force=force)


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
    """Takes measured candidates out of a .csv, .parquet or .jsonl file into a study, which ``request`` begins where there is none.

    Raises:
        FileError, InputError: the file holds something else, or the study is of another request; nothing was taken then.
    """
    from strategist.tuner.import_trials import import_file

    deck, prior = load_cards(cards, without), load_calibration(calibration)
    return import_file(Path(path), Path(study), deck=deck, request=request, calibration=prior, server=server)


def merge_studies(studies: Sequence[str | Path], into: str | Path, *, server: str = "") -> "ImportResult":
    """Takes the trials of studies of one request into another study, each candidate once.

    Raises:
        FileError, InputError: they are of different requests, or one cannot be read or written.
    """
    from strategist.tuner.import_trials import merge

    return merge(studies, Path(into), server)


def repair_study(study: str | Path, into: str | Path, request: Request | None = None) -> "Repaired":
    """Makes a new study of every intact record of one whose SQLite ledger was damaged; nothing of that one is changed. ``request``
    says again what the study was asked, where that is lost.

    Raises:
        InputError: there is something at ``into``, or the study is not of this request.
        FileError: there is no study, or its request is not known.
    """
    from strategist.tuner.repair import repair

    return repair(Path(study), Path(into), request)
