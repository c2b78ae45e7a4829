"""Parses shell scripts into commands of words, with variables, arrays and arithmetic expanded.

Nothing is run. Values that are known only at run time stay as they are written, with their ``$``: variables that no line sets,
the output of commands, and words that depend on a condition. Grammar: POSIX.1-2024, XCU chapter 2, with the arrays of bash.
"""

import ast
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from strategist.formats.shell_words import ASSIGNMENT, Lexer, Part, Raw, length
from strategist.frozen import frozen

MAX_VARIABLE_CHARACTERS, MAX_WORDS, MAX_EXPANSION_CHARACTERS = 10_000, 20_000, 10_000_000
"""Limits of expansion, because variables may double each other: characters and words of a variable, characters in all."""

CONDITION = "${condition:+%s}"
"""Notation for a word that depends on a condition."""


_NAME = re.compile(r"[A-Za-z_]\w*|[@*#?0-9]")
_PLAIN = re.compile(r"[^\\'\"$`]+")
_ARGUMENTS = re.compile(r"\$(?:[@*]|\{[@*](?::[^}]*)?\})")


@frozen
class Word:
    """A word of a command. ``certain``: false if its presence depends on a condition."""

    text: str
    line: int
    certain: bool = True


@frozen
class Command:
    """The expanded words of a command, and its line.

    certain: false if a condition decides whether the command runs.
    runs: false for the words of a variable that look like options and that no command uses.
    """

    words: tuple[Word, ...]
    line: int = 0
    certain: bool = True
    runs: bool = True


def commands(text: str) -> Iterator[Command]:
    """The commands of a script, then its unused variables.

    Raises:
        RecursionError: expansions are nested too deeply.
    """
    reader = _Reader()
    for part in Lexer(text).parts():
        if words := reader.command(part):
            yield Command(words=words, line=part.words[0].line, certain=reader.certain)
    for name, value in reader.variables.items():
        words = tuple(_split(value))
        if name not in reader.used and any(word.text.startswith("--") for word in words):
            yield Command(words=words, runs=False)


_UNQUOTED = re.compile(r"(?:\$\((?:[^()]|\([^()]*\))*\)|\S)+")
"""A word of unquoted text; the spaces of a command whose output is not known belong to it."""


def _split(words: Sequence[Word]) -> Iterator[Word]:
    """The words of unquoted texts, each with its line."""
    for word in words:
        for offset, line in enumerate(word.text.split("\n")):
            yield from (replace(word, text=text, line=word.line + offset) for text in _UNQUOTED.findall(line))


_LAUNCHER = re.compile(r"(?:^|[\s/])(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate\s+launch|deepspeed)\s")
_TRL = re.compile(r"(?:^|[\s/])trl\s+[a-z]\w*\s")
_PROGRAM = re.compile(r"[^\s'\"=]+\.py(?=\s|$)")
SHOWS = ("echo", "printf")
UTILITIES = frozenset((
    *SHOWS, ":", ".", "cat", "cd", "chmod", "conda", "cp", "date", "exit", "kill", "ln", "ls", "mkdir", "module", "mv", "pip",
    "ray", "rm", "set", "sleep", "source", "tail", "tee", "touch", "trap", "ulimit", "unset", "wait", "wandb", "which",
))  # fmt: skip
"""Commands that start no training, whatever their words expand to."""


def program(command: Command) -> str:
    """The Python program that a command starts with options; ``launched`` for any program of a launcher; empty for none."""
    text = " ".join(word.text for word in command.words)
    if not command.runs or command.words[0].text in SHOWS or "--" not in text:
        return ""
    if _TRL.search(text):
        return "launched"
    if (launcher := _LAUNCHER.search(text)) and re.search(r"\.py\b|\s-m\s|\$", text[launcher.end() - 1 :]):
        return "launched"
    found = _PROGRAM.search(text)
    return found[0] if found else ""


_OPENS, _GOES_ON, _CLOSES = (
    ("if", "while", "until", "for", "select", "case"),
    ("then", "do", "else", "elif"),
    ("fi", "done", "esac"),
)
_SETS = ("export", "local", "readonly", "declare", "typeset", "env")


