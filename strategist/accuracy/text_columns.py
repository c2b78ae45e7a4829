"""Patterns for the text columns of published rows: they map the words of reports to settings."""

import re
from functools import lru_cache

from strategist.frozen import frozen


@frozen
class Words:
    """A pattern, and the value of the setting that it stands for."""

    pattern: re.Pattern[str]
    value: str


def _words(*pairs: tuple[str, str]) -> tuple[Words, ...]:
    return tuple(Words(pattern=re.compile(pattern, re.IGNORECASE), value=value) for pattern, value in pairs)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def matched_value(patterns: tuple[Words, ...], text: str, default: str) -> str:
    """The value of the first of ``patterns`` whose pattern matches ``text``; ``default`` if none does."""
    return next((item.value for item in patterns if item.pattern.search(text)), default)


# torch supports B200 since 2.7, torchtitan experts since 2025-04.
STACKS = _words(
    (r"parallelization[ _-]layouts|2311\.05610|hagemann|aleph[ _-]?alpha", "aleph-alpha-scaling"),
    (r"nanotron", "nanotron"),
    (r"nano-?gpt", "nanogpt"),
    (r"\bds_z[0-9]", "deepspeed"),
    (r"llama-factory", "hf-trainer"),
    (r"galvatron", "galvatron"),
    (r"llmq|cuda graphs; custom c\+\+", "llmq"),
    (r"torchtitan[^;]*\((2025-(0[4-9]|1)|2026)|torchao moe training", "torchtitan-2025"),
    (r"torchtitan.*b[23]00\b|b[23]00\b.*torchtitan", "torchtitan-2025"),
    (r"torchtitan|torchao|automodel", "torchtitan"),
    (r"\bdeepspeed\.sh|deepspeed \(transformers", "deepspeed"),
    (r"megatron-deepspeed|bigscience|vtrain|gpt-?neox", "megatron-deepspeed"),
    (r"framework oneflow|; libai; ", "oneflow"),
    (r"megatron-lm \(|oneflow|libai|\bmist\b|dlperf", "megatron-2021"),
    (r"korthikanti|april2021|README 2022", "megatron-2021"),
    (r"^nemo|[ /]nemo\b|megatron-bridge|mlperf training", "nemo"),
    (r"megatron|mcore|\bhai-llm\b", "megatron-core"),
    (r"roundpipe \(|mobius \(", "roundpipe"),
    (r"deepspeed|zero-infinity|\bDS 3D\b", "deepspeed"),
    (r"llm-foundry|composer|mosaicml", "llm-foundry"),
    (r"torchtune", "torchtune"),
    (r"litgpt", "litgpt"),
    (r"atorch", "atorch"),
    (r"\btrl\b", "trl"),
    (r"fsdp_qlora|\bms-swift\b|transformers 4\.[34][0-9]\b", "transformers-2024"),
    (r"axolotl", "axolotl"),
    (r"roundpipe|\b(hf|hugging ?face) trainer|swift|transformers|accelerate|llama-recipes", "hf-trainer"),
)
"""Frameworks, the most specific patterns first."""


@lru_cache(maxsize=1024)
def stack_name(text: str) -> str:
    """The framework that a row's text names; torch if it names none. Several columns depend on it."""
    return matched_value(STACKS, text, "torch")


SEQUENCE_PARALLEL_STACKS = ("nanotron", "torchtitan", "megatron-core", "nemo", "torch")
"""Stacks that use sequence parallelism with tensor parallelism by default. Those older than arXiv 2205.05198 do not support it;
the remaining ones need a setting.
"""

DEFAULT_SAVED_OPERATIONS = "matmul+attention+collectives"
"""Operations that selective recomputation saves; the share of matmuls is a trait of the framework."""

RECOMPUTED_EXCHANGES = "matmul+attention"
"""Operations that are saved where feed-forwards are recomputed, with their collectives."""

GATHERED_PIPELINE_STACKS = ("torchtitan",)
"""Stacks whose pipeline stages keep parameters gathered (``reshard_after_forward_policy`` default: not with pipelines)."""

