"""The flags of each alternative give exactly the plan that it states."""

from functools import cache
from pathlib import Path

import pytest
from planning.plans import best

from strategist.alternatives import resources
from strategist.cards.deck import Deck, load_deck
from strategist.cli import request_options as command_line
from strategist.cli.parser import Parser
from strategist.contract.answer import Answer
from strategist.contract.cluster import MAX_DEVICES
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.paths import data_dir
from strategist.planning.planner import answer
from strategist.profiles.cluster import resolve_cluster
from strategist.units import GIB

REQUESTS = {
    "offloads": Request(model="32b", gpus="8x24GB"),
    "hosts too small": Request(model="70b", gpus="1x24GB", host_memory_bytes=64 * GIB),
    "fixed": Request(model="8b", gpus="1x24GB", fix={"offload": "none"}),
    "last resort": Request(model="8b", gpus="1x24GB", host_memory_bytes=GIB, fix={"offload": "none", "dp_shard": 1, "pp": 1}),
    "undivided": Request(model="tiny", gpus="3xH100"),
    "long": Request(model="8b", gpus="1x24GB", workload=Workload(seq_len=262144, global_batch=4), host_memory_bytes=256 * GIB),
}


def command_line_flags(request: Request) -> list[str]:
    """The request as flags of the command line."""
    words = ["--model", request.model, "--gpus", request.gpus, "--seq-len", str(request.workload.seq_len)]
    words += ["--global-batch", str(request.workload.global_batch), "--backend", request.backend]
    words += ["--host-memory", f"{request.host_memory_bytes // GIB}GiB"] if request.host_memory_bytes else []
    return words + [word for name, value in request.fix.items() for word in ("--fix", f"{name}={value}")]


def changed(request: Request, flags: tuple[str, ...]) -> Request:
    """The request with the flags at its end, read as the command line reads them."""
    parser = Parser(prog="strategist")
    command_line.add(parser)
    return command_line.request(parser.parse_args([*command_line_flags(request), *flags]))


@pytest.fixture(scope="module")
def deck() -> Deck:
    return load_deck(data_dir("cards"))


@cache
def answered(name: str) -> Answer:
    return answer(REQUESTS[name], deck=load_deck(data_dir("cards")))


QUICK = ("hosts too small", "fixed", "undivided")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.full]) for name in REQUESTS])
def test_the_flags_of_an_alternative_give_its_plan(deck: Deck, name: str) -> None:
    found = answered(name)
    assert found.alternatives
    for other in found.alternatives:
        assert best(changed(REQUESTS[name], other.flags), deck).id == other.plan.id, other.title


def test_an_indivisible_batch_suggests_another_batch_first() -> None:
    found = answered("undivided")
    assert not found.plans
    assert found.alternatives[0].flags == ("--global-batch", "63")
    assert found.alternatives[0].plan.cluster == found.cluster


def test_a_larger_cluster_of_a_users_file_has_no_flags(deck: Deck, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("device: RTX4090\nnodes: 1\ngpus_per_node: 2\n", encoding="utf-8")
    found = answer(Request(model="8b", gpus=str(path)), deck=deck)
    larger = next(other for other in found.alternatives if "nothing offloaded" in other.title)
    assert larger.flags == ()
    assert larger.plan.cluster.devices > 2


def test_alternatives_gain_at_least_5_percent(deck: Deck) -> None:
    found = answer(Request(model="8b", gpus="8xH100", fix={"pp": 1, "compile": True}), deck=deck)
    assert found.plans[0].candidate.knobs.offload == "none"
    assert all(
        other.plan.estimate.tokens_per_second >= 1.05 * found.plans[0].estimate.tokens_per_second for other in found.alternatives
    )


def test_alternatives_that_change_convergence_are_marked(deck: Deck) -> None:
    found = answer(Request(model="8b", gpus="2x24GB"), deck=deck)
    changes_by_flag = {other.flags[0]: other.changes_convergence for other in found.alternatives}
    assert {flag for flag, changes in changes_by_flag.items() if changes} == {"--train", "--optimizer", "--allow"}


def test_suggested_clusters_stay_within_the_device_limit() -> None:
    sizes = [size.devices for size in resources._sizes(resolve_cluster("2048x8xH100"), state_bytes=0.0)]
    assert sizes == sorted(sizes)
    assert 2**19 < max(sizes) <= MAX_DEVICES
    assert list(resources._sizes(resolve_cluster("131072x8xH100"), state_bytes=0.0)) == []


def test_each_alternative_is_another_plan(deck: Deck) -> None:
    """The best plan recomputes and keeps state on the hosts: 8-bit states help against both."""
    titles = [
        other.title for other in answer(Request(model="70b", gpus="8xH200", fix={"pp": 1, "compile": True}), deck=deck).alternatives
    ]
    assert titles.count("8-bit optimizer states") == 1
