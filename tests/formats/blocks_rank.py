"""Compares blocks of exported scripts with the runtime: ``python -m formats.blocks_rank`` runs all checks in one process with
torch, and prints the traceback of each that failed, by name, as JSON.
"""

import importlib
import json
import os
import sys
import traceback
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from formats.pytorch_plans import BIASED, DENSE, LORA, MIXTRAL, QWEN, QWEN_MOE, SPARSE, STEERED, exported, planned
from strategist.contract.model import ModelShape

if TYPE_CHECKING:
    import torch

SHAPES = tuple(replace(shape, layers=2) for shape in (DENSE, QWEN, BIASED, MIXTRAL, QWEN_MOE, SPARSE, STEERED))
"""The first layer of two of these is dense, the other layers have experts."""
WITH_LORA = (QWEN.name, SPARSE.name)


def exported_module(trained: dict, module: str, **knobs: object) -> types.ModuleType:
    """A module of the exported script of a single process."""
    folder = Path.cwd() / str(len(os.listdir()))
    exported(planned({}, {"micro_batch": 4, **knobs}, {}, trained), folder)
    for name in ("plan", "model", "data", "checkpoint", "train"):
        sys.modules.pop(name, None)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(str(folder))


def runtime_decoder(shape: ModelShape, trained: dict) -> "torch.nn.Module":
    """The runtime's decoder with its initial weights."""
    import torch
    from strategist_runtime.model import lora
    from strategist_runtime.model.decoder import Decoder
    from strategist_runtime.weights.seeded import materialise

    with torch.device("meta"):
        model = Decoder(shape)
    if trained.get("train") == "lora":
        lora.freeze(model, torch.float32)
        lora.add_adapters(model.layers.values(), rank=trained["lora_rank"], alpha=16, quantised=False)
    materialise(model, shape, 64, 0, torch.device("cpu"))
    return model


def decoder() -> None:
    """Compares initial weights by name, and logits: attention, rotary positions, norms, feed-forwards, router and experts."""
    import torch

    tokens = torch.arange(2 * 64).view(2, 64) * 7 % DENSE.vocab_size
    for shape, more in (*((shape, {}) for shape in SHAPES), *((shape, LORA) for shape in SHAPES if shape.name in WITH_LORA)):
        train = exported_module({"model": shape, **more}, "train")
        part, reference = train.build(torch.device("cpu")), runtime_decoder(shape, more)
        train.draw_weights(dict(part.named_parameters()))
        names = dict(part.named_parameters())
        assert names.keys() == dict(reference.named_parameters()).keys(), shape.name
        for name, parameter in reference.named_parameters():
            assert torch.equal(names[name], parameter), (shape.name, name)
        with torch.no_grad():
            torch.testing.assert_close(part(tokens), reference(tokens), rtol=1e-5, atol=1e-5)


def data() -> None:
    """Compares samples of all kinds of data, in the order of two epochs."""
    import numpy as np
    import torch
    from strategist_runtime.data.mixture import mixture
    from strategist_runtime.data.reader import Reader
    from strategist_runtime.data.token_datasets import SyntheticTokens, open_tokens

    found = exported_module({}, "data")
    tokens = np.random.default_rng(0).integers(0, DENSE.vocab_size, 64 * 11 + 5)
    for dtype in ("uint16", "uint32", "int32"):
        tokens.astype(dtype).tofile(f"{dtype}.bin")
    Path("int32.json").write_text('{"dtype": "int32"}')
    np.save("text.npy", tokens)
    texts = {"uint16.bin": "", "uint32.bin": "uint32", "int32.bin": "", "text.npy": ""}
    for place, dtype in {"": "", **texts}.items():
        shape = {"seq_len": 64, "vocab_size": DENSE.vocab_size}
        text = mixture([open_tokens(place, dtype, **shape)], [None], 0) if place else SyntheticTokens(seed=0, **shape)
        expected = Reader(dataset=text, rank=0, ranks=1).read(3, 25)
        here = found.open_tokens(Path(place), dtype or None) if place else None
        rows = torch.stack([found.sample(here, number) for number in range(3, 28)])
        assert torch.equal(rows[:, :-1], expected.tokens), place
        assert torch.equal(rows[:, 1:], expected.targets), place
    for wrong, words in ((tokens + DENSE.vocab_size, "is not in the vocabulary"), (tokens[:10], "has fewer than 65 tokens")):
        wrong.astype("uint16").tofile("wrong.bin")
        try:
            found.sample(found.open_tokens(Path("wrong.bin"), None), 0)
        except SystemExit as error:
            assert words in str(error)  # noqa: PT017
        else:
            raise AssertionError(words)


