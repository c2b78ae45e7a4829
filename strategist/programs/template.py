"""Command templates: text with placeholders in braces, which a plan fills in."""

import re
from collections.abc import Iterator, Mapping

from strategist.contract.knobs import show_value
from strategist.expr.check import Expression, condition, quantity
from strategist.expr.evaluate import Facts, scalar
from strategist.expr.parse import ExpressionError
from strategist.expr.vocabulary import BOOL, CANDIDATE, CATEGORY, REQUEST, VOCABULARY, near_miss
from strategist.frozen import frozen

WORDS = {
    "plan": "path of plan.json",
    "folder": "the trial's folder, for what the program writes",
    "here": "folder of the program's file",
    "python": "the Python that runs strategist",
    "model": "the model's name",
    "steps": "steps to run, those of warm-up included",
    "warmup_steps": "steps that are run first and not measured",
    "seed": "of weights and data",
    "stages": "layers of each stage of the pipeline, as Megatron-LM lists them: Ett|tt|tL",
    "ranks_per_node": "ranks on each of the machines, on which the command is then run once",
}
"""Placeholders besides the vocabulary of the cards."""

ENVIRONMENT = "environment."
"""Prefix of a placeholder for an environment variable of the process that starts the program: ``{environment.NAME}``."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_KNOWN = (REQUEST, CANDIDATE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


@frozen
class Template:
    """A command template. ``parts``: literal texts and placeholders."""

    text: str
    parts: tuple["str | Placeholder", ...]

    @property
    def names(self) -> frozenset[str]:
        """Names of the vocabulary that occur in it."""
        return frozenset(name for part in self.parts if isinstance(part, Placeholder) and part.value for name in part.value.names)

    def has_word(self, word: str) -> bool:
        """Whether it contains the placeholder ``word``."""
        return any(part.name == word for part in self.parts if isinstance(part, Placeholder))

    @property
    def variables(self) -> frozenset[str]:
        """Environment variables that occur in it."""
        names = (part.name for part in self.parts if isinstance(part, Placeholder))
        return frozenset(name.removeprefix(ENVIRONMENT) for name in names if name.startswith(ENVIRONMENT))

    def filled(self, facts: Facts, words: Mapping[str, str]) -> str:
        """The text for one plan. ``words``: values of WORDS and, by full name, of environment variables."""
        return "".join(part if isinstance(part, str) else part.filled(facts, words) for part in self.parts)


@frozen
class Placeholder:
    """The content of a pair of braces: one of WORDS, an environment variable, or an expression of the vocabulary (``value``)."""

    name: str
    value: Expression | None = None

    def filled(self, facts: Facts, words: Mapping[str, str]) -> str:
        """The text that replaces the placeholder; empty if the value is unknown."""
        if self.value is None:
            return words[self.name]
        value = facts.get(self.name) if self.name in VOCABULARY else scalar(self.value, facts)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return "" if value is None else show_value(value)


def template(text: str) -> Template:
    """Parses a template; ``{{`` and ``}}`` are literal braces.

    Raises:
        ExpressionError: a placeholder is invalid; says which, with a near miss for an unknown name.
    """
    return Template(text=text, parts=tuple(_parts(text)))


def _parts(text: str) -> Iterator["str | Placeholder"]:
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        yield text[end : match.start()]
        end = match.end()
        if match[1] is not None:
            yield _placeholder(match[1].strip(), match.start() + 1)
        elif match[0] in ("{{", "}}"):
            yield match[0][0]
        else:
            raise ExpressionError(f"{match[0]} has no partner; a brace itself is written {match[0] * 2}", match.start())
    yield text[end:]


def _placeholder(name: str, column: int) -> Placeholder:
    if name in WORDS or (name.startswith(ENVIRONMENT) and _VARIABLE.fullmatch(name.removeprefix(ENVIRONMENT))):
        return Placeholder(name=name)
    entry = VOCABULARY.get(name)
    if entry is None and "." not in name:
        raise ExpressionError(f"unknown word {name}{near_miss(name, (*WORDS, *VOCABULARY))}", column)
    if entry is not None and entry.kind in (BOOL, CATEGORY):
        shown = f'"{entry.choices[0]}"' if entry.kind == CATEGORY and isinstance(entry.choices[0], str) else "true"
        value = condition(f"{name} == {shown}")
    else:
        value = quantity(name)
    if later := sorted(known for known in value.names if VOCABULARY[known].phase not in _KNOWN):
        raise ExpressionError(f"{later[0]} is not known before a trial; name another", column)
    return Placeholder(name=name, value=value)
