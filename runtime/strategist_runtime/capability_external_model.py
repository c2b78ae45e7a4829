"""The settings that this runtime supports for external models, as data; free of torch and of transformers.

``profiles/backends/transformers.yaml`` has the same for the deciding half; a test keeps them equal.
"""

from collections.abc import Iterator, Mapping

from strategist.contract.hugging_face import disagreements, read_config
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan

ALLOWED: Mapping[str, Mapping[str, tuple[bool | int | str, ...]]] = {
    "layout": {"pp": (1,), "cp": (1,), "ep": (1,), "etp": (1,)},
    "knobs": {
        "sequence_parallel": (False,),
        "offload": ("none", "optimizer"),
        "activation_offload": (False,),
        "chunked_loss": (False,),
        "float8": ("none",),
    },
    "options": {"async_tp": (False,)},
    "workload": {"optimizer": ("adamw", "adamw_bf16", "adamw8bit", "sgd")},
}
"""Settings that are limited to these values, options only where they have an effect; any other setting takes every legal value."""


def external_model_refusals(plan: Plan, settings: TrialSettings) -> Iterator[str]:
    """Why ``plan`` cannot train a model of transformers.

    Raises:
        FileError: the folder has no configuration.
    """
    yield from limits(plan, "a model of transformers")
    if settings.document_tokens(plan.workload):
        yield "packed documents: models of transformers are given none; leave them out, or --hf"
    returns_router_logits = read_config(settings.hugging_face).get("output_router_logits")
    if returns_router_logits and (plan.candidate.layout.tp > 1 or plan.workload.compute_dtype == "fp16"):
        law = "the auxiliary loss of a model of transformers is added without tensor parallelism, and not in fp16"
        yield f"output_router_logits true: {law}; choose tp 1 and bf16, or set it to false in config.json"
    for text in disagreements(plan.model, settings.hugging_face):
        yield f"{text}; plan again with --model {settings.hugging_face}"


def limits(plan: Plan, model_kind: str) -> Iterator[str]:
    """A sentence for each setting of ``plan`` outside of ``ALLOWED``; ``model_kind`` names the kind of model in it."""
    candidate = plan.candidate
    parts = {"layout": candidate.layout, "knobs": candidate.knobs, "options": candidate.options, "workload": plan.workload}
    for part, names in ALLOWED.items():
        for name, choices in names.items():
            value = getattr(parts[part], name)
            if value not in choices and (part != "options" or candidate.acts(name, plan.model)):
                allowed = " or ".join(map(str, choices))
                yield f"{name} {value}: with {model_kind} this runtime runs {name} {allowed} only; choose it"
