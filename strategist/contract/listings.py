"""Rows of the tables that list commands print."""

from dataclasses import dataclass

from strategist.contract.codec import added


@dataclass(frozen=True, kw_only=True)
class ListedCard:
    """A card or a flow as one row; flows have no module and no status. ``kind`` is card, advice or flow."""

    id: str
    kind: str
    module: str = added("")
    status: str = added("")
    title: str
    file: str


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
