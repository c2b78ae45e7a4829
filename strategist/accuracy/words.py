"""What the columns of text say of a run, in the words that reports use."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Words:
    """A setting that a pattern stands for."""

    pattern: re.Pattern[str]
    value: str


def _words(*pairs: tuple[str, str]) -> tuple[Words, ...]:
    return tuple(Words(pattern=re.compile(pattern, re.IGNORECASE), value=value) for pattern, value in pairs)


STACKS = _words(
    (r"nanotron", "nanotron"),
    (r"torchtitan|torchao|automodel", "torchtitan"),
    (r"megatron-deepspeed|bigscience|vtrain", "megatron-deepspeed"),
    (r"megatron-lm \(|oneflow|libai|mist\b|dlperf", "megatron-2021"),
    (r"korthikanti|april2021|README 2022", "megatron-2021"),
    (r"megatron|nemo|mcore", "megatron-core"),
    (r"llmq|cuda graphs; custom c\+\+", "llmq"),
    (r"roundpipe", "hf-trainer"),
    (r"llm-foundry|composer|mosaicml", "llm-foundry"),
    (r"galvatron", "galvatron"),
    (r"deepspeed|zero-infinity", "deepspeed"),
    (r"fsdp_qlora|litgpt|torchtune|atorch|hf trainer|swift|llama-factory|transformers|accelerate", "hf-trainer"),
)
"""Frameworks, the most particular names first."""

TRAIN = _words(
    (r"qlora|\bnf4\b|\bfp4\b|4-bit|bnb\.|quantization (bnb|hqq|awq|gptq)|\bhqq\b|\b(awq|gptq)\b", "qlora"), (r"\blora\b", "lora")
)

OFFLOAD = _words(
    (r"roundpipe \(|mobius|\bstreamed\b", "streamed"),
    (
        r"cpuoffload\(offload_params=true|cpu offload of parameters|offload_params|parameter cpu offload|"
        r"zero-infinity|params? offload",
        "all",
    ),
    (
        r"cpu offload of (the )?optimizer|optimizer[- ](cpu )?offload|cpu optimizer|\(cpu,|deepspeed cpu offload|\(cpu offload",
        "optimizer",
    ),
)

PURE_HALF = re.compile(
    r"pure[_ ]bf16|bf16[- ]true|bf16 (weights|params|parameters) and|torch_dtype bfloat16|bf16 stochastic|full bf16", re.I
)
"""Parameters, gradients and optimizer states all in bf16."""

OTHER_TECHNIQUES = re.compile(
    r"naive|nn\.dataparallel|device_map|not an llm|unet|micro-benchmark|per-layer|forward time of one", re.I
)
FLAGS = re.compile(r"WARNING|ANOMALY|STALE|UNCLEAR|inconsistent")
HARDWARE_FLOPS = re.compile(r"\bHFU\b|counts recompute|recompute FLOPs|all operations")


def first(words: tuple[Words, ...], text: str, otherwise: str) -> str:
    """The value of the first of ``words`` that ``text`` holds."""
    return next((item.value for item in words if item.pattern.search(text)), otherwise)


_RATE = re.compile(r"([0-9.]+)\s*(Gb/s|Gbps|Gbit/s|GB/s)(.{0,24})", re.IGNORECASE)


def rate_bytes_per_second(text: str) -> tuple[float, bool] | None:
    """A link's rate in a description such as ``800 Gb/s RDMA``, and whether it is each GPU's own; None where there is none."""
    if match := _RATE.search(text):
        bits = "GB/s" not in match[2]
        return float(match[1]) * 1e9 / (8 if bits else 1), "per GPU" in match[3]
    return None
