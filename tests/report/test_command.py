"""The command line of a request parses to the same request."""

import argparse
from dataclasses import replace

import pytest

from strategist.cli import goal_options as goal_options, request_options as request_options
from strategist.cli.main import whole_parser
from strategist.contract.goals import Goals
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.report.command import plan_command, tune_command

REQUESTS = (
    Request(model="32b", gpus="8x24GB"),
    Request(
        model="a model; rm -rf", gpus="4x8xH100", objective="cost", host_memory_bytes=512 * 2**30,
        workload=Workload(seq_len=8192, global_batch=128, optimizer="muon", document_tokens=512, train="lora", lora_rank=64),
        fix={"tp": 2, "compile": False, "recompute": "full"}, allow=("float8", "comm_hook"), backend="native", confidence=0.9,
        node_seconds_between_failures=21600.5, price_per_hour=2.125,
    ),
)  # fmt: skip


@pytest.mark.parametrize("expected", REQUESTS, ids=lambda expected: expected.gpus)
def test_a_command_line_parses_to_its_request(expected: Request) -> None:
    program, *arguments = plan_command(expected)
    options = whole_parser(["plan"]).parse_args(arguments, argparse.Namespace())
    assert program == "strategist"
    assert request_options.request(options) == expected


def test_sizes_and_counts_are_written_with_units() -> None:
    expected = Request(model="8b", gpus="8xH100", host_memory_bytes=2**40, tokens=15 * 10**12)
    assert plan_command(expected)[-4:] == ("--tokens", "15T", "--host-memory", "1TiB")
    odd = plan_command(replace(expected, host_memory_bytes=2**30 + 1, tokens=10**9 + 7))
    assert odd[-4:] == ("--tokens", "1000000007", "--host-memory", f"{2**30 + 1}B")


def test_a_tune_command_parses_to_the_goals_of_its_study() -> None:
    goals = Goals(objectives=("throughput", "memory"), headroom=0.1, least_tokens_per_second=1e4)
    _, *arguments = tune_command(REQUESTS[0], goals, "a study", 7)
    options = whole_parser(["tune"]).parse_args(arguments, argparse.Namespace())
    assert request_options.request(options) == REQUESTS[0]
    assert goal_options.goals(options, REQUESTS[0]) == goals
    assert (options.study, options.trials) == ("a study", 7)