INTERLEAVED = _pattern(r"(?<!no )(?<!non-)\binterleaved 1f1b|\bpp overlap\b")
"""Notes of an interleaved pipeline: in Megatron, only this schedule overlaps its transfers with compute."""

EP_OVERLAP = _pattern(r"\b(a2a|ep comm) overlap on\b|overlap[-_]moe[-_]expert[-_]parallel[-_]comm=true")
"""Exchanges between experts overlap with another micro-batch, which Megatron's pipelines support in interleaved schedules only."""

DISPATCH = _words(
    (r"\bdispatcher (nccl )?all-to-all|moe[-_]token[-_]dispatcher[-_]type=alltoall", "choices"),
    (r"(?<!no )\bdeepep\b", "ranks"),
)
"""Dispatchers that send a token once for each of its experts, instead of once to each rank (DeepEP, HybridEP)."""

TWO_LAYER_STAGE_STACKS = ("megatron-core", "nemo", "torch")
"""Stacks whose interleaved stages have two layers each by default."""

GATHERED_LOGITS_STACKS = ("aleph-alpha-scaling",)
"""Stacks whose tensor-parallel ranks each compute the loss over the whole vocabulary."""

HALF_REDUCE_STACKS = ("hf-trainer", "axolotl", "transformers-2024", "galvatron")
"""Stacks on torch's FSDP1, which reduces gradients in the compute dtype unless another is set (MixedPrecision)."""

FP32_REDUCE_STACKS = ("aleph-alpha-scaling",)
"""Stacks that keep gradients in half precision, but reduce them in fp32."""

TRAIN_MODES = _words(
    (r"qlora|\bnf4\b|\bfp4\b|4-bit base|bnb\.|quantization (int4|bnb|hqq|awq|gptq)|\bhqq\b|\b(awq|gptq)\b", "qlora"),
    (r"(?<![a-z])lora(?![a-z])|\badapter( v2)?;", "lora"),
)
"""Training mode; searched outside of parentheses, which in reports are about other rows."""

ADAPTERS = _words((r"\(lora[^)]*qkv\+proj", "attention"))
"""Linears with adapters, as a run states them."""

FLOAT8_BASE = _pattern(r"\(lora[^)]*base frozen\).*mlperf training(?!.*amd instinct)")
"""A frozen base is stored in float8, and so is the input of the feed-forward's activation, in NVIDIA's code for MLPerf, which
other submitters use, too (``fp8_params``, ``activation_func_fp8_input_store``: conf/megatron_gpt_peft_tuning_config.yaml with
FP8 and FP8_ACT). AMD's code has its own configuration.
"""

LORA_RANK = _pattern(r"\b(?:lora[ _-])?(?:rank|dim|r)[ =]+([0-9]+)")
TRAINED_PARAMETERS = _pattern(r"\btrainable(?: parameters)?:? ([0-9][0-9,]*)")

OFFLOAD = _words(
    (r"roundpipe \(|mobius|\bstreamed\b", "streamed"),
    (
        r"cpuoffload\(offload_params=true|cpu offload of parameters|cpu optimizer and parameter offload|optimizer \+ parameter cpu"
        r"|zero-3 cpu offload"
        r"|offload_params|zero-infinity|params? offload|cpu offload with fused optimizer",
        "all",
    ),
    (
        r"cpu offload of (the )?optimizer|optimizer[- ](cpu )?offload|cpu optimizer|\(cpu,|deepspeed cpu offload|\(cpu offload"
        r"|offload-opt-v",
        "optimizer",
    ),
)

ATTENTION_COLUMN = _words(
    (r"^\s*(0|no|none|false|off|unfused|eager|naive|native|torch|math|megatron|local|softmax)\b", "unfused"),
    (r"^\s*(1|yes|true|on|flash|fa|fused|cudnn|te|sdpa|xformers|flex|triton)", "flash"),
)
"""Values of the column on attention kernels, matched at their start."""

