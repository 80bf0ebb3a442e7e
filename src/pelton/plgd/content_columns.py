"""The contents of many events as JSON text: CBOR by the compiled reader, all others one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pelton.core.bulk.cbor import json_of_cbor

from .content import CBOR, OCF_CBOR, content_json, format_of
from .reasons import UndecodableEventError

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def contents_as_json(contents: pa.Array, types: pa.Array, formats: pa.Array) -> dict[str, pa.Array]:
    """The column ``content_json``; a content that is not of its type sets ``error`` of its row, and its detail.

    The arrays are of binary, string and int32, without nulls. An empty content is null.
    """
    _, offsets, data = contents.buffers()
    found = json_of_cbor(offsets or bytes(4), data or b"", contents.offset, len(contents))
    refused, ends, texts = found
    by_library = np.asarray(refused.view(), np.uint8).astype(bool)
    by_library |= ~are_cbor(types, formats)
    is_empty = pc.equal(pc.binary_length(contents), 0).to_numpy(zero_copy_only=False)
    known = pa.array(~(by_library | is_empty)).buffers()[1]
    buffers = [known, pa.py_buffer(ends), pa.py_buffer(texts)]
    column = pa.Array.from_buffers(pa.string(), len(contents), buffers)
    rest = by_library & ~is_empty
    return (
        {"content_json": column}
        if not rest.any()
        else others(column, rest, contents, types, formats)
    )


def are_cbor(types: pa.Array, formats: pa.Array) -> Mask:
    """Which contents are CBOR, by their type, or by their format if that is empty."""
    encoded = types.dictionary_encode()
    said = [format_of(text) for text in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy()
    of_format: Mask = np.isin(formats.to_numpy(), (CBOR, OCF_CBOR))
    of_type = np.array([one in {CBOR, OCF_CBOR} for one in said], bool)
    is_silent = np.array([one is None for one in said], bool)
    return of_type[codes] | (is_silent[codes] & of_format) if said else of_format


def others(
    column: pa.Array, rest: Mask, contents: pa.Array, types: pa.Array, formats: pa.Array
) -> dict[str, pa.Array]:
    """The column with some rows read one by one, and what is wrong with these."""
    chosen = pa.array(np.flatnonzero(rest))
    told: list[tuple[str | None, str | None, str | None]] = []
    rows = (array.take(chosen).to_pylist() for array in (contents, types, formats))
    for row in zip(*rows, strict=True):
        try:
            told.append((content_json(*row), None, None))
        except UndecodableEventError as bad:
            told.append((None, bad.reason.value, bad.detail))
    mask, nothing = pa.array(rest), pa.nulls(len(column), pa.string())
    texts, errors, details = (pa.array(values, pa.string()) for values in zip(*told, strict=True))
    return {
        "content_json": pc.replace_with_mask(column, mask, texts),
        "error": pc.replace_with_mask(nothing, mask, errors),
        "error_detail": pc.replace_with_mask(nothing, mask, details),
    }
