"""Stacks by name: properties of the frameworks behind published measurements."""

from functools import cache

from strategist.contract.plan import Plan
from strategist.contract.stack import Stack, native_stack
from strategist.profiles import catalog


def stack_names() -> tuple[str, ...]:
    """Names of all shipped stacks."""
    return catalog.profile_stems("stacks")


@cache
def load_stack(name: str) -> Stack:
    """A shipped stack.

    Raises:
        FileError: its file is invalid; with the position.
    """
    document = catalog.shipped("stacks", name)
    return catalog.decoded(Stack, document, {"name": name, **document.mapping()}, name)


def find_stack(name: str) -> Stack | None:
    """The stack of that name; None for the empty name, which is the built-in runtime's."""
    return load_stack(name) if name else None


def stack_of_plan(plan: Plan) -> Stack:
    """The stack that a plan is priced with: that of its framework, otherwise the built-in runtime's with the plan's optimizer."""
    return find_stack(plan.stack) or native_stack(plan.candidate.options, plan.workload.optimizer)
