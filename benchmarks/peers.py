"""Candidates priced a second, beside other estimators: python benchmarks/peers.py

GPT-3 175B on 64 x 8 A100 of 80 GB, 1,536 sequences of 2,048 tokens; each prices the same 168 candidates again and again, in a
process of one thread, in turn with the others. Calculon stops early on 100 of them, which do not fit by its count.

The others are installed into .frameworks on first use; one that cannot be installed is left out, with the reason. llm-analysis
comes without its pins, transformers < 5 and huggingface-hub < 0.15, which it needs for downloads only: with them pip tries thirty
releases of transformers and ends at one whose tokenizers has no wheel from Python 3.12 on. Calculon is not on PyPI, where its name
is another project's.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

FOLDER = Path(__file__).parents[1] / ".frameworks"
ROUNDS, LEAST_SECONDS = 5, 3.0
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


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """A program that prices candidates: the script that does it, the packages that it needs, and the commit of a repository."""

    name: str
    script: str
    packages: tuple[str, ...] = ()
    repository: str = ""
    commit: str = ""

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    def install(self) -> None:
        """Installs it, unless it is installed."""
        if (self.folder / "ready").exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps"]
        output_of([*pip, "--target", str(self.folder), *self.packages])
        if self.repository:
            clone = str(self.folder / "clone")
            output_of(["git", "clone", "--quiet", self.repository, clone])
            output_of(["git", "-C", clone, "checkout", "--quiet", self.commit])
        (self.folder / "ready").touch()

    def rate(self) -> float:
        """Candidates a second of processor time."""
        given = f"import json\nPOINTS = json.loads({json.dumps(POINTS)!r})\n{BATCH=}\n{SEQ_LEN=}\n{LEAST_SECONDS=}\n"
        path = os.pathsep.join(map(str, (self.folder, self.folder / "clone")))
        return float(output_of([sys.executable, "-c", given + self.script + TIMED], PYTHONPATH=path).split()[-1])


OWN = Estimator(name="strategist", script=OURS)
OTHERS = (
    Estimator(name="llm-analysis", script=LLM_ANALYSIS, packages=("llm-analysis==0.2.2", "fire==0.7.1", "termcolor==3.3.0")),
    Estimator(
        name="Calculon",
        script=CALCULON,
        packages=("psutil==7.2.2",),
        repository="https://github.com/calculon-ai/calculon",
        commit="caa4b11",
    ),
)


class CommandError(Exception):
    """A command failed: the last line that it printed."""


def output_of(command: list[str], **variables: str) -> str:
    """What a command prints, run with one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads, **variables}, check=False)
    except OSError as error:
        raise CommandError(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        raise CommandError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return done.stdout


def main() -> None:
    """A line each, with its ratio to ours."""
    estimators = [OWN]
    for other in OTHERS:
        try:
            other.install()
            other.rate()
            estimators.append(other)
        except CommandError as error:
            print(f"candidates priced a second by {other.name}: left out, {error}")
    rates = [[estimator.rate() for estimator in estimators] for _ in range(ROUNDS)]
    medians = [median(found) for found in zip(*rates, strict=True)]
    for estimator, found in zip(estimators, medians, strict=True):
        ratio = "" if estimator is OWN else f"; strategist {medians[0] / found:,.0f} times as many"
        print(f"candidates priced a second by {estimator.name}: {found:,.0f}{ratio}")


if __name__ == "__main__":
    main()
