"""Megatron-LM's arguments: start scripts of pretrain_gpt.py, and YAML files of the same flags (its functional tests).

Defaults: megatron/training/arguments.py, validate_args, core_v0.19. Sequence parallelism needs tensor parallelism. Gradients of
bf16 are accumulated in fp32. Experts have the tensor-parallel degree of the other layers. Without a global batch, a step is one
micro-batch per rank. Causal attention over context ranks is ring attention. The distributed optimizer is ZeRO-1 over data and
context ranks (core/distributed); the strategies of Megatron FSDP are ZeRO-1 to 3. Recomputing core attention is what flash
attention does (arXiv 2205.05198, section 5).
"""

from collections.abc import Iterator, Mapping

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.environment import environment
from strategist.contract.knobs import KnobValue
from strategist.contract.measurement import LEARNING_RATE
from strategist.contract.plan import Plan
from strategist.formats.commented_text import Shell
from strategist.formats.config_entries import Entries
from strategist.formats.export_notes import header_lines, learning_rate_need, setting_notes
from strategist.formats.finding_codes import finding, unsupported_entry
from strategist.formats.format import ExportedFiles, File, Format, Placeholder
from strategist.formats.launch_commands import start_script, torchrun
from strategist.formats.megatron_model import shape
from strategist.formats.megatron_recompute import (
    approximated_recomputation,
    recompute_settings,
    recomputes_attention,
    refused_recomputation,
)
from strategist.formats.megatron_stages import COUNTED, LAYERS_PER_STAGE, LIST, NAMED, STAGES, cut
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import Source
from strategist.programs import megatron_stages
from strategist.programs.backends import find_program
from strategist.programs.program import PER_NODE
from strategist.search.facts import plan_facts

SCRIPT, CHECKOUT = "pretrain_gpt.py", "MEGATRON_LM"
"""The program, and the variable that names the checkout with it."""

SETTING_ENTRIES = {
    "tp": "tensor-model-parallel-size",
    "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size",
    "ep": "expert-model-parallel-size",
    "etp": "expert-tensor-parallel-size",
    "dp_shard": "use-distributed-optimizer",
    "dp_replicate": "num-distributed-optimizer-instances",
    "reshard_after_forward": "data-parallel-sharding-strategy",
    "micro_batch": "micro-batch-size",
    "global_batch": "global-batch-size",
    "seq_len": "seq-length",
    "precision": "bf16",
    "optimizer": "optimizer",
    "recompute": "recompute-granularity",
    "sequence_parallel": "sequence-parallel",
    "pp_virtual_stages": STAGES,
    "pp_split": LIST,
    "reduce_dtype": "grad-reduce-in-bf16",
    "offload": "optimizer-cpu-offload",
    "float8": "fp8-format",
    "float8_all_gather": "fp8-param-gather",
    "cp_rotate": "cp-comm-type",
    "grouped_gemm": "moe-grouped-gemm",
    "expert_balance": "moe-router-enable-expert-bias",
    "ep_overlap": "overlap-moe-expert-parallel-comm",
}

DEGREES = {name: SETTING_ENTRIES[name] for name in ("tp", "pp", "cp", "ep", "etp")}
FSDP = ("use-megatron-fsdp", "use-custom-fsdp")
STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
OPTIMIZERS = {
    "adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon", "adaptive_muon": "muon", "lion": "", "soap": "",
}  # fmt: skip
RECIPES = {"tensorwise": "tensorwise", "delayed": "tensorwise", "mxfp8": "rowwise", "blockwise": "rowwise", "custom": "rowwise"}
TYPES = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}

UNPRICED_ENTRIES = {
    "cpu-offloading-num-layers": "activations of this number of layers are kept in host memory",
    "cuda-graph-impl": "kernels run as CUDA graphs",
    "enable-cuda-graph": "kernels run as CUDA graphs",
    "fine-grained-activation-offloading": "activations of modules are kept in host memory",
    "fp4-format": "linears multiply in 4 bits",
    "hierarchical-context-parallel-sizes": "context ranks gather in two levels",
    "hybrid-context-parallel": "sequences are assigned to context ranks by length",
    "moe-expert-capacity-factor": "experts drop tokens above their capacity",
    "mtp-num-layers": "layers that predict further tokens are trained as well",
    "rampup-batch-size": "the global batch grows to global-batch-size",
    "step-batch-size-schedule": "the global batch grows during the training",
    "tp-comm-overlap": "collectives of tensor parallelism run in pieces beside matmuls",
    "window-size": "each token attends to a window of tokens",
}
"""Arguments that change a step in a way that no setting expresses, with their effect."""


