"""Evidence for and against cards from trials, as tables."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from strategist.cards.card import Card, Phase
from strategist.contract.evidence import Pair, PolicyEvidence
from strategist.contract.knobs import KnobValue, show_value
from strategist.report.text_blocks import bullets, columns, grouped, heading, section
from strategist.units import show_seconds


@grouped
def evidence_report(
    cards: Sequence[Card], evidence: Sequence[PolicyEvidence], trials: Mapping[str, int], *, silent: bool
) -> Iterator[RenderableType]:
    """A block for each card with evidence; with ``silent``, also the names of the other cards."""
    sources = ", ".join(f"{path} ({count})" for path, count in trials.items())
    yield Text(f"{sum(trials.values())} trials: {sources or 'no file'}", "dim")
    by_card = {card.id: [item for item in evidence if item.card == card.id and item.known] for card in cards}
    for card in cards:
        if by_card[card.id]:
            yield section(heading(card.id, str(card.title)), *_card(card, by_card[card.id]))
    unknown = [card.id for card in cards if not by_card[card.id]]
    if silent and unknown:
        yield section(heading("Cards without trials"), Text(", ".join(unknown)))
    elif len(unknown) == len(cards):
        yield Text("No trial tests these cards.")


def _card(card: Card, policy_evidence: Sequence[PolicyEvidence]) -> Iterator[RenderableType]:
    table = columns("policy", "phase", "applied", "tried", "for", "against", wrap=["policy"], left=["phase"])
    for item in policy_evidence:
        policy = card.policy(item.policy)
        observing = policy is not None and policy.phase is Phase.OBSERVE
        tried = str(item.taken) if observing else "-"
        figures = (str(item.applied), tried, str(item.confirmed), str(item.contradicted))
        table.add_row(item.policy, "observe" if observing else "plan", *figures)
    yield table
    lines = [f"{item.policy}, {pair_words(pair)}" for item in policy_evidence for pair in item.pairs]
    if lines:
        yield bullets(lines)


def pair_words(pair: Pair) -> str:
    """A pair of trials in words: ``for it: trial 3 with recompute none took 1.2 s, trial 5 with recompute full 1.5 s``."""
    verdict = "for it" if pair.confirms else "against it"
    if not pair.followed:
        return f"{verdict}: trial {pair.ignored}, which it forbids, ran out of memory"
    followed_values = _settings({name: values[0] for name, values in pair.differs.items()})
    ignored_values = _settings({name: values[1] for name, values in pair.differs.items()})
    followed = f"trial {pair.followed} with {followed_values} {_duration(pair.followed_seconds)}"
    return f"{verdict}: {followed}, trial {pair.ignored} with {ignored_values} {_duration(pair.ignored_seconds)}"


def _settings(values: Mapping[str, KnobValue | None]) -> str:
    return ", ".join(f"{name.partition('.')[2]} {show_value(value)}" for name, value in values.items() if value is not None)


def _duration(seconds: float | None) -> str:
    return "failed" if seconds is None else f"took {show_seconds(seconds)}"
