"""Facts that a study stores (request, goals, kind, program), and the identity of its tuners."""

import hashlib
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from strategist.contract import codec
from strategist.contract.goals import Goals
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome
from strategist.contract.request import Request
from strategist.contract.study import TrialState
from strategist.errors import InputError
from strategist.executors.processes import started
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import Claim
from strategist.profiles.situation import Situation


def set_request(ledger: Ledger, folder: Path, situation: Situation, kind: Kind, program: str = "") -> None:
    """Stores the situation, the kind of measurements and the program's digest in a new study; in an existing one, checks that they
    are equal.

    Raises:
        InputError: the study has another request, kind, situation or program; the message names the difference.
    """
    begun = ledger.fact("request") is not None
    if (known_kind := kind_of(ledger)) is not kind and begun:
        law, do = f"holds {known_kind.value} trials, these are {kind.value}", "use a new study folder"
        raise InputError(f"study {folder}", law, do)
    if kind is not Kind.REAL:
        ledger.set_fact("kind", kind.value)
    if (request_json := ledger.fact("request")) is None:
        ledger.set_fact("request", codec.dumps(situation.request))
    elif (first_request := codec.loads(Request, request_json)) != situation.request:
        differing = ", ".join(differences(first_request, situation.request))
        raise InputError(f"study {folder}", f"was started with another request: {differing}", "use a new study folder")
    if ledger.fact("situation") not in (None, situation.digest):
        law = "was started when the model or the GPUs of that name were described otherwise"
        raise InputError(f"study {folder}", law, "use a new study folder")
    ledger.set_fact("situation", situation.digest)
    if ledger.fact("program") not in (None, program):
        raise InputError(f"study {folder}", "was started with another version of the program's file", "use a new study folder")
    if program:
        ledger.set_fact("program", program)


def set_goals(ledger: Ledger, folder: Path, request: Request, goals: Goals | None) -> Goals:
    """The study's goals. A new study stores ``goals`` (default: the request's objective); for an existing one they must be equal to
    the stored goals, or None.

    Raises:
        InputError: the study began with other goals; the message names the difference.
    """
    if ledger.fact("goals") is None:
        ledger.set_fact("goals", codec.dumps(goals or Goals(objectives=(request.objective,))))
    study_goals = goals_of(ledger, request)
    if goals is not None and goals != study_goals:
        law = f"was started with other goals: {', '.join(differences(study_goals, goals))}"
        raise InputError(f"study {folder}", law, "leave them out, or use a new study folder")
    return study_goals


def goals_of(ledger: Ledger, request: Request) -> Goals:
    """The study's goals; the request's objective if none are stored."""
    goals_json = ledger.fact("goals")
    return Goals(objectives=(request.objective,)) if goals_json is None else codec.loads(Goals, goals_json)


def kind_of(ledger: Ledger) -> Kind:
    """Kind of the study's measurements; real if none is stored."""
    return Kind(ledger.fact("kind") or Kind.REAL.value)


def differences(before: Request | Goals, after: Request | Goals) -> list[str]:
    """Differences between two requests, or between the goals of two studies, each as ``seq_len was 64, is 128``."""
    values_before, values_after = _flat(codec.encode(before)), _flat(codec.encode(after))
    names = [name for name in {**values_before, **values_after} if values_before.get(name) != values_after.get(name)]
    return [f"{name} was {_word(values_before.get(name))}, is {_word(values_after.get(name))}" for name in names]


def _word(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(map(str, value)) or "free"
    return "free" if value is None else str(value)


def _flat(data: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat


def owner() -> str:
    """Identifier of this process in ledgers: machine, process number and start time."""
    return f"{_machine()} {os.getpid()} {started(os.getpid())}"


@cache
def _machine() -> str:
    """Identifier of this machine, its boot and its PID namespace, within which process numbers are unique. The host name alone
    is not unique: machines made from one image share it.
    """
    identity = platform.node()
    with suppress(OSError):  # without /proc (not Linux), only the name is used
        identity += Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8") + os.readlink("/proc/self/ns/pid")
    return f"{platform.node()}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def release_abandoned(ledger: Ledger) -> None:
    """Ends trials of killed tuners of this machine as lost, so that no tuner waits for their leases."""
    for row in ledger.trials():
        if row.state is TrialState.RUNNING and row.owner and _is_gone(row.owner):
            message = f"the tuner that ran it ({row.owner}) is gone"
            lost = Measurement(
                plan_id=row.plan.id,
                kind=kind_of(ledger),
                outcome=Outcome.LOST,
                evidence=Evidence(message=message),
            )
            claim = Claim(number=row.number, attempt=row.attempt, plan_json=row.plan_json)
            ledger.finish(claim, Outcome.LOST, codec.dumps(lost))


def _is_gone(name: str) -> bool:
    host, _, process = name.partition(" ")
    pid, _, start = process.partition(" ")
    return host == _machine() and pid.isdigit() and started(int(pid)) != start
