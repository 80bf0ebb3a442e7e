"""The messages about the objects of a bucket: read them, and put others in their place.

An object exists once the message with its properties does. That message expects the one that the writer
read, so of two writers of one name each knows whose chunks it replaces, and removes them.

Does not depend on transports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.api import error_from
from pelton.api.errors import ErrorBody
from pelton.api.times import parse_instant
from pelton.errors import (
    MessageNotFoundError,
    NoRespondersError,
    ObjectDamagedError,
    ObjectNotFoundError,
    PeltonError,
    WrongLastSequenceError,
)

from ..base.steps import call, pausing
from .managing import of_bucket
from .models import (
    ObjectInfo,
    ObjectStoreStatus,
    chunk_subject,
    decode_meta,
    encode_meta,
    meta_subject,
    status_of,
    stream_of,
)
from .persisting import passing, persisting

if TYPE_CHECKING:
    from ..base.steps import Steps
    from ..jetstream.streams import Streams
    from ..session.session import Session

PATIENCE_S = 60.0
"""How long a transfer waits for the server before it gives up."""
ROLLUP = {"Nats-Rollup": "sub"}
NOT_FOUND = 404

SEALED = ErrorBody(code=400, err_code=10109, description="invalid operation on sealed stream")


class Properties:
    """One object store: what is known about its objects, and about itself."""

    client: Session[Any]

    def __init__(self, js: Streams[Any], bucket: str) -> None:
        """Sends no request; ValueError for a name that no bucket can have."""
        self._stream = stream_of(bucket)
        self._js = js
        self.client = js.client
        """The client that it belongs to."""
        self.bucket = bucket
        """The bucket's name."""
        self._sealed = False  # as far as this handle knows

    def __repr__(self) -> str:
        """The name of the bucket."""
        return f"<{type(self).__name__} {self.bucket}>"

    def _informing(self, name: str, *, show_deleted: bool = False) -> Steps[ObjectInfo]:
        """The properties of an object or a link; with ``show_deleted`` also of a deleted object.

        In a cluster a replica may lag behind and answer with the object before. Raises ObjectNotFoundError, which is
        what the leader of the stream knows, ObjectDamagedError when the message about it cannot be read,
        ValueError for a name that no object can have.
        """
        info = yield from self._asking_any(name)
        if (info is None or info.deleted) and self.client.clustered:
            info, _ = yield from self._looking(name)  # a replica may not know yet
        if info is None or (info.deleted and not show_deleted):
            raise ObjectNotFoundError(self.bucket, name)
        return info

    info = call(_informing)

    def _asking_any(self, name: str) -> Steps[ObjectInfo | None]:
        """What any replica knows, with one short request."""
        subject = meta_subject(self.bucket, name)
        direct = self._js._plans.subjects.direct_get(self._stream, subject)
        try:
            message = yield from self.client._reading(direct, b"", self._js.timeout)
        except NoRespondersError:  # the stream takes no direct gets
            return (yield from self._looking(name))[0]
        if message.status == NOT_FOUND:
            return None
        stamp = message.header("Nats-Time-Stamp")
        return decode_meta(message.data, self.bucket, parse_instant(stamp) if stamp else 0)

    def _looking(self, name: str) -> Steps[tuple[ObjectInfo | None, int]]:
        """What the stream's leader knows, and the sequence to expect when it is replaced."""
        subject = meta_subject(self.bucket, name)
        try:
            found = yield from self._js._plans.get_message(self._stream, last_by_subject=subject)
        except MessageNotFoundError:
            return None, 0
        try:
            return decode_meta(found.data, self.bucket, found.timestamp_ns), found.seq
        except ObjectDamagedError:
            return None, found.seq  # it is replaced

    def _publishing(self, info: ObjectInfo, expected_seq: int) -> Steps[int]:
        """Store the properties in place of those of a sequence; returns theirs."""
        ack = yield from self._js._publishing(
            meta_subject(self.bucket, info.name),
            encode_meta(info),
            headers=ROLLUP,
            expected_stream=self._stream,
            expected_last_subject_seq=expected_seq,
        )
        return ack.seq

    def _trying(self, info: ObjectInfo, seq: int, deadline: float) -> Steps[bool]:
        """Store the properties; False when the stream has others, or these already, or may have them."""
        try:
            yield from self._publishing(info, seq)
        except WrongLastSequenceError:
            return False
        except PeltonError as error:
            if not passing(error) or self.client._clock() >= deadline:
                raise
            yield from pausing()
            return False
        return True

    def _committing(
        self, info: ObjectInfo, before: ObjectInfo | None, seq: int, patience_s: float
    ) -> Steps[ObjectInfo | None]:
        """Store the properties in place of those that were read; returns what they replaced."""
        deadline = self.client._clock() + patience_s
        while True:
            if (yield from self._trying(info, seq, deadline)):
                return before
            left = deadline - self.client._clock()
            found, seq = yield from persisting(self.client, lambda: self._looking(info.name), left)
            if found is not None and found.nuid == info.nuid and found.deleted == info.deleted:
                return before
            before = found

    def _purging(self, nuid: str, patience_s: float = PATIENCE_S) -> Steps[None]:
        """Remove the chunks of an object."""
        subject = chunk_subject(self.bucket, nuid)
        yield from persisting(
            self.client,
            lambda: self._js._plans.purge_stream(self._stream, filter_subject=subject),
            patience_s,
        )

    def _left(self, nuid: str) -> str:
        """What an error says about chunks that nobody could remove."""
        subject = chunk_subject(self.bucket, nuid)
        return f"chunks of it may have stayed, purge {subject!r} of stream {self._stream!r}"

    def _describing(self) -> Steps[ObjectStoreStatus]:
        """The state of the bucket; BucketNotFoundError when it does not exist any more."""
        info = yield from of_bucket(self.bucket, self._js._plans.stream_info(self._stream))
        return status_of(info)

    status = call(_describing)

    def _check_unsealed(self) -> Steps[None]:
        """Raise what the stream would answer, before the object is sent; another may have made it anew."""
        self._sealed = (yield from self._describing()).sealed
        if self._sealed:
            raise error_from(SEALED)
