"""Filters: controls that hide marks or rows if JavaScript runs."""

from collections.abc import Mapping, Sequence

from strategist.report.page.html import Html, element

ALL = "all"


def filters(target: str, choices: Mapping[str, Sequence[str]], noun: str) -> Html:
    """A selection per name, over the items of the element with that id; names with a single value are left out."""
    filtered = {name: values for name, values in choices.items() if len(values) > 1}
    if not filtered:
        return Html()
    selects = (_select(name, values) for name, values in filtered.items())
    rest = (element("button", "show all", type="reset"), element("output", "", aria_live="polite"))
    return element("form", *selects, *rest, class_="filters", data_filters=target, aria_label=f"Filter {noun}")


def _select(name: str, values: Sequence[str]) -> Html:
    options = (element("option", ALL, value=""), *(element("option", value, value=value) for value in values))
    return element("label", name.replace("_", " "), element("select", *options, name=name))


def filter_attributes(values: Mapping[str, str]) -> dict[str, str]:
    """Attributes by which a filter finds an item."""
    return {"data_item": "", **{f"data_of_{name}": value for name, value in values.items()}}


def values_of(items: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Distinct values of each name; numbers in ascending order."""
    names = dict.fromkeys(name for item in items for name in item)
    return {name: sorted({item[name] for item in items if name in item}, key=_by_number) for name in names}


def _by_number(value: str) -> tuple[bool, int, str]:
    return (not value.isdecimal(), int(value) if value.isdecimal() else 0, value)
