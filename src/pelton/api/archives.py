"""Archives of one stream, as nats-server 2.15 makes them: messages in the order of their sequences.

    archive = "NATSARC1" entry*
    entry   = uvarint name length, varint time, uvarint sequence, uvarint header length, uvarint payload length,
              name, headers, payload
       sequence > 0: a message, its name is the subject; all zero: the end mark; else a file: state.json first,
       then consumers/<name>

The server takes and sends it compressed, as a framed S2 stream. core/stream/backup reads it. Pure.
"""

from __future__ import annotations

MAGIC = b"NATSARC1"
END = bytes(5)
STATE = "state.json"


def packed(name: str, ts_ns: int, seq: int, headers: bytes, data: bytes) -> bytes:
    """One entry: a message, or with ``seq`` 0 a file."""
    text = name.encode("utf-8", "surrogateescape")
    zigzag = ts_ns << 1 if ts_ns >= 0 else (-ts_ns << 1) - 1
    numbers = (len(text), zigzag, seq, len(headers), len(data))
    return b"".join((*map(_uvarint, numbers), text, headers, data))


def _uvarint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
