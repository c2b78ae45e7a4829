"""Questions to agents, the tool calls whose replies contain the answer, and the correct answer.

An argument such as ``$0.best.plan`` stands for that field of the first call's reply.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Answers = list[dict[str, Any]]
Calls = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question; ``answer`` extracts the answer from the replies alone; ``right`` is the correct value or a predicate. ``long``:
    the question takes a second or more, and other questions call the same tools."""

    text: str
    calls: Calls
    answer: Callable[[Answers], Any]
    right: Any
    long: bool = False


CARD = "protocol: 1\nStrategyCard:\n  id: TP-101\n  status: preview\n  module: tp\n  intent: None.\n  policies:\n    - id: no\n"
DEEPSPEED = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1,
             "gradient_accumulation_steps": 1}  # fmt: skip
"""Content of ds.json in the workspace."""

EIGHT = {"model": "8b", "gpus": "8xH100"}
SHARDED = {"model": "8b", "gpus": "2x8xA100", "fix": ["dp_shard=16", "reshard_after_forward=true"]}
PIPELINE = {"model": "8b", "gpus": "8xA100", "fix": ["pp=4", "pp_schedule=1f1b", "micro_batch=4"]}
TINY = {"model": "tiny", "gpus": "2xcpu", "seq_len": 128, "global_batch": 8, "backend": "native"}
BEST = "$0.best.plan"


def kind(answers: Answers, name: str) -> list[dict[str, Any]]:
    """The items of one kind in all answers."""
    return [item for answer in answers for item in answer["items"] if item.get("kind") == name]


def changes(answers: Answers) -> list[str]:
    """Settings of card proposals that are predicted to fit, in order."""
    return [name for item in answers[1]["items"] if item["speedup"] for name in item["changes"]]


def section(answers: Answers, name: str) -> list[Any]:
    """The entries of a section of a card."""
    return [item["entry"] for item in answers[0]["items"] if item["section"] == name]


def days(answers: Answers) -> float:
    """Predicted days of training."""
    found: float = kind(answers, "training")[0]["days"]
    return found


