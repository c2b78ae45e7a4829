"""Environment variables that a plan's options set for its ranks."""

from dataclasses import replace

import pytest
from runtime.plans import plan

from strategist.contract.environment import NUMBERS, VARIABLES, environment
from strategist.contract.options import OPTION_CHOICES, OPTION_NAMES, Options


def variables_of(kind="cuda", **options):
    return environment(plan(kind=kind, options=replace(Options(), **options)))


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ({"nccl_algorithm": "tree"}, {"NCCL_ALGO": "Tree"}),
        ({"nccl_p2p": "off", "nccl_nvls": "off"}, {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}),
        ({"nccl_socket_threads": 4}, {"NCCL_SOCKET_NTHREADS": "4"}),
        ({"cuda_connections": 1}, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
        (
            {"expandable_segments": True},
            {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        ),
        ({"layers_per_unit": 2, "optimizer_kernel": "fused"}, {}),
    ],
)
def test_each_option_sets_its_variables(options, variables):
    assert variables_of(**options) == variables


def test_default_options_set_no_variables():
    assert variables_of() == {}


def test_cpu_plans_set_no_variables():
    assert variables_of("cpu", nccl_algorithm="ring", cuda_connections=1) == {}


def test_each_value_except_the_default_sets_a_variable():
    for name, values in VARIABLES.items():
        assert set(values) == set(OPTION_CHOICES[name]) - {getattr(Options(), name)}
    assert set(NUMBERS) <= set(OPTION_NAMES) - set(OPTION_CHOICES)
