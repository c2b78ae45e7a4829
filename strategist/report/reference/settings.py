"""Every setting of a plan: values, default, effect on convergence, cards with an effect on it, and back ends that limit it."""

from collections.abc import Iterator

from strategist.cards.deck import Deck
from strategist.contract.knobs import Candidate, Knobs, show_value
from strategist.contract.layout import Layout
from strategist.contract.settings import CONVERGENCE_SETTINGS, PARTS, full_name, value_of
from strategist.expr.vocabulary import SETTINGS
from strategist.programs.backends import backends, load_backend
from strategist.report.reference.language import values
from strategist.report.reference.links import card_link
from strategist.report.reference.markdown import bullets, code, codes, page, prose

PART_INTENT = {
    "layout": "Degrees of the parallelisms, and the order of the mesh axes. Each layout has a price.",
    "knobs": "All other settings that the cost model distinguishes.",
    "options": (
        "How a plan is carried out, where the cost model sees no difference. Cards settle them for each plan, in this order; what"
        " has nothing to act on stays at its default."
    ),
}

_DEFAULT = Candidate(layout=Layout(), knobs=Knobs())


def setting_pages(deck: Deck) -> Iterator[tuple[str, str]]:
    """A page per part of a candidate, with its path."""
    for part, names in PARTS.items():
        blocks = [f"# Settings: {part}", PART_INTENT[part]]
        for name in names:
            blocks += [f"### {name}", prose(SETTINGS[full_name(name)].doc), bullets(_setting(name, deck))]
        yield f"settings/{part}.md", page(*blocks)


def _setting(name: str, deck: Deck) -> Iterator[str]:
    full = full_name(name)
    yield f"values: {values(SETTINGS[full])}; default {code(show_value(value_of(_DEFAULT, name)))}"
    if name in CONVERGENCE_SETTINGS:
        neutral = code(show_value(CONVERGENCE_SETTINGS[name]))
        yield f"changes convergence: all but {neutral} may change the trained model, and are taken only where asked for or allowed"
    else:
        yield "changes execution only"
    if cards := _cards(full, deck):
        yield f"cards: {', '.join(cards)}"
    for backend in backends():
        if allowed := load_backend(backend).limits.get(full):
            yield f"back end {backend} takes {codes(map(show_value, allowed))} only"
        for refusal in load_backend(backend).refuses:
            if full in refusal.when.names:
                yield f"back end {backend} refuses {code(' '.join(refusal.when.text.split()))}: {refusal.because}"


def _cards(full: str, deck: Deck) -> list[str]:
    """Cards with an effect on the setting, or with a control point of its name."""
    acting = {ref.card.id for ref in deck.policy_refs.get(full, ())}
    known = frozenset(card.id for card in deck.cards)
    about = {card.id for card in deck.cards if any(point.path == full for point in card.control_points)}
    return [card_link(card_id, known) for card_id in sorted(acting | about)]
