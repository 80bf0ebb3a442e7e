"""Header blocks for Python callers: what is between the line of a message and its payload.

    NATS/1.0[ status[ description]] CR LF
    (key: value CR LF)*
    CR LF
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp

cdef enum:
    FIRST = 10                 # bytes of a first line without a status, with its CR LF


def encode_headers(headers) -> bytes:
    """A header block: the first line, ``key: value`` lines in the order of the dict, an empty line.

    A value is a str or a list of them, one line each. ValueError on CR or LF anywhere, ':' in a key, an empty key.
    """
    lines = ["NATS/1.0"]
    for key, values in headers.items():
        if not key or ":" in key or "\r" in key or "\n" in key:
            raise ValueError(f"not a header key: {key!r}")
        for value in (values,) if isinstance(values, str) else values:
            if "\r" in value or "\n" in value:
                raise ValueError(f"a line end in the value of header {key!r}")
            lines.append(f"{key}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


def decode_headers(block: bytes) -> tuple:
    """(status, description, headers) of a header block; status 0 when there is none.

    Keys keep their case, several values of a key their order; blanks before a value are not part of it. ValueError
    when the block is not a first line of version and optional status, lines with a colon, and an empty line.
    """
    cdef dict headers
    if PyBytes_GET_SIZE(block) >= FIRST + 2 and memcmp(PyBytes_AS_STRING(block), b"NATS/1.0\r\n", FIRST) == 0:
        headers = plain_lines(PyBytes_AS_STRING(block) + FIRST, PyBytes_GET_SIZE(block) - FIRST)
        if headers is not None:
            return 0, "", headers
    return decode_any(block)


cdef dict plain_lines(const char* at, Py_ssize_t n):
    """The headers behind the first line; None when a line is not as it must be, which ``decode_any`` explains."""
    cdef const char* end = at + n - 2          # of the last line: the empty one follows
    cdef const char* stop
    cdef const char* colon
    cdef dict headers = {}
    cdef str key
    if memcmp(end, b"\r\n", 2) != 0:
        return None
    while at < end:
        stop = <const char*>memchr(at, 10, end - at)
        if stop == NULL or stop == at or (stop - 1)[0] != 13:
            return None
        colon = <const char*>memchr(at, 58, stop - at)
        if colon == NULL or colon == at or memchr(at, 13, stop - 1 - at) != NULL:
            return None
        key = PyUnicode_DecodeUTF8(at, colon - at, "surrogateescape")
        at = stop + 1
        colon += 1
        stop -= 1
        while colon < stop and (colon[0] == 32 or colon[0] == 9):
            colon += 1
        value = PyUnicode_DecodeUTF8(colon, stop - colon, "surrogateescape")
        if key in headers:
            (<list>headers[key]).append(value)
        else:
            headers[key] = [value]
    return headers


cdef tuple decode_any(bytes block):
    """As ``decode_headers``, for every block."""
    cdef str text = block.decode("utf-8", "surrogateescape")
    cdef list lines = text.split("\r\n")
    cdef Py_ssize_t ends = len(lines) - 1
    cdef str first = lines[0]
    cdef str status = first[8:].strip(" \t")
    if ends < 2 or lines[ends] or lines[ends - 1] or text.count("\r") != ends or text.count("\n") != ends:
        raise ValueError("a header block whose lines do not end in CR LF, or without an empty line at its end")
    if not first.startswith("NATS/1.0") or (status and first[8] not in " \t"):
        raise ValueError(f"a header block that begins with {first[:40]!r}")
    if status and not (status[:3].isascii() and status[:3].isdigit() and len(status[:3]) == 3 and status[3:4] in " \t"):
        raise ValueError(f"not a status: {status[:40]!r}")
    cdef dict headers = {}
    for line in lines[1:ends - 1]:
        key, colon, value = line.partition(":")
        if not colon or not key:
            raise ValueError(f"not a header line: {line[:40]!r}")
        headers.setdefault(key, []).append(value.lstrip(" \t"))
    return (int(status[:3]) if status else 0), status[3:].strip(" \t"), headers
