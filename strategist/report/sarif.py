"""Findings as SARIF 2.1.0 (OASIS Static Analysis Results Interchange Format), for code scanners and editors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from strategist.contract.diagnostic import Diagnostic, Fix, Level
from strategist.lint.registry import Entry

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

_LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}

Json = dict[str, Any]


def sarif(findings: Sequence[Diagnostic], entries: Sequence[Entry]) -> Json:
    """A SARIF run: its rules are all checks, each with its page as help."""
    index = {entry.code: number for number, entry in enumerate(entries)}
    driver = {"name": "strategist", "rules": [_rule(entry) for entry in entries]}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, index[finding.code]) for finding in findings],
            }
        ],
    }


def _rule(entry: Entry) -> Json:
    page = entry.page
    text = f"{page.what}\n\nWhy: {page.why}\nDo: {page.do}\n\nBad:\n{page.bad}\n\nGood:\n{page.good}"
    code = "{}\n```yaml\n{}\n```"
    examples = "\n\n".join(code.format(name, text) for name, text in (("Bad:", page.bad), ("Good:", page.good)))
    return {
        "id": entry.code,
        "shortDescription": {"text": entry.law},
        "fullDescription": {"text": page.what},
        "help": {"text": text, "markdown": f"{page.what}\n\n**Why**: {page.why}\n\n**Do**: {page.do}\n\n{examples}"},
        "defaultConfiguration": {"level": _LEVELS[entry.level]},
    }


def _result(finding: Diagnostic, rule: int) -> Json:
    location: Json = {"artifactLocation": _artifact(finding.path)}
    if finding.line:
        location["region"] = {"startLine": finding.line, "startColumn": finding.column or 1}
    result: Json = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.level],
        "message": {"text": f"{finding.message}; {finding.do}"},
        "locations": [{"physicalLocation": location}],
    }
    return result | ({"fixes": [_fix(finding.fix, finding.do)]} if finding.fix else {})


def _fix(fix: Fix, do: str) -> Json:
    region = {"charOffset": fix.start, "charLength": fix.end - fix.start}
    replacement = {"deletedRegion": region, "insertedContent": {"text": fix.replacement}}
    change = {"artifactLocation": _artifact(fix.path), "replacements": [replacement]}
    return {"description": {"text": do}, "artifactChanges": [change]}


def _artifact(path: str) -> Json:
    """A file's location; relative paths stay relative, so that they are found in any checkout."""
    return {"uri": Path(path).as_uri() if Path(path).is_absolute() else quote(Path(path).as_posix())}
