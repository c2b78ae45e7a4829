"""``strategist cards lint`` and ``cards explain``: findings about cards, their reasons and corrections."""

import argparse
from collections.abc import Sequence

from strategist import api
from strategist.cli import render
from strategist.cli.exit_codes import FAILED
from strategist.cli.parser import Parser
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.errors import InputError, not_among

SOURCE_CHECKS = {"CARD042", "CARD043"}
"""Checks that need the installed torch."""
FORMATS = ("text", "json", "sarif", "github")


def add(commands: "argparse._SubParsersAction[Parser]") -> None:
    """The commands and their options."""
    lint = commands.add_parser("lint", help="find problems of cards", description="Find problems of cards and flows.")
    lint.add_argument("path", nargs="*", metavar="PATH", help="files and folders (default: the shipped cards)")
    lint.add_argument("--format", default="text", metavar="NAME", help=f"{', '.join(FORMATS)} (default: text)")
    lint.add_argument("--json", action="store_true", help="the same as --format json")
    lint.add_argument("--verbose", action="store_true", help="show the line of each finding")
    lint.add_argument("--select", action="append", default=[], metavar="CODES", help="only these, such as CARD013,FLOW")
    lint.add_argument("--ignore", action="append", default=[], metavar="CODES", help="all but these")
    lint.add_argument("--fix", action="store_true", help="apply safe corrections to the files")
    lint.add_argument("--diff", action="store_true", help="print what --fix would change, and change nothing")
    lint.add_argument("--no-sources", action="store_true", help="do not look up source_refs in the installed torch")
    lint.add_argument("--run-examples", action="store_true", help="also run the examples: programs by the authors of the cards")
    lint.set_defaults(command=lint_cards)
    explain = commands.add_parser(
        "explain", help="meaning of a code of the linter", description="Meaning of a code of the linter, in full."
    )
    explain.add_argument("code", nargs="?", default="", metavar="CODE", help="such as CARD013 (default: list all)")
    explain.add_argument("--json", action="store_true", help="print JSON")
    explain.set_defaults(command=explain_code)


def lint_cards(options: argparse.Namespace) -> int:
    """Prints the findings; returns 1 if one is an error."""
    name = "json" if options.json else options.format
    if name not in FORMATS:
        raise not_among(f"--format {name}", name, FORMATS)
    codes = api.lint_codes(_words(options.select), _words(options.ignore))
    if options.fix or options.diff:
        exit_code = _repair(options, codes)
        if options.diff:
            return exit_code
    needs_sources = not options.no_sources and not codes.isdisjoint(SOURCE_CHECKS)
    look_up = needs_sources and api.torch_installed()
    if needs_sources and not look_up:
        render.print_note(
            "sources are not looked up: torch is not installed; pip install 'torch-strategist[runtime]', or --no-sources"
        )
    diagnostics = api.lint(options.path, look_up_sources=look_up, run_examples=options.run_examples)
    diagnostics = tuple(finding for finding in diagnostics if finding.code in codes)
    _show(diagnostics, name, verbose=options.verbose)
    return FAILED if any(finding.level is Level.ERROR for finding in diagnostics) else 0


def _words(texts: Sequence[str]) -> list[str]:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def _repair(options: argparse.Namespace, codes: frozenset[str]) -> int:
    """Corrects the files, or prints what would change."""
    if not options.path:
        raise InputError("--diff" if options.diff else "--fix", "needs the files to correct", "name files or folders of your own")
    repairs = api.fix_cards(options.path, codes, write=not options.diff)
    if options.diff:
        from strategist.report.findings import diff_lines

        for line in diff_lines(repairs):
            render.line(line)
    for repair in repairs:
        verb = "would correct" if options.diff else "corrected"
        render.print_note(f"{verb} {repair.path}: {repair.fixes} {'place' if repair.fixes == 1 else 'places'}")
    return 0


def _show(diagnostics: Sequence[Diagnostic], name: str, *, verbose: bool) -> None:
    from strategist.report import findings

    if name == "sarif":
        from strategist.report.sarif import sarif

        render.show_json(sarif(diagnostics, api.lint_checks()))
    elif name == "json":
        render.show_json(list(diagnostics))
    else:
        for line in findings.github_lines(diagnostics) if name == "github" else findings.text_lines(diagnostics, verbose=verbose):
            render.line(line)


def explain_code(options: argparse.Namespace) -> int:
    """Prints the page of a code, or a line per code."""
    from strategist.report import findings

    entries = [api.lint_check(options.code)] if options.code else api.lint_checks()
    if options.json:
        pages = [entry.page for entry in entries]
        render.show_json(pages[0] if options.code else pages)
        return 0
    for entry in entries:
        for line in findings.page_lines(entry) if options.code else [f"{entry.code}  {entry.level:<7}  {entry.law}"]:
            render.line(line)
    return 0
