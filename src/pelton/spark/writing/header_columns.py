"""Columns that become header lines, a whole batch at a time: maps of headers, texts and numbers.

::

    headers                    lines of the row
    ───────                    ────────────────
    {"K": ["v", "w"]}    ──►   K: v CR LF K: w CR LF

Arrow makes the lines of all rows as one column. The lines of one row lie side by side in it, so the
rows are the same bytes under other offsets. Only rows with an unusual value are checked one by one.

Does not depend on servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pelton.core.protocol.wire import encode_headers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_NAME = r"^[^:\r\n]+$"
_VALUE = r"^[^\r\n]*$"
# Values that do not match include all that a header cannot hold; these are checked one by one.
_USUAL = r"^[!-~]([^\r\n]*[!-~])?$"


def lines_of(
    sources: Sequence[tuple[str, pa.Array]],
    maps: pa.Array | None,
    left_out: Collection[str],
    bad: dict[int, str],
) -> pa.Array:
    """The header lines of each row: those of its map of headers, then those of the ``sources``.

    ``left_out`` has names of the map to skip, in lower case. Each source is the name of a header and
    its values. Rows with a value that a header cannot hold are added to ``bad``, and have no lines.
    """
    wrong: dict[int, str] = {}
    parts = [] if maps is None else [_map_lines(maps, left_out, wrong)]
    parts += [_value_lines(header, values, wrong) for header, values in sources]
    lines = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")
    if wrong:
        usable = pa.array([row not in wrong for row in range(len(lines))])
        lines = pc.if_else(usable, lines, "")
        for row, reason in wrong.items():
            bad.setdefault(row, reason)
    return lines.cast(pa.binary())


def _value_lines(header: str, values: pa.Array, wrong: dict[int, str]) -> pa.Array:
    """One line for each row that has a value."""
    if pa.types.is_integer(values.type):
        usual = pc.greater_equal(values, 0)
    else:
        values = values.cast(pa.string())
        usual = pc.match_substring_regex(values, _USUAL)
    for row in pc.indices_nonzero(pc.invert(usual)).to_pylist():
        try:
            header_value(header, values[row].as_py())
        except ValueError as error:
            wrong.setdefault(row, str(error))
    texts = values.cast(pa.string())
    return pc.fill_null(pc.binary_join_element_wise(f"{header}: ", texts, "\r\n", ""), "")


def _map_lines(maps: pa.Array, left_out: Collection[str], wrong: dict[int, str]) -> pa.Array:
    """The lines of maps from a name to a text or a list of texts."""
    # Where each row begins among the names, and then among the values.
    starts = np.asarray(maps.offsets)
    names = maps.keys.slice(starts[0], starts[-1] - starts[0]).cast(pa.string())
    values = maps.items.slice(starts[0], starts[-1] - starts[0])
    starts = starts - starts[0]
    used = pc.is_valid(values)
    if pa.types.is_list(values.type):
        places = np.asarray(values.offsets)
        of_name = pa.array(np.repeat(np.arange(len(values)), np.diff(places)))
        names, used = names.take(of_name), used.take(of_name)
        values = values.values.slice(places[0], places[-1] - places[0])
        starts = (places - places[0])[starts]
    values = values.cast(pa.string())
    unused = pc.is_in(pc.utf8_lower(names), value_set=pa.array(list(left_out), pa.string()))
    used = pc.and_not(pc.and_(used, pc.is_valid(values)), unused)
    usual = pc.and_(
        pc.match_substring_regex(names, _NAME), pc.match_substring_regex(values, _VALUE)
    )
    for place in pc.indices_nonzero(pc.and_not(used, usual)).to_pylist():
        row = int(np.searchsorted(starts, place, "right")) - 1
        try:
            header_lines(maps[row].as_py(), left_out)
        except ValueError as error:
            wrong.setdefault(row, str(error))
    lines = pc.if_else(used, pc.binary_join_element_wise(names, ": ", values, "\r\n", ""), "")
    if not len(lines):
        return pa.repeat("", len(maps))
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset :][starts]
    joined = pa.StringArray.from_buffers(len(maps), pa.py_buffer(ends), data)
    return pc.if_else(pc.is_valid(maps), joined, "") if maps.null_count else joined


def headers_of(given: object, left_out: Collection[str]) -> dict[str, list[str]]:
    """The headers of a map column's value that have a value, without the names in ``left_out``."""
    headers: dict[str, list[str]] = {}
    pairs = given if isinstance(given, list) else []
    for name, value in pairs:
        if value is None or name.lower() in left_out:
            continue
        values = [value] if isinstance(value, str) else value
        if kept := [one for one in values if one is not None]:
            headers[name] = kept
    return headers


def header_lines(given: object, left_out: Collection[str]) -> bytes:
    """A map column's value as header lines; ValueError for a value that a header cannot hold."""
    headers = headers_of(given, left_out)
    return encode_headers(headers)[len(b"NATS/1.0\r\n") : -2] if headers else b""


def header_value(header: str, value: object) -> bytes:
    """A header line with a text or a number; ValueError when a header cannot hold it."""
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"{header} would be {value}, less than 0")
        return f"{header}: {value}\r\n".encode()
    text = str(value)
    if not text or "\r" in text or "\n" in text or text != text.strip():
        raise ValueError(f"{header} would be {text!r:.80}, which no header can hold")
    return f"{header}: {text}\r\n".encode()
