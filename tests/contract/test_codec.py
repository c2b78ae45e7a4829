"""JSON of the contract: round trips, and refusals that name the place of an error."""

import dataclasses
import json

import pytest
from hypothesis import given

from contract import samples
from strategist.contract import codec
from strategist.contract.cluster import Cluster, Link
from strategist.contract.json_document import DocumentError
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.measurement import Measurement
from strategist.contract.model import ModelShape, RopeScaling
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.errors import FileError, InputError


@given(samples.layouts, samples.knobs)
def test_candidates_survive_a_round_trip_unchanged(layout, knobs):
    candidate = Candidate(layout=layout, knobs=knobs)
    again = codec.loads(Candidate, codec.dumps(candidate))
    assert again == candidate
    assert type(again.knobs.reshard_after_forward) is type(knobs.reshard_after_forward)
    assert codec.dumps(again) == codec.dumps(candidate)


@given(samples.workloads)
def test_workloads_survive_a_round_trip_unchanged(workload):
    assert codec.loads(Workload, codec.dumps(workload)) == workload


@pytest.mark.parametrize(
    ("cls", "value"),
    [
        (Plan, samples.PLAN),
        (Measurement, samples.MEASUREMENT),
        (Cluster, samples.CLUSTER),
        (ModelShape, dataclasses.replace(samples.MODEL, moe=samples.MOE, mla=samples.MLA)),
        (Request, Request(model="32b", gpus="8x24GB", fix={"tp": 2, "sequence_parallel": True, "recompute": "full"})),
    ],
)
def test_whole_documents_survive_a_round_trip_unchanged(cls, value):
    assert codec.loads(cls, codec.dumps(value)) == value


def changed(value, *path, to=None, drop=False):
    """The JSON document of ``value`` with one place changed."""
    data = json.loads(codec.dumps(value))
    inside = data
    for step in path[:-1]:
        inside = inside[step]
    if drop:
        del inside[path[-1]]
    else:
        inside[path[-1]] = to
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed(samples.PLAN, "cluster", "device", "colour", to="red"), "Plan.cluster.device: unknown key 'colour'"),
        (changed(samples.PLAN, "candidate", "knobs", "micro_batches", to=1), "Plan.candidate.knobs: unknown key 'micro_batches'"),
        (changed(samples.PLAN, "model", "layers", drop=True), "Plan.model: key 'layers' is missing"),
        (changed(samples.PLAN, "model", "layers", to="4"), "Plan.model.layers: int is needed, not str '4'"),
        (changed(samples.PLAN, "model", "layers", to=True), "Plan.model.layers: int is needed"),
        (changed(samples.PLAN, "model", "layers", to=4.0), "Plan.model.layers: int is needed"),
        (changed(samples.PLAN, "model", "tied_embeddings", to=1), "Plan.model.tied_embeddings: bool is needed"),
        (changed(samples.PLAN, "model", "moe", to=[]), "Plan.model.moe: an object is needed"),
        (changed(samples.PLAN, "reasons", to={}), "Plan.reasons: a list is needed"),
        (changed(samples.PLAN, "reasons", 0, "text", to=None), r"Plan.reasons\[0\].text: str is needed"),
        (changed(samples.PLAN, "cluster", "device", "matmul", "points", 1, to=[1.0]), r"points\[1\]: 2 items are needed, not 1"),
        (changed(samples.PLAN, "cluster", "device", "peak_flops", "fp32", to="1"), "peak_flops.fp32: float is needed"),
        (changed(samples.PLAN, "version", to=codec.VERSION + 1), "newer than .* upgrade"),
        (changed(samples.PLAN, "version", to="1"), "version is missing"),
        (changed(samples.PLAN, "version", drop=True), "version is missing"),
        (changed(samples.PLAN, "type", to="Cluster"), "this holds 'Cluster', and a Plan is needed"),
        ("[]", "a Plan is a JSON object, not list"),
        ("", "not a JSON document"),
        ("{", "not a JSON document"),
        ("[" * 100_000, "not a JSON document"),
    ],
)
def test_invalid_documents_are_refused_with_the_place_of_the_error(text, words):
    with pytest.raises((codec.CodecError, DocumentError), match=words):
        codec.loads(Plan, text)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_non_finite_numbers_are_neither_read_nor_written(constant):
    text = codec.dumps(samples.LINK).replace("1000000000.0", constant)
    with pytest.raises(DocumentError, match="not a finite number"):
        codec.loads(Link, text)
    with pytest.raises(codec.CodecError, match="not a finite number"):
        codec.dumps(dataclasses.replace(samples.LINK, bytes_per_second=float(constant)))


def test_an_unknown_outcome_is_refused_with_a_list_of_known_ones():
    with pytest.raises(codec.CodecError, match=r"Measurement.outcome: 'great' is not one of ok, oom, "):
        codec.loads(Measurement, changed(samples.MEASUREMENT, "outcome", to="great"))


def test_integers_are_read_as_floats_in_float_fields():
    link = codec.loads(Link, changed(samples.LINK, "bytes_per_second", to=5))
    assert isinstance(link.bytes_per_second, float)


def test_a_field_with_a_default_may_be_missing():
    assert codec.loads(Knobs, changed(Knobs(), "no_sync", drop=True)) == Knobs()


def test_values_read_from_json_are_validated():
    with pytest.raises(InputError, match="kv_heads must divide heads"):
        codec.loads(Plan, changed(samples.PLAN, "model", "kv_heads", to=3))


def test_values_are_saved_to_and_loaded_from_files(tmp_path):
    place = tmp_path / "plan.json"
    codec.save(samples.PLAN, place)
    assert codec.load(Plan, place) == samples.PLAN
    assert place.read_text() == codec.dumps(samples.PLAN)
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"{}", b'{"version": 99, "type": "Plan"}', changed(samples.PLAN, "id", to=1).encode()]
)
def test_an_error_in_a_file_names_the_file(tmp_path, content):
    place = tmp_path / "plan.json"
    place.write_bytes(content)
    with pytest.raises(FileError, match=r"plan\.json:"):
        codec.load(Plan, place)


def test_unreadable_and_unwritable_paths_raise_an_error(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        codec.load(Plan, tmp_path / "absent.json")
    with pytest.raises(FileError, match="cannot be written"):
        codec.save(samples.PLAN, tmp_path / "absent" / "plan.json")


def test_values_outside_the_contract_raise_a_type_error():
    with pytest.raises(TypeError, match="not a contract value"):
        codec.encode({"layout": Layout, "set": {1}})


def test_an_added_field_is_written_only_if_it_differs_from_its_default():
    shape = ModelShape(name="m", layers=1, hidden_size=2, heads=1, kv_heads=1, head_size=2, ffn_size=2, vocab_size=2)
    assert "norm_epsilon" not in codec.dumps(shape)
    other = dataclasses.replace(shape, norm_epsilon=1e-6, rope_scaling=RopeScaling(kind="linear", factor=2.0))
    assert codec.loads(ModelShape, codec.dumps(other)) == other


def test_one_line_documents_have_no_line_breaks():
    layout = Layout(dp_shard=2)
    assert "\n" not in (line := codec.one_line(layout))
    assert codec.loads(Layout, line) == layout


def test_the_error_for_a_missing_plan_names_the_command_that_writes_one(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    for name in ("none.json", "other.json"):
        with pytest.raises(FileError, match=r"name another file, or write one with strategist plan .* -o plan\.json"):
            codec.load(Plan, tmp_path / name)
