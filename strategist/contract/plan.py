"""Plan: one candidate with its estimate, its reasons and its identity; complete, so that no hidden state affects a run."""

import hashlib
from dataclasses import replace

from strategist.contract import codec
from strategist.contract.cluster import Cluster
from strategist.contract.codec import added, shared, standalone
from strategist.contract.display import Displayed
from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate
from strategist.contract.model import ModelShape
from strategist.contract.name_rules import check_id, check_name
from strategist.contract.options import OPTION_NAMES
from strategist.contract.pipeline_stages import even_layers
from strategist.contract.request import Request
from strategist.contract.settings import AXIS_ORDER
from strategist.contract.workload import Workload
from strategist.frozen import frozen


@shared
@frozen
class Reason:
    """Reason for a setting: card, policy, effect and text."""

    card: str
    policy: str
    effect: str
    text: str


@shared
@frozen
class Digests:
    """Digests of a plan's inputs: SHA-256, hexadecimal, first 16 digits."""

    deck: str
    profiles: str
    calibration: str


@standalone
@frozen
class Plan(Displayed):
    """A decision that can be run. ``id`` is a digest of its content without ``request``: equal decisions have equal ids.

    backends: back ends of executors that can run it unchanged; empty where none can.
    stack: profile of the framework that the estimate is for; empty for the built-in runtime.
    request: the request that the plan answers; None for a plan made by hand.
    """

    model: ModelShape
    cluster: Cluster
    workload: Workload
    candidate: Candidate
    estimate: Estimate
    reasons: tuple[Reason, ...]
    digests: Digests
    backends: tuple[str, ...] = ()
    id: str = ""
    stack: str = added("")
    request: Request | None = added(None)

    def __post_init__(self) -> None:
        check_id("plan id", self.id)
        for name in self.backends:
            check_name("back end", name)
        check_name("stack", self.stack)

    def identified(self) -> "Plan":
        """The same plan with ``id`` computed from its content."""
        blank = replace(self, id="", request=None)
        return replace(self, id=hashlib.sha256(codec.dumps(blank).encode()).hexdigest()[:12])

    @property
    def accumulation(self) -> int:
        return self.candidate.accumulation(self.workload)

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Number of layers of each pipeline stage, from the embedding to the head."""
        stages = self.candidate.layout.pp * self.candidate.knobs.pp_virtual_stages
        return self.estimate.pipeline_layers or even_layers(self.model.layers, stages)

    def matters(self, setting: str) -> bool:
        """Whether a setting, by its bare name, has an effect, given the other settings.

        The option pp_split has none where the weighted split comes out even, nor where device speeds determine the split.
        """
        layout, knobs = self.candidate.layout, self.candidate.knobs
        if setting in OPTION_NAMES:
            idle = setting == "pp_split" and self._cut_otherwise
            return not idle and self.candidate.acts(setting, self.model)
        reduces = layout.data_ranks * layout.cp > 1 or knobs.offload != "none"
        is_pipeline = layout.pp > 1 and knobs.offload != "streamed"  # streamed stages have one order of passes
        needs = {
            "ep": self.model.moe is not None,
            "etp": self.model.moe is not None,
            AXIS_ORDER: layout.pp > 1 and layout.dp_replicate > 1 and self.cluster.nodes > 1,
            "reshard_group_size": knobs.reshard_after_forward == "subgroup",
            "recompute_budget_percent": knobs.recompute == "budget",
            "saved_operations": knobs.recompute == "selective",
            "float8_all_gather": knobs.float8 == "tensorwise",
            "async_optimizer_step": knobs.offload == "streamed",
            "comm_hook": layout.dp_replicate > 1 and layout.model_shards == 1,
            "reshard_after_forward": layout.fsdp_ranks > 1,
            "sequence_parallel": layout.tp > 1,
            "loss_parallel": layout.tp > 1,
            "pp_schedule": is_pipeline,
            "pp_virtual_stages": is_pipeline,
            "no_sync": reduces and (layout.pp > 1 or self.accumulation > 1),
        }
        return needs.get(setting, True)

    @property
    def _cut_otherwise(self) -> bool:
        """Whether the split into stages does not depend on the option pp_split."""
        weighed = self.candidate.options.pp_split == "weighted"
        return bool(self.cluster.groups) or (weighed and not self.estimate.pipeline_layers)
