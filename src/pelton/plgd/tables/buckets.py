"""The bucket of a message: all messages of a device, and all registrations of an owner, have the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    Numbers = np.ndarray[Any, Any]


def bucket_key(subject: str) -> str:
    """The key of a subject's bucket: the device, the owner of registrations, or otherwise the subject."""
    tokens = subject.split(".")
    if tokens[0] == "plgd" and len(tokens) > 4:
        return tokens[4 if tokens[3] == "devices" else 2]
    if tokens[0] == "events" and len(tokens) > 2:
        return tokens[1]
    return subject


def bucket_of(key: str, buckets: int) -> int:
    """The bucket of a key, such as a device id."""
    return crc32(key.encode()) % buckets


def buckets_of(subjects: pa.Array, buckets: int) -> Numbers:
    """The buckets of many subjects, as `bucket_of` their `bucket_key`. No subject is null."""
    split = pc.split_pattern(subjects, ".", max_splits=5)
    tokens = split.values
    starts = split.offsets.to_numpy()[:-1].astype(np.int64)
    counts = np.diff(split.offsets.to_numpy())

    def token_is(place: int, text: str) -> Numbers:
        there = np.minimum(starts + place, max(len(tokens) - 1, 0))
        found = pc.equal(tokens.take(pa.array(there)), text)
        equal: Numbers = found.to_numpy(zero_copy_only=False)
        return equal

    of_hub = token_is(0, "plgd") & (counts > 4)
    of_device = of_hub & token_is(3, "devices")
    of_old = token_is(0, "events") & (counts > 2)
    place = np.select([of_device, of_hub, of_old], [4, 2, 1], -1)
    known = place >= 0
    keys = tokens.take(pa.array(starts + place, mask=~known))
    keys = pc.coalesce(keys, subjects).dictionary_encode()
    of_key = np.array([bucket_of(key, buckets) for key in keys.dictionary.to_pylist()], np.int32)
    found: Numbers = of_key[keys.indices.to_numpy()] if len(of_key) else of_key
    return found
