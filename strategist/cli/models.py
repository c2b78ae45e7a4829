"""``strategist models``: known models, and the shape that a model name resolves to."""

from strategist import api
from strategist.cli import list_and_show
from strategist.cli.parser import Parser
from strategist.report.catalog import model_report, models_report


def add(parser: Parser) -> None:
    """The commands below it."""
    kind = list_and_show.Kind(
        list_help="all presets", show_help="one model, with the bytes of its model states",
        name_help="as --model takes it: preset, size, config.json, Hub id, or YAML shape",
        names=lambda: api.profiles()["models"], find=api.model, table=models_report, page=model_report,
    )  # fmt: skip
    list_and_show.add(parser, kind)
