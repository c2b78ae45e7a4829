"""``strategist plan``: ranked plans for a request, the best in detail, and alternatives."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from strategist import api
from strategist.cli import deck_options, export, job_options, render, request_options as request_options, sections
from strategist.cli.exit_codes import FAILED, verdict_code
from strategist.cli.parser import Parser, add_output, output_path, positive, typed_options
from strategist.contract import codec
from strategist.contract.answer import SECTION_NAMES, Answer
from strategist.contract.estimate import Fit
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.simulation import Verdict
from strategist.errors import InputError
from strategist.files import outputs
from strategist.units import parse_count


def add(parser: Parser) -> None:
    """The options of the command."""
    request_options.add(parser)
    top_help = "plans to show, which differ in a parallel degree, recomputation or offload (default 5)"
    parser.add_argument("--top", type=positive("--top"), default=5, metavar="N", help=top_help)
    parser.add_argument("--tokens", metavar="N", help="show time, price and energy of training on N tokens, e.g. 300B or 15T")
    parser.add_argument(
        "--plan",
        type=positive("--plan"),
        default=1,
        metavar="N",
        help="the plan of the table that -o writes and --show describes (default 1)",
    )
    sections.add(parser, SECTION_NAMES)
    parser.add_argument("--prove", action="store_true", help="simulate each shown plan, and order the plans by simulated memory")
    check_help = "exit with 0 if the plan fits, 1 if none fits, 3 if it is tight, or only a tight plan exists"
    parser.add_argument("--check", action="store_true", help=check_help)
    deck_options.add_language(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    add_output(parser, "-o", "--output", help="write the best plan here, for strategist run; - prints it and nothing else")
    parser.add_argument(
        "--to", default="", metavar="FORMAT", help="export that plan, too (default: --backend, where it names a format)"
    )
    parser.add_argument(
        "--job-output", type=output_path("--job-output", "DIR"), metavar="DIR",
        help="the folder for the exported files, and for the job that --job names",
    )  # fmt: skip
    job_options.add(parser, "slurm, hosts or a kind of Kubernetes, as strategist export lists them")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Prints the answer; returns 1 if nothing fits, with --check 3 if it is tight."""
    if options.output:
        outputs.check(options.output, marker=codec.document_header(Plan), force=options.force)
    if options.job_output:
        outputs.check_folder(options.job_output)
    section_names = sections.requested_sections(options, SECTION_NAMES)
    request = request_options.request(options)
    if options.tokens is not None:
        request = replace(request, tokens=parse_count(options.tokens, "--tokens"))
    if format := _format(options, request):
        request = replace(request, backend=_backend(options, request, format))
    stages = api.plan_stages(request, **deck_options.arguments(options), top=options.top)
    answer = next(stages)
    plans_first = not (options.json or section_names or options.prove or format)  # a summary that nothing later changes or prevents
    if plans_first:
        _selected_plan(answer, options.plan)
        _show_plans(answer, options)
    answer = next(stages, answer)
    if "backends" in section_names and options.show:
        answer = api.by_backend(answer, **deck_options.arguments(options))
    if options.prove:
        answer = api.prove(answer, on_rank=render.rank_line)
    selected = _selected_plan(answer, options.plan)
    written = export.exported(selected, format, options) if selected and format else None
    if options.output and selected:
        codec.save(selected, options.output, force=options.force)
    _show(answer, options, section_names, plans_are_shown=plans_first)
    if written:
        export.write_files(written, options.job_output, force=options.force, quiet=options.json)
    for path in (options.output, options.job_output):
        if path and not selected:
            render.print_note(f"nothing fits, so {path} is not written; see the alternatives in the answer")
    if options.check:
        return verdict_code(_verdict(answer, options.plan))
    return 0 if selected else FAILED


def _format(options: argparse.Namespace, request: Request) -> str:
    """Format of the export; empty if none is requested.

    Raises:
        InputError: the format is unknown, or format or folder are missing.
    """
    if not (options.to or options.job or options.job_output):
        return ""
    options_text = " ".join(f"--{name} {value}" for name in ("to", "job") if (value := getattr(options, name)))
    written = api.find_format(options.to).name if options.to else ""
    if not options.job_output:
        raise InputError(options_text or "--job-output -", "no folder is named for the files", "add --job-output DIR")
    name = written or (request.backend if request.backend in api.formats() else "")
    if not name:
        export_options = f"{options_text} --job-output {options.job_output}".strip()
        raise InputError(export_options, "no format is named", f"add --to with one of {', '.join(api.formats())}")
    return name


def _backend(options: argparse.Namespace, request: Request, format: str) -> str:
    """The back end: the option or the request file's, else the format."""
    typed = "--backend" in typed_options(options.typed)
    return request.backend if request.backend != Request.backend and (typed or options.backend is None) else format


def _verdict(answer: Answer, rank: int) -> Fit:
    """Verdict on the plan of this rank, by its proof or by the confidence; without plans, whether one is tight."""
    if not answer.plans:
        return Fit.TIGHT if any("--confidence" in alternative.flags for alternative in answer.alternatives) else Fit.TOO_LARGE
    if answer.proofs and answer.proofs[rank - 1].verdict is Verdict.TOO_LARGE:
        return Fit.TOO_LARGE
    return Fit.of(answer.plans[rank - 1].estimate.fit_confidence, answer.request.confidence)


def _show_plans(answer: Answer, options: argparse.Namespace) -> None:
    """Prints the part of the summary that needs no alternatives."""
    from strategist.report.answer_summary import plans_summary  # 50 ms of rich that --json does without

    render.show(plans_summary(api.in_language(answer, options.lang, cards=options.cards)), now=True)


def _show(answer: Answer, options: argparse.Namespace, section_names: Sequence[str], *, plans_are_shown: bool) -> None:
    """Prints the answer as JSON, on one screen, in full or in sections."""
    if options.json:
        render.show_json(answer)
        return
    translated = api.in_language(answer, options.lang, cards=options.cards)
    if section_names:
        from strategist.report.answer import answer_report

        render.show(answer_report(translated, section_names, options.plan))
    else:
        from strategist.report.answer_summary import alternatives_summary, plans_summary

        plans = () if plans_are_shown else (plans_summary(translated),)
        render.show(*plans, alternatives_summary(translated, deck_options.words(options)))


def _selected_plan(answer: Answer, rank: int) -> Plan | None:
    """The plan of this rank; None if nothing fits."""
    if answer.plans and rank > len(answer.plans):
        law = f"the answer has {len(answer.plans)} plans"
        raise InputError(f"--plan {rank}", law, f"take 1 to {len(answer.plans)}, or ask for more with --top")
    return answer.plans[rank - 1] if answer.plans else None
