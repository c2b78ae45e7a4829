"""Entries of lists that commands print."""

from dataclasses import dataclass

from strategist.contract.codec import added


@dataclass(frozen=True, kw_only=True)
class ListedCard:
    """A card or a flow, in one line; a flow has neither module nor status. ``kind`` is card, advice or flow."""

    id: str
    kind: str
    module: str = added("")
    status: str = added("")
    title: str
    file: str


@dataclass(frozen=True, kw_only=True)
class LintPage:
    """What a code of the linter means, with an example of each kind."""

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
    """A trainer of others: what it can set, which variables it needs, and its ``command`` for a plan where one was given."""

    program: str
    title: str
    source: str
    sets: tuple[str, ...]
    needs: tuple[str, ...]
    command: tuple[str, ...] = added(())
