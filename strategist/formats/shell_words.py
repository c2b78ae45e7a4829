"""Words and operators of shell scripts, before anything is expanded (POSIX.1-2024, XCU 2.3, with the arrays of bash)."""

import re
from collections.abc import Iterator

from strategist.frozen import frozen


@frozen
class Raw:
    """A word as it is written; with the elements of an array."""

    text: str
    line: int
    elements: tuple["Raw", ...] | None = None


@frozen
class Part:
    """A simple command as it is written, with the operator before it."""

    before: str
    words: tuple[Raw, ...]


_CLOSING = {"$((": "))", "$(": ")", "${": "}", "`": "`"}
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_LIST = re.compile(r"[ \t]*\([\[\]()0-9+*, ]+\)(?=\s|$)")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


class Lexer:
    """Splits a script into simple commands, without interpreting the words."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self.line = text, 0, 1
        self._heredocs: list[str] = []

    def parts(self) -> Iterator[Part]:
        before, words = "", list[Raw]()
        while self._at < len(self._text):
            if words and (list_word := self._list()):
                words.append(list_word)
            elif found := self._separator():
                if words:
                    yield Part(before=before, words=tuple(words))
                before, words = found, []
            elif (word := self._word()) is not None:
                words.append(word)
        if words:
            yield Part(before=before, words=tuple(words))

    def _list(self) -> Raw | None:
        """A sum of lists such as ``([0]*3+[1]*58)``, as in Megatron-LM's arguments, quoted or not; None without one."""
        match = _LIST.match(self._text, self._at)
        return Raw(text=self._step(len(match[0])).strip(), line=self.line) if match else None

    def _separator(self) -> str:
        """The operator that ends a command, empty without one; blanks and comments before it are skipped."""
        while self._at < len(self._text):
            rest = self._text[self._at : self._at + 2]
            if rest == "\\\n":
                self._step(2)
            elif rest[0] in " \t\r":
                self._step(1)
            elif rest[0] == "#":
                end = self._text.find("\n", self._at)
                self._step((len(self._text) if end < 0 else end) - self._at)
            else:
                break
        found = re.match(r"&&|\|\||;;|\|&|[\n;|()]|&(?!>)", self._text[self._at : self._at + 3])
        if found is None:
            return ""
        self._step(len(found[0]))
        if found[0] == "\n":
            self._pass_heredocs()
        return found[0]

    def _step(self, count: int) -> str:
        text = self._text[self._at : self._at + count]
        self._at += count
        self.line += text.count("\n")
        return text

    def _pass_heredocs(self) -> None:
        for end in self._heredocs:
            found = re.compile(rf"^\s*{end}\s*$", re.MULTILINE).search(self._text, self._at)
            self._step((found.end() if found else len(self._text)) - self._at)
        self._heredocs = []

    def _word(self) -> Raw | None:
        """The next word; None for a redirection, which is skipped."""
        line, start = self.line, self._at
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter in "<>" or (letter == "&" and self._text[self._at + 1 : self._at + 2] == ">"):
                return self._redirection(self._text[start : self._at], line)
            if letter == "(" and ASSIGNMENT.fullmatch(self._text[start : self._at]):
                name = self._text[start : self._at]
                self._step(1)
                return Raw(text=name, line=line, elements=tuple(self._elements()))
            if letter in " \t\r\n;&|()" or self._text.startswith("\\\n", self._at):
                break
            self._step(length(self._text, self._at))
        return Raw(text=self._text[start : self._at], line=line)

    def _redirection(self, word: str, line: int) -> Raw | None:
        """Skips ``2>&1``, ``> FILE`` and ``<<END``; a word before the operator is returned unless it is a number."""
        if heredoc := _HEREDOC.match(self._text, self._at):
            self._heredocs.append(heredoc[2])
            self._step(len(heredoc[0]))
        else:
            self._step(len(re.compile(r"&?[<>]{1,3}[&|]?[ \t]*").match(self._text, self._at)[0]))  # type: ignore[index]
            while self._at < len(self._text) and self._text[self._at] not in " \t\r\n;&|()<>":
                self._step(length(self._text, self._at))
        return None if not word or word.isdigit() else Raw(text=word, line=line)

    def _elements(self) -> Iterator[Raw]:
        """The words of an array, up to its closing bracket."""
        while self._at < len(self._text):
            found = self._separator()
            if found == ")":
                return
            if not found and (word := self._word()) is not None:
                yield word


def length(text: str, at: int) -> int:
    """Characters of the token at a position: a quotation, an expansion, an escaped character, or one character."""
    letter = text[at]
    if letter == "\\":
        return 2
    if letter == "'":
        end = text.find("'", at + 1)
        return (len(text) if end < 0 else end + 1) - at
    if letter == '"':
        end = at + 1
        while end < len(text) and text[end] != '"':
            end += length(text, end) if text[end] in "\\$`" else 1
        return min(end + 1, len(text)) - at
    opening = next((mark for mark in _CLOSING if text.startswith(mark, at)), "")
    if not opening:
        return 1
    end, closing, inner = at + len(opening), _CLOSING[opening], 0
    while end < len(text) and (inner or not text.startswith(closing, end)):
        inner += (text[end] == "(") - (text[end] == ")") if opening == "$((" else 0
        nested = text[end] in "\\'\"" or (text[end] in "$`" and opening != "`")
        end += length(text, end) if nested else 1
    return min(end + len(closing), len(text)) - at
