"""Elastic training: when ranks are lost, a new plan for fewer devices continues from the last checkpoint."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from strategist.cards.deck import Deck
from strategist.contract import checkpoint, codec
from strategist.contract.checkpoint import STOP_FILE
from strategist.contract.cluster import Cluster
from strategist.contract.measurement import Evidence, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import CONVERGENCE_SETTINGS, value_of
from strategist.cost.calibration import Calibration
from strategist.errors import InputError
from strategist.executors.executor import OnEvent
from strategist.executors.local import LocalExecutor, allowed_restarts
from strategist.planning.planner import ranked
from strategist.profiles.cluster import scaled
from strategist.profiles.situation import Situation, situated

SIZES = 8
"""So many sizes of what is left are planned for; the fewest are half of the devices left."""

NEAR = 0.04
"""More devices are used where fewer are predicted to be faster by no more than this."""

IN_VAIN = 5
"""So many losses in a row of all ranks end a training that saves nothing in between."""

PASSING = (Outcome.CRASH, Outcome.INFRASTRUCTURE, Outcome.TIMEOUT)
"""What may not happen again to the same plan."""


@dataclass(frozen=True, kw_only=True)
class Shrink:
    """Ranks were lost: what goes on instead, the same plan where they are replaced, and after which step of the training."""

    lost: tuple[int, ...]
    ranks: int
    plan: Plan
    step: int


OnShrink = Callable[[Shrink], None]


def train(
    plan: Plan,
    folder: Path,
    settings: TrialSettings,
    *,
    deck: Deck,
    executor: LocalExecutor,
    backend: str,
    calibration: Calibration | None = None,
    on_event: OnEvent | None = None,
    on_shrink: OnShrink | None = None,
) -> Measurement:
    """Runs ``plan`` and, when it fails, goes on from the last checkpoint; each part in ``part-<n>`` of the folder.

    A plan is run again as often as it may be restarted, then the best one for the ranks that are left takes its place. Where all
    were lost, as they are with their launcher, their devices are there still: the same plan goes on. A request to stop ends it
    between two parts as well.

    Raises:
        InputError: there is no plan for those that are left.
        FileError: the folder cannot be written.
    """
    (folder / STOP_FILE).unlink(missing_ok=True)
    restarts = vain = saved = 0
    for part in itertools.count():
        measurement = replace(executor.execute(plan, folder / f"part-{part}", settings, on_event), restarts=part)
        codec.save(measurement, folder / "measurement.json")
        codec.save(plan, folder / "plan.json")
        lost, ranks, before, saved = measurement.lost_ranks, plan.candidate.layout.world_size, saved, _step(settings)
        vain = vain + 1 if saved == before else 0
        if measurement.outcome in PASSING and restarts < allowed_restarts(plan, settings):
            restarts += 1
        elif 0 < len(lost) < ranks:
            executor, restarts = executor.without(lost), 0
            plan = plan_for_fewer_devices(plan, ranks - len(lost), deck=deck, backend=backend, calibration=calibration)
        elif not lost or vain == IN_VAIN:
            break
        if on_shrink is not None:
            on_shrink(Shrink(lost=lost, ranks=ranks, plan=plan, step=saved))
        if (folder / STOP_FILE).exists():
            more = f"; to go on: --resume {settings.save}" if saved else ""
            message = f"stopped at step {saved} of {settings.total_steps}, as asked{more}"
            measurement = replace(measurement, outcome=Outcome.CANCELLED, evidence=Evidence(message=message))
            codec.save(measurement, folder / "measurement.json")
            break
    return measurement


def plan_for_fewer_devices(plan: Plan, left: int, *, deck: Deck, backend: str, calibration: Calibration | None = None) -> Plan:
    """The best plan for the same training on ``left`` devices of the same cluster, or on some of them.

    The model, the batch and all that changes what is trained stay as they are.

    Raises:
        InputError: there is none.
    """
    fixed = {name: value for name, usual in CONVERGENCE_SETTINGS.items() if (value := value_of(plan.candidate, name)) != usual}
    request = Request(model=plan.model.name, gpus=plan.cluster.name, workload=plan.workload, fix=fixed, backend=backend)
    asked = Situation(request=request, model=plan.model, cluster=plan.cluster, notes=(), digest=plan.digests.profiles)
    best: Plan | None = None
    why: list[str] = []
    for cluster in _clusters(plan.cluster, left):
        try:
            found = ranked(situated(asked, cluster), deck=deck, calibration=calibration, limit=1)
        except InputError as error:  # no legal layout for so many
            why.append(error.law)
            continue
        if not found:
            why.insert(0, "nothing that the cards allow fits the memory")
        for each in found:
            if best is None or each.estimate.tokens_per_second > (1 + NEAR) * best.estimate.tokens_per_second:
                best = each
    if best is None:
        law = f"of {plan.cluster.devices} there is no plan for them, nor for fewer: {why[0]}"
        raise InputError(f"{left} devices left", law, "resume with --resume when there are more")
    return best


def _clusters(whole: Cluster, left: int) -> Iterator[Cluster]:
    """What is left of a cluster, and parts of it, the most devices first: whole nodes, or part of one."""
    each = whole.gpus_per_node
    for devices in range(left, max(1, left // 2) - 1, -1)[:SIZES]:
        if devices <= each:
            yield scaled(whole, 1, devices)
        elif devices % each == 0:
            yield scaled(whole, devices // each, each)


def _step(settings: TrialSettings) -> int:
    """From where the training goes on: as many steps as its newest checkpoint has; 0 from the beginning."""
    found = checkpoint.newest(settings.save)
    if found is None and settings.resume:
        return checkpoint.read(checkpoint.find(settings.resume)).step
    return 0 if found is None else found[1].step
