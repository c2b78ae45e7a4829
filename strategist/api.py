"""The use-cases, typed; the only door for the command line and for agents.

What only one use-case needs is imported when it is called: ``plan`` answers in a fraction of a second, of which imports are half.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from strategist import planner
from strategist.api_cards import (
    Folders,
    Ids,
    fix_cards,
    in_language,
    lint,
    lint_check,
    lint_checks,
    lint_codes,
    load_cards,
    new_card,
    not_as_shipped,
    reference,
    run_card_tests,
    schema,
    torch_installed,
    write_reference,
)
from strategist.api_formats import (
    JOBS,
    JobOptions,
    check_config,
    export_plan,
    find_format,
    formats,
    import_plan,
    named_model,
    unused_job_options,
    write_files,
)
from strategist.api_known import cluster, model, profiles
from strategist.api_machines import profile_links, profile_machine, topology
from strategist.api_plans import (
    check_legal,
    compare,
    explain,
    load_calibration,
    price,
    prove,
    simulate,
    trace,
    why_not,
    write_trace,
)
from strategist.api_published import accuracy, replay, transfer
from strategist.api_reports import report, study_report
from strategist.api_studies import (
    advise,
    export_study,
    import_trials,
    list_studies,
    merge_studies,
    repair_study,
    study,
    trial_row,
    tune,
    watch_study,
)
from strategist.contract.answer import Answer
from strategist.contract.hugging_face import check_architecture
from strategist.contract.measurement import Measurement, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.errors import InputError
from strategist.profiles.catalog import unknown
from strategist.profiles.weights import check_export, check_weights
from strategist.programs.backends import find_program, load_backend, programs
from strategist.programs.program import Program
from strategist.rules.backend import Backend
from strategist.search.facts import situation_facts

if TYPE_CHECKING:
    from strategist.contract.scaling import Scaling
    from strategist.diagnostic import Diagnostic
    from strategist.executors.engine import Engine
    from strategist.executors.executor import OnEvent
    from strategist.tuner.elastic import OnShrink
    from strategist.tuner.scale import OnPoint
    from strategist.tuner.testimony import Testimony

__all__ = [
    "BACKEND",
    "DEFAULTS",
    "JOBS",
    "Folders",
    "Ids",
    "JobOptions",
    "Program",
    "accuracy",
    "advise",
    "check_config",
    "cluster",
    "command",
    "compare",
    "doctor",
    "evidence",
    "explain",
    "export_plan",
    "export_study",
    "find_format",
    "fix_cards",
    "formats",
    "import_plan",
    "import_trials",
    "in_language",
    "lint",
    "lint_check",
    "lint_checks",
    "lint_codes",
    "list_studies",
    "load_calibration",
    "load_cards",
    "merge_studies",
    "model",
    "named_model",
    "new_card",
    "not_as_shipped",
    "plan",
    "price",
    "profile_links",
    "profile_machine",
    "profiles",
    "program",
    "programs",
    "prove",
    "reference",
    "repair_study",
    "replay",
    "report",
    "run",
    "run_card_tests",
    "scale",
    "schema",
    "simulate",
    "study",
    "study_report",
    "topology",
    "torch_installed",
    "trace",
    "transfer",
    "trial_row",
    "tune",
    "unused_job_options",
    "watch_study",
    "why_not",
    "write_files",
    "write_reference",
    "write_trace",
]

BACKEND, ADOPTED = "native", "transformers"
"""The back end of the local executor."""

DEFAULTS = TrialSettings()


def plan(
    request: Request, *, cards: Folders = (), without: Ids = (), calibration: str | Path | None = None, top: int = 5
) -> Answer:
    """Ranked plans for a request, and the ways around them.

    Args:
        cards: folders of cards beside the shipped ones.
        without: ids of cards to leave out.
        calibration: the file of what a study taught, such as ``study(...).calibration``.
        top: so many plans at most.

    Raises:
        InputError, FileError: the request, a card or the calibration is wrong.

    >>> from strategist import Request, Workload, plan
    >>> answer = plan(Request(model="8b", gpus="8xH100", workload=Workload(seq_len=8192)), top=3)
    >>> [best, *others] = answer.plans
    >>> best.estimate.tokens_per_second > others[-1].estimate.tokens_per_second > 10_000
    True
    >>> best.estimate.peak_memory_bytes < best.cluster.device.usable_memory_bytes
    True
    """
    deck = load_cards(cards, without)
    answer = planner.answer(request, deck=deck, calibration=load_calibration(calibration), top=top)
    return replace(answer, not_as_shipped=not_as_shipped(deck, without))


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
    """Runs a plan on this machine and leaves what it wrote in ``folder``; ``backend`` is ours, or a program's name or file.

    ``engine`` starts the ranks, torchrun on this machine where none is given; with others ``folder`` lies where all hosts see it.
    An elastic training plans again for what is left when it loses ranks, and ``on_shrink`` hears of it; ``cards`` are for that.

    Raises:
        InputError: the plan breaks a law, no back end here can run it, or what the settings name is not there; nothing was started.
            Or an elastic training has no plan for what is left.
        FileError: the folder cannot be written, or a checkpoint is damaged.

    >>> from strategist import Request, Workload, plan, run
    >>> workload = Workload(seq_len=64, global_batch=8, precision="fp32")
    >>> answer = plan(Request(model="tiny", gpus="2xcpu", workload=workload, backend="native"))
    >>> measured = run(answer.plans[0], "trial")
    >>> measured.outcome.value, len(measured.peak_memory_bytes)
    ('ok', 2)
    """
    from strategist.executors.command import CommandExecutor
    from strategist.executors.local import TORCHRUN, LocalExecutor
    from strategist.executors.training import check_training

    engine = engine or TORCHRUN
    if engine != TORCHRUN and settings.elastic:
        raise InputError(f"engine {type(engine).__name__.lower()}", "starts no training that is elastic", "leave out --elastic")
    if (program := _program(backend)) is not None:
        _check_refusals(plan, settings, program.backend)
        return CommandExecutor(program=program, engine=engine).execute(plan, Path(folder), settings, on_event)
    _check_runs(plan, settings)
    if settings.hugging_face:
        check_architecture(settings.hugging_face, plan.model)
    elif settings.weights:
        check_weights(settings.weights, plan.model)
    if settings.weights:
        patience = max(settings.init_timeout_seconds, settings.save_timeout_seconds)  # disks are slow
        settings = replace(settings, init_timeout_seconds=patience)
    if settings.export:
        check_export(settings.export)
    check_training(plan, settings)
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
    """A plan that breaks a law, or that the runtime refuses, starts nothing."""
    _check_refusals(plan, settings, load_backend(ADOPTED if settings.hugging_face else BACKEND))


def _check_refusals(plan: Plan, settings: TrialSettings, backend: Backend) -> None:
    check_legal(plan)
    workload = replace(plan.workload, document_tokens=settings.document_tokens(plan.workload))
    facts = situation_facts(plan.model, plan.cluster, workload)
    if refused := backend.refusals(plan.candidate, plan.model, plan.workload, facts):
        raise InputError(f"plan {plan.id}", "; ".join(refused), f"plan again with --backend {backend.name}")


def _program(backend: str) -> Program | None:
    """The program that runs plans; None for our own executing half."""
    program = find_program(backend)
    if program is None and load_backend(backend).name != BACKEND:
        law = "is none that runs plans by itself"
        raise InputError(f"--backend {backend}", law, "leave it out, or name a program; --hf DIR runs models of transformers")
    return program


def shadow(
    plan: Plan, folder: str | Path, rank: int = 0, settings: TrialSettings = DEFAULTS, on_event: "OnEvent | None" = None
) -> Measurement:
    """Runs one rank of a plan for a cluster of any size on a device of this machine: its peak memory and computing time are
    measured, exposed communication and bubble are the estimate's. What it wrote is in ``folder``.

    Raises:
        InputError: the plan breaks a law, has no such rank, or is for devices of which none is here; nothing was started.
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
    """Measures a plan on each count of devices, and leaves scaling.json, scaling.svg and the trials in ``folder``.

    Raises:
        InputError, FileError: the plan breaks a law, a count cannot be, or the folder cannot be written.
    """
    from strategist.executors.local import LocalExecutor
    from strategist.report.scaling import write_scaling
    from strategist.tuner.scale import scale as scale_plan

    check_legal(plan)
    found = scale_plan(
        plan, counts, weak=weak, folder=Path(folder), settings=settings, executor=LocalExecutor(study="scale"),
        deck=load_cards(cards, without), calibration=load_calibration(calibration), backend=BACKEND, on_point=on_point,
    )  # fmt: skip
    write_scaling(found, Path(folder))
    return found


