"""API of runs: runs a plan, one rank of it, or a program; measures scaling; checks the machine; collects evidence for cards.
Exported by ``strategist.api``.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from strategist.api.cards import Folders, Ids, load_cards
from strategist.api.plans import check_legal
from strategist.contract.hugging_face import check_architecture
from strategist.contract.measurement import Measurement, TrialSettings
from strategist.contract.plan import Plan
from strategist.cost.calibration import load_calibration
from strategist.errors import InputError
from strategist.profiles.catalog import unknown
from strategist.profiles.weight_folders import check_export, check_weights
from strategist.programs.backends import find_program, load_backend, programs
from strategist.programs.program import Program
from strategist.rules.backend import Backend
from strategist.search.facts import situation_facts

if TYPE_CHECKING:
    from strategist.contract.diagnostic import Diagnostic
    from strategist.contract.scaling import Scaling
    from strategist.executors.engine import Engine
    from strategist.executors.executor import OnEvent
    from strategist.tuner.card_evidence import CardEvidence
    from strategist.tuner.elastic import OnShrink
    from strategist.tuner.scaling import OnPoint

BACKEND, TRANSFORMERS = "native", "transformers"
"""Back ends of the local executor: for the built-in model, and for models of Hugging Face transformers."""

DEFAULTS = TrialSettings()


def run(
    plan: Plan,
    folder: str | Path,
    settings: TrialSettings = DEFAULTS,
    on_event: "OnEvent | None" = None,
    on_shrink: "OnShrink | None" = None,
    *,
    cards: Folders = (),
    without: Ids = (),
    backend: str = BACKEND,
    engine: "Engine | None" = None,
) -> Measurement:
    """Runs a plan on this machine, in ``folder``, and returns its measurement.

    An elastic training that loses ranks continues with a new plan for the remaining devices.

    Args:
        folder: holds the files that the run writes. With an ``engine``, all hosts must share it.
        settings: steps, deadlines, data, checkpoints and other settings of the run.
        on_event: called at every progress and at least once a second.
        on_shrink: called when an elastic training continues after a failure.
        cards: folders of cards for a new plan of an elastic training.
        without: ids of cards to leave out in that plan.
        backend: ``native``, or the name or file of a program.
        engine: starts the ranks; None for torchrun on this machine.

    Raises:
        InputError: the plan breaks a law, no back end here can run it, or something named in the settings is missing; nothing
            was started. Or an elastic training finds no plan for the remaining devices.
        FileError: the folder cannot be written, or a checkpoint is damaged.

    >>> from strategist import Request, Workload, plan, run
    >>> workload = Workload(seq_len=64, global_batch=8, precision="fp32")
    >>> answer = plan(Request(model="tiny", gpus="2xcpu", workload=workload, backend="native"))
    >>> measured = run(answer.plans[0], "trial")
    >>> measured.outcome.value, len(measured.peak_memory_bytes)
    ('ok', 2)
    """
    from strategist.executors.command import CommandExecutor
    from strategist.executors.engine import TORCHRUN
    from strategist.executors.local import LocalExecutor
    from strategist.executors.training_checks import check_training

    engine = engine or TORCHRUN
    if engine != TORCHRUN and settings.elastic:
        raise InputError(f"engine {type(engine).__name__.lower()}", "starts no training that is elastic", "leave out --elastic")
    if (program := _program(backend)) is not None:
        _check_refusals(plan, settings, program.backend)
        return CommandExecutor(program=program, engine=engine).execute(plan, Path(folder), settings, on_event)
    _check_runs(plan, settings)
    _check_weight_folders(plan, settings)
    check_training(plan, settings)
    if settings.weights:  # reading weights from a slow disk takes long
        timeout_seconds = max(settings.init_timeout_seconds, settings.save_timeout_seconds)
        settings = replace(settings, init_timeout_seconds=timeout_seconds)
    if settings.total_steps is not None and not settings.log:
        settings = replace(settings, log=str(Path(folder).resolve()))
    if not settings.elastic:
        return LocalExecutor(engine=engine).execute(plan, Path(folder), settings, on_event)
    from strategist.tuner.elastic import train

    deck, executor = load_cards(cards, without), LocalExecutor()
    return train(
        plan, Path(folder), settings, deck=deck, executor=executor, backend=BACKEND, on_event=on_event, on_shrink=on_shrink
    )


def _check_runs(plan: Plan, settings: TrialSettings) -> None:
    """Raises InputError for a plan that breaks a law or that the runtime refuses."""
    _check_refusals(plan, settings, load_backend(TRANSFORMERS if settings.hugging_face else BACKEND))


def _check_refusals(plan: Plan, settings: TrialSettings, backend: Backend) -> None:
    check_legal(plan)
    workload = replace(plan.workload, document_tokens=settings.document_tokens(plan.workload))
    facts = situation_facts(plan.model, plan.cluster, workload)
    if refusals := backend.refusals(plan.candidate, plan.model, plan.workload, facts):
        raise InputError(f"plan {plan.id}", "; ".join(refusals), f"plan again with --backend {backend.name}")


def _check_weight_folders(plan: Plan, settings: TrialSettings) -> None:
    """Raises an error if the weights are not those of the plan's model, or the folder of an export cannot be written."""
    if settings.hugging_face:
        check_architecture(settings.hugging_face, plan.model)
    elif settings.weights:
        check_weights(settings.weights, plan.model)
    if settings.export:
        check_export(settings.export)


