"""LLaMA-Factory's own reading of its arguments: ``llama_factory.py check RANKS FILE...`` prints the settings of each file;
``llama_factory.py names`` the accepted names."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

RANKS = sys.argv[2] if len(sys.argv) > 2 else "1"
os.environ.update(WORLD_SIZE=RANKS, RANK="0", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
os.environ.update(DISABLE_VERSION_CHECK="1", ACCELERATE_USE_CPU="true", DS_ACCELERATOR="cpu", USE_TORCH_XLA="0")

import llamafactory  # noqa: E402
import yaml  # noqa: E402
from llamafactory.hparams import parser  # noqa: E402
from transformers import training_args  # noqa: E402

DATA = ModuleType("llamafactory.data")  # without what it imports for audio
DATA.__path__ = [str(Path(llamafactory.__file__).parent / "data")]
sys.modules[DATA.__name__] = DATA
from llamafactory.data.parser import get_dataset_list  # noqa: E402

DICTIONARIES = ("deepspeed", "fsdp_config", "accelerator_config")


def parsed_settings(path: str) -> dict[str, Any]:
    """The parsed settings of one file; raises if LLaMA-Factory refuses it."""
    data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    training_args.is_torch_bf16_gpu_available = lambda: True  # as on a GPU
    training_args.TrainingArguments._setup_devices = training_args.TrainingArguments.distributed_state = None  # no process group
    training_args.TrainingArguments.parallel_mode = training_args.ParallelMode.DISTRIBUTED
    training_args.TrainingArguments.world_size = int(RANKS)
    training_args.TrainingArguments.device = "cpu"
    model, data_args, training, tuning, _ = parser.get_train_args(data)
    deepspeed = getattr(training, "hf_deepspeed_config", None)
    zero = deepspeed.config["zero_optimization"] if deepspeed else {"stage": 0}
    return {
        "micro_batch": training.per_device_train_batch_size, "accumulation": training.gradient_accumulation_steps,
        "bf16": training.bf16, "fp16": training.fp16, "optim": str(getattr(training.optim, "value", training.optim)),
        "finetuning_type": tuning.finetuning_type, "lora_rank": tuning.lora_rank, "bits": model.quantization_bit,
        "recompute": not model.disable_gradient_checkpointing, "cutoff_len": data_args.cutoff_len, "packing": data_args.packing,
        "datasets": [[item.load_from, item.dataset_name] for item in get_dataset_list(data_args.dataset, data_args.dataset_dir)],
        "stage": zero["stage"], "offload": sorted(name for name in zero if name.startswith("offload")),
    }  # fmt: skip


def names() -> list[str]:
    """The names of its arguments."""
    found = {field.name for kind in parser._TRAIN_ARGS for field in dataclasses.fields(kind) if field.init}
    return sorted([*found, *(f"{name}.*" for name in DICTIONARIES)])


if __name__ == "__main__":
    print(json.dumps(names() if sys.argv[1] == "names" else [parsed_settings(path) for path in sys.argv[3:]]))
