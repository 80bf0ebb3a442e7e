"""Pages: the current rows of a bucket in several files, so that a batch rewrites only the files
that it changes.

A row's page follows from its key and the number of pages, which is in the name of each file::

    …-00003-0-p0005of0016-000.parquet      page 5 of 16

The number grows with the rows, to a power of two. A file whose name has no page, from a compaction
for instance, has rows of all pages; then all pages are rewritten, once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Numbers = np.ndarray[Any, Any]

PAGE_ROWS = 16 * 1024
"""Rows of a page at most, on average: fewer cost more files, more are written for one that changed."""

_TAIL = 8
_MIX = np.uint64(0x9E3779B97F4A7C15)
_NAME = re.compile(r"-p(\d{4})of(\d{4})-\d+\.parquet$")


def pages_of(keys: pa.Array, pages: int) -> Numbers:
    """The page of each key, a text: a hash of its last bytes, in which ids differ."""
    keys = keys.cast(pa.large_string()).fill_null("")
    count = len(keys)
    if not count:
        return np.zeros(0, np.int64)
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + count + 1]
    text = (
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    )
    found = np.zeros(count, np.uint64)
    for back in range(1, _TAIL + 1):
        place = ends[1:] - back
        there = place >= ends[:-1]
        byte = np.where(there, text[np.where(there, place, 0)], 0)
        found = found * np.uint64(31) + byte.astype(np.uint64)
    mixed = (found * _MIX) >> np.uint64(40)
    return (mixed % np.uint64(pages)).astype(np.int64)


def page_name(page: int, pages: int) -> str:
    """The end of the name of a page's file, before the number."""
    return f"p{page:04}of{pages:04}"


def page_in(path: str) -> tuple[int, int] | None:
    """The page of a file, and of how many; None if its name tells none."""
    found = _NAME.search(path)
    return None if found is None else (int(found[1]), int(found[2]))


def number_for(rows: int, known: int) -> int:
    """How many pages so many rows need; never fewer than there are."""
    pages = max(known, 1)
    while pages * PAGE_ROWS < rows and pages < 4096:
        pages *= 2
    return pages


def changed_pages(
    paths: Sequence[str], rows: int, touched: pa.Array | None
) -> tuple[int, list[int], list[str]]:
    """How many pages there are now, which of them are written, and which files go.

    ``paths`` are the files that there are, ``rows`` all rows of the bucket now, ``touched`` the keys that changed; None
    for all.
    """
    told = [page_in(path) for path in paths]
    numbers = {one[1] for one in told if one is not None}
    known = max(numbers, default=1)
    pages = number_for(rows, known)
    is_anew = touched is None or None in told or len(numbers) > 1 or (told and pages != known)
    if is_anew or not told:
        return pages, list(range(pages)), list(paths)
    wanted = np.unique(pages_of(touched, pages)).tolist()
    of_page = zip(paths, told, strict=True)
    return pages, wanted, [path for path, one in of_page if one is not None and one[0] in wanted]


def parts_of(rows: pa.Table, key: str, pages: int, wanted: Iterable[int]) -> Mapping[int, pa.Table]:
    """The rows of pages; a page without rows is left out."""
    page = pages_of(rows[key].combine_chunks(), pages)
    order = np.argsort(page, kind="stable")
    bounds = np.searchsorted(page[order], np.arange(pages + 1))
    return {
        one: rows.take(pa.array(order[bounds[one] : bounds[one + 1]]))
        for one in wanted
        if bounds[one] < bounds[one + 1]
    }
