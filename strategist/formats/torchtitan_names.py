"""TorchTitan's names and values, with strategist's names for them."""

import re

from strategist.contract.knobs import Candidate

PARALLEL = {
    "pp": "parallelism.pipeline_parallel_degree",
    "dp_replicate": "parallelism.data_parallel_replicate_degree",
    "dp_shard": "parallelism.data_parallel_shard_degree",
    "cp": "parallelism.context_parallel_degree",
    "tp": "parallelism.tensor_parallel_degree",
    "ep": "parallelism.expert_parallel_degree",
    "etp": "parallelism.expert_tensor_parallel_degree",
}
"""Entries of degrees; 0.3 has none for etp."""

SCHEDULES = {
    "GPipe": "gpipe", "1F1B": "1f1b", "LoopedBFS": "looped_bfs", "Interleaved1F1B": "interleaved_1f1b",
    "InterleavedZeroBubble": "interleaved_zero_bubble", "ZBVZeroBubble": "zbv_zero_bubble", "DualPipeV": "dual_pipe_v",
    "PipelineScheduleSingle": "1f1b", "PipelineScheduleMulti": "interleaved_1f1b", "_PipelineScheduleRuntime": "interleaved_1f1b",
    "gpipe": "gpipe", "1f1b": "1f1b", "interleaved_1f1b": "interleaved_1f1b", "flexible_interleaved_1f1b": "interleaved_1f1b",
}  # fmt: skip
"""Names of torch's get_schedule_class, those of action files with the nearest schedule; in lower case before 0.0.2."""

POLICY = {"none": "none", "selective": "selective", "full": "full", "memory-budget": "budget", "memory_budget": "budget"}

WORDS = {
    "kernel": {"fused": "fused", "foreach": "foreach", "for-loop": "for_loop", "fused_opt_states_bf16": "fused"},
    "balance": {"headtail": "head_tail", "ptrr": "head_tail", "none": "none", "None": "none"},
    "rotate": {"allgather": "allgather", "alltoall": "alltoall"},
    "dtype": {"float32": "fp32", "bfloat16": "bf16"},
}

DTYPES = {"bf16": ("float32", "bfloat16"), "bf16-true": ("bfloat16", "bfloat16"), "fp32": ("float32", "float32")}
"""Dtypes of parameters and of matmuls, by precision."""

KERNELS = {"fused": "fused", "foreach": "foreach", "for_loop": "for-loop"}

UNPRICED_ENTRIES: dict[str, tuple[tuple[object, ...], str]] = {
    "parallelism.module_fqns_per_model_part": (("none", "None", []), "stages are cut by hand"),
    "parallelism.pipeline_parallel_schedule_csv": (("", "none", "None"), "the order of the pipeline is a file's"),
    "parallelism.pipeline_parallel_split_points": (("", []), "stages are cut by hand"),
    "parallelism.context_parallel_load_balancer": (("headtail", "none", "None"), "blocks of the mask are dealt out by their work"),
    "parallelism.enable_fsdp_symm_mem": ((False, "False"), "shards travel through symmetric memory"),
    "parallelism.expert_parallel_comm_backend": (("standard",), "DeepEP sends a token once to each rank"),
    "fault_tolerance.enable": ((False,), "groups of replicas average their parameters now and then"),
}
"""Entries that no setting expresses: their neutral values, and the effect of other values."""

SETTING_ENTRIES = {
    **PARALLEL,
    "micro_batch": "training.local_batch_size",
    "global_batch": "training.global_batch_size",
    "seq_len": "training.seq_len",
    "precision": "training.mixed_precision_param",
    "optimizer": "optimizer.name",
    "optimizer_kernel": "optimizer.implementation",
    "reshard_after_forward": "parallelism.fsdp_reshard_after_forward",
    "reshard_root": "parallelism.fsdp_reshard_after_forward",
    "sequence_parallel": "parallelism.enable_sequence_parallel",
    "loss_parallel": "parallelism.disable_loss_parallel",
    "recompute": "activation_checkpoint",
    "recompute_budget_percent": "activation_checkpoint.memory_budget",
    "offload": "training.enable_cpu_offload",
    "compile": "compile.enable",
    "async_tp": "compile.enable_async_tensor_parallel",
    "float8": "model.converters",
    "pp_schedule": "parallelism.pipeline_parallel_schedule",
    "pp_virtual_stages": "parallelism.pipeline_parallel_layers_per_stage",
    "cp_load_balance": "parallelism.context_parallel_load_balancer",
    "cp_rotate": "parallelism.context_parallel_rotate_method",
}

REMOVED = (
    "checkpoint.async_mode", "checkpoint.create_seed_checkpoint", "checkpoint.enable_checkpoint", "checkpoint.export_dtype",
    "checkpoint.interval_type", "checkpoint.last_save_model_weights_only", "checkpoint.model_weights_only",
    "float8.enable_float8_linear", "float8.filter_fqns", "float8.force_recompute_fp8_weight_in_bwd", "float8.moe_fqns_prototype",
    "float8.precompute_float8_dynamic_scale_for_fsdp", "job.print_args", "job.use_for_integration_test", "lr_scheduler.lr_min",
    "metrics.enable_color_printing", "metrics.rank_0_only", "model.norm_type", "model.tokenizer_path", "mx.filter_fqns",
    "mx.recipe_name", "mx.use_fp8_dim1_cast_triton_kernel", "optimizer.fused", "profiling.run_profiler",
    "profiling.profile_every_x_iter", "training.dataset", "training.dataset_path", "training.deterministic", "training.seed",
    "training.warmup_steps", "validation.enabled",
)  # fmt: skip
"""Names of releases before 0.2.2 that no plan depends on."""

LAUNCHER = re.compile(r"[A-Z_]+|rdzv\w*|(local|log|master|max|node|redirects|role|standalone|start|tee)(_\w*)?")
"""Flags of torchrun, and environment variables."""

IGNORED_ENTRIES = (
    *REMOVED, "activation_checkpoint.*", "checkpoint.*", "comm.*", "compile.*", "config", "CONFIG_FILE", "dataloader.*", "debug.*",
    "dump_folder",
    "experimental.custom_import", "fault_tolerance.*", "hf_assets_path", "job.*", "loss.*", "lr_scheduler.*", "memory_estimation.*",
    "metrics.*", "model.*", "module", "optimizer.*", "override.*", "parallelism.context_parallel_*",
    "parallelism.pipeline_parallel_*", "parallelism.spmd_backend", "profiler.*", "profiling.*", "quantize.*", "tokenizer.*",
    "training.gc_*", "training.max_norm", "training.steps", "validat*",
)  # fmt: skip
"""Entries that no plan depends on; entries of pipelines are included, because they are read only with a pipeline."""


def reshard_word(candidate: Candidate) -> str:
    """Value of ``fsdp_reshard_after_forward``. ``default`` keeps the root gathered, and with a pipeline all parameters."""
    if candidate.knobs.reshard_after_forward is False:
        return "never"
    return "always" if candidate.options.reshard_root or candidate.layout.pp > 1 else "default"
