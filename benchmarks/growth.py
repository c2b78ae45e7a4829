"""How processor time and memory grow: of a plan with the devices, and of pricing with the candidates.

python benchmarks/growth.py
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import resource
import subprocess
import sys
from time import process_time

import numpy as np

from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.cost.price import price
from strategist.profiles.situation import situation
from strategist.search.candidate_tables import candidate_table
from strategist.search.space import space
from strategist.search.space_constraints import SpaceConstraints

DEVICES = (8, 64, 512, 4096, 16384)
CANDIDATES = (100_000, 1_000_000, 10_000_000)
CHUNK = 65_536


def main() -> None:
    """One process a line, so that each has its own peak."""
    if len(sys.argv) > 1:
        kind, number = sys.argv[1], int(sys.argv[2])
        print(one_plan(number) if kind == "plan" else prices(number))
        return
    for kind, numbers in (("plan", DEVICES), ("price", CANDIDATES)):
        for each in numbers:
            subprocess.run([sys.executable, __file__, kind, str(each)], check=True)


def one_plan(devices: int) -> str:
    """A plan of 70b on so many H100s, its batch growing with them."""
    from strategist import api

    begin = process_time()
    request = Request(model="70b", gpus=f"{devices}xH100", workload=Workload(global_batch=max(64, devices)))
    found = api.plan(request)
    return f"a plan of 70b on {devices:,} H100: {process_time() - begin:.2f} s, {peak()}, {found.candidates:,} candidates"


def prices(candidates: int) -> str:
    """So many candidates of 70b on 128 H100 priced chunk by chunk, the best one kept."""
    request_situation = situation(Request(model="70b", gpus="16x8xH100", workload=Workload(global_batch=256)))
    model, on, workload = request_situation.model, request_situation.cluster, request_situation.request.workload
    columns = candidate_table(space(model, on, workload, SpaceConstraints())).take(np.arange(500_000))
    begin, done, best = process_time(), 0, np.inf
    while done < candidates:
        at = np.arange(done, done + min(CHUNK, candidates - done)) % columns.rows
        best = min(best, float(price(model, on, workload, columns.take(at)).step_seconds.min()))
        done += len(at)
    seconds = process_time() - begin
    return (
        f"{candidates:,} candidates of 70b priced in chunks of {CHUNK:,}: {seconds:.2f} s, {peak()}, {done / seconds:,.0f} a second"
    )


def peak() -> str:
    """The most memory that this process had."""
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"


if __name__ == "__main__":
    main()
