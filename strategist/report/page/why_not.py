"""Other values of each setting, with the reasons against them."""

from strategist.contract.explanation import Explanation
from strategist.contract.knobs import show_value
from strategist.report.page.filters import filter_attributes, filters, values_of
from strategist.report.page.html import Html, element, join
from strategist.report.page.tables import table

ID = "why-not-table"


def why_not(explanation: Explanation) -> Html:
    """The table, in the order of decisions, with filters by setting and by obstacle."""
    decided_alternatives = [(decision, other) for decision in explanation.decisions for other in decision.why_not]
    if not decided_alternatives:
        return element("p", "No setting of this plan has another value that is legal.")
    fields = [{"setting": other.setting, "verdict": other.obstacle.value} for _, other in decided_alternatives]
    rows = [
        (other.setting, show_value(decision.value), show_value(other.value), other.obstacle.value, other.text)
        for decision, other in decided_alternatives
    ]
    head = ("setting", "is", "why not", "verdict", "obstacle")
    grid = table(
        "Other values of the settings",
        head,
        rows,
        words=(0, 1, 2, 3, 4),
        marks=[filter_attributes(values) for values in fields],
        id_=ID,
    )
    return join([filters(ID, values_of(fields), "the other values"), grid])
