"""Candidates priced a second by others, side by side: peers.py [--llm-analysis PYTHON] [--calculon PYTHON]

GPT-3 175B on 64 x 8 A100 of 80 GB, 1,536 sequences of 2,048 tokens; each prices the same 168 candidates again and again, in a
process of one thread, in turn with the others. PYTHON is an interpreter that imports it: ``pip install llm-analysis`` (0.2.2), or
a clone of github.com/calculon-ai/calculon on PYTHONPATH (caa4b11; it needs pandas and psutil). What is not named is left out.
"""

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from statistics import median

ROUNDS, LEAST_SECONDS = 3, 3.0
GPUS, BATCH, SEQ_LEN = 512, 1536, 2048
POINTS = [
    {"tp": tp, "pp": pp, "dp": GPUS // (tp * pp), "rows": rows, "recompute": recompute}
    for tp, pp, rows, recompute in product((1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4), ("none", "selective", "full"))
    if BATCH % (GPUS // (tp * pp) * rows) == 0
]

OURS = """
import numpy as np
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.workload import Workload
from strategist.cost.price import price
from strategist.expr.columns import row_of, table
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model

model, on = resolve_model("gpt3-175b").shape, resolve_cluster("64x8xA100-80GB")
work = Workload(seq_len=SEQ_LEN, global_batch=BATCH)
made = []
for p in POINTS:
    knobs = Knobs(micro_batch=p["rows"], recompute=p["recompute"], sequence_parallel=p["tp"] > 1)
    made.append(Candidate(layout=Layout(tp=p["tp"], pp=p["pp"], dp_shard=p["dp"]), knobs=knobs))
columns = table([row_of(candidate, candidate.accumulation(work)) for candidate in made])
columns = columns.take(np.resize(np.arange(columns.rows), 100 * columns.rows))

def run():
    price(model, on, work, columns)
    return columns.rows
"""
LLM_ANALYSIS = """
import logging
from llm_analysis import analysis, config
logging.disable(logging.CRITICAL)
model, gpu = config.get_model_config_by_name("megatron-lm-175b"), config.get_gpu_config_by_name("a100-sxm-80gb")
again = {"none": 0, "selective": 1, "full": 2}

def run():
    for p in POINTS:
        layout = config.ParallelismConfig(tp_size=p["tp"], pp_size=p["pp"], dp_size=p["dp"], sp_size=p["tp"], ep_size=1)
        tool = analysis.LLMAnalysis(model, gpu, parallelism_config=layout, flops_efficiency=0.5)
        try:
            tool.training(
                batch_size_per_gpu=p["rows"], global_batch_size=BATCH, seq_len=SEQ_LEN, ds_zero=analysis.DSZeRO(3),
                activation_recomputation=analysis.ActivationRecomputation(again[p["recompute"]]),
            )
        except AssertionError:
            pass  # it does not fit
    return len(POINTS)
"""
CALCULON = """
import logging
from pathlib import Path
import calculon
from calculon.llm import Llm
from calculon.system import System
home = Path(calculon.__file__).parents[1]
app = json.loads((home / "models/gpt3-175B.json").read_text())
net = json.loads((home / "systems/a100_80g.json").read_text())
base = json.loads((home / "examples/3072_t4_p64_d12_mbs4_full.json").read_text())
logger = logging.getLogger("quiet")
logger.setLevel(logging.CRITICAL)
again = {"none": "none", "selective": "attn_only", "full": "full"}

def run():
    for p in POINTS:
        chosen = {
            **base, "num_procs": p["tp"] * p["pp"] * p["dp"], "tensor_par": p["tp"], "pipeline_par": p["pp"], "data_par": p["dp"],
            "batch_size": BATCH, "microbatch_size": p["rows"], "activation_recompute": again[p["recompute"]],
        }
        model = Llm(Llm.Application(app), logger)
        try:
            model.compile(System(net), Llm.Execution.from_json(chosen))
            model.run(System(net))
        except Llm.Error:
            pass  # it does not fit
    return len(POINTS)
"""
TIMED = """
import time
run()
begin, count = time.process_time(), 0
while time.process_time() - begin < LEAST_SECONDS:
    count += run()
print(count / (time.process_time() - begin))
"""


def rate(python: str, script: str) -> float:
    """Candidates a second of CPU time.

    Raises:
        SystemExit: the interpreter cannot do it; the last line of what it printed.
    """
    given = f"import json\nPOINTS = json.loads({json.dumps(POINTS)!r})\n{BATCH=}\n{SEQ_LEN=}\n{LEAST_SECONDS=}\n"
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [python, "-c", given + script + TIMED]
    hint = "; see the first lines of benchmarks/peers.py"
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads}, check=True)
    except OSError as error:
        raise SystemExit(f"{python}: {error.strerror}{hint}") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{python}: {(error.stderr.strip().splitlines() or [str(error.returncode)])[-1]}{hint}") from None
    return float(done.stdout.split()[-1])


def main() -> None:
    """A line each, with its ratio to ours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llm-analysis", metavar="PYTHON")
    parser.add_argument("--calculon", metavar="PYTHON")
    options = parser.parse_args()
    ways = {"strategist": (sys.executable, OURS)}
    ways |= {"llm-analysis": (options.llm_analysis, LLM_ANALYSIS)} if options.llm_analysis else {}
    ways |= {"Calculon": (options.calculon, CALCULON)} if options.calculon else {}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            rates[name].append(rate(*way))
    own = median(rates["strategist"])
    for name, found in rates.items():
        print(f"{name:14}{median(found):12,.0f} candidates/s   {own / median(found):8,.1f} x")


if __name__ == "__main__":
    main()