ATTENTION_WORDS = _words(
    (r"no flash[ -]?att|flash[_ -]?att(entio)?n?\s*=\s*(false|0)|math backend|transformer-impl=local", "unfused"),
    (r"flash[_ -]?att|\bfa[23]?\b|flexattn|flex attention", "flash"),
)

GRAPHS = _words(
    (r"cuda_graph=full_iteration", "step"),
    (r"cuda_graph=(transformer_engine|local)", "layers"),
    (r"cuda_graph=", "none"),
    (r"^container 2(6\.(0[6-9]|1)|[7-9])", "step"),
)
"""Kernels that CUDA graphs launch together; by default those of Megatron-Bridge's recipes from container 26.06 on."""

FUSED = _pattern(
    r"fused kernels|\bliger\b|flash[^;]*\+ ?rms"
    r"|(?<!no )(?<!without )(?<!w/o )rms[_ -]?norm[_ -]?(kernel|optimization)(?!\w*\s*[=:]\s*(false|0|no|off))"
)
"""Operations between matmuls run in fused kernels."""

RECOMPUTE_COLUMN = _words(
    (r"^(full|every[ _]layer|per[ _]layer|layer|all|block)", "full"),
    (r"^megatron_selective", "core_attention"),
    (r"^(selective_layer|alternate|every (2nd|second))", "every_second_layer"),
    (r"^selective", "selective"),
    (r"^(none|no|off|disabled)", "none"),
)
"""Values of the column on activation checkpointing."""

RECOMPUTE_WORDS = _words(
    (
        r"(?:no|without) (-*)?(gradient|activation|full)?[ _]?(checkpoint|recomput)"
        r"|(?:activation|gradient)[_ ]checkpointing:? (false|off)|disable_gradient_checkpointing",
        "none",
    ),
    (r"recompute_modules=\[\]", "none"),
    (r"recompute_modules=\['core_attn'\]", "core_attention"),
    (r"recompute_modules=\['|per-op (sac|ac)\b|selective (ac|activation)", "selective"),
    (r"(gradient|activation)[ _]checkpointing|full (checkpointing|recompute)", "full"),
)

RECOMPUTE_DEFAULTS = _words(
    (r"\btorchtune\b|\b(qwen3-32b|70b|405b)\b.*\btorchtitan\b", "full"),
    (r"\btorchtitan\b", "selective"),
)
"""Defaults of frameworks: ``enable_activation_checkpointing: True`` in torchtune's recipes; ``mode = selective`` in torchtitan's
job configuration, but ``full`` in those of its large models (models/qwen3/train_configs/qwen3_32b.toml).
"""
RECOMPUTE_FLAGS = re.compile(r"recompute-([a-z]+)")
RESIDUAL_OFFLOAD = _pattern(r"offload-residual")
MASTER_WEIGHT_OFFLOAD = _pattern(r"offload-master")
SHARDS_WEIGHTS = _pattern(r"--shard-weights")
SHARDS_GRADIENTS = _pattern(r"--shard-gradients")
GRADIENT_OFFLOAD = _pattern(r"offload-gradients")
"""Flags of llm.q: parts of a layer that are recomputed, the residual in host memory, and weights and gradients, which are sharded
independently (README).

Unsharded weights in bf16 are the master copy, so that offloading it moves nothing (src/models/llama_weights.cpp:
``WeightsMgrUnsharded``).
"""

OFFLOADED_LAYERS = _pattern(r"cpu_offloading_num_layers=([0-9]+)")
"""Number of layers whose activations are offloaded to host memory."""
RECOMPUTED_MODULES = _pattern(r"recompute_modules=\[([^\]]*)\]")
RECOMPUTED_FEED_FORWARD = ("mlp", "moe")
"""Megatron's modules whose recomputation repeats a layer's feed-forward, with exchanges between its experts (core/transformer:
``recompute_modules``); the other modules repeat elementwise kernels, or one matmul.
"""
TRANSFORMER_ENGINE_LAYERS = _pattern(r"transformer[ _-]?engine")
"""A plain loop over layers of Transformer Engine, which fuses norms, activations and casts to float8."""