class _Reader:
    """State while reading a script: values of variables, and whether a condition decides about the current command."""

    def __init__(self) -> None:
        self.variables: dict[str, tuple[Word, ...]] = {}
        self.used: set[str] = set()
        self._arrays: set[str] = set()
        self._unknown: set[str] = set()
        self._depth = self._spent = 0
        self.certain, self._tested = True, False

    def command(self, part: Part) -> tuple[Word, ...]:
        """The words of a command; empty if it only sets variables, or is a condition."""
        raws, is_eval = list(part.words), part.words[0].text == "eval"
        while raws and (word := raws[0].text) in (*_OPENS, *_GOES_ON, *_CLOSES, "{", "}", "!", "function", "time", "exec", "eval"):
            self._depth += (word in _OPENS) - (word in _CLOSES)
            if word in ("for", "select") and len(raws) > 1:
                self._unknown.add(raws[1].text)
            if word in _OPENS or word == "elif":
                return ()
            raws.pop(0)
        first = raws[0].text if raws else ""
        tested = first in ("[", "[[", "test")
        self.certain = self._depth == 0 and not (part.before == "||" or (part.before == "&&" and self._tested))
        self._tested = tested or (part.before == "&&" and self._tested)
        pattern = self._depth > 0 and first.startswith("-")  # a pattern of a case statement
        words = () if tested or pattern else self._simple(raws)
        return tuple(replace(word, text=self._text(word.text)) for word in words) if is_eval else words

    def _simple(self, raws: list[Raw]) -> tuple[Word, ...]:
        """The words of a simple command, with the assignments of its environment; empty if there are only assignments."""
        sets = bool(raws) and raws[0].text in _SETS
        rest = [raw for raw in raws[1:] if not raw.text.startswith("-")] if sets else raws
        count = next((index for index, raw in enumerate(rest) if not ASSIGNMENT.match(raw.text)), len(rest))
        if count < len(rest):
            return tuple(self._expand_all(raws))
        for raw in rest:
            self._assign(raw)
        return ()

    def _assign(self, raw: Raw) -> None:
        match = ASSIGNMENT.match(raw.text)
        assert match is not None
        name, adds = match[1], bool(match[2])
        text = raw.text[match.end() :]
        if not self.certain and self._extend(name, text, raw.line):
            return
        previous = self.variables.get(name, ()) if adds else ()
        if raw.elements is not None:
            value = tuple(self._expand_all(raw.elements))
            self._arrays.add(name)
        elif previous and name not in self._arrays and self.certain:
            value = (replace(previous[0], text=previous[0].text + self._text(text)),)
            previous = ()
        else:
            value = (Word(text=self._text(text), line=raw.line),)
        if not self.certain and adds:
            value = tuple(replace(word, certain=False) for word in value)
        elif not self.certain and self.variables.get(name, ()) != value:
            self._unknown.add(name)
        elif self.certain and not adds:
            self._unknown.discard(name)
        found = (*previous, *value)
        if len(found) > MAX_WORDS or any(len(word.text) > MAX_VARIABLE_CHARACTERS for word in found):
            self._unknown.add(name)
            return
        self.variables[name] = found

    def _extend(self, name: str, assigned: str, line: int) -> bool:
        """Whether a condition extends a variable by words around its own value, as ``X="$X --flag"`` does. They are not certain."""
        sides = re.split(rf"\${name}\b|\${{{name}(?:\[[@*]\])?}}", assigned)
        value = self.variables.get(name)
        if len(sides) != 2 or value is None or name in self._unknown:
            return False
        texts = [self._text(part.strip('"')) for part in sides]
        first, last = ((Word(text=text, line=line, certain=False),) if text.strip() else () for text in texts)
        if len(value) < MAX_WORDS and all(len(text) <= MAX_VARIABLE_CHARACTERS for text in texts):
            self.variables[name] = (*first, *value, *last)
            self._arrays.discard(name)  # bash puts the joined text into the first element, which is what $NAME gives
            self.used.add(name)
        else:
            self._unknown.add(name)
        return True

    def _expand_all(self, raws: Sequence[Raw]) -> Iterator[Word]:
        for raw in raws:
            yield from self._fields(raw)

    def _fields(self, raw: Raw) -> Iterator[Word]:
        """The words that one word expands to."""
        open_word: Word | None = None
        for words, quoted in self._parts(raw.text):
            parts = words if quoted else tuple(_split(words))
            blank = not quoted and words and words[0].text[:1].isspace()
            if open_word is not None and blank:
                yield open_word
                open_word = None
            for index, part in enumerate(parts):
                if index and open_word is not None:
                    yield open_word
                    open_word = None
                text, certain = (open_word.text, open_word.certain) if open_word else ("", True)
                line = (open_word or part).line or raw.line
                open_word = Word(text=text + part.text, line=line, certain=certain and part.certain)
            if open_word is not None and not quoted and words and words[-1].text[-1:].isspace():
                yield open_word
                open_word = None
        if open_word is not None:
            yield open_word

    def _text(self, raw: str) -> str:
        """The value of an assignment, which is not split into words."""
        return "".join(" ".join(word.text for word in words) for words, _ in self._parts(raw))

    def _parts(self, text: str, *, quoted: bool = False) -> Iterator[tuple[tuple[Word, ...], bool]]:
        """Parts of a word, and whether each is quoted. Line 0 means the word's line.

        quoted: whether ``text`` is within double quotes, so that all parts are quoted.
        """
        at = 0
        while at < len(text):
            part = text[at : at + length(text, at)]
            if part == "$" and (name := _NAME.match(text, at + 1)):
                part += name[0]
            elif part[0] not in "\\'\"$`" and (plain := _PLAIN.match(text, at)):
                part = plain[0]
            at += len(part)
            if part[0] == '"' and not quoted:
                inner_parts = tuple(self._parts(part[1:].removesuffix('"'), quoted=True))
                yield from inner_parts or [((Word(text="", line=0),), True)]
            elif part[0] in "$`" and len(part) > 1:
                found = self._expansion(part)
                yield found, quoted or any(word.text.startswith("$") for word in found)  # unknown values are not split
            else:
                yield (Word(text=_unquoted(part, quoted), line=0),), True

    def _expansion(self, expansion: str) -> tuple[Word, ...]:
        """The value of an expansion; the expansion itself if its value is known only at run time."""
        certain = self._unknown.isdisjoint(_NAME.findall(expansion))
        unexpanded = (Word(text=f"$({expansion[1:-1]})" if expansion[0] == "`" else expansion, line=0, certain=certain),)
        if self._spent > MAX_EXPANSION_CHARACTERS:
            return unexpanded
        found = self._known_value(expansion)
        self._spent += sum(len(word.text) for word in found or ())
        return unexpanded if found is None else found

    def _known_value(self, expansion: str) -> tuple[Word, ...] | None:
        """The value of an expansion; None if it is known only at run time."""
        if _ARGUMENTS.fullmatch(expansion):  # empty if the script is called without arguments
            return ()
        if expansion.startswith("$(("):
            number = self._arithmetic(expansion[3:-2])
            return None if number is None else (Word(text=str(number), line=0),)
        body = expansion[2:-1] if expansion.startswith("${") else expansion[1:]
        match = re.fullmatch(r"([A-Za-z_]\w*|\d+)(?:\[([@*]|\d{1,4})\])?(?:(:?[-=?+])(.*))?", body, re.DOTALL)
        if match is None:
            return None
        name, index, operator_, operand = match.groups()
        self.used.add(name)
        value = None if name in self._unknown else self.variables.get(name)
        if value is not None and (operator_ or "")[-1:] != "+":
            first = int(index) if index and index.isdigit() else 0
            return value if index in ("@", "*") or name not in self._arrays else value[first : first + 1]
        if value is not None:
            return (Word(text=self._text(operand), line=0),)
        if name in self._unknown or operator_ is None or operator_[-1] not in "-=":
            return None
        value = (Word(text=self._text(operand), line=0),)
        if operator_[-1] == "=":
            self.variables[name] = value
        return value

    def _arithmetic(self, text: str) -> int | None:
        """The value of an arithmetic expansion of numbers and variables; None if it is unknown."""

        def number(match: re.Match[str]) -> str:
            self.used.add(match[1])
            words = self.variables.get(match[1], ()) if match[1] not in self._unknown else ()
            return words[0].text if words and re.fullmatch(r"\d{1,12}", words[0].text) else "x"

        plain = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\}?", number, text).strip()
        return _arithmetic_value(plain) if re.fullmatch(r"(?:(?!\*\*|//)[\s()+*/%-]|\b\d+\b)+", plain) else None


def _unquoted(text: str, quoted: bool) -> str:
    """A part without expansions, with its quotes and escapes removed."""
    if text[0] == "'" and not quoted and len(text) > 1:
        return text[1:].removesuffix("'")
    if text[0] == "\\" and len(text) > 1 and (not quoted or text[1] in '"\\$`\n'):
        return text[1:]
    return text


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def _arithmetic_value(text: str) -> int | None:
    """The value of an arithmetic expression of whole numbers; None for any other text."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            found: int = _OPERATORS[type(node.op)](value(node.left), value(node.right))
            if abs(found) < 10**15:
                return found
        raise ValueError

    try:
        return value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
