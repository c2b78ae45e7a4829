"""Refusals for models of transformers, and their agreement with the back end's profile."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml
from strategist_runtime.capability import refusals

from strategist.contract.layout import Layout
from strategist.contract.measurement import TrialSettings
from strategist.errors import FileError
from strategist.paths import data_dir

from .plans import TINY, WORKLOAD, plan
from .test_capability import MOE, SETTINGS, with_setting

PROFILE = yaml.safe_load((data_dir("profiles") / "backends" / "transformers.yaml").read_text(encoding="utf-8"))
RUNS = "with a model of transformers this runtime runs"


@pytest.fixture
def settings(tmp_path):
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    return TrialSettings(hugging_face=str(tmp_path))


@pytest.mark.parametrize(("part", "name", "value"), [setting for setting in SETTINGS if setting[:2] != ("workload", "train")])
def test_profile_and_runtime_agree_on_each_value(part, name, value, settings):
    allowed = PROFILE[part].get(name)
    found = any(text.startswith(f"{name} {value}: {RUNS} ") for text in refusals(with_setting(part, name, value), settings))
    assert found == (allowed is not None and value not in allowed)


def test_a_plain_plan_is_not_refused(settings):
    for layout in (Layout(), Layout(dp_shard=2), Layout(dp_replicate=2), Layout(dp_shard=2, tp=2)):
        assert refusals(plan(layout=layout), settings) == ()


def test_limits_of_the_native_decoder_do_not_apply(settings):
    special = replace(TINY, activation="something", head_size=9)
    assert refusals(plan(model=special)) != ()
    assert refusals(plan(model=special), settings) == ()


def test_qlora_needs_dense_layers(settings):
    found = refusals(plan(model=replace(TINY, moe=MOE), workload=replace(WORKLOAD, train="qlora")), settings)
    assert any(text.startswith("train qlora: ") for text in found)


def test_a_different_architecture_is_refused_with_both_values(settings):
    (text,) = refusals(plan(model=replace(TINY, layers=3)), settings)
    assert text.startswith(f"num_hidden_layers 2 in {settings.hugging_face}: the plan's model tiny has layers 3; ")


def test_settings_of_the_native_decoder_only_are_refused(settings):
    (text,) = refusals(plan(), replace(settings, mean_document_tokens=4))
    assert "transformers" in text


def test_a_missing_configuration_is_an_error(tmp_path):
    with pytest.raises(FileError, match=r"config\.json"):
        refusals(plan(), TrialSettings(hugging_face=str(tmp_path)))


def test_checking_capabilities_imports_neither_torch_nor_transformers():
    code = "import sys, strategist_runtime.capability; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
