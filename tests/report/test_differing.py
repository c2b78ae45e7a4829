"""Plans that differ only in a setting without a column are distinguished."""

from dataclasses import replace

from planning.plans import answer_of

from strategist import Request
from strategist.contract.settings import with_settings
from strategist.contract.workload import Workload
from strategist.report.setting_text import differing


def test_plans_with_equal_columns_show_their_differing_settings() -> None:
    request = Request(model="tiny", gpus="4xcpu", workload=Workload(seq_len=128, global_batch=16))
    first, second = answer_of(request, top=2).plans
    assert differing((first, second)) == ["", ""]
    twin = replace(first, candidate=with_settings(first.candidate, {"activation_offload": True}))
    assert differing((first, second, twin)) == ["activation_offload false", "", "activation_offload true"]
