"""Options of formats, checked by the formats' own parsers, without a JVM.

Of other formats, Spark's own and those of other packages, only the options are checked that a
pipeline sets itself.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pelton.pipeline.description.model import DELTA, ICEBERG
from pelton.pipeline.description.problems import SHORTEST_SECRET, did_you_mean
from pelton.spark.parsing import OptionError, parse
from pelton.spark.servers import SERVER_ROWS, take_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pelton.pipeline.description.document import Text
    from pelton.spark.parsing import Row

    Check = Callable[[Mapping[str, str]], object]

SERVER_OPTIONS = {row.name.lower(): row.name for row in SERVER_ROWS}
PATHS = frozenset(
    {"path", "errorpath", "segments", "creds", "tlsca", "tlscert", "tlskey", "upsert"}
)
"""Options that name files and folders: a relative path starts at the pipeline file."""
NEED_SCHEMA = frozenset({"json", "csv", "parquet", "orc", "xml"})
_SECRET = frozenset(row.name.lower() for row in SERVER_ROWS if row.secret)
_SOUNDS_SECRET = re.compile("password|passphrase|secret|token|credential|access.?key|api.?key")
_OF_THE_PIPELINE = {
    "checkpointlocation": "the state folder keeps it",
    "queryname": "the pipeline names its queries",
    "writeid": "the pipeline says which batch it is",
    "writeepoch": "the pipeline says which batch it is",
    "txnappid": "the pipeline says which batch it is",
    "txnversion": "the pipeline says which batch it is",
}
_STORAGE = "storage."
_CATALOG = "catalog."


def secret(name: str, text: Text) -> bool:
    """Whether an option's value must never be printed."""
    folded = name.lower()
    in_url = folded == "servers" and "@" in text.value
    named = folded in _SECRET or _SOUNDS_SECRET.search(folded) is not None
    return named or folded.startswith((_STORAGE, _CATALOG)) or in_url


def same_place(place: str) -> str:
    """The normal form of a folder or URL: ``a/../b/``, ``file:///b`` and links become ``b``."""
    if place.startswith("file:"):
        place = unquote(urlsplit(place).path)
    if "://" in place:
        scheme, _, rest = place.partition("://")
        scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme.lower(), scheme.lower())
        return f"{scheme}://{posixpath.normpath(rest)}"
    return os.path.realpath(place)


def check_source(
    format_name: str, given: Mapping[str, Text], *, static: bool
) -> Iterator[tuple[str, str]]:
    """The faults in the options of a source, each with its option."""
    found = _reading(format_name, static=static)
    if found is None:
        yield from _check(None, None, given)
    elif isinstance(found, str):
        yield "format", found
    else:
        yield from _check(*found, given)


def empty_range(format_name: str, given: Mapping[str, Text], *, static: bool) -> str:
    """A warning if the end of a source is before its start, else ''. The options must be valid."""
    if format_name != "jetstream":
        return ""
    from pelton.spark.reading.options import parse_options
    from pelton.spark.reading.positions import EARLIEST, LATEST, Position

    texts = {name: text.value for name, text in given.items() if name.lower() != "consumer"}
    asked = parse_options(texts, streaming=not static)
    if asked.ending_offsets is None:
        return ""
    begins, ends = asked.starting_offsets, asked.ending_offsets
    for stream in dict.fromkeys([*asked.streams, *begins.streams, *ends.streams]):
        begin = begins.of(stream, Position(word=EARLIEST))
        end = ends.of(stream, Position(word=LATEST))
        numbers = (begin.sequence, end.sequence)
        times = (begin.time, end.time)
        if (None not in numbers and begin.sequence > end.sequence) or (  # type: ignore[operator]  # neither is None
            None not in times and begin.time > end.time  # type: ignore[operator]  # as above
        ):
            return (
                f"of stream {stream} nothing is read: it ends at {end}, before it begins at {begin}"
            )
    return ""


def check_sink(
    format_name: str, given: Mapping[str, Text], *, streaming: bool
) -> Iterator[tuple[str, str]]:
    """The faults in the options of a sink, each with its option."""
    rows, whole = _writing(format_name, streaming=streaming) or (None, None)
    yield from _check(rows, whole, given)


