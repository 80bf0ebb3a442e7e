"""The names that rotations give to log files.

A rotation adds a number, a date or a word to the name, at its end or before its extension, and may
compress the file::

    app.log   app.log.1   app.log-20260102   app.log.2026-01-02   app.log.old   app.log.2.gz
              app.1.log   app-20260102.log   app-2026-01-02.log

A name proves nothing: ``app-1.log`` may be a log of its own. So names only say where to look; the
content of a file decides.
"""

from __future__ import annotations

import re

_MARK = r"(?:[._-](?:[0-9][0-9T:_.-]*|old|bak|prev))"
_AT_THE_END = re.compile(rf"{_MARK}+")
_BEFORE_EXTENSION = re.compile(rf"({_MARK}+)(\.[A-Za-z][A-Za-z0-9]*)")
_COMPRESSED = re.compile(r"\.(gz|xz|bz2|zst|lz4|Z|zip)$")
_LEFT_OUT = re.compile(
    r"(\.[0-9]{1,3}|[.-][0-9]{4}-?[0-9]{2}-?[0-9]{2}([T._-]?[0-9:-]{1,8})?|\.old|\.bak)$"
)


def is_compressed(name: str) -> bool:
    """Whether the name is that of a compressed file."""
    return _COMPRESSED.search(name) is not None


def is_left_out(name: str) -> bool:
    """Whether a folder or pattern does not mean this file: a rotated copy, or compressed."""
    return is_compressed(name) or _LEFT_OUT.search(name) is not None


def originals(name: str) -> set[str]:
    """The names that the file may have had before a rotation."""
    plain = _COMPRESSED.sub("", name)
    found = {plain} - {name}
    for at in range(1, len(plain)):
        if plain[at] not in "._-":
            continue
        base, rest = plain[:at], plain[at:]
        if _AT_THE_END.fullmatch(rest):
            found.add(base)
        elif match := _BEFORE_EXTENSION.fullmatch(rest):
            found.add(base + match[2])
    return found
