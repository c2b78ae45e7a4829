"""Refusals of the native runtime, and their agreement with the back end's profile."""

import subprocess
import sys
from dataclasses import fields, replace

import pytest
import yaml
from strategist_runtime.capability import ACTIVATIONS, ROPE_SCALINGS, refusals

from strategist.contract import codec
from strategist.contract.knobs import CHOICES, Candidate, Knobs
from strategist.contract.layout import AXES, Layout
from strategist.contract.model import MLAShape, ModelShape, MoEShape, RopeScaling
from strategist.contract.options import OPTION_CHOICES, OPTION_NAMES, Options
from strategist.contract.workload import OPTIMIZERS, PRECISIONS, TRAIN_MODES
from strategist.paths import data_dir

from .plans import TINY, WORKLOAD, cluster, plan

NATIVE = yaml.safe_load((data_dir("profiles") / "backends" / "native.yaml").read_text(encoding="utf-8"))
MOE = MoEShape(experts=4, experts_per_token=2, expert_ffn_size=16)
MLA = MLAShape(query_rank=8, key_value_rank=8, rope_head_size=4, nope_head_size=4, value_head_size=4)
MOE_MODEL = replace(TINY, moe=MOE)
LAYOUTS = {name: replace(Layout(), **{name: 2}) for name in ("dp_replicate", "dp_shard", "tp", "cp", "pp")}
KNOBS = Knobs(offload="all", compile=True)
"""Knobs with which every option has an effect on one of the layouts."""

SHAPES = {"moe": {False: None, True: MOE}, "mla": {False: None, True: MLA}}
MODEL_VALUES = {
    "norm": ("rms", "layer"), "layer_norms": (1, 2, 4), "ffn_matrices": (2, 3), "learned_positions": (0, 16),
    "rope_theta": (1e4, 1e6),
    **{field.name: (False, True) for field in fields(ModelShape) if field.type is bool},
}  # fmt: skip
VALUES = {
    "layout": dict.fromkeys((*AXES, "ep", "etp"), (1, 2)),
    "knobs": CHOICES,
    "options": {**OPTION_CHOICES, **{name: (getattr(Options(), name), 4) for name in OPTION_NAMES if name not in OPTION_CHOICES}},
    "workload": {"train": TRAIN_MODES, "optimizer": OPTIMIZERS, "precision": PRECISIONS},
    "model": MODEL_VALUES,
}
SETTINGS = [(part, name, value) for part, names in VALUES.items() for name, values in names.items() for value in values]


def with_setting(part, name, value):
    base = plan()
    if part == "layout":
        layout = replace(Layout(), **{name: value})
        return replace(base, candidate=Candidate(layout=layout, knobs=Knobs()), cluster=cluster(layout.world_size))
    if part == "knobs":
        return replace(base, candidate=replace(base.candidate, knobs=replace(Knobs(), **{name: value})))
    if part == "options":
        layout = LAYOUTS[next(kind for kind in LAYOUTS if Candidate(layout=LAYOUTS[kind], knobs=KNOBS).acts(name, MOE_MODEL))]
        candidate = Candidate(layout=layout, knobs=KNOBS, options=replace(Options(), **{name: value}))
        return replace(base, model=MOE_MODEL, candidate=candidate, cluster=cluster(layout.world_size))
    return replace(base, **{part: replace(getattr(base, part), **{name: value})})


def is_refused(changed, name, value):
    return any(text.startswith(f"{name} {value}: this runtime runs ") for text in refusals(changed))


@pytest.mark.parametrize(("part", "name", "value"), SETTINGS)
def test_profile_and_runtime_agree_on_each_value(part, name, value):
    allowed = NATIVE[part].get(name)
    assert is_refused(with_setting(part, name, value), name, value) == (allowed is not None and value not in allowed)


