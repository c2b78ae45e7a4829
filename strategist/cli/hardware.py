"""``strategist hardware``: the devices that have a name, and what a form of --gpus is taken as."""

import argparse

from strategist import api
from strategist.cli import render
from strategist.cli.parser import Parser


def add(parser: Parser) -> None:
    """The commands below it."""
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    listed = commands.add_parser("list", help="all devices", description="List all devices, each with its usual node.")
    listed.set_defaults(command=run_list)
    shown = commands.add_parser("show", help="one device", description="Show one device and its usual node, with the sources.")
    shown.add_argument("device", metavar="NAME", help="a device's name, or GPUs as --gpus takes them, e.g. 8x24GB or local")
    shown.set_defaults(command=run_show)
    for command in (listed, shown):
        command.add_argument("--json", action="store_true", help="print JSON")


def run_list(options: argparse.Namespace) -> int:
    """Prints a line a device."""
    found = [api.cluster(name) for name in api.profiles()["devices"]]
    if options.json:
        render.show_json({item.device.name: item for item in found})
        return 0
    from strategist.report.known import devices_report

    render.show(devices_report(found))
    return 0


def run_show(options: argparse.Namespace) -> int:
    """Prints what a device, or a form of --gpus, is taken as."""
    found = api.cluster(options.device)
    if options.json:
        render.show_json(found)
        return 0
    from strategist.report.known import device_report

    render.show(device_report(found))
    return 0
