"""Makes text that a peer has chosen safe to show: in quotation marks as Go's ``%q`` writes it (nats-server
does this in -ERR texts and log lines), or unchanged except for the characters that control a terminal.

Does not depend on the meaning of the text. Pure; for rare messages.
"""

_MOST = 4096
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


def quoted(text: bytes | str) -> str:
    """What came from a peer, between quotation marks; the first 4096 letters of it."""
    text = text[:_MOST]
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return f'"{"".join(map(quoted_letter, text))}"'


def shown(text: str) -> str:
    """A text on one line that no terminal obeys: control characters (ESC, BEL, C1), line ends, marks
    of direction and bytes that are no UTF-8 are written as escapes; all else stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else quoted_letter(c) for c in text)
