"""A rank that measures a machine like ``strategist profile``, with small sizes; started by the test of the machine profile."""

import sys

from strategist_runtime.machine import communication, compute, profile
from strategist_runtime.rank_process import leave

if __name__ == "__main__":
    compute.BUDGET_SECONDS = communication.BUDGET_SECONDS = 0.0
    compute.MATMUL_SIZES["cpu"], compute.SEQUENCES["cpu"], communication.MESSAGES["cpu"] = (32, 64), (64,), (2**12,)
    profile.main(sys.argv[1:])
    leave()