QUESTIONS = (
    Question(
        text="Does full training of 70B fit 16 x 24 GB by itself?",
        calls=(("plan", {"model": "70b", "gpus": "2x8x24GB"}),),
        answer=lambda said: said[0]["verdict"].startswith("It fits"), right=False, long=True,
    ),
    Question(
        text="And with what would it run there?",
        calls=(("plan", {"model": "70b", "gpus": "2x8x24GB"}),),
        answer=lambda said: said[0]["best"]["host_memory_gib_per_node"], right=lambda memory: 500 < memory < 1100,
        long=True,
    ),
    Question(
        text="Does it with 128 GiB of host memory a node?",
        calls=(("plan", {"model": "70b", "gpus": "2x8x24GB", "host_memory": "128GiB"}),),
        answer=lambda said: said[0]["best"], right=None, long=True,
    ),
    Question(
        text="Does QLoRA of 70B fit one H100?",
        calls=(("plan", {"model": "70b", "gpus": "1xH100", "train": "qlora"}),),
        answer=lambda said: said[0]["best"]["fits"], right=True,
    ),
    Question(
        text="Which change lets 32B on 8 x 24 GB do with the least host memory and the same devices?",
        calls=(("plan", {"model": "32b", "gpus": "8x24GB"}),),
        answer=lambda said: min(kind(said, "alternative"), key=lambda way: way["host_memory_gib_per_node"])["arguments"],
        right="train: lora",
    ),
    Question(
        text="How many 4090s hold 32B with nothing offloaded?",
        calls=(("plan", {"model": "32b", "gpus": "8x24GB"}), ("more", {"handle": "$0.handle"})),
        answer=lambda said: [way["arguments"] for way in kind(said, "alternative") if "gpus: " in way["arguments"]],
        right=["gpus: 4x8xRTX4090; fix: offload=none"],
    ),
    Question(
        text="How much state does full training of 8B with AdamW keep?",
        calls=(("plan", EIGHT),),
        answer=lambda said: float(re.findall(r"keeps ([0-9.]+) GiB", said[0]["verdict"])[0]),
        right=lambda size: abs(size - 8.03e9 * 16 / 2**30) < 0.5,
    ),
    Question(
        text="Which setting first when the communication ratio is 0.4 on 16 sharded A100s?",
        calls=(
            ("plan", SHARDED),
            ("advise", {"plan": BEST, "measured": {"comm_ratio": 0.4, "exposed_comm_ratio": 0.4, "peak_memory_gib": 40}}),
        ),
        answer=lambda said: changes(said)[0], right="knobs.reshard_after_forward",
    ),
    Question(
        text="And which when the bubble of a pipeline is 0.4?",
        calls=(("plan", PIPELINE), ("advise", {"plan": BEST, "measured": {"bubble_ratio": 0.4}})),
        answer=lambda said: changes(said)[0],
        right=lambda name: name in ("knobs.micro_batch", "knobs.pp_schedule", "knobs.pp_virtual_stages"),
    ),
    Question(
        text="What to give up first when memory is nearly full?",
        calls=(("plan", SHARDED), ("advise", {"plan": BEST, "measured": {"outcome": "oom", "peak_memory_gib": 77.5}})),
        answer=lambda said: {name for item in said[1]["items"] for name in item["changes"]},
        right=lambda names: bool(names & {"knobs.recompute", "knobs.micro_batch", "options.reshard_root"}),
    ),
    Question(
        text="Why can llama3-8b not run with TP 16?",
        calls=(("plan", {"model": "8b", "gpus": "2x8xA100"}), ("why_not", {"plan": BEST, "setting": "tp=16"})),
        answer=lambda said: (said[1]["obstacle"], said[1]["text"]), right=("illegal", "tp 16 must divide kv_heads 8"),
    ),
    Question(
        text="What does full recomputation cost at best?",
        calls=(("plan", EIGHT), ("why_not", {"plan": BEST, "setting": "recompute=full"})),
        answer=lambda said: (said[1]["obstacle"], said[1]["instead"]["tokens_per_second"] < said[0]["best"]["tokens_per_second"]),
        right=("slower", True),
    ),
    Question(
        text="Why is there no tensor parallelism on 8 x 4090?",
        calls=(("plan", {"model": "32b", "gpus": "8x24GB"}), ("explain", {"plan": BEST, "setting": "tp"})),
        answer=lambda said: said[1]["items"][0]["cards"][0].split()[0], right="MESH-003",
    ),
    Question(
        text="Is 8B on 8 H100s faster with TP 8 than sharded?",
        calls=(("plan", EIGHT), ("plan", {**EIGHT, "fix": ["tp=8"]})),
        answer=lambda said: said[1]["best"]["step_seconds"] < said[0]["best"]["step_seconds"], right=False,
    ),
    Question(
        text="Which card says when gathered parameters are kept?",
        calls=(("search_cards", {"query": "keep gathered parameters reshard_after_forward"}),),
        answer=lambda said: said[0]["items"][0]["id"], right="FSDP-001",
    ),
    Question(
        text="What is the risk of keeping them?",
        calls=(("read_card", {"id": "FSDP-001"}),),
        answer=lambda said: str(section(said, "risks")), right=lambda text: "Peak memory grows" in text,
    ),
    Question(
        text="Have measurements contradicted that card more often than confirmed it?",
        calls=(("read_card", {"id": "FSDP-001"}),),
        answer=lambda said: said[0]["contradicted"] > said[0]["confirmed"], right=False,
    ),
    Question(
        text="How many cards are about pipelines?",
        calls=(("list_cards", {"module": "pp"}),),
        answer=lambda said: said[0]["modules"]["pp"] == len(said[0]["items"]) > 3, right=True,
    ),
    Question(
        text="Is this card sound, and if not, in which line?",
        calls=(("lint_card", {"text": CARD + "      forbid: {no_such_setting: 2}\n      because: No.\n"}),),
        answer=lambda said: (said[0]["sound"], [item["line"] for item in said[0]["items"] if item["level"] == "error"]),
        right=(False, [9]),
    ),
    Question(
        text="Will my DeepSpeed file train 8B on 8 x 24 GB?",
        calls=(("check_config", {"file": "ds.json", "model": "8b", "gpus": "8x24GB"}),),
        answer=lambda said: said[0]["fits"], right=False,
    ),
    Question(
        text="And what would, that DeepSpeed can say?",
        calls=(("check_config", {"file": "ds.json", "model": "8b", "gpus": "8x24GB"}),),
        answer=lambda said: (said[0]["best"]["fits"], "deepspeed" in said[0]["best"]["runs_on"]), right=(True, True),
    ),
    Question(
        text="How many days do a trillion tokens of 8B take on 8 H100s?",
        calls=(("plan", {**EIGHT, "tokens": "1T"}),),
        answer=lambda said: days(said) * 86400 * said[0]["best"]["tokens_per_second"] / 1e12,
        right=lambda times: 0.99 < times < 1.1,  # checkpoints and failures come on top
    ),
    Question(
        text="What does that cost at 2.50 dollars an hour?",
        calls=(("plan", {**EIGHT, "tokens": "1T", "price": 2.5}),),
        answer=lambda said: kind(said, "training")[0]["price_dollars"] / (days(said) * 24 * 8 * 2.5),
        right=lambda share: 0.98 < share < 1.02,
    ),
    Question(
        text="What takes most of the step of 8B on 8 H100s, and most of the memory?",
        calls=(("plan", EIGHT), ("more", {"handle": "$0.handle"})),
        answer=lambda said: [next(iter(kind(said, "parts")[0][name])) for name in ("step_seconds", "memory_gib")],
        right=lambda names: names[0] == "matmul" and names[1] in ("activations", "logits", "optimizer"),
    ),
    Question(
        text="What does 24GB stand for?",
        calls=(("plan", {"model": "32b", "gpus": "8x24GB"}), ("more", {"handle": "$0.handle"})),
        answer=lambda said: any("24GB is resolved to RTX4090" in item["text"] for item in kind(said, "assumed")), right=True,
    ),
    Question(
        text="Does Mixtral on 8 H100s want its experts split between ranks?",
        calls=(("plan", {"model": "mixtral-8x7b", "gpus": "8xH100"}),),
        answer=lambda said: ", ep " in said[0]["best"]["settings"], right=True, long=True,
    ),
    Question(
        text="Give me 8B on 8 H100s for TorchTitan.",
        calls=(
            ("plan", {**EIGHT, "backend": "torchtitan"}),
            ("export", {"plan": BEST, "format": "torchtitan", "folder": "titan"}),
        ),
        answer=lambda said: (said[1]["command"], [item for item in said[1]["items"] if item["level"] == "error"]),
        right=(["bash", "train.sh"], []),
    ),
    Question(
        text="Is the predicted memory of a tiny model on two ranks proved?",
        calls=(("plan", TINY), ("simulate", {"plan": BEST, "ranks": [0]})),
        answer=lambda said: (said[1]["verdict"], said[1]["items"][0]["peak_memory_gib"] / said[1]["predicted_gib"]),
        right=lambda proof: proof[0] == "fits" and 0.8 < proof[1] < 1.25, long=True,
    ),
    Question(
        text="I measured 0.62 s for it: is that written down?",
        calls=(("plan", TINY), ("record_evidence", {"study": "s", "plan": BEST, "measured": {"step_seconds": 0.62}})),
        answer=lambda said: (said[1]["imported"], said[1]["duplicates"]), right=(1, 0),
    ),
    Question(
        text="May I run a trial here?",
        calls=(("describe_machine", {}),),
        answer=lambda said: said[0]["trials_left"] > 0, right=False,
    ),
)  # fmt: skip
