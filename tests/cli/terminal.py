"""A command line at a pseudo-terminal, for tests of questions and their answers."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests import copies

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_SECONDS = 60.0


class Terminal:
    """A running command with a terminal of its own; `shown` is all that it has printed there."""

    def __init__(self, *arguments: object, environment: Mapping[str, str] | None = None) -> None:
        words = [sys.executable, "-m", "pelton.cli", *(str(each) for each in arguments)]
        plain = {**os.environ, "TERM": "dumb", "COLUMNS": "120", **(environment or {})}
        environment = {name: value for name, value in plain.items() if value}  # "" for none
        self.shown = ""
        self._taken = 0
        self._status: int | None = None
        self.pid, self._file = copies.at_terminal(words, environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._file)

    def expect(self, text: str) -> str:
        """Wait until the text is shown, behind what was waited for before; what is before it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (at := self.shown.find(text, self._taken)) < 0:
            if not self._read(deadline):
                raise AssertionError(f"no {text!r} in:\n{self.shown}")
        before = self.shown[self._taken : at]
        self._taken = at + len(text)
        return before

    def glance(self, seconds: float) -> None:
        """Take what is shown in that time."""
        if select.select([self._file], [], [], seconds)[0]:
            self._read(time.monotonic())

    def calm(self) -> None:
        """Wait until the command waits: a signal between a prompt and the read is seen after the read."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        asleep = 0
        while asleep < 5:
            assert time.monotonic() < deadline, self.shown
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            asleep = asleep + 1 if state == "S" else 0
            self.glance(0.02)

    def more(self) -> None:
        """Wait until something more is shown, or the command ends."""
        self._read(time.monotonic() + PATIENCE_SECONDS)

    def send(self, text: str) -> None:
        """Type a line."""
        os.write(self._file, f"{text}\n".encode())

    def press(self, key: str) -> None:
        """Type a key, without Enter."""
        os.write(self._file, key.encode())

    def resize(self, lines: int, columns: int) -> None:
        """Give the terminal another size, of which it tells the command."""
        termios.tcsetwinsize(self._file, (lines, columns))

    def interrupt(self) -> None:
        """Type Ctrl-C."""
        os.write(self._file, b"\x03")

    def status(self) -> int:
        """Wait for the end; the exit status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._read(deadline):
            pass
        self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._file], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            raise AssertionError(f"nothing more in time:\n{self.shown}")
        try:
            data = os.read(self._file, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
