"""Scatter plot of candidates by speed and memory: a sample, the Pareto front, and the plan."""

from collections.abc import Mapping

from strategist.contract.plan import Plan
from strategist.contract.report import Seen, Space
from strategist.report.page.filters import filter_attributes, filters, values_of
from strategist.report.page.html import Html, element, join
from strategist.report.page.plot import Mark, Scale, line, plot, scale_of, vertical_line
from strategist.report.page.tables import table
from strategist.report.setting_text import candidate_words, counted, gib, recompute_words, tokens
from strategist.units import GIB

ID = "candidates-plot"
FRONT_ROWS = 12


def candidates(space: Space, plan: Plan) -> Html:
    """The plot with its filters, and the Pareto front as a table."""
    fields = [_fields(item) for item in space.seen]
    dots = [_dot(item, dot_fields) for item, dot_fields in zip(space.seen, fields, strict=True)]
    front_items = [item for item in space.seen if item.front]
    this_dot = _this_plan(plan)
    capacity = plan.estimate.capacity_bytes / GIB
    scale = scale_of([*dots, this_dot], "peak memory of a device, GiB", "tokens/s", (lambda gibs: f"{gibs:g}", tokens), capacity)
    under = (vertical_line(scale, capacity, "capacity"), _front(scale, front_items))
    fit = sum(item.place is not None for item in space.seen)
    counts = f"{len(space.seen):,} candidates, of which {fit:,} fit and {len(front_items)} are on the front"
    caption = f"Tokens/s against peak memory of {counts}"
    ordered_dots = sorted(dots, key=lambda dot: ("front" in dot.css_class, "fits" in dot.css_class))
    return join([
        filters(ID, values_of(fields), "candidates"),
        element("figure", plot(caption, scale, [*ordered_dots, this_dot], under=under, id_=ID), _caption(space)),
        _table(front_items),
    ])  # fmt: skip


def _caption(space: Space) -> Html:
    not_drawn = f" {space.unseen:,} further groups are not drawn." if space.unseen else ""
    text = (
        "Each dot is the best of the candidates with its mesh, recomputation and offload; hollow ones do not fit. The line is the"
        f" front: nothing that fits is both faster and smaller. The ring is this plan.{not_drawn}"
    )
    return element("figcaption", text)


def _fields(item: Seen) -> dict[str, str]:
    """Values by which candidates are filtered; unused axes are left out."""
    layout, knobs = item.candidate.layout, item.candidate.knobs
    degrees = {name: str(getattr(layout, name)) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")}
    fits = "yes" if item.place is not None else "no"
    return {**degrees, "recompute": knobs.recompute, "offload": knobs.offload, "fits": fits}


def _dot(item: Seen, fields: Mapping[str, str]) -> Mark:
    knobs = item.candidate.knobs
    settings = f"recompute {recompute_words(knobs)}, offload {knobs.offload}, micro-batch {knobs.micro_batch}"
    figures = f"{tokens(item.tokens_per_second)} tokens/s, {gib(item.peak_memory_bytes)} GiB"
    rank = f"place {item.place:,}" if item.place is not None else "does not fit"
    text = f"{candidate_words(item.candidate)}; {settings}: {figures}, {rank}; the best of {item.similar_candidates:,} similar"
    css_class = "front" if item.front else "fits" if item.place is not None else "large"
    return Mark(
        x=item.peak_memory_bytes / GIB, y=item.tokens_per_second, text=text, css_class=css_class, marks=filter_attributes(fields)
    )


def _this_plan(plan: Plan) -> Mark:
    estimate = plan.estimate
    text = f"this plan: {candidate_words(plan.candidate)}, {tokens(estimate.tokens_per_second)} tokens/s"
    return Mark(x=estimate.peak_memory_bytes / GIB, y=estimate.tokens_per_second, text=text, css_class="this")


def _front(scale: Scale, front_items: list[Seen]) -> Html:
    points = sorted((item.peak_memory_bytes / GIB, item.tokens_per_second) for item in front_items)
    return line(scale, points, "front-line", steps=True)


def _table(front_items: list[Seen]) -> Html:
    """The Pareto front, fastest first."""
    rows = [
        (
            candidate_words(item.candidate), recompute_words(item.candidate.knobs), item.candidate.knobs.offload,
            str(item.candidate.knobs.micro_batch), tokens(item.tokens_per_second), gib(item.peak_memory_bytes),
            f"{item.place:,}" if item.place is not None else "-",
        )
        for item in sorted(front_items, key=lambda item: -item.tokens_per_second)
    ]  # fmt: skip
    head = ("mesh", "recompute", "offload", "micro-batch", "tokens/s", "GiB", "place")
    count_text = f"the {FRONT_ROWS} fastest of {len(rows)}" if len(rows) > FRONT_ROWS else counted(len(rows), "candidate")
    return table(f"The front, {count_text}", head, rows[:FRONT_ROWS], words=(0, 1, 2))
