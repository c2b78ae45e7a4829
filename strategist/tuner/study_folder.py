"""Folder of a study: its request, its running tuners, and atomic writes of its files."""

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
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.study import TrialState
from strategist.errors import InputError
from strategist.executors.processes import started
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import Claim
from strategist.profiles.situation import Situation


def set_request(ledger: Ledger, folder: Path, asked: Situation, kind: Kind, program: str = "") -> None:
    """Makes the study that of the situation, of measurements of this kind and of this description of a program, or sees that it is.

    Raises:
        InputError: it is another request's, or its measurements are others; names what differs.
    """
    begun = ledger.study("request") is not None
    if (known_kind := kind_of(ledger)) is not kind and begun:
        law, do = f"holds {known_kind.value} trials, these are {kind.value}", "use a new study folder"
        raise InputError(f"study {folder}", law, do)
    if kind is not Kind.REAL:
        ledger.set_study("kind", kind.value)
    if (known := ledger.study("request")) is None:
        ledger.set_study("request", codec.dumps(asked.request))
    elif (then := codec.loads(Request, known)) != asked.request:
        differing = ", ".join(differences(then, asked.request))
        raise InputError(f"study {folder}", f"was started with another request: {differing}", "use a new study folder")
    if ledger.study("situation") not in (None, asked.digest):
        law = "was started when the model or the GPUs of that name were described otherwise"
        raise InputError(f"study {folder}", law, "use a new study folder")
    ledger.set_study("situation", asked.digest)
    if ledger.study("program") not in (None, program):
        raise InputError(f"study {folder}", "was started when the program's file said otherwise", "use a new study folder")
    if program:
        ledger.set_study("program", program)


def set_goals(ledger: Ledger, folder: Path, request: Request, goals: Goals | None) -> Goals:
    """The study's goals: those that it was begun with, which ``goals`` must be where any are given; a new study takes them.

    Raises:
        InputError: it was begun with other ones; names what differs.
    """
    if ledger.study("goals") is None:
        ledger.set_study("goals", codec.dumps(goals or Goals(objectives=(request.objective,))))
    known = goals_of(ledger, request)
    if goals is not None and goals != known:
        law = f"was started with other goals: {', '.join(differences(known, goals))}"
        raise InputError(f"study {folder}", law, "leave them out, or use a new study folder")
    return known


def goals_of(ledger: Ledger, request: Request) -> Goals:
    """The study's goals; one that says nothing has its request's objective."""
    known = ledger.study("goals")
    return Goals(objectives=(request.objective,)) if known is None else codec.loads(Goals, known)


def kind_of(ledger: Ledger) -> Kind:
    """Of the study's measurements; studies that say nothing have real ones."""
    return Kind(ledger.study("kind") or Kind.REAL.value)


def differences(then: Request | Goals, now: Request | Goals) -> list[str]:
    """What differs between two requests, or two studies' goals, each as ``seq_len was 64, is 128``."""
    left, right = _flat(codec.encode(then)), _flat(codec.encode(now))
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    return [f"{name} was {_word(left.get(name))}, is {_word(right.get(name))}" for name in names]


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
    """This process, as ledgers name it."""
    return f"{_machine()} {os.getpid()} {started(os.getpid())}"


@cache
def _machine() -> str:
    """This machine since it booted, and the container on it: where the numbers of processes mean the same. Names of machines alone
    are often those of the image that they were made from."""
    known = platform.node()
    with suppress(OSError):  # outside Linux the name must do
        known += Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8") + os.readlink("/proc/self/ns/pid")
    return f"{platform.node()}-{hashlib.sha256(known.encode()).hexdigest()[:8]}"


def release_abandoned(ledger: Ledger) -> None:
    """Ends as lost what tuners of this machine ran when they were killed, so that no tuner waits for their leases."""
    for row in ledger.trials():
        if row.state is TrialState.RUNNING and row.owner and _is_gone(row.owner):
            message = f"the tuner that ran it ({row.owner}) is gone"
            lost = Measurement(
                plan_id=codec.loads(Plan, row.plan_json).id,
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
