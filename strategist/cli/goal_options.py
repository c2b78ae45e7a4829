"""Options for the goals of a study: several objectives, and constraints on measurements."""

import argparse

from strategist.cli.parser import Parser, above_zero, share
from strategist.contract.goals import Goals
from strategist.contract.request import OBJECTIVES, Request


def add(parser: Parser) -> None:
    """Adds the options; without them a study keeps its goals."""
    group = parser.add_argument_group("goals")
    group.add_argument(
        "--pareto", metavar="GOALS", help=f"further objectives, for a Pareto front with --objective: {', '.join(OBJECTIVES)}"
    )
    group.add_argument(
        "--headroom", type=share("--headroom"), metavar="SHARE",
        help="share of the device's memory that the best plan must leave free, as measured, e.g. 10%%",
    )  # fmt: skip
    group.add_argument(
        "--least-tokens-per-second", type=above_zero("--least-tokens-per-second"), metavar="N",
        help="tokens/s that the best plan must reach, as measured",
    )  # fmt: skip
    group.add_argument(
        "--most-cost",
        type=above_zero("--most-cost"),
        metavar="DOLLARS",
        help="most US dollars per million tokens with the best plan",
    )


def goals(options: argparse.Namespace, request: Request) -> Goals | None:
    """The goals that the options describe; None without options.

    Raises:
        InputError: a goal is invalid.
    """
    given = {name: getattr(options, name) for name in ("headroom", "least_tokens_per_second", "most_cost")}
    if options.pareto is None and not any(value is not None for value in given.values()):
        return None
    other_objectives = () if options.pareto is None else tuple(name.strip() for name in options.pareto.split(","))
    return Goals(
        objectives=(request.objective, *other_objectives), **{name: value for name, value in given.items() if value is not None}
    )
