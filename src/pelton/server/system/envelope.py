"""The frame of messages of the system account: the server, compact JSON, compression on request."""

import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any

from pelton.api.times import format_time
from pelton.core.protocol.publish_headers import value
from pelton.server.monitor.encoding import json_in_slices, present, to_json
from pelton.server.monitor.server_state import ServerState
from pelton.server.monitor.slices import Slices
from pelton.server.settings import COMPATIBLE_VERSION

JETSTREAM, BINARY_SNAPSHOT = 1, 2  # bits of `flags`
_GZIP = 31  # wbits of zlib
_PART_BYTES = 1 << 17
_SNAPPY_HEAD = b"\xff\x06\x00\x00sNaPpY"
_sequence = count(1)  # number of messages sent by this process


def server_info(server_state: ServerState) -> dict[str, Any]:
    """Identity of the server, and the time."""
    settings = server_state.settings
    on = server_state.jetstream() is not None
    info: dict[str, Any] = {
        "name": server_state.server_name,
        "host": server_state.host,
        "id": server_state.server_id,
    }
    info |= present(domain=settings.domain if on else "")
    info["ver"] = COMPATIBLE_VERSION
    info |= present(
        tags=list(settings.server_tags),
        metadata=dict(sorted(settings.server_metadata.items())),
    )
    info["feature_flags"] = settings.features()
    return info | {
        "jetstream": on,
        "flags": JETSTREAM | BINARY_SNAPSHOT if on else 0,
        "seq": next(_sequence),
        "time": format_time(server_state.now_ns),
    }


def written_in_slices(body: object) -> Slices[bytes]:
    """As `written`."""
    return json_in_slices(body, None)


def written(body: object) -> bytes:
    """The message as JSON on one line."""
    return to_json(body, None).encode("utf-8", "replace")


def packed(data: bytes, asked_headers: bytes) -> Slices[tuple[bytes, bytes]]:
    """(headers, data), compressed as the headers of the request ask."""
    wanted = value(asked_headers, b"Accept-Encoding") if asked_headers else None
    return compressed(data, wanted.decode("latin-1").lower() if wanted else "")


def compressed(data: bytes, wanted: str) -> Slices[tuple[bytes, bytes]]:
    """(headers, data) in an encoding that `wanted` names; an empty `wanted` means plain data,
    without headers.
    """
    if not wanted or not data:
        return b"", data
    if "snappy" in wanted or "s2" in wanted:
        from pelton.core.base.s2 import FrameWriter

        frames = FrameWriter(1 << 16)  # the block size of snappy
        for part in _parts(data):
            frames.put(part)
            if part is not data:
                yield
        frames.finish()
        # the core's compressor writes valid snappy blocks; only the stream's head says S2
        return _encoding("snappy"), _SNAPPY_HEAD + frames.take(len(frames))[len(_SNAPPY_HEAD) :]
    if "gzip" in wanted:
        squeezed = zlib.compressobj(wbits=_GZIP)
        out = []
        for part in _parts(data):
            out.append(squeezed.compress(part))
            if part is not data:
                yield
        return _encoding("gzip"), b"".join(out) + squeezed.flush()
    return _encoding("identity"), data


def _parts(data: bytes) -> Iterator[bytes]:
    """The data in parts that are compressed in one slice."""
    if len(data) <= _PART_BYTES:
        yield data
        return
    for begin in range(0, len(data), _PART_BYTES):
        yield data[begin : begin + _PART_BYTES]


def _encoding(name: str) -> bytes:
    return f"NATS/1.0\r\nContent-Encoding: {name}\r\n\r\n".encode()