PURE_BF16 = _pattern(
    r"pure[_ ]bf16|bf16[- ]true|bf16 (weights|params|parameters) and|torch_dtype bfloat16|bf16 stochastic|full bf16|bf16 master"
    r"|\btorchtune\b|\blitgpt\b|\bswift\b.*full-parameter|\bnemo[ -](performance|framework)[^;]*;.*\btask SFT\b"
)
"""Parameters, gradients and optimizer states are all bf16: as stated, or as in the recipes of torchtune and litgpt (``dtype:
bf16``, ``--precision bf16-true``).
"""

OPTIMIZERS = _words(
    (r"[48][- ]?bit", "adamw8bit"),
    (r"muon", "muon"),
    (r"\bsgd\b", "sgd"),
    (r"bf16 (m/v|states|moments)|anyprecision", "adamw_bf16"),
)

OPTIMIZER_IN_BACKWARD = _pattern(r"optimizer[_ ]in[_ ]b(ack)?wd|optimizer_in_backward|optimizer step into backward")
PRECISION_WORDS = _words((r"\bdtype:? fp32\b", "fp32"), (r"\bdtype:? bf16\b", "bf16"), (r"\bdtype:? fp16\b", "fp16"))

BF16_REDUCE = _pattern(
    r"grad-reduce-in-bf16=true|(bf16|fp16) (gradient )?reduc|gradients? (are )?reduced in (bf16|fp16)|MP Mode PURE"
)
BF16_GRADIENTS = _pattern(r"megatron-bridge perf|nemo performance|mlperf training")
"""Gradients are kept and reduced in bf16: as stated, or as in NVIDIA's performance recipes (Megatron-Bridge:
perf_recipes/_common.py).
"""

FP32_GRADIENTS = _pattern(r"fp32 (unsharded )?(gradient|grad)s?( accumulation| reduce)?|grads? fp32|accumulat\w* in fp32")
"""Gradients are kept in fp32, whatever the framework's default."""

NO_SYNC = _pattern(r"no_sync(\(\))? (on|accumulation)|under no_sync")
WHOLE_CHECKPOINTS = _pattern(r"\btorch (1\.\d+|2\.0)\b")
"""torch before 2.1, whose checkpoints compute all of a layer again."""
FP16_ACCUMULATION = _pattern(r"allow_fp16_accumulation\s*=\s*true")
"""A setting of torch's matmuls; frameworks with their own matmuls ignore it."""
ASYNC_OPTIMIZER = _pattern(r"\basync(hronous)? optimizer")
FUSED_LOSS = _pattern(r"fused linear cross|\bliger\b|LC-CE")
"""The head's matmul is fused into the loss (arXiv 2410.10989)."""

COMPILED_LOSS = _pattern(r"(?<!un)compil\w*[^;,]*\b(with|and) (its|the) loss\b|\bloss (is )?compiled\b")
"""A plain loop compiles the model's forward pass with the loss inside it."""

COMPILED_LOGIT_BYTES = 4.0
"""Bytes per logit of such a loss: logits and their gradient in half precision (profiles/stacks/nanogpt.yaml)."""

CHUNKED_LOSS = _pattern(r"(?<!un)chunked (cross[- ]entropy|nll|loss)")
UNCHUNKED_LOSS = _pattern(r"unchunked cross[- ]entropy|loss whole")
HEAD_CHUNKS = _pattern(r"(?:lm|loss)-?head-?chunks=([0-9]+)")
LOSS_CHUNKS = _pattern(r"([0-9]+) chunks of the logits")
DEFAULT_LOSS_CHUNKS, HALF_LOGIT_BYTES = 8, 2.0
"""Number of chunks of a chunked loss if a report does not state it (torchtune and torchtitan: ``num_output_chunks``,
``num_chunks``), and bytes that remain of each logit: the list of chunks is in half precision.
"""

