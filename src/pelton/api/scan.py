"""Finds the error in a JSON text, in the words of NATS servers, and the end of each document.

Called only for texts that the fast decoder refused. `core/protocol/json_scan` finds the first error,
or the ends of concatenated documents; this module adds the words and offsets. It builds no values.
"""

import re
from collections.abc import Iterator

from pelton.core.protocol import json_scan

MAX_DEPTH = 10_000

_NUMBER_HEAD = re.compile(rb"-?(?:0|[1-9][0-9]*)?(?:(?<=[0-9])\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?)?")
_WORDS = ("true", "false", "null")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'", "\\": "\\\\"}
_WHERE = {
    json_scan.VALUE: "looking for beginning of value",
    json_scan.KEY: "looking for beginning of object key string",
    json_scan.COLON: "after object key",
    json_scan.MEMBER: "after object key:value pair",
    json_scan.ELEMENT: "after array element",
    json_scan.NUMBER: "in numeric literal",
    json_scan.DIGIT: "in numeric literal",
    json_scan.STRING: "in string",
}
_GOOD = -1
_LETTER_MOST = 4  # bytes of a character


class JsonFaultError(ValueError):
    """The text is not JSON; str() is the server's wording."""


def documents(text: bytes) -> Iterator[bytes]:
    """The JSON documents that follow one another in the text.

    JsonFaultError if anything else follows.
    """
    position = json_scan.blanks(text, 0)
    while position < len(text):
        end, fault = json_scan.document(text, position, MAX_DEPTH)
        if fault != _GOOD:
            raise _fault(text, end, fault)
        yield text[position:end]
        position = json_scan.blanks(text, end)


def first_end(text: bytes) -> int:
    """The end of the first document; -1: there is none."""
    start = json_scan.blanks(text, 0)
    end, fault = json_scan.document(text, start, MAX_DEPTH)
    return end if fault == _GOOD else -1


def _fault(text: bytes, position: int, fault: int) -> JsonFaultError:
    if fault == json_scan.DEPTH:
        return JsonFaultError("exceeded max depth")
    if fault == json_scan.ESCAPE:
        return _escape(text, position)
    if fault == json_scan.WORD:
        return _word(text, position)
    if fault == json_scan.NUMBER:
        head = _NUMBER_HEAD.match(text, position)
        position = head.end() if head else position
    return _unexpected(text, position, _WHERE[fault])


def _escape(text: bytes, position: int) -> JsonFaultError:
    kind = text[position + 1 : position + 2]
    if not kind or (kind == b"u" and position + 6 > len(text)):
        return JsonFaultError("unexpected EOF")
    tail = text[position : position + 6 * _LETTER_MOST].decode("utf-8", "surrogateescape")
    sequence = tail[: 6 if kind == b"u" else 2]
    offset = position + len(sequence.encode("utf-8", "surrogateescape"))
    what = f"escape sequence `{sequence}` in string"
    return JsonFaultError(f"invalid {what} at offset {offset}")


def _word(text: bytes, position: int) -> JsonFaultError:
    for word in _WORDS:
        for length in range(len(word) - 1, 0, -1):
            if text[max(position - length, 0) : position] == word[:length].encode():
                where = f"in literal {word} (expecting '{word[length]}')"
                return _unexpected(text, position, where)
    raise AssertionError("no word was begun")


def _unexpected(text: bytes, position: int, where: str) -> JsonFaultError:
    if position >= len(text):
        return JsonFaultError("unexpected EOF")
    # the cut may fall inside a character; that changes this character only, not the first one
    letter = text[position : position + _LETTER_MOST].decode("utf-8", "surrogateescape")[0]
    if letter in _NAMED:
        shown = _NAMED[letter]
    elif letter.isprintable():
        shown = letter
    elif "\udc80" <= letter <= "\udcff":
        shown = f"\\x{ord(letter) - 0xDC00:02x}"
    else:
        shown = f"\\x{ord(letter):02x}" if ord(letter) < 0x80 else f"\\u{ord(letter):04x}"
    offset = position + len(letter.encode("utf-8", "surrogateescape"))
    return JsonFaultError(f"invalid character '{shown}' {where} at offset {offset}")
