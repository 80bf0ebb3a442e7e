"""Errors that callers of Pelton handle.

::

    PeltonError
    ├── ConnectError                   no server could be reached, or every server refused
    │   └── AuthenticationError        a server refused the credentials
    ├── ConnectionClosedError          the client was closed; no call on it works any more
    │   └── ConnectionLostError        the connection broke while an answer was outstanding
    ├── PeltonTimeoutError             no answer in time (also a builtin TimeoutError)
    ├── NoRespondersError              no subscription for the subject of a request
    ├── SlowConsumerError              a subscription dropped messages because it was read too slowly
    ├── DirectGetError                 a direct get of stored messages was refused; ``status``
    ├── ContextError                   a context of the nats command can't be used (also a ValueError)
    ├── ConsumerBusyError              an ordered consumer runs another operation (also a RuntimeError)
    ├── CallbackFailedError            the callback of a subscription raised ``__cause__``
    ├── OutputFullError                too much output waits for a reconnect
    ├── ProtocolError                  the peer sent bytes that are not the protocol
    ├── ServerError                    the server answered -ERR; ``text`` is its message
    │   └── PermissionsViolationError  ... because the user may not publish or subscribe there
    ├── InvalidSubjectError            a subject that cannot be sent (also a builtin ValueError)
    ├── PayloadTooLargeError           headers and payload exceed the limit (also a ValueError)
    ├── NotJetStreamMessageError       the message was not delivered by a consumer (also a ValueError)
    ├── PullError                      a pull request ended with a status that is an error
    │   └── ConsumerDeletedError       ... because its consumer was deleted
    ├── PublishFailedError             some messages of a publisher were not acknowledged
    ├── ObjectNotFoundError            an object store has no object of that name
    ├── ObjectExistsError              a link or a new name would hide another object
    ├── ObjectDamagedError             an object's chunks are not what its digest says
    ├── ObjectReplacedError            an object was replaced or deleted while it was read
    ├── LinkNotFollowedError           a link leads to a bucket, or to another link
    ├── ServiceError                   a service answered with an error: ``code``, ``description``
    ├── BatchEndedError                a fast batch ended before all of its messages were stored
    ├── BucketNotFoundError            there is no bucket of that name
    ├── BucketExistsError              a bucket of that name exists with another configuration
    ├── BucketReplacedError            the bucket was deleted and created again while it was watched
    ├── BadBucketError                 the stream of that name is no bucket
    ├── InvalidBucketNameError         a name that no bucket may have (also a ValueError)
    ├── InvalidKeyError                a key that no bucket can hold (also a ValueError)
    ├── InvalidValueError              a value that the bucket's codec refuses (also a ValueError)
    ├── NoValueError                   the entry of a deleted key was asked for a value
    ├── GroupError                     about a consumer group: ``stream``, ``group``
    │   ├── GroupNotFoundError         the stream has no consumer group of that name
    │   ├── GroupExistsError           a group of that name exists with another configuration
    │   └── GroupChangedError          the configuration of a group changed as it never may
    ├── NotEnabledError                the bucket or the server does not have the feature
    └── ApiError                       JetStream refused: ``code``, ``err_code``, ``description``
        ├── StreamNotFoundError        10059
        ├── ConsumerNotFoundError      10014
        ├── MessageNotFoundError       10037
        ├── StreamExistsError          10058
        ├── WrongLastSequenceError     10071 and 10164, an expectation of the publisher does not hold
        │   └── RevisionConflictError  ... because a key has another revision than expected
        │       └── KeyExistsError     ... because the key of a create exists
        ├── ConsumerExistsError        10013, 10148
        ├── InvalidStreamConfigError   10052
        ├── JetStreamDisabledError     10039, 10076
        ├── JetStreamUnavailableError  10008, 10009
        ├── MaximumConsumersError      10026
        ├── MaximumStreamsError        10027
        ├── MessageTooLargeError       10054
        ├── NotClusteredError          10010
        ├── ResourcesExceededError     10002, 10023, 10028, 10047
        ├── StreamSealedError          10109
        ├── SubjectsOverlapError       10065
        ├── WrongLastMessageIdError    10070
        ├── WrongStreamError           10060
        └── one class for each other error code, in ``pelton.api.errors_generated``

This module does not depend on connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class PeltonError(Exception):
    """Base of all errors of this package that a caller may handle."""


class ConnectError(PeltonError):
    """No server could be reached, or every server refused; the text gives the reason for each."""


class AuthenticationError(ConnectError):
    """A server refused the credentials, or the client could not get them from the program or a file.

    ``by_server`` tells which. A client that reconnects gives up a server that refuses them twice in a row;
    it goes on trying while it cannot get them.
    """

    by_server = True


class ConnectionClosedError(PeltonError):
    """The client was closed, by its owner or because no server could be reached again.

    ``subject`` is the subject of a subscription that ended with the client, else "".
    """

    def __init__(self, text: str = "", subject: str = "") -> None:
        """`text` gives the reason."""
        super().__init__(text)
        self.subject = subject


class ConnectionLostError(ConnectionClosedError):
    """The connection broke while an answer was outstanding; whether the server acted is unknown."""


class PeltonTimeoutError(PeltonError, TimeoutError):
    """No answer arrived in time."""


class NoRespondersError(PeltonError):
    """The subject of a request has no subscription."""

    def __init__(self, subject: str, why: str = "") -> None:
        """`subject` is the subject of the request; `why` says who should have answered."""
        super().__init__(f"no responders on {subject!r}{': ' if why else ''}{why}")
        self.subject = subject
        self.why = why

    def __reduce__(self) -> tuple[type[NoRespondersError], tuple[str, str]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.subject, self.why)


class SlowConsumerError(PeltonError):
    """A subscription dropped ``dropped`` messages because its pending limits were reached."""

    def __init__(self, subject: str, dropped: int) -> None:
        """The subscription's subject, and how many messages it dropped."""
        super().__init__(f"slow consumer: {dropped} messages dropped on {subject!r}")
        self.subject = subject
        self.dropped = dropped

    def __reduce__(self) -> tuple[type[SlowConsumerError], tuple[str, int]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.subject, self.dropped)