def evidence(*, cards: Folders = (), studies: Sequence[str | Path] = (), measurements: Sequence[str | Path] = ()) -> "Testimony":
    """What the trials of studies and files of measurements say of the cards; without either, of the shipped measurements.

    Raises:
        FileError: a file or card cannot be read.
    """
    from strategist.tuner.testimony import hear, sources

    return hear(load_cards(cards), sources(studies, measurements))


def doctor(folder: str | Path = ".") -> "tuple[Diagnostic, ...]":
    """What is wrong with this machine or the install, the gravest first; checkpoints are to be written below ``folder``."""
    from strategist.executors.doctor import diagnose

    return diagnose(Path(folder))


def program(name: str) -> Program:
    """The program of that name, or that a file describes.

    Raises:
        InputError, FileError: there is none, or its file is not what it should be.
    """
    found = find_program(name)
    if found is None:
        raise unknown(f"program {name}", "is not known", name, programs(), "name a program's file, which ends in .yaml", programs())
    return found


def command(program: Program, plan: Plan, settings: TrialSettings = DEFAULTS) -> tuple[str, ...]:
    """What would be run for a plan, with places in the working folder.

    Raises:
        InputError: the plan breaks a law, or the program cannot run it.
    """
    from strategist.executors.command import CommandExecutor
    from strategist.executors.engine import Slurm

    _check_refusals(plan, settings, program.backend)
    return CommandExecutor(program=program, engine=Slurm()).command(plan, Path(), settings)  # as on nodes of the plan's cluster
