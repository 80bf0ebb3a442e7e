"""Header blocks: functions that add, remove or replace a header of a block of bytes."""

STATUS = b"NATS/1.0\r\n"
_END = b"\r\n"


def block(*headers: tuple[bytes, bytes]) -> bytes:
    """Return a block of these headers."""
    return STATUS + b"".join(b"%s: %s\r\n" % header for header in headers) + _END


def added(headers: bytes, name: bytes, value: bytes) -> bytes:
    """Return the block with one more header at its end; b"" is a block without headers."""
    if not headers:
        return block((name, value))
    return b"%s%s: %s\r\n\r\n" % (headers.removesuffix(_END), name, value)


def without(headers: bytes, *names: bytes) -> bytes:
    """Return the block without the headers of these names; b"" when none is left."""
    return _filtered(headers, tuple(b"%s:" % name for name in names))


def without_prefix(headers: bytes, *prefixes: bytes) -> bytes:
    """Return the block without the headers whose names start with a prefix; b"" when none is left."""
    return _filtered(headers, prefixes)


def _filtered(headers: bytes, starts: tuple[bytes, ...]) -> bytes:
    lines = headers.split(_END)
    kept = [line for line in lines[1:] if line and not line.startswith(starts)]
    return b"".join([STATUS, *(b"%s\r\n" % line for line in kept), _END]) if kept else b""
