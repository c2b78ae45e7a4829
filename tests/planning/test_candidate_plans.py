"""Plans of given candidates: priced together as each is alone."""

from formats.plans import deck

from planning.plans import best
from strategist.contract.options import Options
from strategist.contract.request import Request
from strategist.contract.settings import with_settings
from strategist.planning.candidate_plans import completed, resolved_outlines
from strategist.planning.planner import resolve_candidate
from strategist.planning.ranking import PlanningContext
from strategist.profiles.situation import situation


def test_candidates_priced_together_have_the_plans_that_each_has_alone() -> None:
    """With and without stages, offload and a fused optimizer update, which have different stacks and simulations."""
    request = Request(model="8b", gpus="8xH100")
    asked, chosen = situation(request), best(request).candidate
    plain = with_settings(chosen, {**vars(Options()), "tp": 1, "pp": 1, "dp_shard": 8, "sequence_parallel": False})
    stages = {"pp": 2, "dp_shard": 4, "no_sync": True}
    changes = (
        {},
        {"recompute": "full"},
        {"offload": "optimizer"},
        {"optimizer_kernel": "fused"},
        stages,
        {**stages, "micro_batch": 1},
    )
    candidates = [with_settings(plain, change) for change in changes]
    together = resolved_outlines(asked, candidates, PlanningContext(deck=deck(), calibration=None))
    assert [completed(plan, deck()) for plan in together] == [resolve_candidate(asked, each, deck=deck()) for each in candidates]
    assert len({plan.estimate.step_seconds for plan in together}) == len(changes) - 1
