"""Exported models: transformers loads them and has the loss of the trial."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
import transformers
from strategist_runtime.mesh import Meshes
from strategist_runtime.model.decoder import Decoder
from strategist_runtime.training.trainer import make_reader
from strategist_runtime.weights import safetensors_writer
from strategist_runtime.weights.export import checked_config
from strategist_runtime.weights.hugging_face import PARAMETER_NAMES
from strategist_runtime.weights.seeded import materialise

from strategist.contract import codec
from strategist.contract.hugging_face_config import config_of
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.profiles.huggingface import read_config

from ..cases import MODELS
from ..export_rank import STEPS
from ..hugging_face import SIZES, save_model
from ..launch import forked, run_alone
from ..plans import TINY, WORKLOAD, plan

pytestmark = [pytest.mark.torch, pytest.mark.timeout(200)]

FROM_FOLDERS = {
    "llama": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2)),
    "qwen2": plan(layout=Layout(pp=2), knobs=Knobs(micro_batch=2)),
    "deepseek_v3": plan(layout=Layout(dp_shard=2, ep=2), knobs=Knobs(micro_batch=4)),
    "qwen3": plan(layout=Layout(tp=2), knobs=Knobs(micro_batch=4), workload=replace(WORKLOAD, train="lora", lora_rank=2)),
}
"""Plans that start from the weights of a folder."""

FROM_SEED = {"gpt2": plan(model=MODELS["gpt"], layout=Layout(tp=2), knobs=Knobs(micro_batch=4, sequence_parallel=True))}
"""Plans that start from seeded weights."""

IN_EVERY_RUN = ("llama", "qwen3", "gpt2")


@pytest.fixture(scope="module")
def exported(request, tmp_path_factory):
    """The folder of each chosen plan, with the loaded and the exported model."""
    items = [item for item in request.session.items if item.function is test_transformers_loads_exported_models_with_the_same_loss]
    chosen = {"llama", *(item.callspec.params["name"] for item in items)}
    places = {name: tmp_path_factory.mktemp(name) for name in (*FROM_FOLDERS, *FROM_SEED) if name in chosen}
    for name, place in places.items():
        (place / "export").mkdir()  # an empty folder may exist
        settings, run = TrialSettings(total_steps=STEPS, export=str(place / "export"), learning_rate=1e-2), FROM_SEED.get(name)
        if run is None:
            save_model(name, place / "origin")
            (place / "origin" / "tokenizer.json").write_text("{}", encoding="utf-8")
            run = replace(FROM_FOLDERS[name], model=read_config(place / "origin")).identified()
            settings = replace(settings, weights=str(place / "origin"))
        codec.save(run, place / "plan.json")
        codec.save(settings, place / "settings.json")
    done = forked(2, ["runtime.export_rank", *map(str, places.values())])
    assert done.returncode == 0, done.stderr
    return places


@pytest.mark.parametrize(
    "name", [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.full) for name in (*FROM_FOLDERS, *FROM_SEED)]
)
def test_transformers_loads_exported_models_with_the_same_loss(name, exported):
    run, settings = codec.load(Plan, exported[name] / "plan.json"), codec.load(TrialSettings, exported[name] / "settings.json")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(settings.export, attn_implementation="eager").eval()
    rows = make_reader(run, settings, Meshes()).read(STEPS * run.workload.global_batch, run.workload.global_batch)
    with torch.no_grad():
        loss = F.cross_entropy(theirs(rows.tokens).logits.flatten(0, 1), rows.targets.flatten()).item()
    assert json.loads((exported[name] / "loss.json").read_text()) == pytest.approx(loss, rel=1e-5)


def test_the_tokenizer_is_copied_to_the_export(exported):
    assert (exported["llama"] / "export" / "tokenizer.json").exists()


def test_exported_weights_equal_the_loaded_ones_without_training(tmp_path):
    theirs = save_model("llama", tmp_path / "origin")
    settings = TrialSettings(total_steps=1, learning_rate=0.0)
    settings = replace(settings, weights=str(tmp_path / "origin"), export=str(tmp_path / "new" / "export"))
    code, record, errors = run_alone(plan(model=read_config(tmp_path / "origin")), tmp_path, settings)
    assert (code, record.outcome) == (0, Outcome.OK), errors
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "new" / "export")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in theirs.state_dict().items())


@pytest.mark.parametrize("name", [name for name in SIZES if name != "phi3"])
def test_the_exported_configuration_describes_the_same_shape(name, tmp_path):
    transformers.AutoConfig.for_model(name.split()[0], **SIZES[name]).save_pretrained(tmp_path / "theirs")
    shape = read_config(tmp_path / "theirs")
    ours = config_of(shape, 64, "float32")
    transformers.AutoConfig.for_model(**ours).save_pretrained(tmp_path / "ours")
    assert replace(read_config(tmp_path / "ours"), name=shape.name) == shape


def test_exporting_an_unsupported_model_is_refused_before_training(tmp_path):
    run = plan(model=replace(TINY, norm="layer"))
    code, record, _ = run_alone(run, tmp_path, TrialSettings(total_steps=1, export=str(tmp_path / "export")))
    assert (code, record.outcome, record.phase) == (79, Outcome.REFUSED, "build")
    assert "model tiny with layer norm: is none of Hugging Face's architectures" in record.message


def test_4_bit_weights_are_not_exported():
    with pytest.raises(InputError, match="kept in 4 bits only"):
        checked_config(plan(workload=replace(WORKLOAD, train="qlora")))


def test_export_writes_each_file_as_soon_as_it_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors_writer, "FILE_BYTES", 20_000)
    origin = tmp_path / "origin"
    theirs = save_model("gpt2", origin)
    shape = read_config(origin)
    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in Decoder(shape).named_parameters() if name != "head.weight"}
    files = safetensors_writer.Shards(PARAMETER_NAMES["gpt2"], shape, shapes, torch.float32)
    source = load_values(origin, shape)
    for name in shapes:
        files.add(name, source[name].detach(), tmp_path)
    assert files.tensors == {}
    files.finish(tmp_path)
    theirs.config.save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) == files.count > 3
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in theirs.state_dict().items())


def load_values(folder, shape):
    """The parameters of a folder's model, by plain name."""
    with torch.device("meta"):
        model = Decoder(shape)
    materialise(model, shape, 8, 0, torch.device("cpu"), str(folder))
    return dict(model.named_parameters())
