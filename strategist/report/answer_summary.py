"""The answer on one screen: verdict, plans, the best one as options, alternatives, assumptions and next commands."""

import shlex
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.answer import Alternative, Answer
from strategist.contract.estimate import DEFAULT_CONFIDENCE, Estimate, Fit, TimeParts
from strategist.contract.knobs import Knobs, show_value
from strategist.contract.layout import DEGREES, Layout
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_NAMES
from strategist.contract.simulation import Verdict
from strategist.programs.backends import formats, load_backend, programs
from strategist.report.answer import best_training, convergence_lines, proof_section, title
from strategist.report.command import plan_command
from strategist.report.setting_text import batch_words, counted, differing, gib, percent, recompute_words, tokens
from strategist.report.text_blocks import bullets, columns, commands, grouped, heading, section
from strategist.rules.backend import Backend
from strategist.units import show_bytes, show_seconds

ALTERNATIVES, NOTES = 3, 2
"""Number of alternatives and of assumptions shown."""

REPEATED = ("--fix", "--allow", "--without", "--cards")
"""Options that may be repeated."""

BOUND_PARTS = {
    "compute": ("matmul", "attention", "recompute"),
    "memory": ("memory_bound",),
    "launches": ("launch",),
    "TP links": ("tp_communication",),
    "CP links": ("cp_communication",),
    "EP links": ("ep_communication",),
    "DP links": ("dp_communication",),
    "PP links": ("pp_communication",),
    "bubble": ("bubble",),
    "host link": ("offload",),
    "optimizer": ("optimizer",),
}
"""Possible bottlenecks of a step, each with the parts of its time."""

_PLAIN = Knobs()
_ALWAYS = ("micro_batch", "recompute", "offload")


def fit_words(estimate: Estimate, confidence: float = DEFAULT_CONFIDENCE) -> str:
    """Verdict on device memory: ``Fits``, ``Tight`` or ``Does not fit``, with margin and probability; it fits from
    ``confidence`` on.
    """
    spare = estimate.capacity_bytes - estimate.peak_memory_bytes
    verdict = Fit.of(estimate.fit_confidence, confidence).value.capitalize()
    margin = f"{gib(spare)} to spare" if spare >= 0 else f"{gib(-spare)} too many"
    sizes = f"{gib(estimate.peak_memory_bytes)} of {gib(estimate.capacity_bytes)} GiB a device, {margin}"
    host = (
        f"; {show_bytes(estimate.host_memory_bytes_per_node)} of host memory a node" if estimate.host_memory_bytes_per_node else ""
    )
    return f"{verdict}: {sizes}, probability {percent(estimate.shown_confidence)}{host}."


def bound_by(time: TimeParts) -> str:
    """The resource that takes the largest share of a step."""
    return max(BOUND_PARTS, key=lambda name: sum(getattr(time, part) for part in BOUND_PARTS[name]))


