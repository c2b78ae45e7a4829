"""Pipeline stages of Megatron-LM's arguments.

core_v0.19: megatron/training/arguments.py, megatron/core/transformer/pipeline_parallel_layer_layout.py and transformer_block.py.
A list says the layers of all stages, and so how many stages each rank has. Without one all have equally many, but for the first or
the last rank where a flag says theirs, or with embedding and loss counted as a layer each.
"""

import re
from dataclasses import dataclass

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.contract.pipeline_stages import even_layers
from strategist.formats.config_entries import Entries
from strategist.formats.finding_codes import finding
from strategist.formats.source import Source

LIST = "pipeline-model-parallel-layout"
NAMED = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
COUNTED = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
STAGES, EACH = "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage"

_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))
_LONGEST = 100_000
"""Characters of a list with its repetitions written out."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """``stages`` of each rank; ``layers`` of each stage, empty where nothing says them, or where they break a law: ``findings``."""

    stages: int = 1
    layers: tuple[int, ...] = ()
    findings: tuple[Diagnostic, ...] = ()

    @property
    def settings(self) -> dict[str, KnobValue]:
        """Schedule, stages and what they share out; stages that are as even as they can be are no others."""
        looped = self.stages > 1
        found: dict[str, KnobValue] = {"pp_schedule": "interleaved_1f1b" if looped else "1f1b", "pp_virtual_stages": self.stages}
        weighed = self.layers and self.layers != even_layers(sum(self.layers), len(self.layers))
        return found | ({"pp_split": "weighted"} if weighed else {})


def cut(entries: Entries, source: Source, pp: int, layers: int) -> Cut:
    """The stages of a model with so many ``layers``, 0 where that is not known.

    Raises:
        FileError: a list is none, or a number of layers.
    """
    listed = entries.get(LIST)
    if listed is not None:
        return _listed(stage_layers(str(listed).split()[0], source), source, pp, layers)
    both = entries.whole(STAGES) or 1
    counted = tuple(int(entries.on(name)) for name in COUNTED)
    if each := entries.whole(EACH):
        both = max(1, (layers + sum(counted)) // (pp * each))
    named = tuple(entries.whole(name) for name in NAMED)
    if pp == 1 or not layers or not (any(counted) or any(named)):
        return Cut(stages=both if pp > 1 else 1)
    name = next(name for name, said in zip(NAMED + COUNTED, named + counted, strict=True) if said)
    ranks = _ranks(pp, layers, named, counted)
    if ranks is None or any(rank % both for rank in ranks):
        text = f"{name}: {layers} layers do not go round {pp} ranks of {both} stages each so"
        return Cut(stages=both, findings=(finding("FMT-004", text, "change what says the layers of a stage", source, name),))
    found = [ranks[stage % pp] // both for stage in range(pp * both)]
    found[0] -= counted[0]
    found[-1] -= counted[1]
    return Cut(stages=both, layers=tuple(found))


def stage_layers(text: str, source: Source) -> tuple[int, ...]:
    """Layers of each stage of a list such as ``Et*3|(tt|)*29,m|L``.

    Raises:
        FileError: it is none.
    """
    plain = text.replace(",", "")
    for pattern in _REPEATED:
        if len(plain) + sum(len(what) * int(times[:9]) for what, times in pattern.findall(plain)) > _LONGEST:
            raise source.error(LIST, f"{LIST} is {text}: longer than any model; correct it")
        plain = pattern.sub(lambda match: match[1] * int(match[2]), plain)
    if not re.fullmatch(r"E[t|]*[m|]*L", plain):
        law = "stages of layers (t) between | are needed, with E at the start, L at the end and any m behind all t"
        raise source.error(LIST, f"{LIST} is {text}: {law}")
    return tuple(stage.count("t") for stage in plain.split("|"))


def _listed(found: tuple[int, ...], source: Source, pp: int, layers: int) -> Cut:
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
    """Layers of each rank, embedding and loss counted where they are; None where they do not go round."""
    first, last = named
    others, left = pp - sum(number is not None for number in named), layers + sum(counted) - (first or 0) - (last or 0)
    if left < 0 or (left % others if others else left):
        return None
    middle = [left // others] * others if others else []
    return [*([] if first is None else [first]), *middle, *([] if last is None else [last])]
