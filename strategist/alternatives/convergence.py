"""Settings that change convergence: they are used only if the request allows them; each is an alternative."""

from collections.abc import Iterator

from strategist.alternatives.change import Change, with_request, with_workload
from strategist.contract.knobs import CHOICES, CONVERGENCE_KNOBS, show_value
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.settings import CONVERGENCE_SETTINGS, value_of
from strategist.profiles.situation import Situation
from strategist.programs.backends import load_backend

MIN_GAIN = 1.05
"""Least throughput, relative to the best plan's, with which a change of convergence is worth naming."""

BATCH_FACTORS = (2, 4)
"""Factors on the global batch that are tried if it may change."""

TITLES = {
    "reduce_dtype": ("gradients reduced and accumulated in bf16", "half the bytes of every reduction"),
    "float8": ("linears in float8", "the device multiplies float8 faster than bf16"),
    "comm_hook": ("gradients compressed between replicas", "fewer bytes of every all-reduce"),
    "optimizer_in_backward": ("parameters updated in the backward pass", "gradients are freed at once; no norm can be clipped"),
    "async_optimizer_step": (
        "streamed stages updated during the next step",
        "the hosts' update hides; parameters are one step old",
    ),
}
"""Title of allowing a knob, and why it may help."""


def convergence_allowances(situation: Situation, best: Plan | None, *, needs_hosts: bool) -> Iterator[Change]:
    """Settings that are not allowed yet and could be faster than the best plan, or fit if nothing does. 8-bit states are an
    alternative in resources if every plan offloads (``needs_hosts``).
    """
    request = situation.request
    decided_names = {*request.allow, *request.fix}
    for name, (title, note) in TITLES.items():
        if name not in decided_names and _could_help(name, situation, best):
            yield _change(with_request(situation, allow=(*request.allow, name)), title, note, ("--allow", name))
    if "optimizer" not in decided_names and best is not None and not needs_hosts and best.candidate.knobs.recompute != "none":
        for variant in _with_8bit_optimizer(situation):
            allowed = with_request(variant, allow=(*request.allow, "optimizer"))
            yield _change(allowed, "8-bit optimizer states", "", ("--allow", "optimizer"))
    if "global_batch" not in decided_names and best is not None and _is_idle_often(best):
        for variant in _batches(situation):
            batch = variant.request.workload.global_batch
            note = "fills a pipeline, and reduces gradients less often"
            yield _change(variant, f"{batch} sequences a step", note, ("--global-batch", str(batch)))
            return


def variants(situation: Situation) -> Iterator[Situation]:
    """The situation as requested, and those after allowed changes of its workload."""
    yield situation
    if "optimizer" in situation.request.allow:
        yield from _with_8bit_optimizer(situation)
    if "global_batch" in situation.request.allow:
        yield from _batches(situation)


def convergence_changes(plan: Plan, request: Request) -> tuple[str, ...]:
    """Settings of the plan that may change the trained model compared with the request, each as ``setting value``."""
    found = [
        f"{name} {show_value(value)}"
        for name, neutral in CONVERGENCE_SETTINGS.items()
        if plan.matters(name) and (value := value_of(plan.candidate, name)) != neutral
    ]
    for name in ("optimizer", "global_batch"):
        if (value := getattr(plan.workload, name)) != getattr(request.workload, name):
            found.append(f"{name} {value}")
    return tuple(found)


def _change(situation: Situation, title: str, note: str, flags: tuple[str, str]) -> Change:
    return Change(
        situations=iter([situation]),
        title=lambda _: title,
        flags=lambda *_: flags,
        note=note,
        changes_convergence=True,
        gain=MIN_GAIN,
    )


def _could_help(name: str, situation: Situation, best: Plan | None) -> bool:
    """Whether allowing the knob may help, judged without a search."""
    workload, backend = situation.request.workload, load_backend(situation.request.backend)
    if not any(backend.allows(f"knobs.{name}", value) for value in CHOICES[name] if value != CONVERGENCE_KNOBS[name]):
        return False
    if name == "float8":
        return workload.precision == "bf16" and workload.train == "full" and "fp8" in situation.cluster.device.peak_flops
    if name == "optimizer_in_backward":
        return best is None or best.candidate.knobs.recompute != "none" or best.candidate.knobs.offload != "none"
    if best is None:
        return False
    if name == "async_optimizer_step":
        return best.candidate.knobs.offload == "streamed"
    reduction_dominates = best.estimate.time.dp_communication > (1 - 1 / MIN_GAIN) * best.estimate.step_seconds
    return reduction_dominates and (name == "reduce_dtype" or best.candidate.layout.dp_replicate == situation.cluster.devices)


def _is_idle_often(best: Plan) -> bool:
    """Whether a step has much overhead that a larger batch would spread: a pipeline's bubble, or communication once per step."""
    idle_seconds = best.estimate.time.bubble + best.estimate.time.dp_communication * (best.accumulation == 1)
    return idle_seconds > 0.1 * best.estimate.step_seconds


def _with_8bit_optimizer(situation: Situation) -> Iterator[Situation]:
    if situation.request.workload.optimizer == "adamw":
        yield with_workload(situation, optimizer="adamw8bit")


def _batches(situation: Situation) -> Iterator[Situation]:
    """The nearest batch that is a multiple of the devices, and larger ones."""
    batch, devices = situation.request.workload.global_batch, situation.cluster.devices
    nearest = devices * max(1, round(batch / devices))
    for size in dict.fromkeys((nearest, *(factor * nearest for factor in BATCH_FACTORS))):
        if size != batch:
            yield with_workload(situation, global_batch=size)
