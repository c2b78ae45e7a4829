"""Command lines on pages: in code blocks, parsed like a shell, and within sentences."""

import re
import shlex
from collections.abc import Iterator

from docs.pages import blocks, tokens

SHELLS = ("console", "sh", "bash")
OPERATORS = frozenset({"&&", "||", ";", "|", "&", "(", ")", ">", "<", ">>", "2>", "\n"})
PROGRAM = "strategist"
INSPECTOR = "npx"
"""A program that runs strategist commands with its own options; has its own tests."""


def block_lines(page: str) -> Iterator[list[str]]:
    """Words of each strategist command in shell blocks."""
    for block in blocks(page, *SHELLS):
        prompts = re.findall(r"^\$ (.*)$", block, re.MULTILINE)
        yield from calls("\n".join(prompts) if prompts else block)


def span_lines(page: str) -> Iterator[list[str]]:
    """Words of each strategist command within sentences."""
    for token in tokens(page):
        if token.type == "code_inline" and token.content.startswith(PROGRAM + " "):
            yield from calls(token.content)


def calls(script: str) -> Iterator[list[str]]:
    """Words of each strategist command in a script."""
    for line in script.replace("\\\n", " ").splitlines():
        if found := re.search(rf"\$\(({PROGRAM} .*?)\)", line):
            line = found[1]
        words: list[str] = []
        for word in [*_words(line), "\n"]:
            if word not in OPERATORS:
                words.append(word)
                continue
            if PROGRAM in words and words[0] != INSPECTOR:
                yield words[words.index(PROGRAM) + 1 :]
            words = []


def _words(line: str) -> list[str]:
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    return list(reader)