def check_servers(given: Mapping[str, Text]) -> Iterator[tuple[str, str]]:
    """The faults in options for connections, each with its option."""

    def whole(texts: Mapping[str, str]) -> object:
        return take_servers(parse(SERVER_ROWS, texts, format_name="defaults"))

    yield from _check(SERVER_ROWS, whole, given)


def _reading(format_name: str, *, static: bool) -> tuple[tuple[Row, ...], Check] | str | None:
    streaming = not static
    if format_name == "jetstream":
        from pelton.spark.reading.options import ROWS, parse_options

        return ROWS, lambda given: parse_options(given, streaming=streaming)
    if format_name == "jetstream_kv":
        from pelton.spark.buckets.kv_options import ROWS as KV_ROWS
        from pelton.spark.buckets.kv_options import parse_kv_options

        return KV_ROWS, lambda given: parse_kv_options(given, streaming=streaming)
    if format_name == DELTA:
        from pelton.spark.delta.options import READ_ROWS, parse_read

        return READ_ROWS, lambda given: parse_read(given, streaming=streaming)
    if format_name == ICEBERG:
        from pelton.spark.iceberg.options import READ_ROWS as ICEBERG_READ
        from pelton.spark.iceberg.options import parse_read as parse_iceberg_read

        return ICEBERG_READ, lambda given: parse_iceberg_read(given, streaming=streaming)
    if format_name == "jetstream_object":
        return "object stores are written, not read; jetstream reads the stream OBJ_<bucket>"
    return None


def _writing(format_name: str, *, streaming: bool) -> tuple[tuple[Row, ...], Check] | None:
    if format_name == "jetstream":
        from pelton.spark.writing.options import ROWS, parse_write_options

        return ROWS, parse_write_options
    if format_name == "jetstream_kv":
        from pelton.spark.buckets.kv_sink import WRITE_ROWS as KV_ROWS
        from pelton.spark.buckets.kv_sink import parse_kv_write

        return KV_ROWS, parse_kv_write
    if format_name == "jetstream_object":
        from pelton.spark.buckets.object_sink import WRITE_ROWS as OBJECT_ROWS
        from pelton.spark.buckets.object_sink import parse_object_write

        return OBJECT_ROWS, parse_object_write
    if format_name == DELTA:
        from pelton.spark.delta.options import WRITE_ROWS, parse_write

        return WRITE_ROWS, lambda given: parse_write(given, streaming=streaming)
    if format_name == ICEBERG:
        from pelton.spark.iceberg.options import WRITE_ROWS as ICEBERG_ROWS
        from pelton.spark.iceberg.options import parse_write as parse_iceberg

        return ICEBERG_ROWS, lambda given: parse_iceberg(given, streaming=streaming)
    return None


def _check(
    rows: tuple[Row, ...] | None, whole: Check | None, given: Mapping[str, Text]
) -> Iterator[tuple[str, str]]:
    """Check each option separately, so that all mistakes are found; then all of them together."""
    good = True
    for name, text in given.items():
        if (why := _OF_THE_PIPELINE.get(name.lower())) is not None:
            good = False
            yield name, f"option {name} cannot be given: {why}"
        elif rows is not None and (wrong := _wrong(rows, name, text)):
            good = False
            yield name, wrong
    if good and whole is not None:
        try:
            whole({name: text.value for name, text in given.items()})
        except OptionError as error:
            yield "", _shown(str(error), given)


def _wrong(rows: tuple[Row, ...], name: str, text: Text) -> str:
    if name.lower().startswith((_STORAGE, _CATALOG)):
        return ""
    row = next((row for row in rows if row.name.lower() == name.lower()), None)
    if row is None:
        return f"unknown option {name!r}{did_you_mean(name, [each.name for each in rows])}"
    try:
        parse([row], {name: text.value}, format_name="")
    except OptionError as error:
        return _shown(str(error), {name: text})
    return ""


def _shown(message: str, given: Mapping[str, Text]) -> str:
    """A message without the values of secrets and variables."""
    for name, text in given.items():
        if text.filled_in or secret(name, text):
            shown = text.shown if text.filled_in else "***"
            message = message.replace(repr(text.value), repr(shown))
            if len(text.value) > SHORTEST_SECRET:
                message = message.replace(text.value, shown)
    return message
