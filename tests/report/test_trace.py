"""Events of a trace: names of processes, and the end of a step."""

import re
from typing import Any

import pytest
from planning.plans import best

from strategist import api
from strategist.contract.request import Request
from strategist.contract.workload import Workload


def traced(**fix: Any) -> list[dict[str, Any]]:
    request = Request(model="llama3.1-8b", gpus="8xH100", fix={"offload": "none", **fix}, workload=Workload(global_batch=32))
    events: list[dict[str, Any]] = api.trace(best(request))["traceEvents"]
    return events


@pytest.mark.parametrize(
    ("fix", "names"),
    [
        ({"dp_shard": 8}, ["every rank, embedding and head, on 8 devices"]),
        (
            {"pp": 4, "dp_shard": 2, "pp_schedule": "1f1b"},
            [f"rank {rank} of 4{rest}, on 2 devices" for rank, rest in enumerate((", embedding", "", "", ", head"))],
        ),
        (
            {"pp": 8, "pp_schedule": "dual_pipe_v"},
            ["rank 0 of 8, embedding and head", *(f"rank {rank} of 8" for rank in range(1, 8))],
        ),
    ],
)
def test_a_process_is_named_by_its_ranks_and_layers(fix: dict[str, Any], names: list[str]) -> None:
    found = [event["args"]["name"] for event in traced(**fix) if event["name"] == "process_name"]
    assert [re.sub(r": \d+ layers", "", name) for name in found] == names
    assert sum(int(re.search(r": (\d+) layers", name)[1]) for name in found) == 32  # type: ignore[index]


def test_the_optimizer_runs_after_the_last_collectives() -> None:
    """Parts of zero duration, such as host copies here, are not drawn."""
    drawn = [event for event in traced(dp_shard=8) if event["ph"] == "X"]
    assert all(event["dur"] > 0 for event in drawn)
    reduced, updated = (next(event for event in drawn if event["cat"] == part) for part in ("dp_communication", "optimizer"))
    assert (reduced["name"], reduced["tid"], updated["name"], updated["tid"]) == ("dp collectives", 2, "optimizer", 1)
    assert updated["ts"] == pytest.approx(reduced["ts"] + reduced["dur"])
    assert "offload" not in {event["cat"] for event in drawn}
