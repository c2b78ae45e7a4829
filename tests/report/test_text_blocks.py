"""Tables and reports on terminals of any width."""

import pytest
from rich.console import Group

from strategist.report.answer import answer_report
from strategist.report.answer_summary import answer_summary
from strategist.report.text_blocks import FoldingTable, bar, columns, pairs
from strategist.report.trial import trial_report
from tests.contract.samples import MEASUREMENT
from tests.report.samples import ANSWER, PLAN, rendered

TITLES = ("DP/FSDP", "TP", "PP", "CP", "activation checkpoint", "micro-batch", "offload", "tokens/s", "MFU", "bound by")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    shown = Group(answer_summary(ANSWER), answer_report(ANSWER), trial_report(PLAN, MEASUREMENT))
    wide = [line for line in rendered(shown, width).splitlines() if len(line.rstrip()) > width]
    assert all(line.startswith(("  strategist ", "  --fix ")) for line in wide)  # commands are not wrapped


def test_a_table_wider_than_the_terminal_becomes_a_list() -> None:
    narrow = " ".join(rendered(answer_summary(ANSWER), 40).split())
    assert all(f"{title}: " in narrow for title in TITLES)
    assert "#1 DP/FSDP: 1/8, TP: 1" in narrow


def test_a_table_that_is_a_little_too_wide_leaves_out_columns_of_ones() -> None:
    table = columns("#", "TP", "PP", "bound by", rows=[["1", "2", "1", "host link"], ["2", "4", "1", "TP links"]])
    table.omissible = ("TP", "PP")
    assert "PP: 1 in each" not in rendered(table, 20)
    lines = rendered(table, 16).splitlines()
    assert [line.split() for line in lines] == [
        ["#", "TP", "bound", "by"], ["1", "2", "host", "link"], ["2", "4", "TP", "links"], ["PP:", "1", "in", "each"],
    ]  # fmt: skip
    assert "TP: 2" in rendered(table, 10)


def test_a_list_keeps_names_and_figures_without_bars() -> None:
    table = columns("", "", "size of the part", left=[""])
    table.add_row("gathered parameters", bar(0.5), "1.5 GiB")
    assert " ".join(rendered(table, 40).split()) == "- gathered parameters, size of the part: 1.5 GiB"
    assert "█" in rendered(table, 80)


def test_pairs_keep_a_column_of_names_if_there_is_room() -> None:
    rows = pairs([("peak memory", "11.9 GiB of 77.9 GiB a device, fits with 99% probability")])
    assert rendered(rows, 40).startswith("peak memory  11.9 GiB of 77.9 GiB")
    assert "- a name of more than half the line, " in rendered(pairs([("a name of more than half the line", "a long text")]), 40)


def test_a_folded_table_that_is_still_too_wide_becomes_a_list() -> None:
    row = {"#": "1", "settings": "dp_shard 2, micro-batch 8x1", "outcome": "out of memory", "expected": "40 ms", "by": "search"}
    text = " ".join(rendered(FoldingTable(rows=[row], into="settings", folds=("by",)), 30).split())
    assert "#1 settings: dp_shard 2, micro-batch 8x1, outcome: out of memory, expected: 40 ms, by: search" in text
