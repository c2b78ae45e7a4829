"""Situations: requests with their profiles."""

from dataclasses import replace

import pytest

from strategist.contract.request import Request
from strategist.errors import InputError
from strategist.profiles.situation import situation
from strategist.units import GIB

REQUEST = Request(model="32b", gpus="8x24GB")


def test_a_situation_has_the_profiles_and_notes_on_assumptions():
    found = situation(REQUEST)
    assert found.request == REQUEST
    assert (found.model.name, found.cluster.device.name) == ("qwen2.5-32b", "RTX4090")
    assert [word in " ".join(found.notes) for word in ("qwen2.5-32b", "RTX4090", "cluster file")] == [True, True, True]


def test_the_digest_depends_on_the_content_of_model_and_cluster():
    digest = situation(REQUEST).digest
    assert len(digest) == 16
    assert int(digest, 16) >= 0
    assert situation(REQUEST).digest == digest
    assert situation(replace(REQUEST, model="qwen2.5-32b")).digest == digest
    others = [replace(REQUEST, model="7b"), replace(REQUEST, gpus="4x24GB"), replace(REQUEST, host_memory_bytes=GIB)]
    assert len({situation(other).digest for other in others} | {digest}) == 4


def test_an_unresolvable_model_or_cluster_is_an_input_error():
    with pytest.raises(InputError, match="--model 33b"):
        situation(replace(REQUEST, model="33b"))
    with pytest.raises(InputError, match="--gpus 8x"):
        situation(replace(REQUEST, gpus="8x"))


def test_a_device_without_bf16_is_planned_in_fp16_with_a_note():
    old = replace(REQUEST, gpus="8xV100-32GB")
    found = situation(old)
    assert found.request.workload.precision == "fp16"
    assert "V100-32GB does not multiply bf16: this is planned in fp16, with a scaled loss" in found.notes
    for precision in ("fp16", "fp32"):
        explicit = replace(old, workload=replace(old.workload, precision=precision))
        assert situation(explicit).request == explicit
    with pytest.raises(InputError, match="V100-32GB does not multiply bf16; write --precision fp16 or fp32"):
        situation(replace(old, workload=replace(old.workload, precision="bf16-true")))


@pytest.mark.parametrize(
    ("model", "train", "planned", "words"),
    [
        ("unsloth/llama-3-8b-bnb-4bit", "lora", "qlora", "LoRA on them is QLoRA"),
        ("unsloth/llama-3-8b-bnb-4bit", "qlora", "qlora", ""),
        ("unsloth/llama-3-8b-bnb-4bit", "full", "full", "only adapters can train: 16 bits are planned; --train qlora"),
        ("Qwen/Qwen3-8B-AWQ", "lora", "lora", "are awq: they are priced as 16 bits"),
        ("Qwen/Qwen3-8B", "lora", "lora", ""),
    ],
)
def test_quantized_weights_decide_what_adapters_train_on(model, train, planned, words):
    workload = replace(REQUEST.workload, train=train)
    found = situation(replace(REQUEST, model=model, workload=workload))
    assert found.request.workload.train == planned
    notes = [note for note in found.notes if note.startswith("stored weights are")]
    assert bool(notes) == bool(words)
    assert words in " ".join(notes)
