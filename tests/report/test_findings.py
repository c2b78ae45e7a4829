"""Findings in every format: lines, GitHub annotations, and valid SARIF."""

import json
from pathlib import Path

import jsonschema
import pytest

from strategist.contract.diagnostic import Diagnostic, Fix, Level
from strategist.lint.checks.all import RULES
from strategist.lint.fix import Repair
from strategist.lint.registry import CHECKS
from strategist.lint.run import lint_text
from strategist.report.findings import diff_lines, github_lines, page_lines, text_lines
from strategist.report.sarif import sarif

FOUND = Diagnostic(code="CARD003", level=Level.ERROR, message="unknown name", do="correct it", path="a b.yaml", line=2, column=5)
NOTE = Diagnostic(code="CARD045", level=Level.INFO, message="no protocol", do="add it", path="a b.yaml")

# Requirements of SARIF 2.1.0 for the parts that are written (sections 3.13 to 3.58 of the standard).
MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
ARTIFACT = {"type": "object", "required": ["uri"], "properties": {"uri": {"type": "string", "pattern": r"^[^\s\\]+$"}}}
REGION = {
    "type": "object",
    "properties": {"startLine": {"type": "integer", "minimum": 1}, "startColumn": {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
RULE = {
    "type": "object",
    "required": ["id", "shortDescription", "fullDescription", "help", "defaultConfiguration"],
    "properties": {
        "shortDescription": MESSAGE, "fullDescription": MESSAGE,
        "help": {"allOf": [MESSAGE, {"required": ["markdown"]}]},
        "defaultConfiguration": {"type": "object", "properties": {"level": LEVEL}},
    },
}  # fmt: skip
REPLACEMENT = {
    "type": "object",
    "required": ["deletedRegion"],
    "properties": {
        "deletedRegion": {
            "type": "object",
            "properties": {"charOffset": {"type": "integer", "minimum": 0}, "charLength": {"type": "integer", "minimum": 0}},
            "required": ["charOffset", "charLength"],
        },
        "insertedContent": {"type": "object", "required": ["text"]},
    },
}
CHANGE = {
    "type": "object",
    "required": ["artifactLocation", "replacements"],
    "properties": {"artifactLocation": ARTIFACT, "replacements": {"type": "array", "minItems": 1, "items": REPLACEMENT}},
}
RESULT = {
    "type": "object",
    "required": ["message", "ruleId", "ruleIndex", "level", "locations"],
    "properties": {
        "message": MESSAGE,
        "level": LEVEL,
        "locations": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["physicalLocation"],
                "properties": {
                    "physicalLocation": {
                        "type": "object",
                        "required": ["artifactLocation"],
                        "properties": {"artifactLocation": ARTIFACT, "region": REGION},
                    }
                },
            },
        },
        "fixes": {"type": "array", "items": {"type": "object", "required": ["artifactChanges"], "properties": {
            "description": MESSAGE, "artifactChanges": {"type": "array", "minItems": 1, "items": CHANGE},
        }}},
    },
}  # fmt: skip
DRIVER = {
    "type": "object",
    "required": ["name", "rules"],
    "properties": {"rules": {"type": "array", "uniqueItems": True, "items": RULE}},
}
RUN = {
    "type": "object",
    "required": ["tool", "results"],
    "properties": {
        "tool": {"type": "object", "required": ["driver"], "properties": {"driver": DRIVER}},
        "results": {"type": "array", "items": RESULT},
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    },
}
LOG = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {"version": {"const": "2.1.0"}, "runs": {"type": "array", "minItems": 1, "items": RUN}},
}


def test_each_finding_has_a_line_and_the_last_line_counts() -> None:
    fixable = Diagnostic(
        code="CARD046", level=Level.WARNING, message="x", do="y", path="a", fix=Fix(path="a", start=0, end=0, replacement="")
    )
    assert list(text_lines([FOUND, NOTE, fixable])) == [
        "a b.yaml:2:5: error CARD003 unknown name; correct it",
        "a b.yaml: info CARD045 no protocol; add it",
        "a: warning CARD046 x; y",
        "errors: 1, other findings: 2, 1 to correct with --fix",
    ]
    assert list(text_lines([])) == ["no findings"]


def test_verbose_shows_the_line_with_a_caret(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("\ufeffone:\n\ta: wörd\n", encoding="utf-8")
    found = Diagnostic(code="CARD003", level=Level.ERROR, message="unknown", do="correct it", path=str(path), line=2, column=5)
    assert list(text_lines([found], verbose=True)) == [
        f"{path}:2:5: error CARD003 unknown",
        "    2 | \ta: wörd",
        "      | \t   ^",
        "      do: correct it",
        "",
        "errors: 1, other findings: 0",
    ]
    gone = Diagnostic(code="CARD001", level=Level.ERROR, message="unreadable", do="correct it", path=str(tmp_path / "none"), line=3)
    assert len(list(text_lines([gone], verbose=True))) == 4


def test_annotations_are_escaped() -> None:
    odd = Diagnostic(code="CARD003", level=Level.WARNING, message="50 %: a,b\nc\r", do="d", path="a,b:c%.yaml", line=1, column=2)
    assert list(github_lines([odd, NOTE])) == [
        "::warning file=a%2Cb%3Ac%25.yaml,line=1,col=2,title=CARD003::50 %25: a,b%0Ac%0D; d",
        "::notice file=a b.yaml,title=CARD045::no protocol; add it",
    ]
    assert next(github_lines([FOUND])).startswith("::error file=a b.yaml,line=2,col=5,title=CARD003::")


def test_sarif_output_is_valid(tmp_path: Path) -> None:
    found = lint_text("cards of mine/a.yaml", "StrategyCard:\n  titel: x\n  module: tp\n  intent: x\n")
    absolute = Diagnostic(code="CARD001", level=Level.ERROR, message="x", do="y", path=str(tmp_path / "ä b.yaml"))
    log = json.loads(json.dumps(sarif([*found, NOTE, absolute], RULES)))
    jsonschema.validate(log, LOG)
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [rule.code for rule in RULES]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    first, *_ = run["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "cards%20of%20mine/a.yaml"
    levels = {result["ruleId"]: result["level"] for result in run["results"]}
    assert (levels["CARD018"], levels["CARD045"]) == ("error", "note")
    fixed = next(result for result in run["results"] if result["ruleId"] == "CARD018")
    (replacement,) = fixed["fixes"][0]["artifactChanges"][0]["replacements"]
    assert replacement == {"deletedRegion": {"charOffset": 16, "charLength": 5}, "insertedContent": {"text": "title"}}
    uri = run["results"][-1]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.startswith("file:///")
    assert uri.endswith("/%C3%A4%20b.yaml")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**log, "version": "2.0"}, LOG)


def test_a_diff_shows_changed_lines() -> None:
    lines = list(diff_lines([Repair(path="a.yaml", before="a: 1\nb: 2\n", after="a: 1\nc: 2\n", fixes=1)]))
    assert lines == ["--- a.yaml", "+++ a.yaml", "@@ -1,2 +1,2 @@", " a: 1", "-b: 2", "+c: 2"]


@pytest.mark.parametrize("code", sorted(CHECKS))
def test_the_page_of_a_check_has_all_its_parts(code: str) -> None:
    entry = CHECKS[code]
    text = "\n".join(page_lines(entry))
    for part in (code, entry.law, entry.page.what, entry.page.why, entry.page.do, "Bad:", "Good:"):
        assert part in text
    assert "    " + entry.page.bad.splitlines()[0] in text
    assert (entry.page.code, entry.page.law, entry.page.level) == (code, entry.law, entry.level)
