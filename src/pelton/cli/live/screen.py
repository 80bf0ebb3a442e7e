"""A screen that follows something until interrupted: drawn again at a terminal, one after the other elsewhere.

At a terminal the screen is the alternate one, so what was there before comes back at the end, also after Ctrl-C. A
new size draws it again at once. Keys are read if standard input is the terminal, too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from pelton.cli.output import accent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType
    from rich.live import Live

_LOOK_S = 0.1
"""How often keys and the size are looked at."""


class Screen:
    """The screen while it is open; ``opened`` makes it."""

    def __init__(self, live: Live | None, *, keys: bool) -> None:
        """``live``: None if there is no terminal. ``keys``: whether they are read."""
        self._live = live
        self._keys = keys
        self._drawn: RenderableType | None = None
        self.resized = False
        """Whether the size of the terminal has changed since the last drawing."""

    @property
    def is_terminal(self) -> bool:
        """Whether the screen is drawn again and again."""
        return self._live is not None

    def draw(self, content: RenderableType) -> None:
        """Show this; only at a terminal."""
        assert self._live is not None
        self._drawn = content
        self.resized = False
        self._live.update(content, refresh=True)

    def wait(self, seconds: float, idle: Callable[[float], object] = time.sleep) -> str:
        """Wait, and return a key that was pressed meanwhile; "" for none.

        ``idle`` spends parts of the time: with the connection, for example.
        """
        deadline = time.monotonic() + seconds
        while True:
            if key := self._key():
                return key
            if self.resized and self._drawn is not None:
                self.draw(self._drawn)
            left = deadline - time.monotonic()
            if left <= 0:
                return ""
            idle(min(left, _LOOK_S))

    def _key(self) -> str:
        if not self._keys or not select.select([sys.stdin], [], [], 0)[0]:
            return ""
        pressed = os.read(sys.stdin.fileno(), 1)
        if not pressed:  # the terminal is gone
            self._keys = False
        return pressed.decode("ascii", "replace")


@contextlib.contextmanager
def opened(*, wanted: bool = True) -> Iterator[Screen]:
    """A screen, if standard output is a terminal and it is ``wanted``; else one that is never drawn."""
    if not (wanted and sys.stdout.isatty()):
        yield Screen(None, keys=False)
        return
    from rich.console import Console
    from rich.live import Live

    with contextlib.ExitStack() as stack:
        keys = sys.stdin.isatty() and importlib.util.find_spec("termios") is not None
        if keys:
            stack.enter_context(_keys_at_once())
        live = stack.enter_context(Live(console=Console(), screen=True, auto_refresh=False))
        screen = Screen(live, keys=keys)

        def changed(number: int, frame: Any) -> None:
            screen.resized = True

        if hasattr(signal, "SIGWINCH"):  # Windows says nothing of a new size
            before = signal.signal(signal.SIGWINCH, changed)
            stack.callback(signal.signal, signal.SIGWINCH, before)
        yield screen


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Keys come without Enter and are not shown; Ctrl-C stays."""
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


_GAP_CELLS = 3  # between columns of the box
_LEAST_CELLS = 8  # a column that is cut to less shows nothing


def table(title: str, columns: list[str], rows: list[list[str]], *, right: frozenset[str]) -> Any:
    """A table for the screen, cut at its right end.

    Rich would cut all columns a little, and leave no number whole.
    """
    import shutil

    from rich import box
    from rich.cells import cell_len, set_cell_size
    from rich.table import Table
    from rich.text import Text

    made = Table(
        title=Text(title),
        title_justify="left",
        header_style=accent(),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    shown: list[list[str]] = []
    room = shutil.get_terminal_size().columns
    for number, name in enumerate(columns):
        cells = [name, *(row[number] for row in rows)]
        width = max(map(cell_len, cells))
        if width > room:
            if number and room < _LEAST_CELLS:
                break
            cells = [set_cell_size(each, room) for each in cells]
        room -= width + _GAP_CELLS
        made.add_column(cells[0], justify="right" if name in right else "left", no_wrap=True)
        shown.append(cells[1:])
    for row in zip(*shown, strict=True):
        made.add_row(*(Text(cell) for cell in row))
    return made
