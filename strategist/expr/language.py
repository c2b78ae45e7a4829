"""What operators and functions mean, for people: an example of each, and one line."""

MEANINGS: dict[str, tuple[str, str]] = {
    "and": ("layout.tp > 1 and layout.pp > 1", "Both hold."),
    "or": ("layout.cp > 1 or workload.seq_len > 32768", "At least one holds."),
    "not": ("not model.is_moe", "It does not hold."),
    "==": ('knobs.recompute == "full"', "Equal; text is quoted, and a category is compared with one of its values."),
    "!=": ("cluster.nodes != 1", "Not equal."),
    "<": ("cluster.inter_node_bytes_per_second < 25 GB/s", "Less, in one unit."),
    "<=": ("1 < layout.tp <= 8", "Less or equal; comparisons can be chained."),
    ">": ("device.usable_memory_bytes > 40 GiB", "Greater, in one unit."),
    ">=": ("workload.seq_len >= 8192", "Greater or equal, in one unit."),
    "in": ("workload.train in ['lora', 'qlora']", "One of a list of plain values."),
    "not in": ("layout.tp not in [1, 2]", "None of a list of plain values."),
    "+": ("layout.tp + layout.cp > 4", "Sum of numbers of one unit."),
    "-": ("model.layers - layout.pp > 0", "Difference of numbers of one unit."),
    "*": ("34 B * model.hidden_size > 1 MB", "Product; units multiply."),
    "/": ("model.parameter_bytes / layout.tp > 10 GB", "Quotient; units divide. Unknown where the divisor is 0."),
    "//": ("workload.global_batch // layout.data_ranks > 4", "Quotient rounded down. Unknown where the divisor is 0."),
    "%": ("model.layers % layout.pp == 0", "Remainder, in one unit. Unknown where the divisor is 0."),
    "neg": ("-layout.tp < 0", "The number with its sign turned."),
    "min": ("min(layout.tp, layout.pp) > 1", "The least of its values, which have one unit."),
    "max": ("max(layout.tp, layout.pp) > 1", "The greatest of its values, which have one unit."),
    "ceil": ("ceil(model.layers / layout.pp) > 8", "The least whole number that is not below."),
    "floor": ("floor(model.layers / layout.pp) > 8", "The greatest whole number that is not above."),
    "abs": ("abs(observed.memory_imbalance) > 0.1", "The number without its sign."),
    "divides": ("divides(layout.tp, model.heads)", "The second is a multiple of the first. Unknown where the first is 0."),
}
"""By operator or function: an expression that uses it, and its meaning."""
