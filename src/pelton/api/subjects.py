"""Subjects of the JetStream API: builds them for clients, and parses ack subjects.

They are `$JS.API.<call>` in the client's own account, `$JS.<domain>.API.<call>` for a domain, or
begin with the prefix of an import.
"""

from typing import NamedTuple

API_PREFIX = "$JS.API"
ACK_PREFIX = "$JS.ACK"
ADVISORY_PREFIX = "$JS.EVENT.ADVISORY"
METRIC_PREFIX = "$JS.EVENT.METRIC"

_BAD_NAME = frozenset(" \t\r\n\f.*>\\/")


class Api:
    """Builds the subjects of one API prefix; checks names, so that a call can't reach another
    subject.
    """

    def __init__(self, prefix: str = API_PREFIX) -> None:
        """Any prefix, without the last dot; ValueError if it is not a literal subject."""
        _check_text(prefix, "prefix")
        if not prefix or any(not token or token in ("*", ">") for token in prefix.split(".")):
            raise ValueError(f"not an API prefix: {prefix!r}")
        self.prefix = prefix

    @classmethod
    def of_domain(cls, domain: str) -> "Api":
        """The API of a JetStream domain; "" is the client's own."""
        return cls(f"$JS.{_name(domain, 'domain')}.API") if domain else cls()

    def info(self) -> str:
        """Account information."""
        return f"{self.prefix}.INFO"

    def stream(self, call: str, stream: str = "") -> str:
        """STREAM.<call>[.<stream>], e.g. ("MSG.GET", "ORDERS")."""
        tail = f".{_name(stream, 'stream')}" if stream else ""
        return f"{self.prefix}.STREAM.{call}{tail}"

    def consumer(self, call: str, stream: str, consumer: str = "") -> str:
        """CONSUMER.<call>.<stream>[.<consumer>], e.g. ("INFO", "ORDERS", "billing")."""
        tail = f".{_name(consumer, 'consumer')}" if consumer else ""
        return f"{self.prefix}.CONSUMER.{call}.{_name(stream, 'stream')}{tail}"

    def create_consumer(self, stream: str, consumer: str, filter_subject: str = "") -> str:
        """CONSUMER.CREATE.<stream>.<consumer>[.<filter>].

        The filter is in the subject, so that permissions can name it.
        """
        tail = f".{filter_subject}" if filter_subject and filter_subject != ">" else ""
        return self.consumer("CREATE", stream, consumer) + tail

    def next_message(self, stream: str, consumer: str) -> str:
        """CONSUMER.MSG.NEXT, for pull requests."""
        return self.consumer("MSG.NEXT", stream, consumer)

    def direct_get(self, stream: str, last_by_subject: str = "") -> str:
        """DIRECT.GET.<stream>[.<subject>]."""
        tail = f".{last_by_subject}" if last_by_subject else ""
        return f"{self.prefix}.DIRECT.GET.{_name(stream, 'stream')}{tail}"


class AckSubject(NamedTuple):
    """The fields of an ack subject: the reply subject of a delivered message.

    Example::

        message = js.consumer("ORDERS", "packing").next()
        print(message.metadata.stream_seq, message.metadata.delivered)
        message.nak()
    """

    domain: str
    account_hash: str
    stream: str
    consumer: str
    delivered: int
    stream_seq: int
    consumer_seq: int
    timestamp_ns: int
    pending: int


def parse_ack(subject: str) -> AckSubject | None:
    """Parse both forms: 9 tokens, or 11 and more with domain and account; else None."""
    tokens = subject.split(".")
    if len(tokens) < 9 or len(tokens) == 10 or tokens[0] != "$JS" or tokens[1] != "ACK":
        return None
    domain, account, first = "", "", 2
    if len(tokens) > 10:
        domain, account, first = ("" if tokens[2] == "_" else tokens[2]), tokens[3], 4
    numbers = tokens[first + 2 : first + 7]
    if not all(token.isascii() and token.isdigit() for token in numbers):
        return None
    delivered, stream_seq, consumer_seq, timestamp, pending = (int(token) for token in numbers)
    return AckSubject(
        domain,
        account,
        tokens[first],
        tokens[first + 1],
        delivered,
        stream_seq,
        consumer_seq,
        timestamp,
        pending,
    )


def valid_name(name: str) -> bool:
    """Whether a stream or consumer may have this name (apart from its length)."""
    return bool(name) and _BAD_NAME.isdisjoint(name)


def _name(name: str, what: str) -> str:
    _check_text(name, what)
    if not valid_name(name):
        raise ValueError(
            f"{what} name {name!r} must not be empty nor have blanks or any of . * > / \\ in it"
        )
    return name


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} is text, not {type(text).__name__} ({text!r})")
