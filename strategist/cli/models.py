"""``strategist models``: the models that have a name, and what any model is taken as."""

import argparse

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser


def add(parser: Parser) -> None:
    """The commands below it."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    listed = commands.add_parser("list", help="all presets", description="List all presets.")
    listed.set_defaults(command=run_list)
    shown = commands.add_parser("show", help="one model", description="Show one model, and what training it keeps.")
    shown.add_argument("model", metavar="NAME", help="as --model takes it: preset, size, config.json, Hub id, or YAML shape")
    shown.set_defaults(command=run_show)
    for command in (listed, shown):
        command.add_argument("--json", action="store_true", help="print JSON")


def run_list(options: argparse.Namespace) -> int:
    """Prints a line a preset."""
    found = [api.model(name) for name in api.profiles()["models"]]
    if options.json:
        render.show_json({shape.name: shape for shape, _, _ in found})
        return 0
    from strategist.report.known import models_report

    render.show(models_report([shape for shape, _, _ in found]))
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Prints what a model is taken as."""
    shape, note, kept = api.model(options.model)
    if options.json:
        render.show_json(shape)
        return 0
    from strategist.report.known import model_report

    render.show(model_report(shape, note, kept))
    return 0
