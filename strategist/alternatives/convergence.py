"""Settings that change convergence: used only where the request allows them; the gain of allowing each."""

from collections.abc import Iterator

from strategist.alternatives.change import Change, with_request, with_workload
from strategist.contract.knobs import CHOICES, CONVERGENCE_KNOBS, show_value
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import CONVERGENCE_SETTINGS, value_of
from strategist.profiles.situation import Situation
from strategist.programs.backends import load_backend

WORTH_NAMING = 1.05
"""Throughput over the best plan's from which on a change of convergence is worth naming."""

LARGER_BATCHES = (2, 4)
"""Times the sequences of a step that are tried where the global batch may change."""

TITLES = {
    "reduce_dtype": ("gradients reduced and accumulated in bf16", "half the bytes of every reduction"),
    "float8": ("linears in float8", "the device multiplies float8 faster than bf16"),
    "comm_hook": ("gradients compressed between replicas", "fewer bytes of every all-reduce"),
    "optimizer_in_backward": ("each parameter updated in the backward pass", "gradients are freed at once; no norm can be clipped"),
    "async_optimizer_step": (
        "streamed stages updated beside the next step",
        "the hosts' update hides; parameters are one step old",
    ),
}
"""What allowing a knob is called, and why it could help."""


def convergence_allowances(asked: Situation, best: Plan | None) -> Iterator[Change]:
    """What is not allowed yet and could be faster than the best plan, or fit where nothing does."""
    request = asked.request
    open_names = {*request.allow, *request.fix}
    for name, (title, note) in TITLES.items():
        if name not in open_names and _could_help(name, asked, best):
            yield _change(with_request(asked, allow=(*request.allow, name)), name, title, note)
    if "optimizer" not in open_names and best is not None and best.candidate.knobs.recompute != "none":
        for situation in _eight_bit(asked):
            yield _change(with_request(situation, allow=(*request.allow, "optimizer")), "optimizer", "8-bit optimizer states", "")
    if "global_batch" not in open_names and best is not None and _waits(best):
        for situation in _batches(asked):
            batch = situation.request.workload.global_batch
            note = "fills a pipeline, and reduces gradients less often"
            yield _change(situation, "global_batch", f"{batch} sequences a step", note)
            return


def variants(asked: Situation) -> Iterator[Situation]:
    """The situation as it was asked, and those that the workload's allowed changes lead to."""
    yield asked
    if "optimizer" in asked.request.allow:
        yield from _eight_bit(asked)
    if "global_batch" in asked.request.allow:
        yield from _batches(asked)


def convergence_changes(plan: Plan, request: Request) -> tuple[str, ...]:
    """What of the plan may change the trained model against what was asked, each as ``setting value``."""
    found = [
        f"{name} {show_value(value)}"
        for name, neutral in CONVERGENCE_SETTINGS.items()
        if plan.matters(name) and (value := value_of(plan.candidate, name)) != neutral
    ]
    for name in ("optimizer", "global_batch"):
        if (value := getattr(plan.workload, name)) != getattr(request.workload, name):
            found.append(f"{name} {value}")
    return tuple(found)


def _change(situation: Situation, name: str, title: str, note: str) -> Change:
    return Change(
        situations=iter([situation]),
        title=lambda _: title,
        flags=lambda *_: ("--allow", name),
        note=note,
        changes_convergence=True,
        gain=WORTH_NAMING,
    )


def _could_help(name: str, asked: Situation, best: Plan | None) -> bool:
    """Whether it is worth a walk through the space, by what is known without one."""
    workload, backend = asked.request.workload, load_backend(asked.request.backend)
    if not any(backend.allows(f"knobs.{name}", value) for value in CHOICES[name] if value != CONVERGENCE_KNOBS[name]):
        return False
    if name == "float8":
        return workload.precision == "bf16" and workload.train == "full" and "fp8" in asked.cluster.device.peak_flops
    if name == "optimizer_in_backward":
        return best is None or best.candidate.knobs.recompute != "none" or best.candidate.knobs.offload != "none"
    if best is None:
        return False
    if name == "async_optimizer_step":
        return best.candidate.knobs.offload == "streamed"
    waits = best.estimate.time.dp_communication > (1 - 1 / WORTH_NAMING) * best.estimate.step_seconds
    return waits and (name == "reduce_dtype" or best.candidate.layout.dp_replicate == asked.cluster.devices)


def _waits(best: Plan) -> bool:
    """Whether a step has much that a larger batch would spread: a pipeline's bubble, or communication once a step."""
    lost = best.estimate.time.bubble + best.estimate.time.dp_communication * (best.accumulation == 1)
    return lost > 0.1 * best.estimate.step_seconds


def _eight_bit(asked: Situation) -> Iterator[Situation]:
    if asked.request.workload.optimizer == "adamw":
        yield with_workload(asked, optimizer="adamw8bit")


def _batches(asked: Situation) -> Iterator[Situation]:
    """The nearest batch that the devices divide, and larger ones."""
    batch, devices = asked.request.workload.global_batch, asked.cluster.devices
    nearest = devices * max(1, round(batch / devices))
    for size in dict.fromkeys((nearest, *(times * nearest for times in LARGER_BATCHES))):
        if size != batch:
            yield with_workload(asked, global_batch=size)
