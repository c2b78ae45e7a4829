"""Requests built in Python: wrong types and settings raise one line that states what to write."""

from typing import Any

import pytest

from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.errors import InputError

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"gpus": 8}, "gpus 8: is of the type int; write e.g. gpus='8xH100'"),
    ({"model": None}, "model None: is of the type NoneType; write e.g. model='8b'"),
    ({"workload": {}}, "write e.g. workload=Workload(seq_len=4096)"),
    ({"allow": "float8"}, "allow 'float8': is of the type str"),
    ({"confidence": "0.9"}, "confidence '0.9': is of the type str"),
    ({"tokens": True}, "tokens True: is of the type bool"),
    ({"backend": 3}, "backend 3: is of the type int; write e.g. backend='native'"),
    ({"fix": {"tp": "8"}}, "fix tp='8': a whole number from 1 on is needed; write e.g. tp=2"),
    ({"fix": {"tp": True}}, "a whole number from 1 on is needed"),
    ({"fix": {"tpp": 2}}, "fix tpp: is not a setting; take one of pp, "),
    ({"fix": {"recompute": "ful"}}, "fix recompute='ful': is not a value of it; choose one of 'none', "),
    ({"fix": {"compile": 1}}, "choose one of False, True"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=lambda item: str(item) if isinstance(item, dict) else "")
def test_an_invalid_request_raises_a_one_line_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Request(**{"model": "8b", "gpus": "8xH100", **given})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [{"seq_len": "4k"}, {"global_batch": 16.0}, {"lora_rank": None}], ids=str)
def test_a_workload_with_a_size_of_another_type_raises_a_one_line_error(given: dict[str, Any]) -> None:
    [(name, value)] = given.items()
    with pytest.raises(InputError, match=f"{name} .* is of the type {type(value).__name__}; write e.g. {name}=16"):
        Workload(**given)
