"""Simulates one rank: ``python -m strategist_runtime.simulate PLAN.json --rank R --out RANK.json``."""

import argparse
import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.contract.simulation import SimulatedRank
from strategist.errors import StrategistError
from strategist_runtime.process import leave


def main(arguments: Sequence[str]) -> None:
    """Writes what the rank showed; what can't be simulated ends with one line and exit code 2."""
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
    # Here and not above: a plan that can't be read costs no import of torch.
    from strategist_runtime.simulate import unsupported, user_model
    from strategist_runtime.simulate.rank import simulate

    warnings.simplefilter("ignore")  # torch warns again when the plan runs
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # what it logs of an error is said once, and shorter
    try:
        return simulate(plan, rank, whole=whole, own=user_model.find_model_function(code) if code else None)
    except StrategistError:
        raise
    except Exception as error:  # the border to torch, whose operators fail in any way where there are no values
        raise unsupported.unsupported_operator(error, plan, code) from error


if __name__ == "__main__":
    main(sys.argv[1:])
