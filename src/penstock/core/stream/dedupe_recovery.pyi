"""After opening a log: the message ids of a stream, read back from its messages."""

from collections.abc import Iterator

from penstock.core.stream.stream import Stream

def recalling(stream: Stream) -> Iterator[None]:
    """Fill the ids inside the duplicate window and the id of the last message anew, a step for each item."""
