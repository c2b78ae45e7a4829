"""``strategist init``: asks five questions, writes the request file, and plans."""

import argparse
import sys
from collections.abc import Callable

from strategist import api
from strategist.cli import render
from strategist.cli.exit_codes import FAILED
from strategist.cli.parser import Parser, add_output, whole
from strategist.contract.request import Request
from strategist.contract.workload import TRAIN_MODES, Workload
from strategist.errors import InputError, StrategistError
from strategist.files import outputs
from strategist.frozen import frozen

HEADER = "# A request: strategist plan --request {name}; all keys are the options of strategist plan, with _ for -.\n"


@frozen
class Question:
    """A question, the default for an empty line, and the check of the answer; it is repeated until the answer is valid."""

    text: str
    default: str
    check: Callable[[str], object]

    def answer(self) -> str:
        """The typed answer.

        Raises:
            InputError: the input ended.
        """
        while True:
            sys.stderr.write(f"{self.text} [{self.default}]: ")
            sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                law = "ended before all questions were answered"
                raise InputError("strategist init", law, "an empty line takes the value in brackets")
            answer = line.strip() or self.default
            try:
                self.check(answer)
            except StrategistError as error:
                render.print_error(error)
            else:
                return answer


def add(parser: Parser) -> None:
    """The options of the command."""
    add_output(parser, "-o", "--output", default="request.yaml", help="the request file (default request.yaml)")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Asks, writes the file (an existing one is kept), and plans; returns 1 if nothing fits."""
    path = options.output
    outputs.check(path, marker="", force=options.force)
    from strategist.report.answer_summary import answer_summary

    name = "request.yaml" if outputs.is_stream(path) else path
    request = _prompted_request()
    outputs.write(path, HEADER.format(name=name) + api.request_text(request), marker="", force=options.force)
    answer = api.plan(request)
    render.show(answer_summary(answer))
    render.line(f"\nrequest written to {path}: strategist plan --request {name} plans it again")
    return 0 if answer.plans else FAILED


def _prompted_request() -> Request:
    defaults = Workload()
    questions = (
        Question(text="Model: a size such as 32b, a preset, a config.json or a Hub id", default="8b", check=api.model),
        Question(
            text="GPUs: 8x24GB, 2x8xH100 (nodes x GPUs), local, or a cluster file",
            default="local",
            check=lambda text: api.cluster(text, by_device=False),
        ),
        Question(
            text="Tokens of a sequence",
            default=str(defaults.seq_len),
            check=lambda text: Workload(seq_len=whole("tokens of a sequence")(text)),
        ),
        Question(
            text="Sequences of a step, over all GPUs",
            default=str(defaults.global_batch),
            check=lambda text: Workload(global_batch=whole("sequences of a step")(text)),
        ),
        Question(
            text=f"What is trained: {', '.join(TRAIN_MODES)}", default=defaults.train, check=lambda text: Workload(train=text)
        ),
    )
    model, gpus, seq_len, global_batch, train = (question.answer() for question in questions)
    workload = Workload(seq_len=int(seq_len), global_batch=int(global_batch), train=train)
    return Request(model=model, gpus=gpus, workload=workload)
