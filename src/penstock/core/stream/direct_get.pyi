"""The answers of direct get: stored messages as they are, with what the reader should know in their headers."""

from collections.abc import Callable

from penstock.core.stream.stream import Stream

class Answers:
    """Answers direct gets of one stream, each as soon as the stream is durable up to what it shows."""

    stream: Stream
    def __init__(self, stream: Stream) -> None: ...
    def status(self, reply: str, line: str) -> None:
        """Answer with a status, such as `404 Message Not Found`."""
    def failed(self, reply: str, why: str) -> None:
        """Answer that the disk did not give the messages back, instead of with what there is of the answer."""
    def message(self, reply: str, seq: int, bare: bool) -> bool:
        """Answer with one message; `bare`: without any header. False (and no answer): it is not there."""
    def batch(
        self, reply: str, pattern: str, seq: int, count: int, most_bytes: int, bare: bool
    ) -> bool:
        """Answer with up to `count` messages from `seq` on whose subjects match, and the end.

        It ends with the message that reaches `most_bytes` (subject, headers and payload count). False (and no answer): there is none.
        """
    def each(
        self, reply: str, seqs: list[int], start: int, count: int, most_bytes: int, upto: int
    ) -> None:
        """Answer with the messages of these sequences, those below `start` left out, and the end, which names `upto`.

        At most `count` of them (0: all); it ends as a batch does.
        """
    def when_visible(self, seq: int, then: Callable[[], object]) -> None:
        """Call then() when the stream is as durable as it promises up to a sequence: now, or later in a turn's deliveries."""
