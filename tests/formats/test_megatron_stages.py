"""Pipeline stages in Megatron-LM's arguments, imported and exported, compared with Megatron-Core."""

from dataclasses import replace
from pathlib import Path

import pytest

from formats.frameworks import parsed
from formats.plans import deck
from strategist.api.config_files import export_plan
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.review import Review
from strategist.contract.settings import value_of
from strategist.contract.workload import Workload
from strategist.errors import FileError
from strategist.formats.catalog import find_format
from strategist.formats.completed_config import GivenValues, setup
from strategist.formats.config_reader import parse_config
from strategist.formats.megatron_stages import LIST, stage_layers
from strategist.formats.parsed_config import ParsedConfig
from strategist.formats.source import parse
from strategist.planning.planner import ranked
from strategist.planning.review import imported
from strategist.profiles.situation import situation

FORMAT = find_format("megatron-lm")
LLAMA = Request(model="llama3-405b", gpus="64x8xH100", backend="megatron-lm", workload=Workload(seq_len=8192, global_batch=1024))
"""126 layers, which pipelines of 4, 8 or 16 ranks cannot split evenly."""

SCRIPT = """#!/bin/bash
torchrun pretrain_gpt.py --use-mcore-models --num-layers {layers} --hidden-size 4096 --num-attention-heads 32 \\
  --ffn-hidden-size 14336 --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \\
  --group-query-attention --num-query-groups 8 --position-embedding-type rope --vocab-size 128256 --bf16 --seq-length 4096 \\
  --micro-batch-size 1 --global-batch-size 64 --use-distributed-optimizer --overlap-grad-reduce --tensor-model-parallel-size 2 \\
  --pipeline-model-parallel-size {pp} \\
  {flags}
"""


def best(**fixed: int | str) -> Plan:
    return ranked(situation(replace(LLAMA, fix={**fixed})), deck=deck(), limit=1)[0]


def script(plan: Plan) -> str:
    return export_plan(plan, "megatron-lm").files[0].text


def read(text: str) -> ParsedConfig:
    return parse_config(parse(text, "train.sh"), FORMAT)


def reviewed(text: str, gpus: str) -> Review:
    source = parse(text, "train.sh")
    made = setup(source, parse_config(source, FORMAT), GivenValues(gpus=gpus, workload={}, settings={}))
    return imported(source, FORMAT, made, deck=deck())


def hand_written(flags: str, layers: int = 32, pp: int = 4) -> str:
    return SCRIPT.format(layers=layers, pp=pp, flags=flags)


def test_405b_fits_on_512_devices() -> None:
    """Regression: with equal layers on all stages no plan fitted."""
    plan = best()
    assert plan.candidate.layout.pp > 1
    assert plan.estimate.fits
    assert "megatron-lm" in plan.backends


@pytest.mark.parametrize("split", ["even", "weighted"])
@pytest.mark.parametrize(("pp", "stages"), [(8, 1), (8, 4), (16, 1), (16, 2)])
def test_uneven_stages_survive_export_and_import(pp: int, stages: int, split: str) -> None:
    plan = best(pp=pp, pp_virtual_stages=stages, pp_split=split)
    text = script(plan)
    assert f"--{LIST}=Et*" in text
    assert "num-virtual-stages" not in text, "Megatron-LM takes one of the two"
    found = read(text)
    assert found.stage_layers == plan.stage_layers
    assert (found.settings["pp_virtual_stages"], sum(found.stage_layers)) == (stages, 126)
    review = reviewed(text, LLAMA.gpus)
    assert review.plan is not None
    assert not [item for item in review.findings if item.code != "FMT-006"]
    assert review.plan.stage_layers == plan.stage_layers
    assert not plan.matters("pp_split") or value_of(review.plan.candidate, "pp_split") == split


def test_even_stages_are_exported_without_a_stage_list() -> None:
    fixed = {"pp": 4, "pp_virtual_stages": 2, "pp_split": "even"}
    request = Request(model="8b", gpus="8xH100", backend="megatron-lm", fix=fixed, workload=Workload(seq_len=4096, global_batch=64))
    text = script(ranked(situation(request), deck=deck(), limit=1)[0])
    assert LIST not in text
    assert "--num-virtual-stages-per-pipeline-rank=2" in text