def recognises(source: Source) -> bool:
    """Whether a source is Megatron-LM's, by flags that only Megatron-LM has, or by its program."""
    megatron_flags = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "use-mcore-models", "use-distributed-optimizer")
    if source.language == "command" and "pretrain_gpt.py" in source.text and source.has("num-layers", "micro-batch-size"):
        return True
    return source.language in ("command", "yaml") and any(source.has(name) for name in megatron_flags)


def read(entries: Entries) -> ParsedConfig:
    """Settings that the arguments state; data ranks are the devices that no other degree takes."""
    source = entries.source
    settings: dict[str, KnobValue] = {name: entries.integer(flag) or 1 for name, flag in DEGREES.items()}
    if micro := entries.integer(SETTING_ENTRIES["micro_batch"]):
        settings["micro_batch"] = micro
    if entries.enabled("num-experts") and not entries.integer(DEGREES["etp"]):
        settings["etp"] = settings["tp"]
    open_before = set(entries.open)
    model, missing = shape(entries, source, int(settings["tp"]))
    model_entries = tuple(set(entries.open) - open_before)
    layers = model.layers if model else 0
    sharding, spare = _sharding(entries, settings)
    pipeline = cut(entries, source, int(settings["pp"]), layers)
    settings |= {**sharding, **_dtypes_and_experts(entries), **pipeline.settings}
    settings |= _layers(entries, settings, layers)
    workload = _workload(entries)
    processes, nodes = (entries.integer(f"{name}", name.replace("-", "_")) for name in ("nproc-per-node", "nnodes"))
    return ParsedConfig(
        settings=settings, workload=workload, model=model, spare=spare,
        accumulation=None if "global_batch" in workload else 1,
        devices=processes * (nodes or 1) if processes else None,
        stage_layers=pipeline.layers, entry_names=_flag_names(source), model_entries=(*model_entries, missing),
        stack={"recomputes_attention": True} if recomputes_attention(entries) else {},
        findings=(*pipeline.findings, *_unsupported_findings(entries, source, layers), *_missing_flags(entries, source, missing)),
    )  # fmt: skip


def _flag_names(source: Source) -> dict[str, str]:
    """The flag of each setting; of several possible flags, the one that the source has."""
    alternatives = {
        "reshard_after_forward": ("use-torch-fsdp2", *FSDP), "precision": ("fp16",), "recompute": ("recompute-activations",),
        "pp_virtual_stages": (LAYERS_PER_STAGE, LIST), "pp_split": (*NAMED, *COUNTED),
    }  # fmt: skip
    found = {
        name: next((alternative for alternative in names if source.has(alternative)), SETTING_ENTRIES[name])
        for name, names in alternatives.items()
    }
    return SETTING_ENTRIES | {name: flag for name, flag in found.items() if not source.has(SETTING_ENTRIES[name])}


def _sharding(entries: Entries, settings: Mapping[str, KnobValue]) -> tuple[dict[str, KnobValue], str]:
    """Settings of sharding over data ranks, and the axis that takes the remaining devices."""
    stage = 0
    if entries.enabled("use-torch-fsdp2"):
        stage = 2 if entries.enabled("torch-fsdp2-no-reshard-after-forward") else 3
    elif entries.enabled(*FSDP):
        stated_stage = entries.choice(STRATEGIES, "data-parallel-sharding-strategy")
        stage = STRATEGIES["optim_grads_params"] if stated_stage is None else stated_stage
    elif entries.enabled("use-distributed-optimizer"):
        stage = 1
    found: dict[str, KnobValue] = {"no_sync": stage < 2 or int(settings["pp"]) > 1}
    if stage or int(settings["cp"]) > 1 or int(settings["ep"]) > 1:
        found["reshard_after_forward"] = stage == 3
    if entries.enabled("use-tp-pp-dp-mapping"):
        found["axis_order"] = "dp_replicate.dp_shard.pp.cp.tp"
    instances = entries.integer("num-distributed-optimizer-instances") or 1
    if stage and instances > 1:
        found["dp_replicate"] = instances
    return found, "dp_shard" if stage or int(settings["ep"]) > 1 else "dp_replicate"


