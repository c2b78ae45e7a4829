"""Plans side by side, and alternatives to the request."""

from collections.abc import Sequence

from strategist.contract.answer import Alternative
from strategist.contract.plan import Plan
from strategist.report.page.html import Html, element, join
from strategist.report.page.tables import table
from strategist.report.setting_text import batch_words, candidate_words, change_words, gib, percent, recompute_words, tokens
from strategist.units import show_seconds


def ranking(plans: Sequence[Plan]) -> Html:
    """The plans, best first."""
    rows = [
        (
            str(rank), candidate_words(plan.candidate), recompute_words(plan.candidate.knobs), plan.candidate.knobs.offload,
            batch_words(plan.candidate, plan.workload), show_seconds(plan.estimate.step_seconds),
            tokens(plan.estimate.tokens_per_second), percent(plan.estimate.mfu), gib(plan.estimate.peak_memory_bytes),
            ", ".join(plan.backends) or "-",
        )
        for rank, plan in enumerate(plans, start=1)
    ]  # fmt: skip
    head = ("#", "mesh", "recompute", "offload", "batch", "step", "tokens/s", "MFU", "GiB", "runs on")
    return table("This plan and the others of the same answer", head, rows, words=(0, 1, 2, 3, 9))


def alternatives(offered: Sequence[Alternative]) -> Html:
    """Changes of the request as command-line options, and their gain."""
    rows = [
        (
            other.title, " ".join(other.flags) or "-", tokens(other.plan.estimate.tokens_per_second),
            show_seconds(other.plan.estimate.step_seconds), gib(other.plan.estimate.peak_memory_bytes), change_words(other.plan),
            "; ".join(filter(None, (other.note, "the trained model may differ" if other.changes_convergence else ""))),
        )
        for other in offered
    ]  # fmt: skip
    head = ("alternative", "options", "tokens/s", "step", "GiB", "plan", "note")
    return table("Alternatives", head, rows, words=(0, 1, 5, 6))


def notes(lines: Sequence[str]) -> Html:
    """Assumptions of the answer."""
    return element("ul", *(element("li", line) for line in lines)) if lines else join([])
