"""Parsing the options of the formats: rows of a table, and parsers of the texts that Spark gives.

A table of :class:`Row` defines the options of a format: names, how a text is parsed, and what it
means. The parser and the error for an unknown name are made from it.

Does not depend on Spark, the network, or any one format.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DEFAULT_SERVER = "nats://127.0.0.1:4222"
SEQUENCE_MAX = 2**63 - 1
CONSUMER_NAME_MAX = 200  # servers take 255; the name of a guard is longer


class OptionError(ValueError):
    """An option is unknown, missing or has a bad value; the text says which, and names the accepted
    forms.
    """


class Row(NamedTuple):
    """One option: public name, the field that it fills, the parser of its text, and its meaning."""

    name: str
    field: str
    read: Callable[[str], object]
    meaning: str
    secret: bool = False  # never shown in errors or plans


def text(text: str) -> str:
    """Parse any text but the empty one."""
    if not text:
        raise OptionError("a text that is not empty")
    return text


def stream_name(text: str) -> str:
    """Parse the name of a stream."""
    if not text or re.search(r"[\s.*>/\\]", text):
        raise OptionError("the name of a stream (no space, '.', '*', '>', '/' or '\\')")
    return text


def consumer_name(text: str) -> str:
    """Parse the name of a consumer."""
    if not text or re.search(r"[\s.*>/\\\x00-\x1f]", text) or len(text) > CONSUMER_NAME_MAX:
        raise OptionError(
            "the name of a consumer (no space, '.', '*', '>', '/' or '\\',"
            f" {CONSUMER_NAME_MAX} characters at most)"
        )
    return text


def subject(text: str) -> str:
    """Parse a subject; wildcards are allowed."""
    tokens = text.split(".")
    bad = any(not token or re.search(r"\s", token) for token in tokens) or ">" in tokens[:-1]
    if bad:
        raise OptionError("a subject, wildcards '*' and '>' allowed, such as orders.*.new")
    return text


def servers(text: str) -> tuple[str, ...]:
    """Parse addresses with commas between."""
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    if not servers:
        raise OptionError(f"one or more addresses with commas between, such as {DEFAULT_SERVER}")
    return servers


def flag(text: str) -> bool:
    """Parse true or false, in any case."""
    if text.lower() not in ("true", "false"):
        raise OptionError("true or false")
    return text.lower() == "true"


def no_pushdown(text: str) -> bool:
    """Parse false, the only accepted value.

    Spark (4.2, 4.3) keeps the filtered reader with the DataFrame that was loaded. A later query of it, or
    another part of the same query, would read only the filtered rows, and no source can tell.
    """
    if flag(text):
        raise OptionError(
            "false: Spark gives other uses of the same DataFrame only the rows that one where() has"
            " left. Of a stream the options subject, startingOffsets and endingOffsets read less"
        )
    return False


def count(text: str) -> int:
    """Parse a whole number from 1 on."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= SEQUENCE_MAX:
        raise OptionError("a whole number of 1 or more")
    return int(text)


_SIZES = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}


def size(text: str) -> int:
    """Parse a number of bytes, with or without a unit of 1,024."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if not match or match[2] not in _SIZES or int(match[1]) == 0:
        raise OptionError("a size of 1 byte or more, such as 67108864 or 64m")
    return int(match[1]) * _SIZES[match[2]]


_DURATIONS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Parse seconds, or a number with its unit; returns seconds."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    if not match or match[2] not in _DURATIONS or float(match[1]) == 0:
        raise OptionError("a duration, such as 500ms, 30s or 15m")
    return float(match[1]) * _DURATIONS[match[2]]


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser of one of these words, in any case."""

    def read(text: str) -> str:
        if text.lower() not in words:
            raise OptionError(f"{', '.join(words[:-1])} or {words[-1]}")
        return text.lower()

    return read


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a mistyped one, as it is spelled; None when none is near."""
    folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), folded, 1, 0.6)
    return folded[near[0]] if near else None


# Spark adds these to the options of a table in its catalog (CREATE TABLE, saveAsTable).
_OF_A_CATALOG = {
    *("provider", "owner", "location", "comment", "external", "table_type"),
    *("is_managed_location", "transient_lastddltime"),
}
NO_TABLE = (
    "Spark keeps no options of a catalog's table in a Python format, so that nobody could read it:"
    " write CREATE TEMPORARY VIEW name USING format OPTIONS (...), or read it with its options"
)


def missing(name: str, example: str, given: Mapping[str, str]) -> OptionError:
    """The error for an option that a format needs; ``given`` are all options that it got."""
    text = f'option {name} is missing: .option("{name}", "{example}")'
    return OptionError(text if given else f"{text}. {NO_TABLE}")


def parse(
    rows: Iterable[Row],
    given: Mapping[str, str],
    *,
    format_name: str,
    habits: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Parse Spark's options into values by field; names in any case, only the given ones.

    ``habits`` are options of another system's format, in lower case, each with what to give instead.
    Raises :class:`OptionError` for an unknown name or a bad value.
    """
    by_name = {row.name.lower(): row for row in rows}
    values: dict[str, object] = {}
    for name, given_text in given.items():
        row = by_name.get(name.lower())
        if row is None:
            if name.lower() in _OF_A_CATALOG:
                raise OptionError(f"{format_name} cannot be a table of a catalog. {NO_TABLE}")
            if habits and (instead := habits.get(name.lower())):
                raise OptionError(f"{format_name} has no option {name!r}: {instead}")
            known = [each.name for each in by_name.values()]
            near = nearest(name, known)
            meant = f"; did you mean {near}?" if near else "."
            raise OptionError(
                f"{format_name} has no option {name!r}{meant} The options are: {', '.join(known)}"
            )
        try:
            values[row.field] = row.read(str(given_text))
        except OptionError as wanted:
            shown = "***" if row.secret else repr(given_text)
            raise OptionError(f"option {row.name} is {shown}, but must be {wanted}") from None
    return values