def _dtypes_and_experts(entries: Entries) -> dict[str, KnobValue]:
    """Reduce dtype, float8, optimizer offload, implementation of experts, and overlap of their exchanges."""
    half = entries.enabled("grad-reduce-in-bf16") if entries.enabled("bf16") else entries.enabled("fp16")
    half = half and not entries.enabled("accumulate-allreduce-grads-in-fp32")
    found: dict[str, KnobValue] = {"reduce_dtype": "bf16" if half else "fp32"}
    if entries.get("fp8-format", "fp8-hybrid", "fp8-e4m3"):
        found["float8"] = entries.choice(RECIPES, "fp8-recipe") or "tensorwise"
        gathers = entries.enabled("fp8-param-gather")
        found["float8_all_gather"] = gathers and found["float8"] == "tensorwise"
    if entries.enabled("optimizer-cpu-offload"):
        found["offload"] = "optimizer"
        found["pin_memory"] = not entries.enabled("no-pin-cpu-grads", "no-pin-cpu-params")
    if entries.enabled("moe-grouped-gemm"):
        found["grouped_gemm"] = True
    if entries.enabled("moe-router-enable-expert-bias"):
        found["expert_balance"] = "bias"
    if entries.enabled("overlap-moe-expert-parallel-comm"):
        found["ep_overlap"] = True
    return found


