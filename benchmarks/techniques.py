"""Tokens/s of the runtime's techniques against loops written by hand: python benchmarks/techniques.py

Both make the same calls of torch, in turn, in the same processes; the ratio is that of each pair, with its 95 % interval.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import torch

from strategist import api
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload

RANK = Path(__file__).parent / "plain" / "rank.py"
CASES = {
    "ddp": {"dp_replicate": 2},
    "fsdp": {"dp_shard": 2},
    "tp, sp, loss parallel": {"tp": 2, "sequence_parallel": True, "loss_parallel": True},
    "pp 1f1b": {"pp": 2, "micro_batch": 2, "pp_schedule": "1f1b"},
}
WORKLOAD = Workload(seq_len=128, global_batch=8, precision="fp32")
RESAMPLES = 2000


def plan_of(settings: dict[str, object]) -> Plan:
    """The plan of a small model on two ranks of this machine, everything fixed."""
    degrees = dict.fromkeys(("pp", "dp_replicate", "dp_shard", "cp", "tp"), 1)
    knobs = {
        "recompute": "none",
        "compile": False,
        "offload": "none",
        "postpone_gradient_sync": False,
        "optimizer_kernel": "foreach",
    }
    plain = {"sequence_parallel": False, "loss_parallel": False} if settings.get("tp", 1) != 1 else {}
    micro_batch = {"micro_batch": WORKLOAD.global_batch // (settings.get("dp_replicate", 1) * settings.get("dp_shard", 1))}
    fix = {**degrees, **knobs, **plain, **micro_batch, **settings}
    request = Request(model=str(MODEL), gpus="2xcpu", workload=WORKLOAD, fix=fix, backend="native")
    return api.plan(request).plans[0]


MODEL = Path(tempfile.mkdtemp()) / "config.json"
MODEL.write_text(json.dumps({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256,
    "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 704, "vocab_size": 2048, "tie_word_embeddings": False,
}), encoding="utf-8")  # fmt: skip


def interval(ratios: np.ndarray) -> tuple[float, float]:
    """Of the median, by resampling."""
    generator = np.random.default_rng(0)
    medians = np.median(generator.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


def main() -> None:
    """One line a technique."""
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, gloo, 2 ranks, one thread each")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    for name, settings in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "seconds.json"
            codec.save(plan_of(settings), Path(folder) / "plan.json")
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(RANK)]
            done = subprocess.run(
                [*launch, name, str(Path(folder) / "plan.json"), str(target)],
                env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.exit(done.stderr)
            found = json.loads(target.read_text(encoding="utf-8"))
        ours, by_hand = np.array(found["seconds"]).T
        low, high = interval(by_hand / ours)
        tokens = WORKLOAD.tokens_per_step / median(ours)
        same = np.allclose(*np.array(found["losses"]).T, rtol=1e-4)
        ratio = f"{median(by_hand / ours):.3f} of by hand [{low:.3f}, {high:.3f}]"
        print(f"{name:24} {tokens:9,.0f} tokens/s, {ratio}, equal losses: {same}")


if __name__ == "__main__":
    main()
