"""``strategist export``: a plan as another system's file, with the command that trains with it."""

import argparse
import shlex

from strategist import api
from strategist.cli import deck, render
from strategist.cli.parser import Parser
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.errors import InputError


def add(parser: Parser) -> None:
    """The options of the command."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, as strategist plan -o writes it")
    parser.add_argument("--to", required=True, metavar="FORMAT", help=", ".join(api.formats()))
    parser.add_argument("--job", default="", metavar="KIND", help=f"write the job of a scheduler as well: {', '.join(api.JOBS)}")
    parser.add_argument("--image", default="", metavar="NAME", help="the container's image, for jobs of Kubernetes")
    parser.add_argument(
        "--volume", action="append", default=[], metavar="CLAIM=DIR", help="mount this claim in Kubernetes' pods; may be repeated"
    )
    parser.add_argument(
        "--resource", action="append", default=[], metavar="NAME=COUNT",
        help="what a node's container gets beside GPUs, e.g. vpc.amazonaws.com/efa=32; may be repeated",
    )  # fmt: skip
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of the job; may be repeated")
    deck.add(parser)
    parser.add_argument("--json", action="store_true", help="print files, command and findings as JSON")
    parser.add_argument("-o", "--output", metavar="DIR", help="write the files here (default: print the first)")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints or writes the files; what the format cannot say is told on standard error."""
    plan = codec.load(Plan, options.plan)
    volumes, environment = _pairs("--volume", options.volume), _pairs("--env", options.env)
    written = api.export_plan(
        plan, options.to, job=options.job, image=options.image, volumes=volumes, environment=environment,
        resources=_pairs("--resource", options.resource),
        cards=options.cards, without=options.without,
    )  # fmt: skip
    for found in written.findings:
        render.remark(str(found))
    paths = api.write_files(written, options.output) if options.output else ()
    if options.json:
        render.show_json(written)
    elif options.output:
        for path in paths:
            render.line(str(path))
        render.remark(f"start it there with: {shlex.join(written.command)}")
    else:
        render.line(written.files[0].text.rstrip("\n"))
    return 0


def _pairs(name: str, texts: list[str]) -> dict[str, str]:
    """Names with what stands behind their ``=``."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign:
            raise InputError(f"{name} {text}", "has no = in it", f"write {name} NAME=VALUE")
        if pairs.setdefault(key, value) != value:
            raise InputError(f"{name} {text}", f"{key} is {pairs[key]} already", "keep one of the two")
    return pairs
