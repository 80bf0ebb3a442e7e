"""The answers of direct get: stored messages, with stream, subject, sequence and time in their headers."""

from collections.abc import Callable

from pelton.core.stream.stream import Stream

class Answers:
    """Answers the direct gets of one stream, each as soon as the stream is durable up to the messages in the answer."""

    stream: Stream
    def __init__(self, stream: Stream) -> None: ...
    def status(self, reply: str, line: str) -> None:
        """Answer with a status, such as `404 Message Not Found`."""
    def failed(self, reply: str, why: str) -> None:
        """Answer that the disk could not read the messages, in place of the part of the answer that is composed."""
    def message(self, reply: str, seq: int, bare: bool) -> bool:
        """Answer with one message; `bare`: without headers. False (and no answer) when there is no such message."""
    def batch(
        self, reply: str, pattern: str, seq: int, count: int, most_bytes: int, bare: bool
    ) -> bool:
        """Answer with up to `count` messages from `seq` on whose subjects match, then the end of the batch.

        The batch ends with the message that reaches `most_bytes` (subject, headers and payload count). False (and no answer) when there is none.
        """
    def each(
        self, reply: str, seqs: list[int], start: int, count: int, most_bytes: int, upto: int
    ) -> None:
        """Answer with the messages of these sequences from `start` on, then the end of the batch, which names `upto`.

        The batch has at most `count` messages (0: all), and also ends as in batch().
        """
    def is_full(self) -> bool:
        """Whether a further answer may have to wait, and those that wait have reached a connection's
        max_pending: requests wait instead.
        """
    def when_visible(self, seq: int, then: Callable[[], object], size: int = 0) -> None:
        """Call then() when the stream is durable up to a sequence as promised: now, or in the delivery phase of a later turn.

        `size`: the bytes that then() holds, which count as those of answers.
        """
