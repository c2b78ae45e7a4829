"""Situations: requests with their profiles."""

from dataclasses import replace

import pytest

from strategist.contract.request import Request
from strategist.errors import InputError
from strategist.profiles.situation import situation
from strategist.units import GIB

REQUEST = Request(model="32b", gpus="8x24GB")


def test_a_situation_holds_what_the_request_names_and_what_was_assumed():
    found = situation(REQUEST)
    assert found.request == REQUEST
    assert (found.model.name, found.cluster.device.name) == ("qwen2.5-32b", "RTX4090")
    assert [word in " ".join(found.notes) for word in ("qwen2.5-32b", "RTX4090", "cluster file")] == [True, True, True]


def test_the_digest_names_the_content_of_model_and_cluster():
    digest = situation(REQUEST).digest
    assert len(digest) == 16
    assert int(digest, 16) >= 0
    assert situation(REQUEST).digest == digest
    assert situation(replace(REQUEST, model="qwen2.5-32b")).digest == digest
    others = [replace(REQUEST, model="7b"), replace(REQUEST, gpus="4x24GB"), replace(REQUEST, host_memory_bytes=GIB)]
    assert len({situation(other).digest for other in others} | {digest}) == 4


def test_what_cannot_be_resolved_is_the_users_error():
    with pytest.raises(InputError, match="--model 33b"):
        situation(replace(REQUEST, model="33b"))
    with pytest.raises(InputError, match="--gpus 8x"):
        situation(replace(REQUEST, gpus="8x"))
