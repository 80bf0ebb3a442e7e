"""Headers of a shipped line and the subject of a file, for the shipper and the transforms.

A subject is ``logs.<host>.<file>.<identity>``; see :mod:`pelton.pipeline.logs.files` for
identities. A dot would begin a new token, so it becomes ``_``. ``_`` itself and every character that
a token cannot hold become ``=`` and two hexadecimal digits per byte. Two files never share a subject,
and neither do two that follow one another under one path::

    web-1.example.org  /var/log/apt/history.log
    logs.web-1_example_org.var/log/apt/history_log.801-5c2-1f-0a1b2c3d4e5f6071-0

Earlier versions wrote subjects without the identity; the shipper continues those.

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

# Servers take 4,096 bytes for a line of the protocol, which has more than the subject.
SUBJECT_BYTES_MAX = 3900
IDENTITY_BYTES_MAX = 80

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


def subjects_of(host: str, path: str | None = None) -> str:
    """The subjects of all lines of a host, or those of its files under a path, as a pattern."""
    file = "*" if path is None else token(path.lstrip("/"))
    return f"{SUBJECT_PREFIX}.{token(host)}.{file}.*"


def subject_of(host: str, path: str, identity: str) -> str:
    """The subject of a file's lines; ``path`` is absolute."""
    return f"{SUBJECT_PREFIX}.{token(host)}.{token(path.lstrip('/'))}.{identity}"


def refusal(host: str, path: str) -> str | None:
    """The reason why lines of the file cannot be shipped; None if they can."""
    if "\n" in path or "\r" in path:
        return "its name has a line end, which no header can hold"
    longest = subject_of(host, path, "f" * IDENTITY_BYTES_MAX)
    if len(longest) > SUBJECT_BYTES_MAX:
        return "its path is too long for a subject"
    return None


def path_of(subject: str) -> str:
    """The path in a subject of a file."""
    encoded = subject.split(".")[2].removesuffix("=").replace("_", ".").encode()
    raw = re.sub(rb"=([0-9A-F]{2})", lambda hit: bytes([int(hit[1], 16)]), encoded)
    return "/" + raw.decode("utf-8", "surrogateescape")
