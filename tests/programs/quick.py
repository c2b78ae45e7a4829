"""A fast stand-in for an external trainer, whose trials take half a second, with its program file."""

import shutil
from pathlib import Path

TRAINER = Path(__file__).with_name("trainer.py")
TEXT = """
program: quick
command:
  - "{python}"
  - "{here}/trainer.py"
  - --tp={layout.tp}
  - --micro-batch={knobs.micro_batch}
  - --seq-len={workload.seq_len}
  - --global-batch={workload.global_batch}
  - --world-size={layout.world_size}
  - --steps={steps}
  - knobs.recompute: {none: [], full: [--recompute, --fault=FAULT]}
layout: {dp_shard: any}
metrics: {lines: "step: {step} loss: {loss} ... tps: {tokens_per_second_per_device}"}
"""
REQUEST_FLAGS = ("--model", "tiny", "--gpus", "2xcpu", "--seq-len", "64", "--global-batch", "8", "--confirm", "0")


def quick_program(folder: Path, fault: str = "") -> Path:
    """Writes the program's file into the folder; ``fault`` is the failure of its trials that recompute."""
    shutil.copy(TRAINER, folder)
    path = folder / "quick.yaml"
    path.write_text(TEXT.replace("FAULT", fault), encoding="utf-8")
    return path


def quick_tuning(folder: Path, fault: str = "") -> list[str]:
    """The arguments of ``strategist tune`` that tune the program in ``folder / "study"``, without the number of trials and
    steps.
    """
    return ["tune", *REQUEST_FLAGS, "--backend", str(quick_program(folder, fault)), "--study", str(folder / "study")]
