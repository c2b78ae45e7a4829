"""Elastic training: when ranks are lost, a plan for fewer devices continues from the last checkpoint."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from strategist.frozen import frozen
from strategist.planning.planner import ranked
from strategist.profiles.cluster import scaled
from strategist.profiles.situation import on_cluster, situation_of_plan

MAX_SIZES = 8
"""Maximum number of device counts that are planned for; the smallest is half of the remaining devices."""

NEAR_TIE = 0.04
"""A plan for fewer devices is chosen only if it is predicted to be faster by more than this share."""

MAX_FRUITLESS_RESTARTS = 5
"""Number of successive failures without a new checkpoint that ends a training whose ranks were all lost."""

TRANSIENT_OUTCOMES = (Outcome.CRASH, Outcome.INFRASTRUCTURE, Outcome.TIMEOUT)
"""Outcomes that may not happen again when the same plan restarts."""


@frozen
class Shrink:
    """A restart of a training on fewer devices.

    lost: the lost ranks.
    ranks: number of ranks before the restart.
    plan: the plan that continues; unchanged if the same devices are used.
    step: step of the training from which it continues.
    """

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
    """Runs ``plan`` and, after a failure, continues from the last checkpoint; each part runs in ``part-<n>`` of the folder.

    A plan is restarted as often as its settings allow; then the best plan for the remaining ranks replaces it. If all ranks were
    lost, as when the launcher dies, their devices still exist, and the same plan continues. A stop request also ends the
    training between two parts.

    Raises:
        InputError: there is no plan for the remaining devices.
        FileError: the folder cannot be written.
    """
    (folder / STOP_FILE).unlink(missing_ok=True)
    restarts = fruitless_restarts = saved = 0
    for part in itertools.count():
        measurement = replace(executor.execute(plan, folder / f"part-{part}", settings, on_event), restarts=part)
        codec.save(measurement, folder / "measurement.json")
        codec.save(plan, folder / "plan.json")
        lost, ranks = measurement.lost_ranks, plan.candidate.layout.world_size
        saved, saved_before = _step(settings), saved
        fruitless_restarts = fruitless_restarts + 1 if saved == saved_before else 0
        if measurement.outcome in TRANSIENT_OUTCOMES and restarts < allowed_restarts(plan, settings):
            restarts += 1
        elif 0 < len(lost) < ranks:
            executor, restarts = executor.without(lost), 0
            plan = plan_for_fewer_devices(plan, ranks - len(lost), deck=deck, backend=backend, calibration=calibration)
        elif not lost or fruitless_restarts == MAX_FRUITLESS_RESTARTS:
            break
        if on_shrink is not None:
            on_shrink(Shrink(lost=lost, ranks=ranks, plan=plan, step=saved))
        if (folder / STOP_FILE).exists():
            resume_hint = f"; to go on: --resume {settings.save}" if saved else ""
            message = f"stopped at step {saved} of {settings.total_steps}, as asked{resume_hint}"
            measurement = replace(measurement, outcome=Outcome.CANCELLED, evidence=Evidence(message=message))
            codec.save(measurement, folder / "measurement.json")
            break
    return measurement


def plan_for_fewer_devices(
    plan: Plan, remaining_devices: int, *, deck: Deck, backend: str, calibration: Calibration | None = None
) -> Plan:
    """The best plan for the same training on at most ``remaining_devices`` devices of the same cluster.

    The model, the batch and every setting that changes convergence stay the same.

    Raises:
        InputError: there is no such plan.
    """
    fixed = {name: value for name, default in CONVERGENCE_SETTINGS.items() if (value := value_of(plan.candidate, name)) != default}
    request = Request(model=plan.model.name, gpus=plan.cluster.name, workload=plan.workload, fix=fixed, backend=backend)
    situation = situation_of_plan(plan, request)
    best: Plan | None = None
    reasons: list[str] = []
    for cluster in _clusters(plan.cluster, remaining_devices):
        try:
            found = ranked(on_cluster(situation, cluster), deck=deck, calibration=calibration, limit=1)
        except InputError as error:  # no legal layout for this number of devices
            reasons.append(error.law)
            continue
        if not found:
            reasons.insert(0, "nothing that the cards allow fits the memory")
        for candidate_plan in found:
            if best is None or candidate_plan.estimate.tokens_per_second > (1 + NEAR_TIE) * best.estimate.tokens_per_second:
                best = candidate_plan
    if best is None:
        law = f"of {plan.cluster.devices} there is no plan for them, nor for fewer: {reasons[0]}"
        raise InputError(f"{remaining_devices} devices left", law, "resume with --resume when there are more")
    return best


def _clusters(cluster: Cluster, remaining_devices: int) -> Iterator[Cluster]:
    """Clusters of at most ``remaining_devices`` devices, the largest first: whole nodes, or a part of one node."""
    gpus_per_node = cluster.gpus_per_node
    for devices in range(remaining_devices, max(1, remaining_devices // 2) - 1, -1)[:MAX_SIZES]:
        if devices <= gpus_per_node:
            yield scaled(cluster, 1, devices)
        elif devices % gpus_per_node == 0:
            yield scaled(cluster, devices // gpus_per_node, gpus_per_node)


def _step(settings: TrialSettings) -> int:
    """Step from which the training continues: that of its newest checkpoint; 0 without a checkpoint."""
    found = checkpoint.newest(settings.save)
    if found is None and settings.resume:
        return checkpoint.read(checkpoint.find(settings.resume)).step
    return 0 if found is None else found[1].step