def _program(backend: str) -> Program | None:
    """The program that runs plans; None for the built-in runtime."""
    program = find_program(backend)
    if program is None and load_backend(backend).name != BACKEND:
        law = "cannot run plans by itself"
        raise InputError(f"--backend {backend}", law, "leave it out, or name a program; --hf DIR runs models of transformers")
    return program


def shadow(
    plan: Plan, folder: str | Path, rank: int = 0, settings: TrialSettings = DEFAULTS, on_event: "OnEvent | None" = None
) -> Measurement:
    """Runs one rank of a plan, for a cluster of any size, on a device of this machine.

    Peak memory and compute time are measured; exposed communication and bubble are taken from the estimate. ``folder`` holds the
    files that the run writes.

    Raises:
        InputError: the plan breaks a law, has no such rank, or needs a kind of device that this machine lacks; nothing was started.
        FileError: the folder cannot be written.
    """
    from strategist.executors.shadow import ShadowExecutor

    _check_runs(plan, settings)
    if settings.total_steps is not None:
        raise InputError("--save", "keeps a training, and a shadow has learned nothing", "leave it out")
    return ShadowExecutor(rank=rank).execute(plan, Path(folder), settings, on_event)


def scale(
    plan: Plan,
    counts: Sequence[int],
    folder: str | Path,
    settings: TrialSettings = DEFAULTS,
    *,
    weak: bool = False,
    cards: Folders = (),
    without: Ids = (),
    calibration: str | Path | None = None,
    on_point: "OnPoint | None" = None,
) -> "Scaling":
    """Measures a plan on each number of devices in ``counts``; writes scaling.json, scaling.svg and the trials into ``folder``.

    Args:
        weak: weak scaling: the global batch grows with the devices; otherwise strong scaling, with a constant global batch.
        cards: folders of cards beside the shipped ones.
        without: ids of cards to leave out.
        calibration: file with the calibration of a study; None for the shipped one.
        on_point: called with the result of each count.

    Raises:
        InputError, FileError: the plan breaks a law, a count is impossible, or the folder cannot be written.
    """
    from strategist.executors.executor import TrialRunner
    from strategist.executors.local import LocalExecutor
    from strategist.report.scaling import write_scaling
    from strategist.tuner.scaling import scale as scale_plan

    check_legal(plan)
    result = scale_plan(
        plan, counts, weak=weak, folder=Path(folder), runner=TrialRunner(executor=LocalExecutor(study="scale"), settings=settings),
        deck=load_cards(cards, without), calibration=load_calibration(calibration), backend=BACKEND, on_point=on_point,
    )  # fmt: skip
    write_scaling(result, Path(folder))
    return result


def evidence(
    ids: Sequence[str] = (), *, cards: Folders = (), studies: Sequence[str | Path] = (), measurements: Sequence[str | Path] = ()
) -> "CardEvidence":
    """Evidence for the cards with these ids, or for all, from the trials of studies and files of measurements; from the shipped
    measurements if neither are given.

    Raises:
        InputError: there is no card with such an id.
        FileError: a file or card cannot be read.
    """
    from strategist.tuner.card_evidence import collect_evidence, sources

    deck = load_cards(cards)
    named = replace(deck, cards=tuple(deck.card(id) for id in dict.fromkeys(ids))) if ids else deck
    return collect_evidence(named, sources(studies, measurements))


def doctor(folder: str | Path = ".") -> "tuple[Diagnostic, ...]":
    """Problems of this machine and of the installation, most severe first. Free disk space is checked at ``folder``, where
    checkpoints will be written.
    """
    from strategist.executors.doctor import diagnose

    return diagnose(Path(folder))


def program(name: str) -> Program:
    """The program with this name, or described by this file.

    Raises:
        InputError, FileError: there is no such program, or its file is wrong.
    """
    known_program = find_program(name)
    if known_program is None:
        raise unknown(f"program {name}", "is not known", name, programs(), "name a program's file, which ends in .yaml", programs())
    return known_program


def command(program: Program, plan: Plan, settings: TrialSettings = DEFAULTS) -> tuple[str, ...]:
    """The command that would run a plan, with paths in the working folder.

    Raises:
        InputError: the plan breaks a law, or the program cannot run it.
    """
    from strategist.executors.command import CommandExecutor
    from strategist.executors.engine import Slurm

    _check_refusals(plan, settings, program.backend)
    return CommandExecutor(program=program, engine=Slurm()).command(plan, Path(), settings)  # one command per node of the cluster
