"""``strategist bench``: benchmarks of the search on published measurements."""

import argparse

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser, add_output, positive
from strategist.errors import InputError
from strategist.files import outputs
from strategist.report.page.svg_file import MADE_BY


def add(parser: Parser) -> None:
    """The commands of the group and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    text = "search published sweeps again: how many trials until one is near the best?"
    replay = commands.add_parser("replay", help=text, description=text[0].upper() + text[1:])
    replay.add_argument(
        "--data",
        metavar="PATH",
        help="a CSV file of published runs, a folder of them, or a history (.jsonl) of your own (default: the shipped ones)",
    )
    replay.add_argument("--samplers", metavar="LIST", help=f"of {', '.join(api.SAMPLERS)}; default all but gp, which takes an hour")
    replay.add_argument(
        "--seeds", type=positive("--seeds"), default=5, metavar="N", help="searches of each random sampler (default %(default)s)"
    )
    replay.add_argument("--transfer", action="store_true", help="search each sweep after a sweep of another model or on other GPUs")
    add_output(replay, "--plot", help="write the best so far against trials here, as SVG")
    replay.add_argument("--json", action="store_true", help="print JSON")
    replay.set_defaults(command=run_replay)


def run_replay(options: argparse.Namespace) -> int:
    """Prints the figures, and writes the plot if requested."""
    if options.transfer:
        return _run_transfer(options)
    if options.plot:
        outputs.check(options.plot, marker=MADE_BY, force=options.force)
    names = tuple(filter(None, options.samplers.split(","))) if options.samplers is not None else None
    document = api.replay(
        options.data, samplers=names, seeds=options.seeds,
        on_sweep=lambda name, done, count: render.print_note(f"{done} of {count}: {name}"),
    )  # fmt: skip
    from strategist.report.replay import replayed_plot, replayed_report

    if options.plot:
        outputs.write(options.plot, replayed_plot(document), marker=MADE_BY, force=options.force)
    if options.json:
        render.show_json(document)
    else:
        render.show(replayed_report(document))
    return 0


def _run_transfer(options: argparse.Namespace) -> int:
    if options.samplers is not None or options.plot:
        option = "--samplers" if options.samplers is not None else "--plot"
        raise InputError(f"--transfer {option}", "is of the surrogate alone, and has no plot", f"leave out {option}")
    document = api.transfer(options.data, on_pair=lambda name, done, count: render.print_note(f"{done} of {count}: {name}"))
    if options.json:
        render.show_json(document)
    else:
        from strategist.report.transfer_benchmark import transfer_report

        render.show(transfer_report(document))
    return 0
