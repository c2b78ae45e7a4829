"""Tokens/s of the runtime's techniques against loops written by hand: python benchmarks/techniques.py [NAME ...]

Both make the same calls of torch, in turn, in the same processes; the ratio is that of each pair, with its 95 % interval.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from math import prod
from pathlib import Path
from statistics import median

import numpy as np
import torch

from strategist import api
from strategist.contract import codec
from strategist.contract.options import KnobValue
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload

DEGREES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
RANK = Path(__file__).parent / "plain" / "rank.py"
FSDP: dict[str, KnobValue] = {"dp_shard": 2, "reshard_after_forward": True}
CASES: dict[str, dict[str, KnobValue]] = {
    "ddp": {"dp_replicate": 2},
    "fsdp": FSDP,
    "fsdp, accumulation": {**FSDP, "micro_batch": 1, "no_sync": True},
    "fsdp, bf16": {**FSDP, "precision": "bf16"},
    "fsdp, recompute full": {**FSDP, "recompute": "full"},
    "fsdp, offload": {**FSDP, "offload": "all"},
    "hsdp": {"dp_replicate": 2, **FSDP},
    "cp ring": {"cp": 2, "reshard_after_forward": True},
    "ep": {**FSDP, "ep": 2, "expert_balance": "auxiliary_loss", "grouped_gemm": False, "token_alignment": 1},
    "tp, sp, loss parallel": {"tp": 2, "sequence_parallel": True, "loss_parallel": True},
    "fsdp x tp": {**FSDP, "tp": 2, "sequence_parallel": True, "loss_parallel": True},
    "pp 1f1b": {"pp": 2, "micro_batch": 2, "pp_schedule": "1f1b"},
}
WORKLOAD = Workload(seq_len=128, global_batch=8, precision="fp32")
RESAMPLES = 2000


def plan_of(settings: dict[str, KnobValue]) -> Plan:
    """The plan of a small model on some ranks of this machine, everything fixed."""
    precision = str(settings.get("precision", "fp32"))
    degrees: dict[str, KnobValue] = dict.fromkeys(DEGREES, 1)
    knobs: dict[str, KnobValue] = {
        "recompute": "none",
        "compile": False,
        "offload": "none",
        "no_sync": False,
        "optimizer_kernel": "foreach",
    }
    plain: dict[str, KnobValue] = {"sequence_parallel": False, "loss_parallel": False} if settings.get("tp", 1) != 1 else {}
    data_ranks = int(settings.get("dp_replicate", 1)) * int(settings.get("dp_shard", 1))
    micro_batch = {"micro_batch": WORKLOAD.global_batch // data_ranks}
    fix: dict[str, KnobValue] = {**degrees, **knobs, **plain, **micro_batch, **settings}
    fix.pop("precision", None)
    workload = replace(WORKLOAD, precision=precision)
    model = MIXTURE if "ep" in settings else MODEL
    request = Request(model=str(model), gpus=f"{ranks_of(settings)}xcpu", workload=workload, fix=fix, backend="native")
    return api.plan(request).plans[0]


def ranks_of(settings: dict[str, KnobValue]) -> int:
    """The product of the degrees."""
    return prod(int(value) for name, value in settings.items() if name in DEGREES)


def written(**config: object) -> Path:
    """A Hugging Face config.json of a small model."""
    shape = {
        "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 2048,
        "tie_word_embeddings": False,
    }  # fmt: skip
    target = Path(tempfile.mkdtemp()) / "config.json"
    target.write_text(json.dumps({**shape, **config}), encoding="utf-8")
    return target


MODEL = written(architectures=["LlamaForCausalLM"], model_type="llama", intermediate_size=704)
MIXTURE = written(
    architectures=["MixtralForCausalLM"], model_type="mixtral", intermediate_size=352, num_local_experts=8, num_experts_per_tok=2
)


def interval(ratios: np.ndarray) -> tuple[float, float]:
    """Of the median, by resampling."""
    generator = np.random.default_rng(0)
    medians = np.median(generator.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


def measured(name: str, settings: dict[str, KnobValue]) -> dict[str, list[list[float]]]:
    """Seconds and losses of both ways, as rank 0 saw them."""
    with tempfile.TemporaryDirectory() as folder:
        plan, target = Path(folder) / "plan.json", Path(folder) / "seconds.json"
        codec.save(plan_of(settings), plan)
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks_of(settings)}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        command = [*launch, str(RANK), name, str(plan), str(target)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        figures: dict[str, list[list[float]]] = json.loads(target.read_text(encoding="utf-8"))
        return figures


def main(names: list[str]) -> None:
    """One line a technique."""
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, gloo, one thread a rank")
    for name in names or CASES:
        found = measured(name, CASES[name])
        trainer_seconds, loop_seconds = np.array(found["seconds"]).T
        low, high = interval(loop_seconds / trainer_seconds)
        tokens = WORKLOAD.tokens_per_step / median(trainer_seconds)
        trainer_losses, loop_losses = np.array(found["losses"]).T
        same = np.allclose(trainer_losses, loop_losses, rtol=1e-4)
        ratio = f"{median(loop_seconds / trainer_seconds):.3f} of by hand [{low:.3f}, {high:.3f}]"
        print(f"{name:24} {ranks_of(CASES[name])} ranks {tokens:9,.0f} tokens/s, {ratio}, equal losses: {same}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
