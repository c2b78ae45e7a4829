"""Systems whose files are not read are named, with what can be read instead."""

import pytest

from strategist.errors import FileError
from strategist.formats.catalog import recognise
from strategist.formats.source import parse


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("swift rlhf --rlhf_type dpo --model m --per_device_train_batch_size 1", "x.sh", "ms-swift .*losses"),
        ("megatron sft --model m --micro_batch_size 1", "x.sh", "Megatron-SWIFT .*pretrain_gpt"),
        (
            "tune run --nproc_per_node 4 full_finetune_distributed --config llama3/8B",
            "x.sh",
            "torchtune .*--config",
        ),
        (
            "deepspeed --module openrlhf.cli.train_sft --max_len 2048 --zero_stage 3",
            "x.sh",
            "OpenRLHF .*DeepSpeed",
        ),
        (
            "torchrun megatron_gpt_finetuning.py trainer.devices=8 --config-path conf",
            "x.sh",
            "NVIDIA NeMo .*pretrain_gpt",
        ),
        ("torchrun -m verl.trainer.fsdp_sft_trainer data.max_length=512 --x 1", "x.sh", "verl .*strategist plan"),
        ("{pipe_parallel_size: 1, num_layers: 24}", "x.yml", "GPT-NeoX .*pretrain_gpt"),
        (
            "trainer: {devices: 8}\nmodel: {tensor_model_parallel_size: 2, micro_batch_size: 1}",
            "x.yaml",
            "NeMo or Megatron-Bridge .*pretrain_gpt",
        ),
    ],
)
def test_a_system_whose_files_are_not_read_is_named(text: str, path: str, words: str) -> None:
    with pytest.raises(FileError, match=words.replace(" .*", ", which is not read.*")):
        recognise(parse(text, path))
