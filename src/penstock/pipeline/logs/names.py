"""Headers of a shipped line and the subject of a file, for the shipper and the transforms.

A subject is ``logs.<host>.<file>``. A dot would begin a new token, so it becomes ``_``. ``_``
itself and every character that a token cannot hold become ``=`` and two hexadecimal digits per
byte. Two files never share a subject::

    web-1.example.org  /var/log/apt/history.log
    logs.web-1_example_org.var/log/apt/history_log

Does not know Spark or the network.
"""

from __future__ import annotations

import re

STREAM = "LOGS"
SUBJECT_PREFIX = "logs"

HOST_HEADER = "Log-Host"
FILE_HEADER = "Log-File"
IDENTITY_HEADER = "Log-Identity"
OFFSET_HEADER = "Log-Offset"
NEXT_HEADER = "Log-Next"
# On a piece of a line that did not end with a newline when it was shipped.
PARTIAL_HEADER = "Log-Partial"

_KEPT = re.compile(rb"[A-Za-z0-9/+@-]")


def token(text: str) -> str:
    """Text as one token of a subject, different for each text; "" becomes ``=``."""
    parts = []
    for byte in text.encode("utf-8", "surrogateescape"):
        one = bytes([byte])
        if one == b".":
            parts.append("_")
        else:
            parts.append(one.decode() if _KEPT.match(one) else f"={byte:02X}")
    return "".join(parts) or "="


def subject_of(host: str, path: str) -> str:
    """The subject of a file's lines; ``path`` is absolute."""
    return f"{SUBJECT_PREFIX}.{token(host)}.{token(path.lstrip('/'))}"