TILE_TOKENS = _pattern(r"(?:feed-forward|mlp)s? tiled by ([0-9]+) tokens")
TILED = _pattern(r"\btiled[ _-]?mlp\b|sequence tiling|\balst\b|tiled_mlp")
DEFAULT_TILE_TOKENS = 4096
"""Tokens of a tile of feed-forwards that run in recomputed tiles. DeepSpeed's TiledMLP uses sequence length / hidden size tiles
(deepspeed/runtime/sequence_parallel/ulysses_sp.py).
"""

ATTENTION_KERNELS = _words(
    (r"\bfa1\b|flash[- ]?attention[- ]?1\b", "first"),
    (r"\bfa2\b|flash[- ]?attention[- ]?2\b", "portable"),
    (r"\bcudnn\b(?! shadow)|\bfa3\b|flash[- ]?attention[- ]?3", "tuned"),
)
"""Kernels of flash attention that the column on attention names."""

DOCUMENT_TOKENS = _pattern(r"documents of ([0-9]+) tokens")
"""Mean length of the documents that are packed into a sequence."""

FLEX_ATTENTION = _pattern(r"llama[ -]?4")
"""Models whose chunks torchtitan masks by FlexAttention (torchtitan/models/llama4: ``attn_backend="flex"``)."""

DIRECT_FLASH_ATTENTION = _pattern(r"^\s*(fa|flash)")
"""The column on attention names FlashAttention's own kernels. Megatron-LM before Megatron-Core called them without the checkpoint
around the core of attention (megatron/model/transformer.py of 2023: ``if not self.use_flash_attn``); Megatron-Core has it around
any kernel (core/transformer/attention.py: ``_checkpointed_attention_forward``).
"""

NOT_REENTRANT = _pattern(r"use_reentrant[ =:]+false|non-?reentrant")
"""Checkpoints that run a layer's backward pass within that of the whole model."""

ACTIVATION_OFFLOAD = _pattern(r"(?<!without )\b(gradient-checkpoint|activation) offload(ing)?\b")
"""Checkpointed activations are offloaded to host memory."""

UNSUPPORTED_TECHNIQUES = _pattern(
    r"nn\.dataparallel|not an llm|unet|micro-benchmark|(?<!wrap )per-layer (forward|time)|forward time of one|layertime"
    r"|activation[ _]offload|fine_grained_offloading|(?<!offload-opt-v,)offload-opt-m\b(?!,offload-opt-v| --offload-opt-v)"
)
"""Techniques that a plan cannot express, among them llm.q's with only the first of AdamW's moments in host memory; searched outside
of parentheses.
"""

NOT_A_BENCHMARK = _pattern(r"not a (tuned )?benchmark")
"""Times that the source itself does not call representative, such as those of continuous integration."""

UNRELIABLE = re.compile(r"WARNING|ANOMALY|STALE|UNCLEAR|LOW TRUST|inconsistent|not comparable|known performance regression")
ANALYTIC = _pattern(r"numbers look analytic|computed breakdown|is analytic")
"""The values were computed, not measured."""

HARDWARE_FLOPS_STACKS = ("megatron-2021", "oneflow", "megatron-deepspeed")
"""Stacks whose published FLOP/s include recomputation (arXiv 2104.04473, section 5.1, equation 3)."""

HARDWARE_FLOPS = re.compile(r"\bHFU\b|[Hh]ardware FLOP|counts? recomput|[Rr]ecomput\w+ FLOP|incl\w*\.? recomput")
RESERVED = _pattern(r"reserved|nvidia-smi")
PROCESS = _pattern(r"nvidia-smi")
ALLOCATED = _pattern(r"max_memory_allocated|max allocated|allocated peak|peak allocated|torch allocated")

