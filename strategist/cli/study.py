"""``strategist study``: list, show, export, import, merge and repair studies."""

import argparse
from typing import TYPE_CHECKING

from strategist import api
from strategist.cli import deck_options, render, request_options, sections, watch
from strategist.cli.exit_codes import FAILED
from strategist.cli.parser import Parser, add_output
from strategist.cli.watch import STUDY
from strategist.errors import InputError
from strategist.files import outputs
from strategist.report.page.svg_file import MADE_BY

if TYPE_CHECKING:
    from strategist.contract.study import ImportResult

LEDGER = "keep the trials on a server: postgresql://USER@HOST/DATABASE[?study=NAME]"
PLOT = ".svg"
SECTIONS = ("trials", "front")
"""The parts of a study's report."""


def add(parser: Parser) -> None:
    """The commands of the group and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    listing = _command(commands, "list", "the studies in folders or on servers, and the state of each")
    listing.add_argument("place", nargs="*", metavar="PLACE", help="folders, postgresql://USER@HOST/DATABASE (default: here)")
    listing.set_defaults(command=list_studies)
    show = _command(commands, "show", "the trials of a study, predicted and measured")
    show.add_argument("study", metavar="STUDY", help=STUDY)
    sections.add(show, SECTIONS)
    show.set_defaults(command=show_study)
    export = _command(commands, "export", "write a study as a table, as a history, or for Optuna's tools")
    export.add_argument("study", metavar="STUDY", help=STUDY)
    add_output(export, "--to", required=True, help="FILE.csv, FILE.parquet, FILE.jsonl or sqlite:///FILE.db")
    export.set_defaults(command=export_study)
    plot = _command(commands, "plot", "draw the front of a study's objectives, or the best so far against trials")
    plot.add_argument("study", metavar="STUDY", help=STUDY)
    add_output(plot, "--out", required=True, help="FILE.svg")
    plot.set_defaults(command=plot_study)
    _add_import(_command(commands, "import", "take in what was measured elsewhere, so that it teaches the search"))
    merge = _command(commands, "merge", "bring the trials of several studies of one request into one")
    merge.add_argument("study", nargs="+", metavar="STUDY", help=STUDY)
    merge.add_argument("--into", required=True, metavar="DIR", help="folder of the merged study")
    merge.add_argument("--ledger", default="", metavar="ADDRESS", help=LEDGER)
    merge.set_defaults(command=merge_studies)
    repair = _command(commands, "repair", "make a new study of every intact record of a damaged one, which stays as it is")
    repair.add_argument("study", metavar="DIR", help="folder of the damaged study")
    repair.add_argument("--into", required=True, metavar="DIR", help="folder of the new study")
    repair.add_argument("--request", metavar="FILE", help="a request file (YAML), if the study's own request is lost")
    repair.set_defaults(command=repair_study)
    watch.add(_command(commands, "watch", "follow a study: live on a terminal, else a line for each finished trial"))
    for command in (listing, show):
        command.add_argument("--json", action="store_true", help="print JSON")


def _command(commands: "argparse._SubParsersAction[Parser]", name: str, text: str) -> Parser:
    return commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")


def _add_import(command: Parser) -> None:
    command.add_argument("file", metavar="FILE", help="FILE.csv or FILE.parquet, a row a candidate; or a FILE.jsonl history")
    command.add_argument("--study", required=True, metavar="DIR", help="folder of the study; a new one needs --model and --gpus")
    command.add_argument("--ledger", default="", metavar="ADDRESS", help=LEDGER)
    request_options.add(command)
    command.set_defaults(command=import_trials)


def list_studies(options: argparse.Namespace) -> int:
    """Prints a line per study; returns 1 if one cannot be read."""
    studies = api.list_studies(options.place or ["."])
    if options.json:
        render.show_json(studies)
    elif not studies:
        render.line("there is no study")
    else:
        from strategist.report.study import studies_report

        render.show(studies_report(studies))
    return FAILED if any(item.problem for item in studies) else 0


def show_study(options: argparse.Namespace) -> int:
    """Prints a study."""
    section_names = sections.requested_sections(options, SECTIONS)
    study = api.study(options.study)
    if options.json:
        render.show_json(study)
        return 0
    from strategist.report.study import study_report

    render.show(study_report(study, section_names))
    return 0


def export_study(options: argparse.Namespace) -> int:
    """Writes the study and prints the number of trials."""
    render.line(f"{api.export_study(options.study, options.to, force=options.force)} trials written to {options.to}")
    return 0


def plot_study(options: argparse.Namespace) -> int:
    """Writes the plot and prints its path."""
    if not options.out.endswith(PLOT) and not outputs.is_stream(options.out):
        raise InputError(f"--out {options.out}", "has no known format", f"write FILE{PLOT}")
    from strategist.report.study_plot import study_plot

    outputs.write(options.out, study_plot(api.study(options.study)), marker=MADE_BY, force=options.force)
    render.line(f"plot written to {options.out}")
    return 0


def import_trials(options: argparse.Namespace) -> int:
    """Imports the file and prints the outcome of its rows."""
    request = request_options.request(options, backend="native") if request_options.any_given(options) else None
    result = api.import_trials(
        options.file, options.study, request=request, server=options.ledger, **deck_options.arguments(options)
    )  # fmt: skip
    _print_import(result)
    return 0


def merge_studies(options: argparse.Namespace) -> int:
    """Merges studies and prints the number of new trials."""
    _print_import(api.merge_studies(options.study, options.into, server=options.ledger))
    return 0


def repair_study(options: argparse.Namespace) -> int:
    """Repairs the study and prints the outcome of each trial."""
    request = None if options.request is None else api.load_request(options.request)
    repaired = api.repair_study(options.study, options.into, request)
    render.line(f"{repaired.kept} trials are as they were, in {repaired.study}")
    for numbers, outcome_text in (
        (repaired.from_history, "were read from history.jsonl"),
        (repaired.queued, "lost their result and are queued again"),
        (repaired.lost, "are lost"),
    ):
        if numbers:
            render.line(f"{len(numbers)} {outcome_text}; their numbers were {', '.join(map(str, numbers))}")
    return 0


def _print_import(result: "ImportResult") -> None:
    duplicates = f", {result.duplicates} are of candidates that it had already" if result.duplicates else ""
    render.line(f"{result.imported} trials imported into {result.study}{duplicates}")
