"""Text between quotation marks as Go's ``%q`` writes it: what nats-server does in -ERR
texts and log lines.

Knows nothing of what is quoted. Pure; for rare messages.
"""

_ESCAPED = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quoted_letter(letter: str) -> str:
    """A character as it stands between the quotes; a ``surrogateescape`` is a byte, no UTF-8."""
    if letter in _ESCAPED:
        return _ESCAPED[letter]
    if letter.isprintable():
        return letter
    number = ord(letter)
    if number < 0x80:
        return f"\\x{number:02x}"
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def quoted(text: bytes) -> str:
    """Bytes that came from a peer, between quotation marks."""
    return f'"{"".join(map(quoted_letter, text.decode("utf-8", "surrogateescape")))}"'
