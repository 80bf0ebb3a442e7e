"""Names of formats: which ones can be read, which can be written, and near names for typos."""

from __future__ import annotations

import difflib

from pelton.pipeline.description.model import ICEBERG
from pelton.pipeline.description.problems import did_you_mean

_FILES = frozenset({"parquet", "orc", "json", "csv", "text", "xml"})
_OTHERS = frozenset({"kafka", "delta", "iceberg", "avro"})
"""Formats of packages that are often installed with Spark."""
_STREAMED = frozenset({"jetstream", "jetstream_kv", "jetstream_delta", ICEBERG})
STREAMED = _FILES | _OTHERS | _STREAMED | {"rate", "rate-micro-batch", "socket"}
STATIC = _FILES | _OTHERS | _STREAMED | {"jdbc", "binaryfile"}
WRITTEN = _FILES | _OTHERS | _STREAMED | {"jetstream_object", "console", "memory", "noop"}
_EVERY = STREAMED | STATIC | WRITTEN
_NEAR = 0.75


def wrong_format(name: str, wanted: frozenset[str], doing: str) -> str:
    """The fault of a format that is to be read or written (``doing``); '' if it may be right."""
    folded = name.lower()
    if folded in wanted or "." in name:
        return ""
    if folded in _EVERY:
        return f"format {name} cannot be {doing}; there are: {', '.join(sorted(wanted))}"
    if difflib.get_close_matches(folded, wanted, 1, _NEAR):
        return f"format {name!r} is not known{did_you_mean(name, wanted)}"
    return ""


def unknown_format(name: str) -> bool:
    """Whether the format is not known here; a session may have others."""
    return name.lower() not in _EVERY and "." not in name
