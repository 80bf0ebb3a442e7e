"""The end of a JSON document, or its first fault, in plain Python: the twin of core/protocol/json_scan."""

import re

VALUE, KEY, COLON, MEMBER, ELEMENT, NUMBER, STRING, ESCAPE, WORD, DEPTH, DIGIT = range(11)

_BLANKS = re.compile(rb"[ \t\r\n]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_ESCAPED = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {b"t": b"true", b"f": b"false", b"n": b"null"}
_CLOSING = {b"{": b"}", b"[": b"]"}

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(
    r"(?P<kept>\\u[dD][89abAB]..\\u[dD][c-fC-F]..)"  # a pair of them
    r"|(?P<lone>\\u[dD][89a-fA-F]..)"
    r"|\\u....|\\."
    "|(?P<raw>[\ud800-\udfff])",
    re.DOTALL,
)


class _Fault(Exception):
    """(position, fault): where the document is none, and why."""


def document(text: bytes, start: int, depth_max: int) -> tuple[int, int]:
    """(end, -1) of the document that starts here, or (position, fault): one of the constants above."""
    try:
        return _document_end(text, start, depth_max), -1
    except _Fault as fault:
        position, kind = fault.args
        return position, kind


def blanks(text: bytes, start: int) -> int:
    """The first position from here on that is no blank."""
    found = _BLANKS.match(text, start)
    return found.end() if found else start


def unicode_only(text: str, escapes: bool = False) -> str:
    """The same text with each lone surrogate as U+FFFD; `escapes`: those that are written as \\uD800, too."""
    if not escapes:
        return _SURROGATE.sub("\ufffd", text)
    return _ESCAPED_SURROGATE.sub(_whole, text)


def _whole(found: re.Match[str]) -> str:
    if found["lone"]:
        return "\\ufffd"
    return "\ufffd" if found["raw"] else found[0]


def _document_end(text: bytes, start: int, depth_max: int) -> int:
    """The end of the value that starts here: one loop, whose stack are the brackets that are open."""
    at = start
    opened: list[bytes] = []
    keyed = False  # a key must be here
    while True:
        at = blanks(text, at)
        if keyed:
            at = _key_end(text, at)
            keyed = False
        letter = text[at : at + 1]
        if letter in _CLOSING:
            if len(opened) == depth_max:
                raise _Fault(at, DEPTH)
            opened.append(letter)
            at = blanks(text, at + 1)
            if text[at : at + 1] != _CLOSING[letter]:
                keyed = letter == b"{"
                continue
            at += 1
            opened.pop()
        else:
            at = _plain_end(text, at)
        while opened:  # a value is complete: what follows it, up the stack
            at = blanks(text, at)
            letter = text[at : at + 1]
            if letter == b",":
                at += 1
                keyed = opened[-1] == b"{"
                break
            if letter != _CLOSING[opened[-1]]:
                raise _Fault(at, MEMBER if opened[-1] == b"{" else ELEMENT)
            at += 1
            opened.pop()
        else:
            return at


def _key_end(text: bytes, at: int) -> int:
    """Behind the key that must be here, its colon, and the blanks before its value."""
    if text[at : at + 1] != b'"':
        raise _Fault(at, KEY)
    at = blanks(text, _string_end(text, at))
    if text[at : at + 1] != b":":
        raise _Fault(at, COLON)
    return blanks(text, at + 1)


def _plain_end(text: bytes, at: int) -> int:
    """Behind the string, number or word that must be here."""
    letter = text[at : at + 1]
    if letter == b'"':
        return _string_end(text, at)
    if letter == b"-" or letter.isdigit():
        return _number_end(text, at)
    word = _WORDS.get(letter)
    if word is None:
        raise _Fault(at, VALUE)
    for i in range(len(word)):
        if text[at + i : at + i + 1] != word[i : i + 1]:
            raise _Fault(at + i, WORD)
    return at + len(word)


def _string_end(text: bytes, at: int) -> int:
    at += 1
    while True:
        plain = _PLAIN.match(text, at)
        at = plain.end() if plain else at
        letter = text[at : at + 1]
        if letter == b'"':
            return at + 1
        if letter != b"\\":
            raise _Fault(at, STRING)
        escaped = _ESCAPED.match(text, at)
        if escaped is None:
            raise _Fault(at, ESCAPE)
        at = escaped.end()


def _number_end(text: bytes, at: int) -> int:
    """The longest number that begins here; what looks as if it went on is a fault."""
    number = _NUMBER.match(text, at)
    if number is None:
        raise _Fault(at + 1, DIGIT)
    if text[number.end() : number.end() + 1] in (b".", b"e", b"E"):
        raise _Fault(at, NUMBER)
    return number.end()
