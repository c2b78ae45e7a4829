"""Simulates one rank: ``python -m strategist_runtime.simulate PLAN.json --rank R --out RANK.json``."""

import argparse
import gc
import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.contract.simulation import SimulatedRank
from strategist.errors import StrategistError
from strategist_runtime.rank_process import leave


def main(arguments: Sequence[str]) -> None:
    """Writes the simulated rank; for an unsupported plan it prints one line and exits with code 2."""
    parser = argparse.ArgumentParser(prog="strategist_runtime.simulate", description=__doc__)
    parser.add_argument("plan", type=Path, help="a plan as strategist writes it")
    parser.add_argument("--rank", type=int, required=True, help="the rank to stand in for")
    parser.add_argument("--out", type=Path, required=True, help="where to write what it showed")
    parser.add_argument("--whole", action="store_true", help="trace every layer and micro-batch")
    parser.add_argument(
        "--model-code", default="", metavar="MODULE:FUNCTION", help="what gives the model, in the place of the plan's"
    )
    options = parser.parse_args(arguments)
    try:
        plan = codec.load(Plan, options.plan)
        codec.save(_simulated(plan, options.rank, options.model_code, whole=options.whole), options.out)
    except StrategistError as error:
        print(error, file=sys.stderr)
        leave(2)
    leave()


def _simulated(plan: Plan, rank: int, code: str, *, whole: bool) -> SimulatedRank:
    # Imported here, so that a plan that cannot be read costs no import of torch.
    gc.disable()
    from strategist_runtime.simulate import unsupported, user_model
    from strategist_runtime.simulate.rank import simulate

    gc.freeze()  # modules are never freed, and are most of what each collection would look at
    gc.enable()
    warnings.simplefilter("ignore")  # torch repeats its warnings when the plan runs
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # errors are printed once, in one line
    try:
        return simulate(plan, rank, whole=whole, user_model=user_model.find_model_function(code) if code else None)
    except StrategistError:
        raise
    except Exception as error:  # torch's operators can raise anything on tensors without values
        raise unsupported.unsupported_operator(error, plan, code) from error


if __name__ == "__main__":
    main(sys.argv[1:])
