"""The head of an HTTP/1 message: its first line and its headers.

The monitoring port, the WebSocket listener and the calls to WebSocket servers parse heads here. The
parser accepts a head with malformed header lines and marks it; each caller decides whether to refuse
it. Pure: bytes in, values out.
"""

from typing import NamedTuple

MAX_HEAD_BYTES = 16 * 1024
END = b"\r\n\r\n"
_BLANK = " \t"


class Head(NamedTuple):
    """A first line and headers; the names of headers are in lower case."""

    line: str
    headers: dict[str, list[str]]  # values in the order of the head
    malformed: bool  # a header line has no colon, no name, or space around its name

    def first(self, name: str) -> str:
        """The first value of a header; empty when the head has no such header."""
        values = self.headers.get(name)
        return values[0] if values else ""

    def last(self, name: str) -> str:
        """The last value of a header; empty when the head has no such header."""
        values = self.headers.get(name)
        return values[-1] if values else ""

    def words(self, name: str, *separators: str) -> list[str]:
        """The words of a header's lists in lower case; each separator divides the list further."""
        parts = self.headers.get(name, [])
        for separator in separators or (",",):
            parts = [part for text in parts for part in text.split(separator)]
        return [part.strip(_BLANK).lower() for part in parts]

    def request(self) -> tuple[str, str, str] | None:
        """Method, target and version of an HTTP/1 request; None when the first line is not one."""
        words = self.line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return None
        return words[0], words[1], words[2]

    def status(self) -> str:
        """The status of an HTTP/1 response; empty when the first line is not one."""
        words = self.line.split(" ", 2)
        return words[1] if len(words) > 1 and words[0].startswith("HTTP/1.") else ""


def parse_head(head: bytes) -> Head:
    """Parse a head, given with or without the empty line at its end."""
    line, *rest = head.removesuffix(END).decode("latin-1").split("\r\n")
    headers: dict[str, list[str]] = {}
    malformed = False
    for each in rest:
        given, colon, value = each.partition(":")
        name = given.strip()
        if not colon or not name or name != given:
            malformed = True
        name = name.lower()
        if name in headers:
            headers[name].append(value.strip(_BLANK))
        else:
            headers[name] = [value.strip(_BLANK)]
    return Head(line, headers, malformed)