@pytest.mark.parametrize("name", ["moe", "mla"])
@pytest.mark.parametrize("there", [False, True])
def test_profile_and_runtime_agree_on_experts_and_latent_attention(name, there):
    changed = replace(plan(), model=replace(TINY, **{name: SHAPES[name][there]}))
    allowed = NATIVE["model"].get(name)
    assert is_refused(changed, name, there) == (allowed is not None and there not in allowed)


@pytest.mark.parametrize("kind", ["cpu", "cuda", "mps"])
def test_profile_and_runtime_agree_on_devices(kind):
    assert is_refused(plan(kind=kind), "device", kind) == (kind not in NATIVE["devices"])


def test_every_name_of_the_profile_is_compared():
    for part, names in VALUES.items():
        assert set(NATIVE[part]) <= set(names) | set(SHAPES) | {"activation", "rope_scaling"}
    assert set(NATIVE["model"]["activation"]) == {"", *ACTIVATIONS}
    assert set(NATIVE["model"]["rope_scaling"]) == {"none", *ROPE_SCALINGS}


def test_a_plain_plan_is_not_refused():
    assert refusals(plan()) == ()


def test_a_plan_that_violates_the_contract_is_refused():
    (text,) = refusals(plan(layout=Layout(tp=8), workload=replace(WORKLOAD, seq_len=16)))[:1]
    assert "tp 8 must divide heads 4" in text


def test_subgroup_resharding_needs_tp_1():
    knobs = Knobs(reshard_after_forward="subgroup", reshard_group_size=2)
    assert refusals(plan(layout=Layout(dp_shard=4), knobs=knobs)) == ()
    (text,) = refusals(plan(layout=Layout(dp_shard=4, tp=2), knobs=knobs))
    assert text.startswith("reshard_after_forward subgroup needs tp 1, not 2")


def test_budget_recomputation_is_refused_for_moe_models():
    assert refusals(plan(model=MOE_MODEL)) == ()
    (text,) = refusals(plan(model=MOE_MODEL, knobs=Knobs(recompute="budget", compile=True)))
    assert text.startswith("recompute budget: of layers with experts")


def test_subgroup_resharding_needs_ep_1():
    knobs = Knobs(reshard_after_forward="subgroup", reshard_group_size=2)
    assert refusals(plan(layout=Layout(dp_shard=4), knobs=knobs, model=MOE_MODEL)) == ()
    (text,) = refusals(plan(layout=Layout(dp_shard=4, ep=2), knobs=knobs, model=MOE_MODEL))
    assert text.startswith("reshard_after_forward subgroup needs ep 1, not 2")


@pytest.mark.parametrize(
    ("changes", "beginning"),
    [
        ({"head_size": 9}, "head_size 9: "),
        ({"mla": replace(MLA, rope_head_size=3)}, "rope_head_size 3: "),
        ({"learned_positions": 15}, "seq_len 16: the model has learned 15 positions"),
        ({"activation": "swish9"}, "activation swish9: this runtime computes silu, "),
        ({"rope_scaling": RopeScaling(kind="longrope")}, "rope_scaling longrope: this runtime computes linear, "),
    ],
)
def test_unsupported_models_are_refused(changes, beginning):
    (text,) = refusals(plan(model=replace(TINY, **changes)))
    assert text.startswith(beginning)


def test_learned_positions_allow_an_odd_head_size():
    assert refusals(plan(model=replace(TINY, head_size=9, learned_positions=16))) == ()


def test_qlora_needs_complete_quantization_blocks():
    wide = replace(TINY, hidden_size=128, heads=4, kv_heads=4, head_size=32, ffn_size=256)
    quantised = replace(WORKLOAD, train="qlora")
    assert refusals(plan(model=wide, workload=quantised)) == ()
    (text,) = refusals(plan(model=wide, layout=Layout(tp=4), workload=quantised))
    assert text.startswith("heads x head_size 128: ")
    assert refusals(plan(model=wide, layout=Layout(tp=4), workload=replace(WORKLOAD, train="lora"))) == ()


