"""The stored state of a consumer as bytes.

    +0   "PCS1"
    +4   u32   CRC32C of everything after it
    +8   u64   consumer sequence of the last delivery
    +16  u64   stream sequence up to which all messages were delivered or do not match the filters
    +24  u64   stream sequence to continue with
    +32  u64   time of the last delivery, ns (0: never)
    +40  u64   ack floor: consumer sequence
    +48  u64   ack floor: stream sequence
    +56  u64   time of the last ack, ns (0: never)
    +64  u32   count of pending messages, u32 count of first messages
    +72  pending messages, ascending, 32 bytes each: u64 stream sequence, u64 consumer sequence of
         the first delivery, u64 time (of the last delivery, or when due if refused with a delay),
         u32 deliveries, u32 state (core/consumer/pending); behind them, in any order, those that reached
         max_deliver (state 4; consumer sequence and time 0)
         then the first messages of a last_per_subject start that are not delivered yet, ascending:
         u64 sequence each

All numbers are little-endian. Does not depend on the class of consumers: it packs and unpacks values.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

from pelton.core.base.buffer import crc32c_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAGIC = b"PCS1"
_HEAD = struct.Struct("<7QII")
_ENTRY = struct.Struct("<QQQII")
_START = 8
_STATES = (1, 2, 3)
SPENT = 4

Entry = tuple[int, int, int, int, int]


def pack(numbers: tuple[int, ...], entries: Sequence[Entry], starts: Sequence[int]) -> bytes:
    """Pack a record; `numbers` are the seven of the head."""
    body = b"".join(
        (
            _HEAD.pack(*numbers, len(entries), len(starts)),
            *(_ENTRY.pack(*entry) for entry in entries),
            struct.pack(f"<{len(starts)}Q", *starts),
        )
    )
    return _MAGIC + crc32c_of(body).to_bytes(4, "little") + body


def unpack(data: bytes) -> tuple[tuple[int, ...], list[Entry], list[int]]:
    """Unpack a record: the seven numbers, pending messages, first messages. Raises ValueError."""
    body = data[_START:]
    if data[:4] != _MAGIC or len(body) < _HEAD.size:
        raise ValueError("not a consumer state")
    if crc32c_of(body) != int.from_bytes(data[4:_START], "little"):
        raise ValueError("consumer state is damaged")
    *numbers, pending, first = _HEAD.unpack_from(body)
    if len(body) != _HEAD.size + pending * _ENTRY.size + first * 8:
        raise ValueError("consumer state has a wrong length")
    entries = [_ENTRY.unpack_from(body, _HEAD.size + i * _ENTRY.size) for i in range(pending)]
    starts = list(struct.unpack_from(f"<{first}Q", body, _HEAD.size + pending * _ENTRY.size))
    waiting = [entry for entry in entries if entry[4] != SPENT]
    if any(a[0] >= b[0] for a, b in pairwise(waiting)) or any(e[4] not in _STATES for e in waiting):
        raise ValueError("consumer state is not in order")
    return tuple(numbers), entries, starts
