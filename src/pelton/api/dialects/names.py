"""Which dialect a stream or a consumer speaks: a key of its metadata.

A stream with a dialect answers publishes with `+OK` and `-ERR`; a consumer with one has the ack
subjects of that time. Both are stamped when they are created by a request of the dialect.
"""

from collections.abc import Mapping

KEY = "_js.dialect"
MSGSETS = "2019"
"""December 2019: message sets and observables; errors are `-ERR text`."""
STREAMS = "2020"
"""January to April 2020: streams and consumers; errors are `-ERR 'text'`."""


def dialect_of(metadata: Mapping[str, str]) -> str:
    """The dialect that the metadata names: MSGSETS, STREAMS, or "" for today's API."""
    found = metadata.get(KEY, "")
    return found if found in (MSGSETS, STREAMS) else ""