MEMORY_LAST_STAGE = _pattern(r"last rank = last pp stage|\blast (pipeline )?stage only")
MEMORY_STAGE = _pattern(r"(?:pipeline stage|peak = stage) ([0-9]+)\b")
MEMORY_RANK = _pattern(r"; rank ([0-9]+)\b")
"""Rank or stage whose memory is published; by default the fullest stage."""

INT8_BASE = _pattern(r"quantization int8")

STATED_SEQ_LEN = _pattern(r"seq\w*[^;.]{0,40}default ([0-9]{3,7})\b")
VOCABULARY = _pattern(r"vocab[^;]*?\babout ([0-9.]+)k\b")
ACCUMULATION = _pattern(r"(?:grad(?:ient)?[ _-]?accum(?:ulation)?|accumulation|\bGA)[ =]+([0-9]+)")
MICRO_BATCHES = _pattern(r"\b([0-9]+) micro-?batches(?: per (?:accumulation )?step|[,)])")
MICRO_BATCH_PER_STAGE = _pattern(r"default(?: at \w+)? = pp degree")
"""The framework's default is as many micro-batches as stages."""

ACTUAL_BATCH = _pattern(r"=([0-9]+) != (?:GBS|global batch)|heading says GBS=([0-9]+)")
"""Global batch that a run really had, if the source's column states another one."""

HALF_LAYERS = _words(
    (r"attention[ -]only|[_-]attention-", "attention"),
    (r"\b(mlp|feed-forward|ffn)[ -]only|[_-]mlp-", "ffn"),
)
"""Profiles of layers with only one half: attention or feed-forward."""

TP_TIMES_PP = _pattern(r"model-parallel size \(TP x PP\) = ([0-9]+)")
EXPERT_WIDTH = _pattern(r"expert ffn(?: width)? ([0-9]+)")
SHARED_EXPERTS = _pattern(r"\b([0-9]+) shared experts?")
FIRST_DENSE_LAYERS = _pattern(r"first ([0-9]+) (?:layers )?dense|\b([0-9]+) dense (?:first )?layers")

_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_RATE = re.compile(r"([0-9.]+)\s*([TG])(b/s|bps|bit/s|B/s)(.{0,24})", re.IGNORECASE)
_PORTS = re.compile(r"([0-9]+)\s*x\b")
_OF_COMPUTE = re.compile(r"(?:Compute|PCIe-NIC):")
_SETTING = re.compile(r"(?<![\w.-])([A-Za-z][\w-]*)=([^\s;]+)")


def without_parentheses(text: str) -> str:
    """``text`` without its parts in parentheses."""
    return _IN_PARENTHESES.sub(" ", text)


def settings(text: str) -> dict[str, str]:
    """Settings in the form of a command line, such as ``num-query-groups=8``; names become lower case with underscores."""
    return {name.replace("-", "_").lower(): value.rstrip(",.)") for name, value in _SETTING.findall(text)}


def last_number(pattern: re.Pattern[str], text: str) -> float | None:
    """The number in the last match of ``pattern``, since reports begin with the general case; None without a match."""
    numbers = [group for match in pattern.finditer(text) for group in match.groups() if group]
    return float(numbers[-1].replace(",", "")) if numbers else None


@frozen
class Rate:
    """A link's rate as stated, summed over all ports of ``per``: ``gpu``, ``node``, or empty if not stated."""

    bytes_per_second: float
    per: str


def stated_rate(text: str) -> Rate | None:
    """The rate in a description such as ``800 Gb/s RDMA`` or ``8x ConnectX-7 400Gb/s``; of several networks, that of the compute
    network. None if there is none.
    """
    text = _OF_COMPUTE.split(text)[-1]
    match = _RATE.search(text)
    if match is None:
        return None
    ports = _PORTS.findall(text[: match.start()])
    rate = float(match[1]) * (1e12 if match[2] in "Tt" else 1e9) / (1 if match[3].startswith("B") else 8)
    per = "gpu" if "per GPU" in match[4] else "node" if ports or re.search("node|NIC", text) else ""
    return Rate(bytes_per_second=rate * int(ports[-1] if ports else 1), per=per)
