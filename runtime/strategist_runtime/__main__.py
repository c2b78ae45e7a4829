"""One rank of a trial: ``torchrun --standalone --max-restarts=0 --nproc-per-node N -m strategist_runtime PLAN.json --out DIR``."""

import argparse
import faulthandler
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from strategist.contract import codec
from strategist.contract.environment import environment
from strategist.contract.measurement import STOPPED, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import InputError, StrategistError
from strategist_runtime import rank_process
from strategist_runtime.capability import refusals
from strategist_runtime.rank_record import NotFinite, Recorder, Stopped

EXIT_CODES = {Outcome.OK: 0, Outcome.OOM: 77, Outcome.NAN: 78, Outcome.REFUSED: 79, Outcome.CRASH: 1, Outcome.CANCELLED: 1}
MESSAGE_CHARACTERS = 4000


def main(arguments: Sequence[str]) -> None:
    """Runs this rank. Ends the process at once with one of ``EXIT_CODES``, so that its peers fail fast."""
    options = _parser().parse_args(arguments)
    missing = [name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE") if name not in os.environ]
    if missing:
        sys.exit(f"{missing[0]}: is set for each rank by the launcher; start with torchrun --standalone -m strategist_runtime")
    rank_process.die_with_parent()
    faulthandler.enable()
    try:
        recorder = Recorder(options.out, int(os.environ["RANK"]))
    except OSError as error:
        sys.exit(f"--out {options.out}: cannot be written: {error.strerror}; choose another folder")
    rank_process.on_terminate(lambda: _terminate(recorder))
    try:
        plan, settings = _read(options)
        recorder.plan_id = plan.id
        _check(plan, settings, options.shadow)
        if plan.cluster.device.kind == "cpu":
            rank_process.count_memory_closely()
        _run(plan, settings, recorder, options.shadow)
    except StrategistError as error:
        _end(recorder, Outcome.REFUSED, str(error))
    except Stopped as end:  # exit code 0, so that a launcher that restarts failed ranks does not restart this one
        recorder.enter(STOPPED)
        _end(recorder, Outcome.CANCELLED, str(end), code=0)
    except BaseException as error:  # outermost handler: the parent must learn of any error
        _end(recorder, *_outcome_of(error))
    _end(recorder, Outcome.OK)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="strategist_runtime", description=__doc__)
    parser.add_argument("plan", type=Path, help="a plan as strategist writes it")
    parser.add_argument("--out", type=Path, required=True, help="folder for the records of the ranks")
    parser.add_argument("--settings", type=Path, help="trial settings; defaults where absent")
    parser.add_argument("--shadow", type=int, metavar="R", help="be this rank of the plan, alone: no peer takes part")
    return parser


def _read(options: argparse.Namespace) -> tuple[Plan, TrialSettings]:
    settings = codec.load(TrialSettings, options.settings) if options.settings else TrialSettings()
    return codec.load(Plan, options.plan), settings


def _check(plan: Plan, settings: TrialSettings, shadow: int | None) -> None:
    """Refuses wrong plans before any process group exists, since most of them would hang there."""
    found = list(refusals(plan, settings))
    world, ranks = int(os.environ["WORLD_SIZE"]), plan.candidate.layout.world_size
    if shadow is None and world != ranks:
        found.append(f"{world} ranks: the plan is for {ranks}; start as many")
    if shadow is not None and not (world == 1 and 0 <= shadow < ranks):
        found.append(f"--shadow {shadow} in {world} ranks: is one of the plan's {ranks}, alone; start one, with 0 to {ranks - 1}")
    differing = {name: value for name, value in environment(plan).items() if os.environ.get(name) != value}
    if differing:
        setting = " ".join(f"{name}={value}" for name, value in differing.items())
        found.append(f"{next(iter(differing))}: the plan sets it, this process has it otherwise; start the ranks with {setting}")
    if found:
        raise StrategistError(" | ".join(found))


def _run(plan: Plan, settings: TrialSettings, recorder: Recorder, shadow: int | None) -> None:
    # Imported here: the phase is recorded before torch's import begins, and its failure is caught like any other.
    from strategist_runtime import trial
    from strategist_runtime.compat.device import local_device_count

    available, needed = (
        local_device_count(plan.cluster.device.kind),
        plan.cluster.gpus_for(int(os.environ.get("LOCAL_WORLD_SIZE", "1"))),
    )
    if available is not None and available < needed:
        kind = plan.cluster.device.kind
        raise InputError(
            f"{needed} ranks on this machine", f"each needs a {kind} device, it has {available}", "use a larger machine"
        )
    if shadow is None:
        trial.run(plan, settings, recorder)
        return
    from strategist_runtime.simulate import shadow as shadow_run  # it replaces torch's collectives

    shadow_run.run(plan, shadow, settings, recorder)


def _outcome_of(error: BaseException) -> tuple[Outcome, str]:
    rank_process.remove_memory_limit()
    traceback.print_exception(error)
    message = f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS]
    if isinstance(error, NotFinite):
        return Outcome.NAN, str(error)
    return (Outcome.OOM if rank_process.is_out_of_memory(error) else Outcome.CRASH), message


def _terminate(recorder: Recorder) -> None:
    """Handles SIGTERM: a training that saves ends after its step, a trial at once."""
    if not recorder.stop.signal():
        _end(recorder, Outcome.CANCELLED, f"ended by SIGTERM in {recorder.phase}")


def _end(recorder: Recorder, outcome: Outcome, message: str = "", code: int | None = None) -> None:
    """Writes the record and ends the process."""
    code = EXIT_CODES[outcome] if code is None else code
    try:
        recorder.end(outcome, message)
    except StrategistError as error:
        print(error, file=sys.stderr)
        code = code or 1
    rank_process.leave(code)


if __name__ == "__main__":
    main(sys.argv[1:])
