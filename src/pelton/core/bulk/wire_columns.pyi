"""Columns of messages that say more, or come otherwise, than a pull consumer's do."""

from pelton.core.bulk.columns import Buffer, Columns

class WireColumns(Columns):
    """Messages of a consumer with their ack subjects, or without their payloads."""

    headers_only: bool
    """Set before the first message: the header that says the size is read and left out, payloads stay empty."""
    replies: bool
    """Set before the first message: ack subjects are kept."""
    payload_sizes: Buffer
    """int64, with ``headers_only``: the bytes of the payload that did not come."""
    reply_offsets: Buffer
    """int32, with ``replies``: row i is ``reply_data[offsets[i]:offsets[i + 1]]``."""
    reply_data: Buffer

class DirectColumns(Columns):
    """Messages that direct gets brought, as they were stored: what the server adds to their headers is left out.

    ``last_pending`` is how many the server has behind the last one.
    """

    stream: bytes
    """Set before the first message: the name of the stream they have to come from."""
    reply: bytes
    """The subject of the answers: messages to others are dropped. b"" for any subject."""
    foreign: bool
    """Whether something came from another one (a mirror answers for it); it is not in the columns."""
