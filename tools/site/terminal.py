"""Makes docs/terminal.svg: a terminal with a server, commands, and what they print.

``.venv/bin/python -m tools.site.terminal``, when a command that it shows prints something else. The server
has port 4222, as in the picture.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).resolve().parents[2] / "docs/terminal.svg"
WIDTH = 72
SERVER = ("pelton serve", 2)
# What is typed, and how many lines of the answer are shown (None: all).
TYPED: list[tuple[str, int | None]] = [
    ("pelton stream add ORDERS --subjects 'orders.>' --defaults", 3),
    ("pelton pub -J orders.new '42 bolts'", None),
    ("pelton pub -J orders.paid '42 bolts'", None),
    ('pelton sql "select subject, count(*) as n from ORDERS group by all"', None),
]
THEME = TerminalTheme(
    (13, 27, 33),
    (222, 235, 238),
    [
        *((13, 27, 33), (240, 113, 120), (126, 217, 164), (246, 200, 95)),
        *((110, 180, 240), (199, 146, 234), (94, 210, 220), (222, 235, 238)),
    ],
)
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def picture() -> str:
    """Run the server and the commands, and draw them."""
    terminal = Console(width=WIDTH, record=True, file=io.StringIO(), color_system="truecolor")
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {
            "COLUMNS": str(WIDTH),
            "HOME": home,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        environment.pop("XDG_DATA_HOME", None)
        command, lines = SERVER
        server = subprocess.Popen(
            command.split(), cwd=home, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        try:
            said = [server.stdout.readline().replace(home, "~") for _ in range(lines)]
            show(terminal, command, [*said, ""], lines)
            for command, lines in TYPED:
                done = subprocess.run(
                    command,
                    shell=True,
                    cwd=home,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                show(terminal, command, done.stdout.rstrip("\n").split("\n"), lines)
        finally:
            server.terminate()
            server.communicate()
    return drawn(terminal)


def show(terminal: Console, command: str, said: list[str], lines: int | None) -> None:
    """Put a command and what it prints into the picture."""
    terminal.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    for line in said[:lines]:
        terminal.print(Text.from_ansi(line.rstrip("\n")))
    if lines is not None and lines < len(said):
        terminal.print(Text("…", "dim"))


def drawn(terminal: Console) -> str:
    """The terminal as SVG, with fonts of the reader's machine only."""
    form = re.sub(r"\s*@font-face \{\{.*?\}\}(?=\n)", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = re.sub(r"font-family: [^;]+;", f"font-family: {FONT};", form)
    made = terminal.export_svg(title="pelton", theme=THEME, code_format=form, unique_id="terminal")
    return re.sub(r"<!-- .*? -->\n?", "", made)


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
