"""Request files, and settings of --fix."""

import pytest

from strategist.contract.request import Request
from strategist.contract.setting_parser import parse_fix
from strategist.contract.workload import Workload
from strategist.errors import FileError, InputError
from strategist.profiles.request_file import load_request
from strategist.units import GIB

FULL = """
model: 32b
gpus: 8x24GB
seq_len: 2048
global_batch: 16
train: lora
optimizer: adamw8bit
precision: fp16
lora_rank: 8
objective: memory
host_memory: 512GiB
fix: {tp: 2, recompute: full, sequence_parallel: true, reshard_after_forward: subgroup, layout.cp: 1}
allow: [reduce_dtype]
backend: native
tokens: 1.5T
"""


def write(tmp_path, text):
    file = tmp_path / "req.yaml"
    file.write_text(text)
    return file


def test_a_request_file_can_set_every_field(tmp_path):
    workload = Workload(seq_len=2048, global_batch=16, train="lora", optimizer="adamw8bit", precision="fp16", lora_rank=8)
    fix = {"tp": 2, "recompute": "full", "sequence_parallel": True, "reshard_after_forward": "subgroup", "cp": 1}
    assert load_request(write(tmp_path, FULL)) == Request(
        model="32b", gpus="8x24GB", workload=workload, objective="memory", host_memory_bytes=512 * GIB, fix=fix,
        allow=("reduce_dtype",), backend="native", tokens=1_500_000_000_000,
    )  # fmt: skip


def test_missing_keys_take_their_defaults(tmp_path):
    assert load_request(write(tmp_path, "model: tiny\ngpus: 4xcpu\nfix:\n")) == Request(model="tiny", gpus="4xcpu")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus: 8x24GB\n", "key 'model' is missing"),
        ("model: 32b\n", "key 'gpus' is missing"),
        (FULL.replace("seq_len", "seq_length"), r"req\.yaml:4:1: unknown key 'seq_length'; did you mean seq_len"),
        (FULL.replace("2048", "long"), "seq_len: int is needed"),
        (FULL.replace("2048", "0"), "--seq-len 0: must be at least 1"),
        (FULL.replace("lora\n", "half\n"), "--train half"),
        (FULL.replace("objective: memory", "objective: fun"), "--objective fun"),
        (FULL.replace("1.5T", "many"), r"req\.yaml:15:9: tokens many: .*300B"),
        (FULL.replace("1.5T", "[1]"), r"req\.yaml:15:9: tokens"),
        (FULL.replace("512GiB", "512 parrots"), r"req\.yaml:11:14: host_memory"),
        (FULL.replace("tp: 2", "tpp: 2"), r"req\.yaml:12:\d+: .*'tpp' is not a setting; did you mean tp"),
        (FULL.replace("tp: 2", "tp: 0"), "tp is a positive whole number"),
        (FULL.replace("tp: 2", "tp: true"), "tp is a positive whole number"),
        (FULL.replace("recompute: full", "recompute: half"), "choose one of none, selective, every_second_layer, budget, full"),
        (FULL.replace("sequence_parallel: true", "sequence_parallel: 1"), "choose one of false, true"),
        (FULL.replace("[reduce_dtype]", "[tp]"), r"req\.yaml:13:9: allow tp.*reduce_dtype"),
        (FULL.replace("[reduce_dtype]", "reduce_dtype"), "allow is a list"),
        (FULL.replace("model: 32b", "model: [32b]"), "model: str is needed"),
        (FULL[: FULL.index("fix")] + "fix: tp=2\n", "fix must be a mapping"),
        ("[]\n", "must be a mapping"),
    ],
)
def test_an_invalid_request_file_raises_one_line_with_its_position(tmp_path, text, words):
    with pytest.raises(FileError, match=words) as error:
        load_request(write(tmp_path, text))
    assert "req.yaml" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("tp=2", ("tp", 2)),
        ("layout.tp=2", ("tp", 2)),
        (" dp_shard = 8 ", ("dp_shard", 8)),
        ("micro_batch=4", ("micro_batch", 4)),
        ("micro_batch=123456789", ("micro_batch", 123_456_789)),
        ("knobs.recompute=full", ("recompute", "full")),
        ("sequence_parallel=true", ("sequence_parallel", True)),
        ("loss_parallel=False", ("loss_parallel", False)),
        ("reshard_after_forward=true", ("reshard_after_forward", True)),
        ("reshard_after_forward=subgroup", ("reshard_after_forward", "subgroup")),
    ],
)
def test_a_fixed_value_has_the_type_of_its_setting(text, setting):
    name, value = parse_fix(text)
    assert (name, value) == setting
    assert type(value) is type(setting[1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tp", "a setting and a value"),
        ("tp=", "a setting and a value"),
        ("=2", "a setting and a value"),
        ("tp=two", "tp is a positive whole number"),
        ("tp=-1", "tp is a positive whole number"),
        ("tp=1.5", "tp is a positive whole number"),
        ("tp=²", "tp is a positive whole number"),
        ("tp=" + "two" * 9, "tp is a positive whole number"),
        ("tp=" + "9" * 5000, "a number has at most 9 digits"),
        ("recmpute=full", "'recmpute' is not a setting; did you mean recompute"),
        ("zzz=1", "known are pp,"),
        ("seq_len=8192", "'seq_len' is not a setting; it is an option of strategist plan, --seq-len"),
        ("offload=disk", "choose one of none, optimizer, all, streamed"),
        ("sequence_parallel=yes", "choose one of false, true"),
    ],
)
def test_an_invalid_setting_raises_an_error_with_a_next_step(text, words):
    with pytest.raises(InputError, match=words):
        parse_fix(text)
