"""Activation offload as an alternative: not part of the space unless requested, because few requests gain from it."""

from collections.abc import Iterator

from strategist.alternatives.change import Change, with_request
from strategist.alternatives.convergence import MIN_GAIN
from strategist.contract.knobs import KnobValue, show_value
from strategist.contract.plan import Plan
from strategist.profiles.situation import Situation


def activation_offload_changes(situation: Situation, best: Plan | None) -> Iterator[Change]:
    """Activation offload as a change: with full recomputation if nothing fits, else in place of recomputation, with offload of
    states unchanged.
    """
    fix = situation.request.fix
    if "activation_offload" in fix or situation.cluster.device.kind != "cuda":
        return
    if best is None:
        other_settings: dict[str, KnobValue] = {"recompute": "full"}
    elif _recompute_dominates(best) and best.candidate.knobs.offload != "streamed":
        other_settings = {"recompute": "none", "offload": best.candidate.knobs.offload}
    else:
        return
    if any(name in fix and fix[name] != value for name, value in other_settings.items()):
        return
    fixed = {"activation_offload": True, **{name: value for name, value in other_settings.items() if name not in fix}}
    flags = tuple(word for name, value in fixed.items() for word in ("--fix", f"{name}={show_value(value)}"))
    yield Change(
        situations=iter([with_request(situation, fix={**fix, **fixed})]),
        title=lambda _: "activations in host memory",
        flags=lambda *_: flags,
        note="what layers save waits there, and comes back in time" if best else "only a few layers' inputs stay on the device",
        gain=MIN_GAIN if best else 0.0,
    )


def _recompute_dominates(best: Plan) -> bool:
    """Whether recomputation takes so much time that avoiding it is worth naming."""
    return best.estimate.time.recompute > (1 - 1 / MIN_GAIN) * best.estimate.step_seconds
