"""``strategist models`` and ``strategist hardware``: names, and what each resolves to."""

import json

import pytest

from strategist import api
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.cluster import Cluster
from strategist.contract.model import NamedModel


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("command", "kind"), [("models", "models"), ("hardware", "devices")])
def test_every_name_is_listed_and_can_be_shown(command: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    listed = output(capsys, command, "list").splitlines()[1:]
    names = api.profiles()[kind]
    assert len(listed) == len(names) > 20
    assert len(json.loads(output(capsys, command, "list", "--json"))) == len(names)
    for name in names:
        assert output(capsys, command, "show", name)


def test_a_size_is_shown_as_the_model_it_resolves_to(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(output(capsys, "models", "show", "32b").split())
    assert text.startswith("qwen2.5-32b parameters 32,763,876,352")
    assert "32b is resolved to qwen2.5-32b" in text
    assert "full training, adamw 488.2 GiB" in text, "16 bytes a parameter"
    assert codec.loads(NamedModel, output(capsys, "models", "show", "32b", "--json")) == api.model("32b")


def test_experts_and_latent_attention_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "models", "show", "deepseek-v3")
    assert "256 of 2,048, 8 a token, 1 shared" in text
    assert "latent keys and values of 512" in text


def test_a_device_is_shown_with_its_node_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(output(capsys, "hardware", "show", "h100").split())
    for words in (
        "bf16 989.4 TFLOPS",
        "NVIDIA H100 data sheet",
        "NVLink 4 with NVSwitch: 370 GB/s",
        "a node is assumed to be 8 x H100-SXM",
    ):
        assert words in text
    assert codec.loads(Cluster, output(capsys, "hardware", "show", "8x24GB", "--json")) == api.cluster("8x24GB")


@pytest.mark.parametrize(("command", "words"), [("models", "--model nope: is not a known model"), ("hardware", "--gpus nope: ")])
def test_an_unknown_name_prints_one_error_line(command: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "show", "nope"]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1
