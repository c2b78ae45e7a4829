"""The timeline of a simulated step in reports."""

import pytest
from cost.situations import DENSE, WORKLOAD, cluster

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.cost.simulated_steps import simulated
from strategist.expr.columns import row_of, table
from strategist.report.simulated_timeline import timeline


@pytest.mark.parametrize("pp", [2, 4])
def test_the_timeline_of_a_pipeline_has_spans_of_every_rank(pp: int) -> None:
    candidate = Candidate(layout=Layout(pp=pp, dp_shard=8 // pp), knobs=Knobs(no_sync=True))
    columns = table([row_of(candidate, candidate.accumulation(WORKLOAD))])
    [found] = simulated(DENSE, cluster(), WORKLOAD, columns)
    drawn = timeline(found)
    assert (drawn.schedule, {span.rank for span in drawn.spans}) == ("1f1b", set(range(pp)))