class ContextError(PeltonError, ValueError):
    """A context of the ``nats`` command is missing, is not readable, or has what the client can't use."""


class ConsumerBusyError(PeltonError, RuntimeError):
    """An ordered consumer was given a second operation before the first one ended."""


class CallbackFailedError(PeltonError):
    """The callback of a subscription raised an exception.

    ``subject`` is the subscription's subject, ``message`` the callback's argument, ``__cause__``
    the exception.
    """

    def __init__(self, text: str, subject: str = "", message: object = None) -> None:
        """The text contains all three."""
        super().__init__(text)
        self.subject = subject
        self.message = message


class OutputFullError(PeltonError):
    """Too much output waits for a reconnect; the message was not accepted."""


class ProtocolError(PeltonError):
    """The peer sent bytes that are not the protocol."""


class ServerError(PeltonError):
    """The server answered ``-ERR``; ``text`` is its message without the quotes."""

    def __init__(self, text: str) -> None:
        """`text` is the message without quotes."""
        super().__init__(text)
        self.text = text


class PermissionsViolationError(ServerError):
    """The user may not publish or subscribe to a subject; the connection stays open."""


class InvalidSubjectError(PeltonError, ValueError):
    """A subject that cannot be sent: an empty token, a blank, or a wildcard in a literal."""


class PayloadTooLargeError(PeltonError, ValueError):
    """Headers and payload together exceed the limit of the server."""


class NotJetStreamMessageError(PeltonError, ValueError):
    """The message was not delivered by a consumer: its reply subject is not an ack subject."""


class PullError(PeltonError):
    """A pull request ended with an error status; ``status`` and ``description`` are the server's."""

    def __init__(self, status: int, description: str) -> None:
        """Status and description from the server."""
        super().__init__(f"pull request ended: {status} {description}")
        self.status = status
        self.description = description

    def __reduce__(self) -> tuple[type[PullError], tuple[int, str]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.status, self.description)


class ConsumerDeletedError(PullError):
    """A pull request ended because its consumer was deleted."""


class PublishFailedError(PeltonError):
    """Some messages of a publisher were not acknowledged.

    ``failures`` has (subject, message id or "", error) for each, in the order of the failures.
    """

    def __init__(self, failures: Sequence[tuple[str, str, Exception]]) -> None:
        """`failures` has at least one entry."""
        first = failures[0]
        super().__init__(
            f"{len(failures)} messages not acknowledged; first: {first[0]!r}: {first[2]}"
        )
        self.failures = list(failures)

    def __reduce__(
        self,
    ) -> tuple[type[PublishFailedError], tuple[list[tuple[str, str, Exception]]]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.failures,)


class DirectGetError(PeltonError):
    """A direct get was refused; ``status`` and ``description`` are the server's.

    413: more than 1024 subjects match. 408: the request is not one that the server knows.
    """

    def __init__(self, status: int, description: str) -> None:
        """Status and description from the server."""
        super().__init__(f"the direct get was refused: {status} {description}")
        self.status = status
        self.description = description

    def __reduce__(self) -> tuple[type[DirectGetError], tuple[int, str]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.status, self.description)