def names() -> None:
    """Compares parameter names with those of Hugging Face's files."""
    from strategist_runtime.weights.hugging_face import EXPERT, PARAMETER_NAMES

    for kind, shape in {"llama": DENSE, "qwen3": QWEN, "qwen2": BIASED, "mixtral": MIXTRAL, "qwen3_moe": QWEN_MOE}.items():
        found = exported_module({"model": shape}, "checkpoint")
        for name, parameter in runtime_decoder(shape, {}).named_parameters():
            place = PARAMETER_NAMES[kind].location(shape, name)
            assert place is not None
            assert next(iter(found.hugging_face_state({name: parameter}))) == place.name.replace(EXPERT, "0"), name


def loss_scale() -> None:
    """Compares the loss scale after steps with and without overflow."""
    from strategist_runtime.model.loss_scale import LossScale

    here, there = exported_module({"precision": "fp16"}, "model").LossScale, LossScale()
    for norm in [1.0] * 1999 + [float("inf")] + [1.0] * 2001 + [float("nan"), 1.0]:
        here.update(norm != norm or norm == float("inf"))
        there.update(norm)
        assert here.value() == there.value


def chunked_loss() -> None:
    """Compares the loss of four chunks and its gradients; no operation makes the logits of all tokens."""
    import torch
    from strategist_runtime.model.chunked_loss import ChunkedLoss
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            made = operation(*args, **(kwargs or {}))
            self.elements = max(self.elements, made.numel() if isinstance(made, torch.Tensor) else 0)
            return made

    model, draws = exported_module({}, "model", chunked_loss=True), torch.Generator().manual_seed(0)
    tokens, accumulation = 2 * DENSE.hidden_size, 2
    targets = torch.randint(DENSE.vocab_size, (tokens,), generator=draws)
    hidden, weight = (torch.randn(rows, DENSE.hidden_size, generator=draws) for rows in (tokens, DENSE.vocab_size))
    inputs = (hidden.requires_grad_(), weight.requires_grad_())
    with Largest() as largest:
        loss = model.ChunkedLoss.apply(*inputs, targets)
    assert largest.elements < tokens * DENSE.vocab_size
    native = ChunkedLoss(chunk_tokens=DENSE.hidden_size // 2, divisor=tokens * accumulation)
    expected = native(hidden.unsqueeze(0), weight, targets.unsqueeze(0))
    torch.testing.assert_close(loss, expected)
    for one, other in zip(torch.autograd.grad(3 * loss, inputs), torch.autograd.grad(3 * expected, inputs), strict=True):
        torch.testing.assert_close(one, other)


CHECKS: dict[str, Callable[[], None]] = {check.__name__: check for check in (decoder, data, names, loss_scale, chunked_loss)}


def failures() -> dict[str, str]:
    """The traceback of each check that failed, by name."""
    found = {}
    for name, check in CHECKS.items():
        try:
            check()
        except (Exception, SystemExit):
            found[name] = traceback.format_exc()
    return found


if __name__ == "__main__":
    from strategist_runtime.rank_process import leave

    print(json.dumps(failures()))
    leave()
