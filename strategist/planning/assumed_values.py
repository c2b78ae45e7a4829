"""Assumed values of a config file: which of them could turn the verdict on memory if the real value is another."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from strategist.contract.estimate import Estimate, Fit
from strategist.contract.knobs import Candidate, KnobValue, show_value
from strategist.contract.settings import SETTING_NAMES, value_of, with_settings
from strategist.contract.workload import Workload
from strategist.formats.completed_config import option
from strategist.frozen import frozen
from strategist.units import show_bytes

PLAUSIBLE_VALUES: Mapping[str, tuple[KnobValue, ...]] = {
    "train": ("full", "lora", "qlora"),
    "seq_len": (512, 1024, 2048, 4096, 8192),
    "micro_batch": (1, 2, 4, 8),
    "recompute": ("none", "full"),
    "precision": ("fp32", "bf16"),
    "optimizer": ("adamw", "adamw8bit"),
}
"""Values of a program's usual arguments, by setting.

Sequence lengths are the 1st to the 98th percentile of the published runs (``profiles/measurements/published``), micro-batches the
1st to the 80th: 8 is also the default of transformers' TrainingArguments.
"""

ACCUMULATIONS = (1, 8)
"""Micro-batches per step: only from the second on does a device keep gradients that are not reduced."""

Values = Mapping[str, KnobValue]
Price = Callable[[Candidate, Workload], Estimate | None]
"""Estimate of a candidate; None where it breaks a law."""


@frozen
class AssumedRun:
    """A priced run of which ``names`` are settings and workload fields with assumed values.

    priced: with the assumed values.
    verdict: of an estimate, on devices and hosts.
    """

    candidate: Candidate
    workload: Workload
    names: tuple[str, ...]
    priced: Estimate
    price: Price
    verdict: Callable[[Estimate], Fit]

    @cached_property
    def _estimates(self) -> dict[frozenset[tuple[str, KnobValue]], Estimate | None]:
        """What is priced already, by the values that differ from the assumed ones."""
        return {frozenset(): self.priced}

    def value(self, name: str) -> KnobValue:
        """The assumed value."""
        known: KnobValue = value_of(self.candidate, name) if name in SETTING_NAMES else getattr(self.workload, name)
        return known

    def estimate(self, values: Values) -> Estimate | None:
        """Estimate with these values in the place of the assumed ones, and with as many micro-batches a step unless stated."""
        changed = {name: value for name, value in values.items() if value != self.value(name)}
        key = frozenset(changed.items())
        if key not in self._estimates:
            self._estimates[key] = self._priced_with(changed)
        return self._estimates[key]

    def _priced_with(self, values: Values) -> Estimate | None:
        candidate = with_settings(self.candidate, {name: value for name, value in values.items() if name in SETTING_NAMES})
        fields = {name: value for name, value in values.items() if name not in SETTING_NAMES}
        if "global_batch" in self.names:
            fields["global_batch"] = int(fields.get("global_batch", self.workload.global_batch)) * (
                candidate.knobs.micro_batch
            ) // self.candidate.knobs.micro_batch  # fmt: skip
        return self.price(candidate, replace(self.workload, **fields))  # type: ignore[arg-type]


def assumption_doubts(run: AssumedRun) -> Iterator[str]:
    """Assumed values of which another plausible value turns the verdict: that value, its memory, and the option that settles it.

    Of several values that turn it, the nearest to the assumed one is named. Where no value turns it alone, one after the other is
    changed as far as it goes, until the verdict turns.
    """
    known = run.verdict(run.priced)
    names = sorted(run.names, key=[*PLAUSIBLE_VALUES, *run.names].index)
    single = [text for name in names if (text := _doubt(run, name, known))]
    yield from single
    if not single:
        yield from _joint_doubts(run, names, known)


def _alternatives(run: AssumedRun, name: str) -> Iterator[tuple[KnobValue, Estimate]]:
    """Other plausible values with their estimates, nearest first."""
    assumed = run.value(name)
    for value in _nearest_first(_plausible_values(run, name), assumed):
        if value != assumed and (estimate := run.estimate({name: value})) is not None:
            yield value, estimate


def _plausible_values(run: AssumedRun, name: str) -> Sequence[KnobValue]:
    if name != "global_batch":
        return PLAUSIBLE_VALUES.get(name, ())
    micro_batches = run.candidate.accumulation(run.workload)
    return [run.workload.global_batch * count // micro_batches for count in ACCUMULATIONS]


def _nearest_first(values: Sequence[KnobValue], assumed: KnobValue) -> Sequence[KnobValue]:
    """Numbers by their ratio to the assumed one; words in their order."""
    if not isinstance(assumed, int) or isinstance(assumed, bool):
        return values
    return sorted(values, key=lambda value: max(int(value) / assumed, assumed / int(value)))


def _doubt(run: AssumedRun, name: str, known: Fit) -> str:
    """The doubt on one assumed value; empty if no plausible value turns the verdict."""
    for value, estimate in _alternatives(run, name):
        if (verdict := run.verdict(estimate)) is not known:
            assumed, other = show_value(run.value(name)), show_value(value)
            return (
                f"{name} {assumed} is assumed, with {other} it {_memory_text(estimate, verdict)} (give {option(name, value)} if so)"
            )
    return ""


def _joint_doubts(run: AssumedRun, names: Sequence[str], known: Fit) -> Iterator[str]:
    """The doubt on assumed values that turn the verdict only together: those that are changed until it turns."""
    for choose in (*((min,) if known is not Fit.FITS else ()), *((max,) if known is not Fit.TOO_LARGE else ())):
        values: dict[str, KnobValue] = {}
        peak = run.priced.peak_memory_bytes
        for name in names:
            tried = [(value, run.estimate({**values, name: value})) for value in _plausible_values(run, name)]
            found = [(estimate.peak_memory_bytes, value, estimate) for value, estimate in tried if estimate is not None]
            if not found:
                continue
            extreme, value, estimate = choose(found, key=lambda item: item[0])
            if extreme == peak:
                continue
            values[name], peak = value, extreme
            if (verdict := run.verdict(estimate)) is not known:
                shown = ", ".join(f"{name} {show_value(value)}" for name, value in values.items())
                options = " ".join(option(name, value) for name, value in values.items())
                need = _memory_text(estimate, verdict)
                yield f"{' and '.join(values)} are assumed, with {shown} it {need} (give {options} if so)"
                break


def _memory_text(estimate: Estimate, verdict: Fit) -> str:
    text = {Fit.FITS: "fits", Fit.TIGHT: "is tight", Fit.TOO_LARGE: "does not fit"}[verdict]
    return f"needs {show_bytes(estimate.peak_memory_bytes)} and {text}"
