"""Rows of the tables that list commands print."""

from strategist.contract.codec import added
from strategist.frozen import frozen


@frozen
class ListedCard:
    """A card or a flow as one row; flows have no module and no status. ``kind`` is card, advice or flow."""

    id: str
    kind: str
    module: str = added("")
    status: str = added("")
    title: str
    file: str


@frozen
class LintPage:
    """Documentation of one code of the linter, with a ``bad`` and a ``good`` example."""

    code: str
    level: str
    law: str
    what: str
    why: str
    do: str
    bad: str
    good: str


@frozen
class ListedProgram:
    """A program (external trainer): settings that it supports, variables that it needs, and its ``command`` for a plan (empty: no
    plan).
    """

    program: str
    title: str
    source: str
    sets: tuple[str, ...]
    needs: tuple[str, ...]
    command: tuple[str, ...] = added(())