def test_qlora_needs_dense_layers():
    for model in (MOE_MODEL, replace(TINY, mla=MLA)):
        assert refusals(plan(model=model, workload=replace(WORKLOAD, train="lora"))) == ()
        found = refusals(plan(model=model, workload=replace(WORKLOAD, train="qlora")))
        assert any(text.startswith("train qlora: this runtime has 4-bit weights in dense layers") for text in found)


def test_checking_capabilities_does_not_import_torch():
    code = "import sys, strategist_runtime.capability, strategist_runtime.rank_process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("stages", [(3, 3), (1, 1, 1), (2, 0)])
def test_stage_layers_must_sum_to_the_models_layers(stages):
    even = plan(layout=Layout(pp=2))
    (text,) = refusals(replace(even, estimate=replace(even.estimate, pipeline_layers=stages)))
    assert text.startswith(f"pipeline_layers {stages}: 2 stages share 2 layers")
    assert refusals(replace(even, estimate=replace(even.estimate, pipeline_layers=(1, 1)))) == ()


FLOAT8 = {"workload": replace(WORKLOAD, precision="bf16"), "knobs": Knobs(float8="rowwise")}
HALF = replace(WORKLOAD, precision="fp16")
IN_BACKWARD = Knobs(optimizer_in_backward=True, offload="optimizer")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**FLOAT8, "model": replace(TINY, ffn_size=40)}, "ffn_size / tp 40: float8 multiplies in pieces of 16"),
        ({**FLOAT8, "workload": replace(FLOAT8["workload"], seq_len=8)}, "tokens of a micro-batch 8: float8 "),
        (
            {"workload": HALF, "knobs": Knobs(micro_batch=8, optimizer_in_backward=True)},
            "optimizer_in_backward True: a step in fp16 ",
        ),
        *(
            (
                {"workload": replace(WORKLOAD, optimizer=name), "knobs": IN_BACKWARD},
                f"optimizer_in_backward True, optimizer {name}: a thread ",
            )
            for name in ("muon", "adamw8bit")
        ),
        (
            {**FLOAT8, "knobs": replace(FLOAT8["knobs"], offload="streamed", recompute="full")},
            "float8 rowwise: stages are streamed as they are",
        ),
    ],
)
def test_settings_that_torch_would_silently_run_wrong_are_refused(settings, words):
    assert any(text.startswith(words) for text in refusals(plan(**settings)))


def test_float8_with_sizes_divisible_by_16_is_accepted():
    assert refusals(plan(**FLOAT8)) == ()


def test_missing_libraries_are_reported_before_the_start():
    plans = (plan(**FLOAT8), plan(workload=replace(WORKLOAD, optimizer="adamw8bit")))
    code = "import sys; sys.modules['torchao'] = None\n"
    for each in plans:
        text = codec.dumps(each)
        code += f"from strategist_runtime.capability import refusals; print(refusals(codec.loads(Plan, {text!r})))\n"
    code = f"from strategist.contract import codec; from strategist.contract.plan import Plan\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert "float8 rowwise: needs torchao, which is not installed; pip install" in first
    assert "optimizer adamw8bit: needs torchao" in second


def test_async_tp_needs_cuda_devices():
    settings = {
        "layout": Layout(tp=2),
        "knobs": Knobs(sequence_parallel=True, compile=True),
        "options": Options(async_tp=True),
    }
    (text,) = refusals(plan(**settings))
    assert text.startswith("async_tp True: ")
    assert refusals(plan(**settings, kind="cuda")) == ()


def test_async_tp_is_refused_for_ranks_that_share_a_gpu():
    gpu_plan = plan(
        layout=Layout(tp=2), knobs=Knobs(sequence_parallel=True, compile=True), options=Options(async_tp=True), kind="cuda"
    )
    shared = replace(gpu_plan, cluster=replace(gpu_plan.cluster, devices_share_one_gpu=True))
    (text,) = refusals(shared)
    assert text.startswith("async_tp True, devices_share_one_gpu True: ")
    plain = replace(shared, candidate=replace(shared.candidate, options=Options()))
    assert refusals(plain) == ()
