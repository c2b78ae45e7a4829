"""Activation offload as an alternative: not part of the space unless requested, because few requests gain from it."""

from collections.abc import Iterator

from strategist.alternatives.change import Change, with_request
from strategist.alternatives.convergence import WORTH_NAMING
from strategist.contract.knobs import KnobValue, show_value
from strategist.contract.plan import Plan
from strategist.profiles.situation import Situation


def activation_offload_changes(asked: Situation, best: Plan | None) -> Iterator[Change]:
    """Where nothing fits, with all recomputed, which saves least; else in the place of recomputation, with offload as it was."""
    fix = asked.request.fix
    if "activation_offload" in fix or asked.cluster.device.kind != "cuda":
        return
    if best is None:
        further: dict[str, KnobValue] = {"recompute": "full"}
    elif _computes_again(best) and best.candidate.knobs.offload != "streamed":
        further = {"recompute": "none", "offload": best.candidate.knobs.offload}
    else:
        return
    if any(name in fix and fix[name] != value for name, value in further.items()):
        return
    wanted = {"activation_offload": True, **{name: value for name, value in further.items() if name not in fix}}
    flags = tuple(word for name, value in wanted.items() for word in ("--fix", f"{name}={show_value(value)}"))
    yield Change(
        situations=iter([with_request(asked, fix={**fix, **wanted})]),
        title=lambda _: "activations in host memory",
        flags=lambda *_: flags,
        note="what layers save waits there, and comes back in time" if best else "only a few layers' inputs stay on the device",
        gain=WORTH_NAMING if best else 0.0,
    )


def _computes_again(best: Plan) -> bool:
    """Whether so much is computed again that being spared it is worth naming."""
    return best.estimate.time.recompute > (1 - 1 / WORTH_NAMING) * best.estimate.step_seconds
