"""Report page of a run: measured beside predicted values, and curves over its steps."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.report import RunReport
from strategist.report.breakdown import NAMES
from strategist.report.page.bars import bars
from strategist.report.page.communication import communication
from strategist.report.page.frame import Section, document
from strategist.report.page.headline import BAD, GOOD, Figure, headline
from strategist.report.page.html import Html, element, join
from strategist.report.page.legend import legend, with_legend
from strategist.report.page.plot import HEIGHT, Mark, Scale, line, over_steps, plot
from strategist.report.page.step_time import step_bar
from strategist.report.page.tables import table
from strategist.report.plot_axes import LinearAxis
from strategist.report.setting_text import change_words, gib, tokens
from strategist.report.trial import COMPARED, OUTCOME_WORDS, comparison_rows
from strategist.units import GIB, show_seconds

MAX_DOTS = 500
"""Number of steps up to which each has a dot; the line goes through all."""


def run_page(report: RunReport) -> str:
    """The whole page."""
    plan = report.plan
    title = f"{plan.model.name} on {plan.cluster.name}"
    introduction = element("p", f"Run {report.run} of plan {plan.id}: {change_words(plan)}", class_="lead")
    return document(f"{title}, a run", join([element("h1", title), introduction, _headline(report)]), list(_sections(report)))


def _headline(report: RunReport) -> Html:
    measurement, estimate = report.measurement, report.plan.estimate
    figures = []
    if measurement.tokens_per_second:
        expected = f"{tokens(estimate.tokens_per_second)} predicted"
        figures.append(Figure(name="tokens/s", value=tokens(measurement.tokens_per_second), remark=expected))
    if measurement.step_seconds:
        expected = f"{show_seconds(estimate.step_seconds)} predicted"
        figures.append(Figure(name="step", value=show_seconds(measurement.step_seconds), remark=expected))
    if measurement.peak_memory_bytes:
        expected = f"{gib(estimate.memory.allocated)} predicted"
        figures.append(Figure(name="GiB a device, peak", value=gib(max(measurement.peak_memory_bytes)), remark=expected))
    if measurement.losses:
        figures.append(Figure(name="loss", value=f"{measurement.losses[-1]:.4g}", remark=f"from {measurement.losses[0]:.4g}"))
    css_class = GOOD if measurement.outcome is Outcome.OK else BAD
    sentence = f"The run {OUTCOME_WORDS[measurement.outcome]}"
    return headline(
        measurement.outcome.value,
        css_class,
        f"{sentence} in {show_seconds(measurement.wall_seconds)}" if measurement.wall_seconds else sentence,
        figures,
    )


def _sections(report: RunReport) -> Iterator[Section]:
    plan, measurement = report.plan, report.measurement
    if measurement.outcome is not Outcome.OK:
        yield Section(title="Evidence", introduction="", body=_evidence(measurement))
    detail = f"{measurement.steps_measured} steps after warm-up were measured." if measurement.steps_measured else ""
    grid = table("Predicted and measured", COMPARED, comparison_rows(plan, measurement))
    yield Section(title="Predicted and measured", introduction=detail, body=grid)
    yield from _curves(report)
    if measurement.time and measurement.profiled_step_seconds:
        introduction = "Predicted, and as the profiled step took it, mean over the ranks."
        yield Section(
            title="Time", introduction=introduction, body=_time(report, measurement.time, measurement.profiled_step_seconds)
        )
    if measurement.traffic:
        introduction = "Sizes of the messages of a rank in a step, the larger of what goes in and what comes out."
        body = communication(measurement.traffic, "Bytes of a step, by axis and collective")
        yield Section(title="Communication", introduction=introduction, body=body)
    if measurement.notes:
        yield Section(title="Notes", introduction="", body=element("ul", *(element("li", note) for note in measurement.notes)))
    command = shlex.join(["strategist", "run", f"{report.run}/plan.json"])
    yield Section(title="Reproduce", introduction="", body=element("pre", element("code", command)))


def _evidence(measurement: Measurement) -> Html:
    evidence = measurement.evidence
    origin = f"Rank {evidence.rank}, {evidence.phase}: " if evidence.rank is not None else ""
    return join([element("p", origin + (evidence.message or "none was left")), element("pre", evidence.log_tail)])


def _curves(report: RunReport) -> Iterator[Section]:
    """Curves over the steps."""
    step_tokens = report.plan.workload.tokens_per_step
    losses = [(step.step, step.loss) for step in report.steps if step.loss is not None]
    rates = [(step.step, step_tokens / step.seconds) for step in report.steps if step.seconds]
    memory = [(step.step, step.memory_bytes / GIB) for step in report.steps if step.memory_bytes]
    for title, unit, points, lowest in (
        ("Loss", "loss", losses, None), ("Throughput", "tokens/s", rates, 0.0), ("Memory", "GiB of rank 0", memory, 0.0),
    ):  # fmt: skip
        if len(points) > 1:
            yield Section(title=title, introduction="", body=_curve(unit, points, lowest))


def _curve(unit: str, points: Sequence[tuple[int, float]], lowest: float | None) -> Html:
    """A curve over the steps, on an axis from ``lowest`` on, or over the range of its values."""
    values = [value for _, value in points]
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    y_axis = LinearAxis(low=low - margin if lowest is None else lowest, high=high + margin, length=HEIGHT)
    scale = over_steps(Scale(x=y_axis, y=y_axis, names=("step", unit), formats=(lambda tick: f"{tick:g}", _figure)), points[-1][0])
    dots = [Mark(x=step, y=value, text=f"step {step}: {_figure(value)} {unit}", css_class="fits") for step, value in points]
    caption = f"{unit} over {len(points)} steps: {_figure(values[0])} at first, {_figure(values[-1])} at last"
    return element("figure", plot(caption, scale, dots if len(dots) <= MAX_DOTS else (), under=[line(scale, points, "front-line")]))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _time(report: RunReport, measured: dict[str, float], profiled: float) -> Html:
    estimate = report.plan.estimate
    predicted = asdict(estimate.time)
    rows = [step_bar("predicted", predicted, estimate.step_seconds), step_bar("measured", measured, profiled)]
    names = [name for name in dict.fromkeys([*predicted, *measured]) if predicted.get(name, 0) + measured.get(name, 0) > 0]
    lines = [
        (name, NAMES.get(name, name), show_seconds(predicted.get(name, 0.0)), show_seconds(measured.get(name, 0.0)))
        for name in names
    ]
    max_seconds = max(sum(predicted.values()), sum(measured.values()))
    return with_legend(bars("Time of a step", rows, max_seconds), legend("Parts of the step", ("predicted", "measured"), lines))
