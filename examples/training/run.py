"""From text to a model that transformers generates with, then LoRA on top of it: on two CPU cores, in minutes.

``python examples/training/run.py [FOLDER] [--steps N]``. The text is the language reference that ships with Python. Each training
is handed over once, half way, from one layout to another. Needs ``pip install '.[hf]'``.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY, SEQUENCE, BATCH = 1024, 128, 16
SHAPE = {
    "model_type": "llama", "hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 256, "vocab_size": VOCABULARY, "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
    "max_position_embeddings": SEQUENCE,
}  # fmt: skip
"""SmolLM2's shape (three heads share keys and values, tied embeddings) with a sixth of its width and fewer layers."""

END = "<|endoftext|>"
HELD_OUT = 10
"""Every so many-th topic is held out."""


def main(folder: Path, steps: int) -> None:
    """Both trainings, with what they showed."""
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder)
    common = ("--gpus", "2xcpu", "--seq-len", str(SEQUENCE), "--global-batch", str(BATCH), "--precision", "fp32")
    strategist("plan", "--model", folder / "model", *common, "--fix", "dp_shard=2", "-o", folder / "shards.json")
    strategist("plan", "--model", folder / "model", *common, "--fix", "pp=2", "-o", folder / "pipeline.json")
    learn = ("--learning-rate", "3e-3", "--weight-decay", "0.1", "--no-decay", "norms,embeddings", "--betas", "0.9,0.95")
    data = ("--data", folder / "train.jsonl", "--tokenizer", folder / "model", "--eval-data", folder / "held-out.jsonl")
    half, decay = steps // 2, max(1, steps // 5)
    strategist(
        "run", folder / "shards.json", "--steps", half, "--learning-rate-warmup-steps", max(1, half // 5), *learn, *data,
        "--save", folder / "checkpoints", "--keep-best", 1, "--log", folder / "curves", "--out", folder / "shards-run",
    )  # fmt: skip
    strategist(
        "run", folder / "pipeline.json", "--resume", folder / "checkpoints", "--steps", steps, "--save", folder / "checkpoints",
        "--learning-rate-schedule", "wsd", "--learning-rate-decay-steps", decay, "--log", folder / "curves",
        "--export-weights", folder / "base", "--out", folder / "pipeline-run",
    )  # fmt: skip
    show("base", folder / "base", folder / "curves", folder / "held-out.jsonl", "The for statement")

    lora = (*common, "--train", "lora")
    strategist("plan", "--model", folder / "base", *lora, "--fix", "dp_replicate=2", "-o", folder / "replicas.json")
    strategist("plan", "--model", folder / "base", *lora, "--fix", "tp=2", "-o", folder / "tensor.json")
    questions = ("--data", folder / "questions.jsonl", "--eval-data", folder / "held-out-questions.jsonl")
    strategist(
        "run", folder / "replicas.json", "--steps", half, "--weights", folder / "base", "--learning-rate", "3e-3", *questions,
        "--save", folder / "lora", "--log", folder / "lora-curves", "--out", folder / "replicas-run",
    )  # fmt: skip
    strategist(
        "run", folder / "tensor.json", "--resume", folder / "lora", "--steps", steps, "--weights", folder / "base",
        "--save", folder / "lora", "--log", folder / "lora-curves", "--export-weights", folder / "tuned",
        "--out", folder / "tensor-run",
    )  # fmt: skip
    show("tuned", folder / "tuned", folder / "lora-curves", folder / "held-out-questions.jsonl", question("lambda"))


def prepare(folder: Path) -> None:
    """Tokenizer, configuration and data."""
    model = folder / "model"
    model.mkdir(exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(topics.values(), trainer)
    tokenizer.save(str(model / "tokenizer.json"))
    tokenizer_config = {"eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast"}
    (model / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), encoding="utf-8")
    (model / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    named = sorted(topics.items())
    for name, kept in {"train": False, "held-out": True}.items():
        chosen = [pair for index, pair in enumerate(named) if (index % HELD_OUT == 0) is kept]
        lines(folder / f"{name}.jsonl", [{"text": text} for _, text in chosen])
        questions = [{"prompt": question(topic), "response": f" {first_sentence(text)}"} for topic, text in chosen]
        lines(folder / f"{'questions' if name == 'train' else 'held-out-questions'}.jsonl", questions)


def question(topic: str) -> str:
    """The prompt of the tuned model."""
    return f"Q: What is {topic}?\nA:"


def first_sentence(text: str) -> str:
    """Of a topic, after its heading."""
    body = text.split("\n\n", 1)[-1]
    return " ".join(body.split()).partition(". ")[0][:200] + "."


def lines(path: Path, rows: list[dict[str, str]]) -> None:
    """Writes a JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def strategist(*arguments: object) -> None:
    """Runs a command of strategist, and shows it."""
    words = [str(argument) for argument in arguments]
    print("$ strategist", " ".join(words), flush=True)
    subprocess.run([sys.executable, "-m", "strategist.cli.main", *words], check=True, stdout=subprocess.DEVNULL)


def show(name: str, model: Path, curves: Path, held_out: Path, prompt: str) -> None:
    """Loads an exported model with transformers, holds its loss against the trainer's, and generates text with it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    exported, tokenizer = AutoModelForCausalLM.from_pretrained(model).eval(), AutoTokenizer.from_pretrained(model)
    rows = [json.loads(line) for line in (curves / "curves.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [row["evaluation_loss"] for row in rows if row["evaluation_loss"] is not None]
    print(f"{name}: training loss {rows[0]['loss']:.3f} -> {rows[-1]['loss']:.3f}, held out", *(f"{loss:.4f}" for loss in losses))
    print(f"{name}: held out by transformers {held_out_loss(exported, tokenizer, held_out):.4f}")
    inputs = tokenizer(prompt, return_tensors="pt")
    written = exported.generate(**inputs, max_new_tokens=40, do_sample=False, pad_token_id=0, eos_token_id=0)
    print(f"{name}: {tokenizer.decode(written[0])!r}")


def held_out_loss(model: Any, tokenizer: Any, path: Path) -> float:
    """Mean over all tokens that are learned, one example after the other."""
    total, count = 0.0, 0
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        before = tokenizer(row.get("prompt", ""))["input_ids"]
        ids = torch.tensor([*before, *tokenizer(row.get("text", row.get("response")))["input_ids"], 0])
        pieces = range(0, len(ids) - 1, SEQUENCE) if "text" in row else (0,)
        for first in pieces:
            piece = ids[first : first + SEQUENCE + 1]
            learned = max(len(before) - 1, 0)
            with torch.no_grad():
                logits = model(piece[None, :-1]).logits[0, learned:]
            total += torch.nn.functional.cross_entropy(logits, piece[learned + 1 :], reduction="sum").item()
            count += len(piece) - 1 - learned
    return total / count if count else math.nan


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("training-example"))
    parser.add_argument("--steps", type=int, default=120, help="of each training (default %(default)s)")
    options = parser.parse_args()
    main(options.folder, options.steps)
