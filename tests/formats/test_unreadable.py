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
        ("actor_rollout_ref: {actor: {strategy: fsdp}}", "x.yaml", "verl .*reinforcement learning"),
        ("python3 -m verl.trainer.main config=c.yaml trainer.n_gpus=8", "x.sh", "EasyR1 .*reinforcement learning"),
        ("worker: {actor: {x: 1}}\nalgorithm: {adv_estimator: grpo}", "x.yaml", "EasyR1 .*reinforcement learning"),
        ("python train.py actor_rollout_ref.model.path=$M data.x=1", "x.sh", "verl .*reinforcement learning"),
        ("recipe: {_target_: bridge.f}\ntrain: {micro_batch_size: 1}", "x.yaml", "NeMo or Megatron-Bridge .*pretrain_gpt"),
        ("run: {model_type: x}\ntraining_config: {training_args: {x: 1}}", "x.yaml", "SageMaker HyperPod .*strategist plan"),
        ("distributed: {pp_engine: 1f1b}\ntraining: {micro_batch_size: 1}", "x.yaml", "picotron .*strategist plan"),
        ("train_cfgs: {per_device_train_batch_size: 1}\nmodel_cfgs: {x: 1}", "x.yaml", "align-anything .*strategist plan"),
        ("python3 -m verl.trainer.main_generation --x 1", "x.sh", "verl .*generates text"),
        ("{pipe_parallel_size: 1, num_layers: 24}", "x.yml", "GPT-NeoX .*pretrain_gpt"),
        ("pipe-parallel-size: 1", "x.yml", "GPT-NeoX .*pretrain_gpt"),
        ("train: {micro_batch_size: 1, global_batch_size: 8}\neval: {interval: 9}", "x.yaml", "LitGPT .*strategist plan"),
        ("data: {train_path: x}\ntrain: {micro_batch_size: 1, global_batch_size: 8}", "x.yaml", "VeOmni .*strategist plan"),
        ("max_seq_len: 2048\ntrain_loader: {name: text}", "x.yaml", "LLM Foundry .*strategist plan"),
        ("device_train_microbatch_size: 2\nmodel: {d_model: 2048}", "x.yaml", "OLMo .*strategist plan"),
        ("model: {model_name: m}\ntraining: {per_device_train_batch_size: 2}", "x.yaml", "Oumi .*strategist plan"),
        ("per_device_batch_size: 4\nmax_target_length: 8192", "x.yml", "MaxText .*strategist plan"),
        ("step_scheduler: {local_batch_size: 4}\nmodel: {x: 1}", "x.yaml", "NeMo AutoModel .*strategist plan"),
        ("grpo: {num_prompts_per_step: 8}\npolicy: {train_global_batch_size: 64}", "x.yaml", "NeMo-RL .*reinforcement learning"),
        ("policy: {train_global_batch_size: 64}", "x.yaml", "NeMo-RL .*strategist plan"),
        ("[orchestrator]\nbatch_size = 512\n[trainer.model]\nep = 8", "x.toml", "prime-rl .*reinforcement learning"),
        ('{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "x.ipynb", "Jupyter .*strategist plan"),
        ("model = FastLanguageModel.from_pretrained('m')\nargs = SFTConfig(max_length=1)", "x.py", "Unsloth .*strategist plan"),
        ("from nemo.collections import llm\nr = llm.llama3_8b.pretrain_recipe()", "x.py", "NeMo or Megatron-Bridge .*pretrain_gpt"),
        ("from torch.distributed.fsdp import fully_shard\nfully_shard(m)", "x.py", "torch's own FSDP or DDP .*strategist plan"),
        ("engine = deepspeed.initialize(args)", "x.py", "DeepSpeed in Python .*DeepSpeed configuration"),
        ("trainer: {devices: 8, strategy: {class_path: FSDPStrategy}}", "x.yaml", "LightningCLI .*as Python"),
        ("from trl import SFTConfig\nargs = SFTConfig(max_length=1)", "x.py", "in Python .*as YAML"),
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


TRAINING = "pretrain_gpt.py --num-layers 2 --micro-batch-size 1 --tensor-model-parallel-size 1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torchrun tools/run_text_generation_server.py --num-layers 2 --micro-batch-size 1", "generates text and trains nothing"),
        (
            "ARGS='--micro-batch-size 1'\ntorchrun gpt_dynamic_inference.py --num-layers 2 $ARGS",
            "generates text and trains nothing",
        ),
        ("python tools/checkpoint/convert.py --model-type GPT --loader mcore", "converts or inspects weights and trains nothing"),
        ("accelerate launch raft_align.py --per_device_train_batch_size 1", "reinforcement learning has no price"),
        ("torchrun train_rl.py --num-layers 2 --micro-batch-size 1", "reinforcement learning has no price"),
        ("python mason.py --gpus 8 -- python grpo_fast.py --per_device_train_batch_size 1", "reinforcement learning has no price"),
        ("accelerate launch grpo.py --per_device_train_batch_size 1", "reinforcement learning has no price"),
        ("python3 -m verl.trainer.main_ppo data.max_length=512 --x 1", "verl.*reinforcement learning has no price"),
        ("python3 -m recipe.dapo.main_dapo trainer.nnodes=1 --x 1", "verl.*reinforcement learning has no price"),
        ("ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --zero_stage 3", "OpenRLHF.*reinforcement learning has no price"),
        (f"python tools/convert.py --a 1\ntorchrun {TRAINING}", ""),
        (f"torchrun train_and_evaluate.py --a 1\ntorchrun {TRAINING}", ""),
    ],
)
def test_programs_that_do_not_train_or_have_no_price_get_no_verdict(text: str, words: str) -> None:
    source = parse(text, "run.sh")
    if not words:
        recognise(source)
        return
    with pytest.raises(FileError, match=words):
        recognise(source)


@pytest.mark.parametrize(
    ("more", "predicts"), [("do_predict: true", True), ("do_predict: true\ndo_train: true", False), ("do_eval: true", False)]
)
def test_arguments_that_only_predict_get_no_verdict(more: str, predicts: bool) -> None:
    source = parse(f"model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ntemplate: t\n{more}\n", "x.yaml")
    if not predicts:
        assert recognise(source).name == "llama-factory"
        return
    with pytest.raises(FileError, match=r"x\.yaml:5.*do_predict without do_train: it generates text and trains nothing"):
        recognise(source)


def test_a_manifest_of_several_documents_is_named() -> None:
    with pytest.raises(FileError, match="manifest of Kubernetes"):
        parse("apiVersion: v1\nkind: ConfigMap\n---\napiVersion: v1\nkind: Pod\n", "x.yaml")
