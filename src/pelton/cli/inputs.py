"""Files that a user names as input: read whole, unless reading them would never end."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import click

from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 1 << 30  # out of a pipe
_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Pipes that a shell has opened, as in `pelton apply <(generate)`."""


def read_input(path: str | Path) -> bytes:
    """The bytes of a file. ClickException for a pipe, a device, a socket; OSError."""
    name = os.fspath(path)
    mode = os.stat(name).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        with open(name, "rb") as file:
            return file.read()
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)) or not name.startswith(_PIPES):
        raise click.ClickException(f"cannot read {shown(name)}: it is not a regular file")
    with open(name, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise click.ClickException(f"cannot read {shown(name)}: more than {_MOST_BYTES} bytes")
    return data


def read_text_input(path: str | Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The text of a file, as `read_input`; UnicodeDecodeError."""
    text = read_input(path).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")