class BatchEndedError(PeltonError):
    """A fast batch ended early: of ``sent`` messages the first ``count`` are stored.

    ``failures`` names the message that the stream refused, and the error; it is empty when messages
    were lost on the way to the server.
    """

    def __init__(
        self, sent: int, count: int, failures: Sequence[tuple[int, PeltonError]] = ()
    ) -> None:
        """Numbers of messages; failures as (number of the message, error)."""
        why = f": message {failures[0][0]}: {failures[0][1]}" if failures else ""
        super().__init__(f"the batch ended after {count} of {sent} messages{why}")
        self.sent = sent
        self.count = count
        self.failures = list(failures)

    def __reduce__(self) -> tuple[type[BatchEndedError], tuple[object, ...]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.sent, self.count, self.failures)


class ObjectNotFoundError(PeltonError):
    """An object store has no object of that name, or it was deleted.

    ``bucket`` and ``name`` say which.
    """

    def __init__(self, bucket: str, name: str) -> None:
        """The bucket, and the name that it does not have."""
        super().__init__(f"bucket {bucket!r} has no object {name!r}")
        self.bucket = bucket
        self.name = name

    def __reduce__(self) -> tuple[type[ObjectNotFoundError], tuple[str, str]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.bucket, self.name)


class ObjectExistsError(PeltonError):
    """A link or a new name would hide another object; delete that one first."""


class ObjectDamagedError(PeltonError):
    """An object's chunks are not what its properties say; the object must be put again."""


class ObjectReplacedError(PeltonError):
    """An object was replaced or deleted while it was read; read it again."""


class LinkNotFollowedError(PeltonError):
    """A link leads to a bucket, or to another link; open its target from ``info(name).link``."""


class ServiceError(PeltonError):
    """A service answers with an error; a handler raises it, and a call of the service gets it.

    ``code`` and ``description`` are the service's own; ``data`` is the payload.
    """

    def __init__(self, code: str, description: str, data: bytes = b"") -> None:
        """A code such as "400", and a line that says what is wrong."""
        super().__init__(f"{code}: {description}")
        self.code = code
        self.description = description
        self.data = data

    def __reduce__(self) -> tuple[type[ServiceError], tuple[str, str, bytes]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.code, self.description, self.data)


class ApiError(PeltonError):
    """JetStream answered with an error; ``pelton.api.errors_generated`` has a class for each
    documented one.

    ``code`` is the HTTP-like class (404, 400, 503 ...), ``err_code`` the exact error (10059 ...; 0
    when the server gave none), ``description`` its text.
    """

    code: int
    err_code: int
    description: str


class StreamNotFoundError(ApiError):
    """There is no stream with that name."""


class ConsumerNotFoundError(ApiError):
    """The stream has no consumer with that name."""


class MessageNotFoundError(ApiError):
    """The stream has no message with that sequence or subject."""


class StreamExistsError(ApiError):
    """A stream with that name exists with another configuration."""


class WrongLastSequenceError(ApiError):
    """The expected last sequence does not match; no message was stored."""


class ConsumerExistsError(ApiError):
    """The stream has a consumer with that name."""


class InvalidStreamConfigError(ApiError):
    """The server refuses the configuration of a stream; ``description`` says which part."""


class JetStreamDisabledError(ApiError):
    """The account or the server has no JetStream."""


class JetStreamUnavailableError(ApiError):
    """The cluster can't answer now, e.g. because it elects a leader: try again."""


class MaximumConsumersError(ApiError):
    """The stream or the account has as many consumers as it may have."""


class MaximumStreamsError(ApiError):
    """The account has as many streams as it may have."""


class MessageTooLargeError(ApiError):
    """The message is larger than the stream's ``max_msg_size``; it was not stored."""


class NotClusteredError(ApiError):
    """Only a cluster of servers has this call."""


class ResourcesExceededError(ApiError):
    """The account or the server has no room left for that."""


class StreamSealedError(ApiError):
    """The stream is sealed: nothing in it can change."""


class SubjectsOverlapError(ApiError):
    """Another stream stores some of these subjects."""


class WrongLastMessageIdError(ApiError):
    """The expected id of the last message does not match; no message was stored."""


class WrongStreamError(ApiError):
    """Another stream than the expected one takes the subject; no message was stored."""


