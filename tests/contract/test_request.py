"""What Python code may ask: wrong types and settings are one line, which says what to write."""

from typing import Any

import pytest

from strategist.contract.request import Request
from strategist.errors import InputError

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"gpus": 8}, "gpus 8: is of the type int; write e.g. gpus='8xH100'"),
    ({"model": None}, "model None: is of the type NoneType; write e.g. model='8b'"),
    ({"workload": {}}, "write e.g. workload=Workload(seq_len=4096)"),
    ({"allow": "float8"}, "allow 'float8': is of the type str"),
    ({"confidence": "0.9"}, "confidence '0.9': is of the type str"),
    ({"tokens": True}, "tokens True: is of the type bool"),
    ({"fix": {"tp": "8"}}, "fix tp='8': a whole number from 1 on is needed; write e.g. tp=2"),
    ({"fix": {"tp": True}}, "a whole number from 1 on is needed"),
    ({"fix": {"tpp": 2}}, "fix tpp: is not a setting; take one of pp, "),
    ({"fix": {"recompute": "ful"}}, "fix recompute='ful': is not a value of it; choose one of 'none', "),
    ({"fix": {"compile": 1}}, "choose one of False, True"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=lambda item: str(item) if isinstance(item, dict) else "")
def test_what_cannot_be_asked_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        Request(**{"model": "8b", "gpus": "8xH100", **given})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
