"""Sizes as people write them: ``1024``, ``64KB``, ``10GiB``."""

from __future__ import annotations

import re

SIZE_MOST = (1 << 63) - 1
"""The protocol counts bytes in 64 bits."""
_SIZE = re.compile(r"(\d+)\s*(?:([KMGTPE])(i?B|i)?|B)?", re.IGNORECASE | re.ASCII)
_LETTERS_MOST = 100


class SizeError(ValueError):
    """The text is not a size, or the size is too large; str() is for people."""


def parse_size(text: str, *, bare: int = 1024, most: int = SIZE_MOST) -> int:
    """Bytes of a text; SizeError.

    ``KB``, ``KiB`` and ``Ki`` are 1024 bytes; ``K`` is ``bare``.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or len(text) > _LETTERS_MOST:
        raise SizeError(f'"{text[:_LETTERS_MOST]}" is not a size such as 65536, 64KB or 8MB')
    base = 1024 if found[3] else bare
    size = int(found[1]) * int(base ** ("KMGTPE".index(found[2].upper()) + 1 if found[2] else 0))
    if size > most:
        raise SizeError(f'"{text}" is too large (maximum {most} bytes)')
    return size
