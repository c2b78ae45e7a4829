"""Pipeline stages that Megatron-LM's arguments describe.

core_v0.19: megatron/training/arguments.py, megatron/core/transformer/pipeline_parallel_layer_layout.py and transformer_block.py.
A layout list states the layers of all stages, and so the number of stages per rank. Without a list all stages have the same
number of layers, except on a first or last rank with a flag of its own, or with embedding and loss counted as a layer each.
"""

import re

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.contract.pipeline_stages import even_layers
from strategist.formats.config_entries import Entries
from strategist.formats.finding_codes import finding
from strategist.formats.source import Source
from strategist.frozen import frozen

LIST = "pipeline-model-parallel-layout"
NAMED = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
COUNTED = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
PARTITION = "pp-partition-method"
"""DeepSpeed's: classes of layers that count, such as ``type:transformer|embedding`` (runtime/pipe/module.py)."""

STAGES, LAYERS_PER_STAGE = "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage"

_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))
_LONGEST = 100_000
"""Maximum length of a list with its repetitions written out, in characters."""


@frozen
class Cut:
    """Split of a pipeline into stages.

    stages: number of stages per rank.
    layers: layers of each stage; empty if they are not stated or break a law.
    findings: broken laws.
    """

    stages: int = 1
    layers: tuple[int, ...] = ()
    findings: tuple[Diagnostic, ...] = ()

    @property
    def settings(self) -> dict[str, KnobValue]:
        """Schedule, stages per rank and split; stages that are as even as possible need no split."""
        looped = self.stages > 1
        found: dict[str, KnobValue] = {"pp_schedule": "interleaved_1f1b" if looped else "1f1b", "pp_virtual_stages": self.stages}
        weighed = self.layers and self.layers != even_layers(sum(self.layers), len(self.layers))
        return found | ({"pp_split": "weighted"} if weighed else {})


def cut(entries: Entries, source: Source, pp: int, layers: int) -> Cut:
    """The pipeline's split of a model with that number of ``layers`` (0: unknown).

    Raises:
        FileError: a list, or a number of layers, is invalid.
    """
    stage_list = entries.get(LIST)
    if stage_list is not None:
        return _cut_of_list(stage_layers(str(stage_list).split()[0], source), source, pp, layers)
    stages = entries.integer(STAGES) or 1
    counts_ends = "embedding" in str(entries.get(PARTITION) or "")
    counted = tuple(int(entries.enabled(name) or counts_ends) for name in COUNTED)
    if layers_per_stage := entries.integer(LAYERS_PER_STAGE):
        stages = max(1, (layers + sum(counted)) // (pp * layers_per_stage))
    named = tuple(entries.integer(name) for name in NAMED)
    if pp == 1 or not layers or not (any(counted) or any(named)):
        return Cut(stages=stages if pp > 1 else 1)
    name = next(name for name, value in zip(NAMED + COUNTED, named + counted, strict=True) if value)
    ranks = _ranks(pp, layers, named, counted)
    if ranks is None or any(rank % stages for rank in ranks):
        text = f"{name}: {layers} layers do not go round {pp} ranks of {stages} stages each so"
        return Cut(stages=stages, findings=(finding("FMT-004", text, "change what says the layers of a stage", source, name),))
    found = [ranks[stage % pp] // stages for stage in range(pp * stages)]
    found[0] -= counted[0]
    found[-1] -= counted[1]
    return Cut(stages=stages, layers=tuple(found))


def stage_layers(text: str, source: Source) -> tuple[int, ...]:
    """Layers of each stage in a list such as ``Et*3|(tt|)*29,m|L``.

    Raises:
        FileError: the list is invalid.
    """
    plain = text.replace(",", "")
    for pattern in _REPEATED:
        if len(plain) + sum(len(repeated) * int(times[:9]) for repeated, times in pattern.findall(plain)) > _LONGEST:
            raise source.error(LIST, f"{LIST} is {text}: longer than any model; correct it")
        plain = pattern.sub(lambda match: match[1] * int(match[2]), plain)
    if not re.fullmatch(r"E[t|]*[m|]*L", plain):
        law = "stages of layers (t) between | are needed, with E at the start, L at the end and any m behind all t"
        raise source.error(LIST, f"{LIST} is {text}: {law}")
    return tuple(stage.count("t") for stage in plain.split("|"))


def _cut_of_list(found: tuple[int, ...], source: Source, pp: int, layers: int) -> Cut:
    broken = ""
    if len(found) % pp:
        broken = f"lists {len(found)} stages, which {pp} ranks do not share evenly"
    elif layers and sum(found) != layers:
        broken = f"lists {sum(found)} layers, and the model has {layers}"
    stages = max(1, len(found) // pp) if pp > 1 else 1
    if broken:
        return Cut(stages=stages, findings=(finding("FMT-004", f"{LIST} {broken}", "correct the list", source, LIST),))
    return Cut(stages=stages, layers=found if pp > 1 else ())


def _ranks(pp: int, layers: int, named: tuple[int | None, ...], counted: tuple[int, ...]) -> list[int] | None:
    """Layers of each rank, with embedding and loss if they are counted; None if the layers cannot be divided so."""
    first, last = named
    others, remaining = pp - sum(number is not None for number in named), layers + sum(counted) - (first or 0) - (last or 0)
    if remaining < 0 or (remaining % others if others else remaining):
        return None
    middle = [remaining // others] * others if others else []
    return [*([] if first is None else [first]), *middle, *([] if last is None else [last])]
