"""All inputs of ``plan``, through the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from formats.plans import deck

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.request import Request
from strategist.planning.planner import answer_stages
from strategist.profiles.models import presets

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--seq-len", "256", "--global-batch", "16"]
HF_CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 128,
    "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 384, "vocab_size": 512,
}  # fmt: skip
COMMAND = [sys.executable, "-m", "strategist.cli.main"]
SHAPE = "layers: 4\nhidden_size: 128\nheads: 8\nkv_heads: 4\nhead_size: 16\nffn_size: 384\nvocab_size: 512\n"


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    """The answer that the command prints as JSON."""
    assert main(["plan", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return codec.loads(Answer, out)


@pytest.mark.parametrize("model", ["tiny", "deepseek-v3"])
def test_a_preset_gets_plans_or_alternatives(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["plan", "--model", model, "--gpus", "8x80GB", "--json"])
    answer = codec.loads(Answer, capsys.readouterr().out)
    assert answer.model.name == model
    assert code == (0 if answer.plans else 1)
    assert answer.plans or answer.alternatives


@pytest.mark.full
def test_every_preset_gets_plans_or_alternatives() -> None:
    """Beside plans, no alternatives are looked for."""
    wrong = []
    for model in presets():
        answer = next(answer_stages(Request(model=model, gpus="8x80GB"), deck=deck()))
        if answer.model.name != model or not (answer.plans or answer.alternatives):
            wrong.append(model)
    assert wrong == []


@pytest.mark.parametrize(("size", "preset"), [("32b", "qwen2.5-32b"), ("7b", "qwen2.5-7b")])
def test_a_note_names_the_model_of_a_bare_size(size: str, preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = plan(capsys, "--model", size, "--gpus", "8x80GB")
    assert answer.model.name == preset
    assert any(preset in note for note in answer.notes)


def test_models_are_read_from_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HF_CONFIG))
    (tmp_path / "shape.yaml").write_text(SHAPE)
    names = [str(folder / "config.json"), str(folder), str(tmp_path / "shape.yaml")]
    shapes = [plan(capsys, "--model", name, "--gpus", "4xcpu", *SMALL).model for name in names]
    assert {(shape.layers, shape.hidden_size, shape.parameters) for shape in shapes} == {(4, 128, shapes[0].parameters)}


def test_a_hub_id_is_read_from_the_local_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = tmp_path / "hub" / "models--acme--small" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(HF_CONFIG))
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    answer = plan(capsys, "--model", "acme/small", "--gpus", "4xcpu", *SMALL)
    assert answer.model.name == "acme/small"


@pytest.mark.parametrize(
    ("gpus", "nodes", "per_node", "device"),
    [
        ("8x24GB", 1, 8, "RTX4090"), ("8xRTX4090", 1, 8, "RTX4090"), ("64xH100", 8, 8, "H100"), ("16x8xH100", 16, 8, "H100"),
    ],
)  # fmt: skip
def test_gpus_are_parsed_as_counts_and_devices(
    gpus: str, nodes: int, per_node: int, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = plan(capsys, "--model", "tiny", "--gpus", gpus, "--global-batch", "256")
    assert (answer.cluster.nodes, answer.cluster.gpus_per_node) == (nodes, per_node)
    assert device in answer.cluster.device.name
    if "GB" in gpus:
        assert any(device in note for note in answer.notes)


def test_gpus_name_this_machine_or_a_cluster_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(capsys, "--model", "tiny", "--gpus", "local", *SMALL).cluster.devices >= 1
    (tmp_path / "box.yaml").write_text("nodes: 1\ngpus_per_node: 4\ndevice: H100\n")
    answer = plan(capsys, "--model", "8b", "--gpus", str(tmp_path / "box.yaml"))
    assert answer.cluster.devices == 4


def test_options_set_the_request(capsys: pytest.CaptureFixture[str]) -> None:
    answer = plan(
        capsys, "--model", "8b", "--gpus", "8x80GB", "--seq-len", "2048", "--global-batch", "32", "--train", "lora",
        "--optimizer", "adamw8bit", "--precision", "bf16", "--host-memory", "256GiB", "--objective", "memory",
        "--fix", "tp=2", "--fix", "recompute=full", "--allow", "reduce_dtype", "--top", "2", "--tokens", "2.5T",
    )  # fmt: skip
    workload, request = answer.request.workload, answer.request
    assert (workload.seq_len, workload.global_batch, workload.train, workload.optimizer) == (2048, 32, "lora", "adamw8bit")
    assert (request.objective, request.host_memory_bytes, request.allow) == ("memory", 256 * 2**30, ("reduce_dtype",))
    assert request.tokens == 2.5e12
    assert len(answer.trainings) == len(answer.plans) <= 2
    for best in answer.plans:
        assert (best.candidate.layout.tp, best.candidate.knobs.recompute) == (2, "full")


def test_options_override_the_request_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "req.yaml"
    file.write_text("model: 8b\ngpus: 8x80GB\nseq_len: 2048\ntrain: lora\nlora_rank: 4\nfix: {tp: 2, recompute: full}\n")
    answer = plan(capsys, "--request", str(file), "--seq-len", "1024", "--fix", "tp=4")
    workload = answer.request.workload
    assert (workload.seq_len, workload.train, workload.lora_rank) == (1024, "lora", 4)
    assert answer.request.fix == {"tp": 4, "recompute": "full"}


def test_plans_for_native_are_supported_by_native(capsys: pytest.CaptureFixture[str]) -> None:
    answer = plan(capsys, "--model", "tiny", "--gpus", "4xcpu", *SMALL, "--backend", "native")
    assert answer.plans
    assert all("native" in best.backends for best in answer.plans)


def test_user_cards_and_calibration_change_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from strategist.cost.calibration import Calibration

    base = plan(capsys, "--model", "tiny", "--gpus", "4xcpu", *SMALL).plans[0]
    cards = tmp_path / "cards"
    cards.mkdir()
    (cards / "own.yaml").write_text(
        "StrategyCard:\n  id: OWN-001\n  module: recompute\n  intent: Always recompute.\n"
        "  policies:\n  - id: always\n    require: {recompute: full}\n    because: We said so.\n"
    )
    carded = plan(capsys, "--model", "tiny", "--gpus", "4xcpu", *SMALL, "--cards", str(cards)).plans[0]
    assert base.candidate.knobs.recompute == "none"
    assert carded.candidate.knobs.recompute == "full"
    assert "OWN-001" in {reason.card for reason in carded.reasons}
    codec.save(Calibration(compute=3.0, trials=5), tmp_path / "calibration.json")
    slower = plan(capsys, "--model", "tiny", "--gpus", "4xcpu", *SMALL, "--calibration", str(tmp_path / "calibration.json")).plans[
        0
    ]
    assert slower.estimate.step_seconds > base.estimate.step_seconds
    assert slower.digests.calibration != base.digests.calibration


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("request*.yaml")), ids=lambda path: path.name)
def test_example_requests_get_plans(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(capsys, "--request", str(file)).plans


def test_a_dash_is_standard_input_of_any_kind_of_file(tmp_path: Path) -> None:
    """From a pipe, which can be read once; what is made of the plan lies in the current folder."""
    planned = [*COMMAND, "plan", "--model", "tiny", "--gpus", "2xcpu", *SMALL, "-o", "-"]
    made = subprocess.run(planned, capture_output=True, text=True, cwd=tmp_path, check=True).stdout
    for command in ("explain", "report", "trace", "check"):
        done = subprocess.run([*COMMAND, command, "-"], input=made, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
    assert [item.name for item in tmp_path.iterdir()] == ["plan-trace.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2, "strategist: output: No space left on device; correct that and repeat the command\n",
    )  # fmt: skip