def fix_options(plan: Plan) -> str:
    """Settings of a plan as an argument of ``--fix``: degrees above 1, and settings that matter and are not default."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    values = {name: getattr(layout, name) for name in DEGREES if getattr(layout, name) != getattr(Layout(), name)}
    for name in (name for name in SETTING_NAMES if hasattr(knobs, name)):
        value = getattr(knobs, name)
        if name in _ALWAYS or (plan.matters(name) and value != getattr(_PLAIN, name)):
            values[name] = value
    return ",".join(f"{name}={show_value(value)}" for name, value in values.items())


@grouped
def answer_summary(answer: Answer, extra_options: Sequence[str] = ()) -> Iterator[RenderableType]:
    """The answer within about 40 lines of 80 columns, plus proofs if requested. ``extra_options`` are options
    outside the request that decide plans (cards, calibration); the suggested commands repeat them.
    """
    yield plans_summary(answer)
    yield alternatives_summary(answer, extra_options)


@grouped
def plans_summary(answer: Answer) -> Iterator[RenderableType]:
    """The first part of a summary, which alternatives do not change if something fits."""
    yield title(answer)
    fits = answer.plans and not (answer.proofs and answer.proofs[0].verdict is Verdict.TOO_LARGE)
    if fits:
        yield Text(fit_words(answer.plans[0].estimate, answer.request.confidence), "bold")
    elif tight := next((other.plan for other in answer.alternatives if "--confidence" in other.flags and not answer.plans), None):
        yield Text(fit_words(tight.estimate, answer.request.confidence), "bold")
    yield Text(answer.verdict.removeprefix("It fits. " if fits else ""))
    if answer.plans:
        yield section(
            heading("Plans", f"best of {answer.feasible:,} that fit; within 4%, what cards prefer comes first"),
            _table(answer.plans),
            *(Text(f"  {rank}: {words}", "dim") for rank, words in enumerate(differing(answer.plans), start=1) if words),
        )
        if answer.proofs:
            yield proof_section(answer)
        if answer.trainings:
            yield best_training(answer)
        yield from convergence_lines(answer)
        yield _best(answer.plans[0])
        yield from _warnings(answer.plans[0])


@grouped
def alternatives_summary(answer: Answer, extra_options: Sequence[str] = ()) -> Iterator[RenderableType]:
    """The rest of a summary: alternatives, assumptions and next commands."""
    if answer.alternatives:
        yield _alternatives(answer)
    elif not answer.plans:
        yield section(
            heading("No alternative found"), Text("no single change makes it fit: add devices (--gpus) or take a smaller --model")
        )
    if assumed := (*answer.not_as_shipped, *answer.notes):
        yield section(heading("Assumed"), bullets(_assumed(assumed)))
    yield _next(answer, extra_options)


def _table(plans: Sequence[Plan]) -> Table:
    """A row per plan; EP only if the model has experts."""
    moe = plans[0].model.moe is not None
    usable = gib(plans[0].estimate.capacity_bytes)
    axes = ["DP/\nFSDP", "TP", "PP", "CP", *(["EP"] if moe else [])]
    names = ["#", *axes, "activation\ncheckpoint", "micro-\nbatch", "offload", f"GiB of\n{usable}", "tokens/s", "MFU", "bound by"]
    table = columns(*names, left=["activation\ncheckpoint", "offload", "bound by"])
    table.omissible = ("TP", "PP", "CP")
    for rank, plan in enumerate(plans, start=1):
        layout, knobs, estimate = plan.candidate.layout, plan.candidate.knobs, plan.estimate
        table.add_row(
            str(rank), f"{layout.dp_replicate}/{layout.dp_shard}", str(layout.tp), str(layout.pp), str(layout.cp),
            *([str(layout.ep)] if moe else []), recompute_words(knobs), batch_words(plan.candidate, plan.workload), knobs.offload,
            gib(estimate.peak_memory_bytes), tokens(estimate.tokens_per_second), percent(estimate.mfu), bound_by(estimate.time),
        )  # fmt: skip
    return table


def _best(plan: Plan) -> RenderableType:
    estimate = plan.estimate
    low, high = estimate.step_seconds_range or (estimate.step_seconds, estimate.step_seconds)
    step = f"step {show_seconds(estimate.step_seconds)}, 90% interval {show_seconds(low)} to {show_seconds(high)}"
    title = heading("Best plan", f"{step}; runs on {', '.join(plan.backends) or 'none yet'}")
    return commands(title, f"--fix {fix_options(plan)}")


def _warnings(plan: Plan) -> Iterator[RenderableType]:
    """Cards with warnings that no setting can resolve."""
    cards = dict.fromkeys(reason.card for reason in plan.reasons if reason.effect == "warn")
    if cards:
        yield Text(f"Warnings (--show cards): {', '.join(cards)}")


def _alternatives(answer: Answer) -> RenderableType:
    """Alternatives; those that a back end can run come first."""
    count = ALTERNATIVES - bool(answer.trainings)  # of which the screen has lines, too
    shown = sorted(answer.alternatives, key=lambda other: not other.plan.backends)[:count]
    changes_model = any(other.changes_convergence for other in shown)
    title = heading(
        "Alternatives" if answer.plans else "Alternatives that fit", "*: the trained model may differ" if changes_model else ""
    )
    return section(title, bullets((_alternative(other, answer) for other in shown), mark="1"))


def _alternative(other: Alternative, answer: Answer) -> Text:
    """Figures of an alternative, with its ratio to the best plan in what the request asks for: memory, otherwise tokens/s."""
    estimate = other.plan.estimate
    best = answer.plans[0].estimate if answer.plans else None
    saves_memory = answer.request.objective == "memory"
    faster = f" (x{estimate.tokens_per_second / best.tokens_per_second:.2f})" if best and not saves_memory else ""
    smaller = f" (x{estimate.peak_memory_bytes / best.peak_memory_bytes:.2f})" if best and saves_memory else ""
    host = estimate.host_memory_bytes_per_node
    figures = [
        f"{tokens(estimate.tokens_per_second)} tokens/s{faster}",
        f"{gib(estimate.peak_memory_bytes)} of {gib(estimate.capacity_bytes)} GiB{smaller}",
        *([f"{show_bytes(host)} of host memory a node"] if host else []),
        *([] if other.plan.backends else ["no back end yet"]),
    ]
    mark = " *" if other.changes_convergence else ""
    return Text.assemble((f"{other.title}{mark}", "bold"), f"  {shlex.join(other.flags)}\n{', '.join(figures)}")


def _assumed(notes: Sequence[str]) -> Iterator[RenderableType]:
    """Assumptions without the advice after their semicolon; ``--show assumed`` prints them in full."""
    yield from (Text(note.partition(";")[0]) for note in notes[:NOTES])
    if (hidden := len(notes) - NOTES) > 0:
        yield Text(f"{counted(hidden, 'more assumption')}: --show assumed", "dim")


def _next(answer: Answer, extra_options: Sequence[str]) -> Group:
    words = [*plan_command(answer.request), *extra_options]
    command = shlex.join(words)
    if not answer.plans:
        nearest = [shlex.join(_with_flags(words, other.flags)) for other in answer.alternatives[:1]]
        return commands(heading("Next"), *nearest, f"{command} --explain")
    plan = answer.plans[0]
    lines = [f"{command} -o plan.json", _next_command(plan)]
    job = " --job slurm" if plan.cluster.nodes > 1 else ""
    if name := next((name for name in plan.backends if name in (*formats(), *programs())), ""):
        lines.append(f"strategist export plan.json --to {name}{job} -o job/")
    elif answer.request.backend == "any" and (name := _format_for(answer)):
        lines.append(f"{command} --to {name}{job} --job-output job/  # or another framework: --show backends")
    elif answer.request.backend == "any":
        lines.append(f"{command} --show backends  # what each framework can run")
    return commands(heading("Next", "plan --explain prints all details, --plan 2 takes the second plan"), *lines)


def _next_command(plan: Plan) -> str:
    """What the runtime can do with the saved plan: run it, or simulate what another back end runs, if it can build the model."""
    if "native" in plan.backends:
        return "strategist run plan.json"
    return (
        "strategist simulate plan.json"
        if _is_supported(load_backend("native"), plan)
        else "strategist report plan.json -o plan.html"
    )


def _with_flags(command: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    """A command with an alternative's options, in place of its own where an option can stand once."""
    pairs = tuple(zip(flags[::2], flags[1::2], strict=True))
    replaced = {option: value for option, value in pairs if option in command and option not in REPEATED}
    yield from (replaced.get(previous, word) for previous, word in zip(("", *command), command, strict=False))
    yield from (word for pair in pairs if pair[0] not in replaced for word in pair)


def _format_for(answer: Answer) -> str:
    """PyTorch alone where it runs one of the plans, else the first format that does; empty where none does."""
    names = ("pytorch", *formats(), *programs())
    return next((name for name in names if any(_is_supported(load_backend(name), plan) for plan in answer.plans)), "")


def _is_supported(backend: Backend, plan: Plan) -> bool:
    """Whether it takes the plan, but for options and for what it does by itself, which planning for a back end settles anew."""
    unsupported = backend.unsupported_settings(plan.candidate, plan.model, plan.workload, plan.cluster.device.kind)
    return all(name.startswith("options.") or name.rpartition(".")[2] in backend.by_itself for name in unsupported)
