"""Tools that workers run, in the order in which they are listed."""

from strategist.agent import cards, evidence, files, machine, plans, trials
from strategist.agent.tool import Tool

TOOLS: tuple[Tool, ...] = (
    machine.describe_machine, machine.diagnose,
    cards.list_cards, cards.search_cards, cards.read_card, cards.lint_card,
    plans.plan, plans.explain, plans.why_not, plans.compare, plans.simulate,
    files.check_config, evidence.advise,
    files.save_plan, files.load_plan, files.export, files.report, files.trace,
    evidence.record_evidence,
)  # fmt: skip

INTERNAL: tuple[Tool, ...] = (trials.prepare_trial, trials.prepare_tuning, trials.list_trials)
"""Internal tools, which the server calls for its own tools."""
