"""The JetStream subjects of one account, handled without Python per message: `$JS.ACK.`, `$JS.FC.` and `$JS.API.`."""

from collections.abc import Callable

from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import Router, Sink
from pelton.core.consumer.consumer import Consumer

PREFIXES: tuple[str, ...]
"""The prefixes of all these subjects."""

class ApiSubjects(Sink):
    """Attached to a Router for PREFIXES: `$JS.ACK.`, `$JS.FC.`, `$JS.API.` and the subjects of the dialects.

    Acks (v1 and v2 subjects, and those of the dialects), `$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>` and
    `$JS.RN.<stream>.<consumer>` go straight to the consumer. A MSG.NEXT for an unknown consumer is not taken, so the requester gets 503.
    Every other `$JS.API.` subject, and every request of a dialect, goes to api().
    """

    def __init__(
        self, router: Router, api: Callable[[Connection | None, str, str, bytes, bytes], bool]
    ) -> None: ...
    def add(self, consumer: Consumer) -> None: ...
    def remove(self, consumer: Consumer) -> None: ...
    max_deliver_advisory: (
        Callable[[Consumer, int, int], None] | None
    )  # (consumer, stream_seq, deliveries)
    nak_advisory: (
        Callable[[Consumer, int, int, int], None] | None
    )  # (consumer, consumer_seq, stream_seq, deliveries)
    term_advisory: Callable[[Consumer, int, int, int, str], None] | None  # (…, reason)
    pin_advisory: (
        Callable[[Consumer, str, str, str], None] | None
    )  # (consumer, group, pin id, "") when pinned; (consumer, group, "", reason) when unpinned
    ack_metric: (
        Callable[[Consumer, int, int, int, int], None] | None
    )  # (consumer, consumer_seq, stream_seq, ack time in ns, deliveries)
    owner: bytes  # `domain.account.` of the longer ack and flow-control subjects; b"": any
    explain_pull: Callable[[bytes], str] | None  # the error of an invalid pull request
