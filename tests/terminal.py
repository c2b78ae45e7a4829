"""A process on a pseudo-terminal, and an emulation of the screen: the part of xterm that the display uses."""

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence

PART = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|[\x00-\x1f]|[^\x00-\x1f]+")
CUT = re.compile(r"\x1b(\[[?0-9;]*)?\Z")
ALTERNATE, CURSOR, HOME = "1049", "25", b"\x1b[H"


class Page:
    """A grid of characters with a cursor. ``overrun``: whether a line was ever longer than the screen."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [[" "] * width for _ in range(height)]
        self.row = self.column = 0
        self.overrun = False

    def write(self, text: str) -> None:
        for character in text:
            if self.column == self.width:
                self.overrun = True
                self.column = 0
                self.feed()
            self.rows[self.row][self.column] = character
            self.column += 1

    def feed(self) -> None:
        if self.row == self.height - 1:
            self.rows = [*self.rows[1:], [" "] * self.width]
        else:
            self.row += 1

    def resize(self, width: int, height: int) -> None:
        rows = [(row + [" "] * width)[:width] for row in self.rows[:height]]
        self.rows = rows + [[" "] * width for _ in range(height - len(rows))]
        self.width, self.height = width, height
        self.row, self.column = min(self.row, height - 1), min(self.column, width)

    @property
    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.rows).rstrip()


class Terminal:
    """Runs a command on a terminal; ``main`` and ``screen`` are its main and alternate screen, ``alternate`` the active one."""

    def __init__(self, command: Sequence[str], width: int, height: int, environment: Mapping[str, str]) -> None:
        self.main, self.screen = Page(width, height), Page(width, height)
        self.alternate, self.cursor_shown = False, True
        self.written = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._left = ""
        self._master, slave = pty.openpty()
        self._resize(slave, width, height)
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env={**kept, "TERM": "xterm-256color", **environment},
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    @staticmethod
    def _resize(file: int, width: int, height: int) -> None:
        fcntl.ioctl(file, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    @property
    def shown(self) -> str:
        """Text of the active screen."""
        return (self.screen if self.alternate else self.main).text

    def resize(self, width: int, height: int) -> None:
        """Resizes the terminal."""
        self._resize(self._master, width, height)
        self.main.resize(width, height)
        self.screen.resize(width, height)

    def press(self, keys: bytes) -> None:
        """Types keys; the terminal turns some of them into signals."""
        os.write(self._master, keys)

    def until(self, *words: str) -> str:
        """Waits until all the words are shown, and returns the screen's text."""
        while not all(word in self.shown for word in words):
            assert self._read(), f"{words} were never shown\n{self.shown}"
        return self.shown

    def until_left(self) -> None:
        """Waits until the main screen is active."""
        while self.alternate:
            assert self._read()

    def until_drawn_again(self) -> None:
        """Waits until the screen has been redrawn completely: until the third new frame begins."""
        end = self.written.count(HOME) + 3
        while self.written.count(HOME) < end:
            assert self._read()

    def end(self) -> int:
        """Waits for the end of the process; returns the exit code."""
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the process has closed the terminal
            return False
        self.written += data
        self._take(self._left + self._decoder.decode(data))
        return bool(data)

    def _take(self, text: str) -> None:
        cut = CUT.search(text)
        text, self._left = (text[: cut.start()], cut[0]) if cut else (text, "")
        for match in PART.finditer(text):
            page, part = self.screen if self.alternate else self.main, match[0]
            if match[3]:
                self._control(page, match[1] == "?", match[2], match[3])
            elif part == "\n":
                page.feed()
            elif part == "\r":
                page.column = 0
            else:
                assert part >= " ", f"an unknown control {part!r}"
                page.write(part)

    def _control(self, page: Page, private: bool, value: str, letter: str) -> None:
        if private and letter in "hl":
            if value == CURSOR:
                self.cursor_shown = letter == "h"
            if value == ALTERNATE:
                self.alternate = letter == "h"
                self.screen = Page(page.width, page.height)
        elif letter == "H":
            page.row = page.column = 0
        elif letter == "A":
            page.row = max(0, page.row - int(value or 1))
        elif letter == "K":
            page.rows[page.row] = [" "] * page.width
        else:
            assert letter == "m", f"an unknown control {value}{letter}"
