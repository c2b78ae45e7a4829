"""``strategist hardware``: known devices, and the cluster that a value of --gpus resolves to."""

from strategist import api
from strategist.cli import list_and_show
from strategist.cli.parser import Parser
from strategist.report.catalog import device_report, devices_report


def add(parser: Parser) -> None:
    """The commands below it."""
    kind = list_and_show.Kind(
        list_help="all devices, each with its usual node", show_help="one device and its usual node, with the sources",
        name_help="a device's name, or GPUs as --gpus takes them, e.g. 8x24GB or local",
        names=lambda: api.profiles()["devices"], find=api.cluster, table=devices_report, page=device_report,
    )  # fmt: skip
    list_and_show.add(parser, kind)