def _layers(entries: Entries, settings: Mapping[str, KnobValue], layers: int) -> dict[str, KnobValue]:
    """Settings of how layers are split over ranks and recomputed."""
    split, sequences = int(settings["tp"]) > 1, entries.enabled("sequence-parallel")
    found: dict[str, KnobValue] = {"sequence_parallel": split and sequences, "loss_parallel": split}
    stage = max(1, layers // (int(settings["pp"]) * int(settings["pp_virtual_stages"])))
    found |= recompute_settings(entries, stage)
    if int(settings["cp"]) > 1:
        kind = entries.choice({"p2p": "alltoall", "all_gather": "allgather", "a2a": "", "a2a+p2p": ""}, "cp-comm-type")
        found["cp_rotate"] = kind or "alltoall"
    return found


def _workload(entries: Entries) -> dict[str, int | str]:
    """Sequence length, global batch, precision and optimizer; all parameters are trained."""
    found: dict[str, int | str] = {"train": "full", "precision": "fp32"}
    for flag in ("bf16", "fp16"):
        if entries.enabled(flag):
            found["precision"] = flag
    for name, flag in (("seq_len", "seq-length"), ("global_batch", "global-batch-size")):
        if number := entries.integer(flag, flag.replace("seq", "encoder-seq")):
            found[name] = number
    found["optimizer"] = entries.choice(OPTIMIZERS, "optimizer") or "adamw"
    states = {entries.choice(TYPES, name) or "fp32" for name in ("exp-avg-dtype", "exp-avg-sq-dtype")}
    if states == {"bf16"} and found["optimizer"] == "adamw":
        found["optimizer"] = "adamw_bf16"
    return found


def _unsupported_findings(entries: Entries, source: Source, layers: int) -> Iterator[Diagnostic]:
    """Findings on flags that no setting expresses."""
    for name, effect in {**UNPRICED_ENTRIES, **_approximated(entries, layers)}.items():
        if entries.enabled(name):
            yield unsupported_entry(source, name, effect)


def _approximated(entries: Entries, layers: int) -> dict[str, str]:
    """Flags with values that settings express only approximately, with their effect."""
    found = approximated_recomputation(entries, layers)
    if entries.number("optimizer-offload-fraction") not in (None, 1.0):
        found["optimizer-offload-fraction"] = "a part of the optimizer stays on the devices"
    if entries.get("fp8-recipe") in ("mxfp8", "blockwise", "custom"):
        found["fp8-recipe"] = "scales are of blocks; priced as scales of rows"
    if entries.get("cp-comm-type") in ("a2a", "a2a+p2p"):
        found["cp-comm-type"] = "heads are exchanged, which is not a ring"
    if entries.get("outer-dp-sharding-strategy") == "optim":
        found["outer-dp-sharding-strategy"] = "replicas share the optimizer's states as well"
    if entries.get("main-params-dtype") == "fp16" or {"fp16", "fp8"} & {
        entries.get("exp-avg-dtype"),
        entries.get("exp-avg-sq-dtype"),
    }:
        found["use-precision-aware-optimizer"] = "the optimizer's states are smaller than in fp32"
    if entries.get("optimizer") in ("lion", "soap"):
        found["optimizer"] = "the size of its states is not known; priced as Adam's"
    return found


def _missing_flags(entries: Entries, source: Source, missing: str) -> Iterator[Diagnostic]:
    """Findings on missing flags without which the program differs from what is priced."""
    ranks, sharded = entries.integer(DEGREES["ep"]) or 1, entries.enabled("use-distributed-optimizer", "use-torch-fsdp2", *FSDP)
    if entries.enabled("deepspeed"):
        text = "deepspeed: Megatron-DeepSpeed shards by its ZeRO stage; the price is that of a plan without it"
        yield finding("FMT-002", text, "measure it if it matters", source, "deepspeed", about="deepspeed_config.zero_stage")
    yield from refused_recomputation(entries, source)
    if missing:
        text = f"the file does not state {missing}: that of GPT-2 is assumed"
        yield finding("FMT-003", text, f"write --{missing}, or give --model", source, about=missing)
    if not (entries.enabled("overlap-grad-reduce", "overlap_grad_reduce", "use-torch-fsdp2", *FSDP)):
        text = "overlap-grad-reduce is missing: gradients are reduced after the backward pass; the price overlaps them with it"
        yield finding("FMT-002", text, "write --overlap-grad-reduce", source, DEGREES["tp"], about="overlap-grad-reduce")
    if (ranks > 1 or (entries.integer(DEGREES["cp"]) or 1) > 1) and not sharded:
        text = "use-distributed-optimizer is missing: each rank keeps all optimizer states; the price shards them"
        entry = DEGREES["ep" if ranks > 1 else "cp"]
        yield finding("FMT-002", text, "write --use-distributed-optimizer", source, entry, about="use-distributed-optimizer")
    if ranks > 1 and entries.get("moe-token-dispatcher-type") in (None, "allgather"):
        text = "the tokens of all ranks are gathered for the experts; they are priced as exchanged by alltoall"
        about = "moe-token-dispatcher-type"
        yield finding("FMT-002", text, f"write --{about} alltoall", source, DEGREES["ep"], about=about)


NEEDS = (
    f"{SCRIPT}: set {CHECKOUT} to a checkout of Megatron-LM (in a job by --env), or copy train.sh into one",
    "data: --data-path in the place of --mock-data",
    "tokenizer: --tokenizer-type and --tokenizer-model in the place of NullTokenizer",
    "weights: --load of a checkpoint; without it they are random",
    learning_rate_need("--lr"),
    "steps and checkpoints: --train-iters is the placeholder 1000; without --save FOLDER --save-interval N nothing is kept",
)
PLACEHOLDERS = (
    Placeholder(input="data", text="  --mock-data\n", filled="  --data-path={}\n", need=NEEDS[1]),
    Placeholder(
        input="tokenizer", text="  --tokenizer-type=NullTokenizer\n", need=NEEDS[2],
        filled="  --tokenizer-type=HuggingFaceTokenizer\n  --tokenizer-model={}\n",
    ),
    Placeholder(
        input="weights", text=f"  --lr={LEARNING_RATE}\n", filled=f"  --lr={LEARNING_RATE}\n  --load={{}}\n", need=NEEDS[3],
    ),
)  # fmt: skip


def write(plan: Plan, reasons: Mapping[str, str]) -> ExportedFiles:
    """A start script with the arguments of the program of this name."""
    program, notes = find_program("megatron-lm"), setting_notes(plan, reasons, ("cuda_connections",))
    assert program is not None
    facts = plan_facts(plan)
    given = {f"environment.{CHECKOUT}": ".", "steps": "1000", "seed": "234", PER_NODE: str(plan.cluster.gpus_per_node)}
    given[megatron_stages.STAGES] = megatron_stages.stage_list(plan.stage_layers)
    _, *words = program.arguments(facts, given)
    start = next(index for index, word in enumerate(words) if word.endswith(".py"))
    stated = [(word, _setting(word, notes)) for word in words[start + 1 :]]
    arguments = [((word,), notes.get(name, "")) for word, name in stated]
    other_notes = (text for name, text in notes.items() if name not in dict(stated).values())
    command = ("torchrun", *torchrun(plan), Shell(f'"${{{CHECKOUT}:-.}}/{SCRIPT}"'))
    exported = {name: value.filled(facts, given) for name, value in program.environment.items()} | environment(plan)
    text = start_script(plan, command, arguments, about=(*header_lines(plan), "", *other_notes), environment=exported)
    files = (File(name="train.sh", text=text, runs=True),)
    return ExportedFiles(
        files=files, command=("bash", "train.sh"), needs=NEEDS, user_files=(SCRIPT,), user_folder=CHECKOUT,
        placeholders=PLACEHOLDERS,
    )  # fmt: skip


def _setting(word: str, notes: Mapping[str, str]) -> str:
    """The setting with a note that a flag states; empty without one."""
    flag = word.partition("=")[0].removeprefix("--")
    return next((name for name, entry in SETTING_ENTRIES.items() if entry == flag and name in notes), "")


LAUNCHERS = (
    "AFTER_SCRIPT", "BEFORE_SCRIPT", "ENV_VARS.*", "LAUNCHER", "METRICS", "MODE", "TEST_TYPE",
    "account", "capture*", "container*", "cpus*", "error", "exclusive", "export", "force*overwrite", "gpus*", "gres*",
    "job-name", "kill-on-bad-exit", "label", "local*addr*", "log*dir", "mail*", "master*", "max*restarts", "mem",
    "monitor*interval", "mpi", "node*rank", "nodes", "ntasks*", "output", "partition", "rdzv*", "redirects", "role", "sample",
    "standalone", "start*method", "tasks*per*node", "tee", "time", "trace",
)  # fmt: skip
"""Flags of torchrun, Slurm and containers in the same script, and headings of the functional tests."""

IGNORED_ENTRIES = (
    *LAUNCHERS,
    # data, tokenizers, evaluation, logs, checkpoints
    "*checkpoint*", "*ckpt*", "*data*path*", "*log*", "*tensorboard*", "*tokenizer*", "*valid*", "async-save", "auto-detect*",
    "blend*", "data*", "dataloader*", "decoder-seq-length", "dist-ckpt*", "eod*", "eval*", "exit*", "full-validation",
    "load*", "merge-file", "mid-level*", "mmap*", "mock-data", "multiple-validation*", "no-create*", "no-load*", "no-mmap*",
    "no-save*", "num-dataset*", "num-workers", "object-storage*", "one-logger*", "override-opt*", "per-split*", "reset*",
    "retro*", "s3*", "save*", "short-seq*", "special*", "split", "te-rng-tracker", "test-*", "train-data*", "use-persistent*",
    "vocab-extra*", "vocab-file", "wandb*",
    # learning, steps and randomness
    "adam*", "apply-*", "attention-dropout", "attention-softmax*", "calculate-per-token-loss", "clip-grad", "decoder-num*",
    "decoupled*", "embedding-init*", "encoder-num*", "end-weight*", "finetune", "hidden-dropout", "hysteresis",
    "init-method*", "initial-loss*", "iteration", "loss-scale*", "lr*", "max-position*", "min-loss*", "min-lr",
    "moe-input-jitter*", "moe-router-bias*", "moe-router-dtype", "moe-router-load*", "moe-z-loss*", "mscale*", "mtp-loss*",
    "muon*", "no-position-embedding", "no-query-key*", "no-rope*", "no-weight-decay*", "normalization", "override*",
    "perform*", "qk-clip*", "rope-scaling*", "rotary-interleaved", "rotary-percent", "rotary-scaling*", "rotary-seq*", "seed",
    "sgd*", "start-weight*", "tiktoken*", "train-iters", "train-samples", "use-checkpoint*", "use-rope-scaling",
    "use-rotary*", "weight-decay*",
    # implementation of kernels and collectives, which prices assume anyway
    "*deterministic*", "*fusion", "accumulate*", "align-*", "attention-backend", "barrier*", "bias-*", "check-*",
    "cross-entropy*", "ddp*", "defer-*", "delay*", "disable-*", "distributed*", "empty-unused*", "enable-experimental",
    "enable-ft*", "enable-gloo*", "expert-tensor*", "external-cuda*", "first-last*", "flash-decode", "fp8-*", "fsdp-*",
    "high-priority*", "inference*", "init-model*", "keep-fp8*", "lazy-mpu*", "local-rank", "manual-gc*", "megatron-fsdp-*",
    "microbatch-group*", "moe-enable*", "moe-extended*", "moe-flex*", "moe-permute*", "moe-router-force*", "moe-router-pre*",
    "moe-shared-expert-overlap", "moe-token*", "moe-use*", "nccl*", "no-align*", "no-async*", "no-bias*", "no-check*",
    "no-gradient*", "no-initialization", "no-masked*", "no-overlap*", "no-persist*", "no-scatter*", "num-bytes*",
    "num-layers-at*", "overlap-*", "overlap_*", "profile*", "record*", "rerun*", "result-rejected*", "router*", "skip-train",
    "straggler*", "suggested*", "test-mode", "timing*", "tp-comm-*", "transformer-impl", "use-cpu-init*", "use-flash*",
    "use-legacy*", "use-mcore*", "use-mpi*", "use-nccl*", "use-precision*", "use-pytorch*", "use-ring*", "use-te*",
    "use-torch-optimizer*", "use-tp*",
)  # fmt: skip

FORMAT = Format(
    name="megatron-lm", title="Megatron-LM's arguments, core 0.20", recognises=recognises, read=read,
    write=write, ignores=IGNORED_ENTRIES, listed="megatron-lm",
)  # fmt: skip
