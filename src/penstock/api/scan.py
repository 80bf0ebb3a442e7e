"""Where a JSON text is wrong, in the words NATS servers use, and where one document of several
ends.

Called only for texts that the fast decoder refused: it finds the first fault and its offset, or the
ends of the concatenated documents. Works through the text with a stack of its own, so nesting costs
no Python stack. Builds no values.
"""

import re
from collections.abc import Iterator

MAX_DEPTH = 10_000

_BLANKS = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_HEAD = re.compile(r"-?(?:0|[1-9][0-9]*)?(?:(?<=[0-9])\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?)?")
_ESCAPE = re.compile(r'["\\/bfnrt]|u[0-9a-fA-F]{4}')
_WORDS = ("true", "false", "null")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'", "\\": "\\\\"}


class JsonFaultError(ValueError):
    """The text is not JSON; str() is the server's wording."""


def documents(text: str) -> Iterator[str]:
    """The JSON documents that stand one behind another in the text; JsonFaultError where it goes on
    with anything else. Bytes that are no UTF-8 are surrogates, as `surrogateescape` makes them.
    """
    position = _blanks(text, 0)
    while position < len(text):
        end = _document(text, position)
        yield text[position:end]
        position = _blanks(text, end)


def _document(text: str, position: int) -> int:
    """The end of the document that starts here."""
    stack: list[str] = []
    while True:
        position = _blanks(text, position)
        head = text[position : position + 1]
        if head in ("{", "["):
            stack.append(head)
            if len(stack) > MAX_DEPTH:
                raise JsonFaultError("exceeded max depth")
            position = _blanks(text, position + 1)
            if text[position : position + 1] == ("}" if head == "{" else "]"):
                position += 1
                stack.pop()
            else:
                position = _key(text, position) if head == "{" else position
                continue
        else:
            position = _scalar(text, position)
        # a value is complete: what follows it, up the stack
        while stack:
            position = _blanks(text, position)
            head = text[position : position + 1]
            inside = stack[-1]
            if head == ",":
                position += 1
                if inside == "{":
                    position = _key(text, _blanks(text, position))
                break
            if head == ("}" if inside == "{" else "]"):
                position += 1
                stack.pop()
                continue
            where = "object key:value pair" if inside == "{" else "array element"
            raise _unexpected(text, position, f"after {where}")
        else:
            return position


def _key(text: str, position: int) -> int:
    if text[position : position + 1] != '"':
        raise _unexpected(text, position, "looking for beginning of object key string")
    position = _blanks(text, _string(text, position))
    if text[position : position + 1] != ":":
        raise _unexpected(text, position, "after object key")
    return position + 1


def _scalar(text: str, position: int) -> int:
    head = text[position : position + 1]
    if head == '"':
        return _string(text, position)
    if head == "-" or (head in "0123456789" and head):
        return _number(text, position)
    for word in _WORDS:
        if head and word.startswith(head):
            for index, letter in enumerate(word):
                if text[position + index : position + index + 1] != letter:
                    expected = f"in literal {word} (expecting '{letter}')"
                    raise _unexpected(text, position + index, expected)
            return position + len(word)
    raise _unexpected(text, position, "looking for beginning of value")


def _number(text: str, position: int) -> int:
    if match := _NUMBER.match(text, position):
        end = match.end()
        if text[end : end + 1] in (".", "e", "E"):
            head = _NUMBER_HEAD.match(text, position)
            end = head.end() if head else end
            raise _unexpected(text, end, "in numeric literal")
        return end
    raise _unexpected(text, position + 1, "in numeric literal")


def _string(text: str, position: int) -> int:
    position += 1
    while True:
        match = _PLAIN.match(text, position)
        position = match.end() if match else position
        head = text[position : position + 1]
        if head == '"':
            return position + 1
        if head != "\\":
            raise _unexpected(text, position, "in string")
        escape = _ESCAPE.match(text, position + 1)
        if escape is None:
            kind = text[position + 1 : position + 2]
            if not kind or (kind == "u" and position + 6 > len(text)):
                raise JsonFaultError("unexpected EOF")
            sequence = text[position : position + (6 if kind == "u" else 2)]
            read = text[: position + len(sequence)]
            offset = len(read.encode("utf-8", "surrogateescape"))
            what = f"escape sequence `{sequence}` in string"
            raise JsonFaultError(f"invalid {what} at offset {offset}")
        position = escape.end()


def _blanks(text: str, position: int) -> int:
    match = _BLANKS.match(text, position)
    return match.end() if match else position


def _unexpected(text: str, position: int, where: str) -> JsonFaultError:
    if position >= len(text):
        return JsonFaultError("unexpected EOF")
    letter = text[position]
    if letter in _NAMED:
        shown = _NAMED[letter]
    elif letter.isprintable():
        shown = letter
    elif "\udc80" <= letter <= "\udcff":
        shown = f"\\x{ord(letter) - 0xDC00:02x}"
    else:
        shown = f"\\x{ord(letter):02x}" if ord(letter) < 0x80 else f"\\u{ord(letter):04x}"
    offset = len(text[: position + 1].encode("utf-8", "surrogateescape"))
    return JsonFaultError(f"invalid character '{shown}' {where} at offset {offset}")
