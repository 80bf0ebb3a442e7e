"""Header blocks, in plain Python: the twin of core/protocol/headers."""

from collections.abc import Mapping, Sequence


def encode_headers(headers: Mapping[str, str | Sequence[str]]) -> bytes:
    """A header block; ValueError on CR or LF anywhere, on ':' in a key, on an empty key."""
    lines = ["NATS/1.0"]
    for key, values in headers.items():
        if not key or ":" in key or "\r" in key or "\n" in key:
            raise ValueError(f"not a header key: {key!r}")
        for value in (values,) if isinstance(values, str) else values:
            if "\r" in value or "\n" in value:
                raise ValueError(f"a line end in the value of header {key!r}")
            lines.append(f"{key}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


def decode_headers(block: bytes) -> tuple[int, str, dict[str, list[str]]]:
    """(status, description, headers) of a header block; ValueError when it is malformed."""
    text = block.decode("utf-8", "surrogateescape")
    first, *lines = text.split("\r\n")
    ends = len(lines)
    if ends < 2 or lines[-1] or lines[-2] or text.count("\r") != ends or text.count("\n") != ends:
        raise ValueError(
            "a header block whose lines do not end in CR LF, or without an empty line at its end"
        )
    status = first[8:].strip(" \t")
    if not first.startswith("NATS/1.0") or (status and first[8] not in " \t"):
        raise ValueError(f"a header block that begins with {first[:40]!r}")
    code = status[:3]
    if status and not (
        len(code) == 3 and code.isascii() and code.isdigit() and status[3:4] in " \t"
    ):
        raise ValueError(f"not a status: {status[:40]!r}")
    headers: dict[str, list[str]] = {}
    for line in lines[:-2]:
        key, colon, value = line.partition(":")
        if not colon or not key:
            raise ValueError(f"not a header line: {line[:40]!r}")
        headers.setdefault(key, []).append(value.lstrip(" \t"))
    return int(code or 0), status[3:].strip(" \t"), headers
