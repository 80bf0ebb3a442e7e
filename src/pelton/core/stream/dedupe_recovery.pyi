"""Recovery of a stream's message ids from its messages, after its log is opened."""

from collections.abc import Iterator

from pelton.core.stream.publish import PublishPath

def recalling(path: PublishPath) -> Iterator[None]:
    """Rebuild the ids inside the duplicate window and the id of the last message; each item is one step."""
