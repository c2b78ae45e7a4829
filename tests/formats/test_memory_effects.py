"""Bounds of the memory effect of entries that the price does not include."""

from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from contract.samples import PLAN

from formats.names import NAMES, listed
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.contract.estimate import MemoryParts
from strategist.formats.memory_effects import (
    COMPUTE_TYPE,
    EFFECTS,
    IMAGE_ENCODER,
    LAUNCH_FILE,
    OF_SCRIPTS,
    QUANTIZED_WEIGHTS,
    REFERENCE_MODEL,
    bounds,
    effect,
)
from strategist.formats.script_arguments import MODES, RANKS, SWITCHES, WEIGHT_TYPES

MEMORY = MemoryParts(
    parameters=100.0, unsharded_parameters=20.0, gradients=50.0, optimizer=200.0, activations=300.0, logits=40.0,
    communication=10.0, allocator=30.0,
)  # fmt: skip
PRICED = replace(PLAN, estimate=replace(PLAN.estimate, memory=MEMORY, peak_memory_bytes=750.0, host_memory_bytes_per_node=64.0))


def finding(entry: str, code: str = "FMT-002") -> Diagnostic:
    return Diagnostic(code=code, level=Level.WARNING, message=f"{entry}: something", entry=entry)


@pytest.mark.parametrize(
    ("entries", "least", "most"),
    [
        ((), 750, 750),
        (("neat_packing",), 750, 750),
        (("enable_liger_kernel",), 380, 750),
        (("enable_liger_kernel", "use_unsloth"), 380, 750),
        (("nobody.knows.it",), 350, 750),
        (("use_adam_mini", "enable_liger_kernel"), 130, 750),
        (("rl",), 750, 750 + 100 + 400),
        (("finetuning_type",), 50, 750),
        (("zero_optimization.reduce_bucket_size",), 720, 750),
    ],
)
def test_entries_bound_only_the_memory_parts_that_they_affect(entries: tuple[str, ...], least: float, most: float) -> None:
    known = bounds(PRICED, [finding(name) for name in entries])
    assert (known.min_bytes, known.max_bytes) == (least, most)


def test_possible_savings_and_costs_are_listed_with_their_parts() -> None:
    known = bounds(PRICED, [finding("enable_liger_kernel"), finding("rl")])
    assert [text.partition(" could ")[0] for text in known.saves] == ["enable_liger_kernel"]
    assert "(activations, logits, allocator)" in known.saves[0]
    assert [text.partition(" could ")[0] for text in known.costs] == ["rl"]


def test_an_unknown_value_has_no_lower_bound() -> None:
    known = bounds(PRICED, [finding("micro-batch-size", "FMT-011")])
    assert (known.min_bytes, known.open) == (0, ("micro-batch-size",))
    assert effect(finding("x", "FMT-001")) == effect(finding("x", "FMT-003"))  # the framework acts on neither of them


def test_kernels_that_a_script_switches_on_itself_can_save_activations() -> None:
    for name in OF_SCRIPTS:
        assert bounds(PRICED, [finding(name, "FMT-001")]).min_bytes == 380


def test_an_image_encoder_has_no_upper_bound() -> None:
    known = bounds(PRICED, [finding(IMAGE_ENCODER, "FMT-009")])
    assert (known.min_bytes, known.open) == (750, (f"{IMAGE_ENCODER}: something",))


def test_another_trainer_has_no_bounds() -> None:
    known = bounds(PRICED, [finding("use_mca")])
    assert (known.min_bytes, known.open) == (0, ("use_mca: something",))


def test_weights_in_their_stored_type_may_take_half() -> None:
    assert bounds(PRICED, [finding("dtype")]).min_bytes == 750 - (100 + 50 + 200 + 10) / 2


def test_offload_to_disk_can_free_host_memory() -> None:
    for entries, least in (((), 64), (("rl",), 64), (("zero_optimization.offload_optimizer.device",), 0)):
        known = bounds(PRICED, [finding(name) for name in entries])
        assert (known.min_bytes, known.host_min_bytes) == (750, least)


def test_each_entry_with_an_effect_is_a_known_name() -> None:
    known = [
        LAUNCH_FILE,
        IMAGE_ENCODER,
        QUANTIZED_WEIGHTS,
        COMPUTE_TYPE,
        REFERENCE_MODEL,
        *MODES,
        *SWITCHES,
        *RANKS,
        *WEIGHT_TYPES,
        *(name for file in NAMES.glob("*.txt") for name in listed(file.stem)),
    ]
    patterns = [name for name in EFFECTS if "*" in name]
    assert all(any(fnmatchcase(name, pattern) for name in known) for pattern in patterns)
    unknown = [entry for entry in EFFECTS if entry not in patterns and not any(fnmatchcase(entry, name) for name in known)]
    assert unknown == []
