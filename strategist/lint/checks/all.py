"""All checks, by code."""

from strategist.lint import flow
from strategist.lint.checks import card, cases, conditions, deck, environment, parser_findings, settings, sources, texts
from strategist.lint.registry import CHECKS

MODULES = (parser_findings, card, texts, sources, cases, settings, conditions, deck, flow, environment)
"""Modules that register checks when they are imported."""

RULES = tuple(CHECKS[code] for code in sorted(CHECKS))