class RevisionConflictError(WrongLastSequenceError):
    """A key of a bucket has another revision than the writer expects; nothing was stored.

    ``bucket``, ``key`` ("" for a transaction: one of its keys), and the expected ``revision``.
    To resolve it, get the entry, decide again, and update with its revision.
    """

    advice = "get the key, decide again, and update it with the entry's revision"

    def __init__(
        self, bucket: str, key: str, revision: int, err_code: int = 10071, why: str = ""
    ) -> None:
        """``revision``: the expected one; ``why``: the server's description."""
        what = f"key {key!r}" if key else "one of the keys"
        text = f"{what} of bucket {bucket!r} {self._expected(revision)}: {self.advice}"
        super().__init__(f"{text} ({why})" if why else text)
        self.bucket = bucket
        self.key = key
        self.revision = revision
        self.code = 400
        self.err_code = err_code
        self.description = why or text
        self._why = why

    def _expected(self, revision: int) -> str:
        return f"is not at revision {revision}" if revision else "has changed"

    def __reduce__(self) -> tuple[type[RevisionConflictError], tuple[object, ...]]:
        """Copies and pickles rebuild the error from its parts."""
        parts = (self.bucket, self.key, self.revision, self.err_code, self._why)
        return type(self), parts


class KeyExistsError(RevisionConflictError):
    """The key of a create has a value already; nothing was stored."""

    advice = "update it with its revision, or put the value whatever the key holds"

    def _expected(self, revision: int) -> str:
        return "exists"


class BucketNotFoundError(PeltonError):
    """There is no bucket of that name; ``bucket`` is the name."""

    def __init__(self, bucket: str) -> None:
        """`bucket` is the name."""
        super().__init__(f"there is no bucket {bucket!r}: create it, or check the name and domain")
        self.bucket = bucket

    def __reduce__(self) -> tuple[type[BucketNotFoundError], tuple[str]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.bucket,)


class BucketExistsError(PeltonError):
    """A bucket of that name exists with another configuration; ``bucket`` is the name."""

    def __init__(self, bucket: str) -> None:
        """`bucket` is the name."""
        super().__init__(
            f"bucket {bucket!r} exists with another configuration: open it as it is, or update it"
        )
        self.bucket = bucket

    def __reduce__(self) -> tuple[type[BucketExistsError], tuple[str]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.bucket,)


class BucketReplacedError(PeltonError):
    """The bucket was deleted and created again while it was watched: begin a new watch."""


class BadBucketError(PeltonError):
    """The stream of that name does not store the keys of a bucket."""


class InvalidBucketNameError(PeltonError, ValueError):
    """A name that no bucket may have: it needs letters, digits, - and _ only."""


class InvalidKeyError(PeltonError, ValueError):
    """A key that no bucket can hold, or a filter that matches no key."""


class InvalidValueError(PeltonError, ValueError):
    """A value that the codec of the bucket cannot encode or decode; ``__cause__`` says why."""


class NoValueError(PeltonError, ValueError):
    """The entry has no value: the key was deleted, or the watch is one without values."""


class NotEnabledError(PeltonError):
    """The bucket does not allow an operation, or the server does not know it or a field of a configuration.

    Nothing was stored, unless the text says what the server has made without the field.
    """


class GroupError(PeltonError):
    """Base of the errors about one consumer group: ``stream`` and ``group`` are its names."""

    text = "{group} {stream}"

    def __init__(self, stream: str, group: str, why: str = "") -> None:
        """`why` is the reason, where there are several."""
        super().__init__(self.text.format(stream=stream, group=group, why=why))
        self.stream = stream
        self.group = group
        self._why = why

    def __reduce__(self) -> tuple[type[GroupError], tuple[str, str, str]]:
        """Copies and pickles rebuild the error from the same arguments."""
        return type(self), (self.stream, self.group, self._why)


class GroupNotFoundError(GroupError):
    """The stream has no consumer group of that name; ``stream`` and ``group`` are the names."""

    text = "stream {stream!r} has no consumer group {group!r}: create it, or check the names"


class GroupExistsError(GroupError):
    """A consumer group of that name exists with another configuration; nothing was changed."""

    text = (
        "stream {stream!r} has a consumer group {group!r} with another configuration: "
        "open it as it is, or delete it first"
    )


class GroupChangedError(GroupError):
    """The configuration of a consumer group changed as it never may: its members stop."""

    text = "consumer group {group!r} of stream {stream!r} cannot go on: {why}"


def not_installed(missing: ImportError, extra: str) -> ModuleNotFoundError:
    """The error for an optional library: its text names the line that installs ``extra``.

    A text that names such a line already, of a package further down, stays as it is.
    """
    text = str(missing)
    if "pip install" not in text:
        text = f"{text}; pip install 'pelton[{extra}]'"
    return ModuleNotFoundError(text, name=missing.name)