def test_stages_split_by_node_speed_survive_export_and_import(tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text("groups:\n  - {nodes: 1, device: h100}\n  - {nodes: 1, device: a100-80gb}\n", encoding="utf-8")
    request = Request(model="8b", gpus=str(file), backend="megatron-lm", fix={"pp": 2})
    plan = ranked(situation(request), deck=deck(), limit=1)[0]
    assert plan.stage_layers[0] > plan.stage_layers[1]
    review = reviewed(script(plan), str(file))
    assert review.plan is not None
    assert review.plan.stage_layers == plan.stage_layers
    assert "FMT-002" not in [item.code for item in review.findings]


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("Et*3|(tt|)*29,m|L", (3, *[2] * 29, 0, 0)),
        ("Ettt|(tt|)*3,m|L", (3, 2, 2, 2, 0, 0)),
        ("E|(t|)*4,L", (0, 1, 1, 1, 1, 0)),
        ("Et*2,(|tt)*2|tL", (2, 2, 2, 1)),
    ],
)
def test_stage_lists_are_expanded(text: str, layers: tuple[int, ...]) -> None:
    assert stage_layers(text, parse(f"--{LIST} '{text}'", "train.sh")) == layers


@pytest.mark.parametrize("text", ["tt|tt", "Ett|txL", "Ett|Ett|L", "Ett|mt|L", "E(t*9)*999999999L", "Et*(2)|tL"])
def test_an_invalid_stage_list_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(FileError, match=LIST) as caught:
        read(hand_written(f"--{LIST}='{text}'"))
    assert caught.value.line == 7


CUTS = [
    (f"--{LIST}='Et*9|t*9|t*8|t*6L'", (9, 9, 8, 6)),
    (f"--{LIST}='Et*4|(t*4|)*6t*4L'", (4,) * 8),
    ("--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 5", (7, 10, 10, 5)),
    ("--decoder-last-pipeline-num-layers 8 --num-virtual-stages-per-pipeline-rank 2", (4,) * 8),
    (
        "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 4 --num-virtual-stages-per-pipeline-rank 2",
        (2, 6, 6, 2) * 2,
    ),
]
ENDS = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
COUNTED = [
    (ENDS, (7, 8, 8, 7)),
    (f"{ENDS} --num-virtual-stages-per-pipeline-rank 2", (3, *[4] * 6, 3)),
    (f"{ENDS} --num-layers-per-virtual-pipeline-stage 2", (1, *[2] * 14, 1)),
]
ALL = [(32, *cut) for cut in CUTS] + [(30, *cut) for cut in COUNTED]


@pytest.mark.parametrize(("layers", "flags", "expected"), ALL)
def test_each_notation_of_pipeline_splits_is_read(layers: int, flags: str, expected: tuple[int, ...]) -> None:
    found = read(hand_written(flags, layers))
    assert found.stage_layers == expected
    assert found.settings["pp_virtual_stages"] == len(expected) // 4
    assert found.settings.get("pp_split", "even") == ("even" if len({*expected}) == 1 else "weighted")
    assert not found.findings


@pytest.mark.full
def test_megatron_core_splits_pipelines_equally(tmp_path: Path) -> None:
    """All notations that its package supports; deriving the number of stages from layers per stage is not part of it."""
    paths, cuts = [], [case for case in ALL if "per-virtual" not in case[1]]
    for index, (layers, flags, _) in enumerate(cuts):
        path = tmp_path / f"{index}.sh"
        words = flags.replace(" --", "\n--").splitlines()
        sizes = ("--hidden-size=4096", "--num-attention-heads=32", "--bf16", "--pipeline-model-parallel-size=4")
        lines = (f"--num-layers={layers}", *sizes, *(flag.replace(" ", "=") for flag in words))
        path.write_text("".join(f"  {line}\n" for line in lines), encoding="utf-8")
        paths.append(str(path))
    assert [tuple(config["stage_layers"]) for config in parsed("megatron_lm", paths)] == [case[2] for case in cuts]


def test_stages_that_no_plan_can_have_are_a_finding_at_their_line() -> None:
    review = reviewed(hand_written(f"--{LIST}='Et*2|t*10|t*10|t*10L'"), "2x8xH100")
    (finding,) = [item for item in review.findings if item.code == "FMT-002"]
    assert (finding.line, finding.message.partition(",")[0]) == (7, f"{LIST}: stages have 2")
    assert review.plan is not None
    assert f" {review.plan.stage_layers[0]}" in finding.message.partition("priced with")[2]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (f"--{LIST}='Et*9|t*9|t*9|t*9L'", "lists 36 layers, and the model has 32"),
        (f"--{LIST}='Et*9|t*9|t*9L'", "lists 3 stages, which 4 ranks do not share evenly"),
        ("--decoder-first-pipeline-num-layers 6", "32 layers do not go round 4 ranks"),
        ("--account-for-loss-in-pipeline-split", "32 layers do not go round 4 ranks"),
    ],
)
def test_layers_that_do_not_divide_over_the_stages_are_an_error(flags: str, text: str) -> None:
    (finding,) = read(hand_written(flags)).findings
    assert (finding.code, finding.line) == ("FMT-004", 7)
    assert text in finding.message
