"""Objects of an object store as messages, in the same form as NATS clients write them.

::

    $O.<bucket>.C.<nuid>             chunks of 128 KiB, in order
    $O.<bucket>.M.<base64url(name)>  the object's properties as JSON; replaces the previous ones

An object exists once its meta message does, so readers never see half an object. The writer chooses
the id of the chunks, so that a write that was cut off can be recognized and its chunks removed. A
meta message expects the previous one to be the one that the writer read: with several writers of one
name, each knows which object it replaces and whose chunks it has to remove.

Does not depend on Spark.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from pelton.errors import MessageNotFoundError, PeltonError, WrongLastSequenceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pelton.client.sync.jetstream import JetStream

STREAM_PREFIX = "OBJ_"
CHUNK_BYTES = 128 * 1024
_IN_FLIGHT_BYTES = 8 * 2**20
_API = "$JS.API"


class MetaOptions(msgspec.Struct, omit_defaults=True):
    """The size of an object's chunks."""

    max_chunk_size: int = 0


class Meta(msgspec.Struct, kw_only=True):
    """The properties of an object; zeros are written, because readers tell an empty object by them."""

    name: str
    bucket: str = ""
    nuid: str = ""
    size: int = 0
    chunks: int = 0
    mtime: str = ""
    digest: str = ""
    deleted: bool | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET
    headers: dict[str, list[str]] | msgspec.UnsetType | None = msgspec.UNSET
    options: MetaOptions | msgspec.UnsetType | None = msgspec.UNSET

    @property
    def is_deleted(self) -> bool:
        """Whether the object is deleted and only its meta message is left."""
        return self.deleted is True


class ObjectStore:
    """One object store; ``js`` is the JetStream that has it."""

    def __init__(self, js: JetStream, bucket: str, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Sends no request."""
        self._js = js
        self._bucket = bucket
        self._stream = STREAM_PREFIX + bucket
        self._chunk_bytes = chunk_bytes
        prefix = js.subjects.prefix
        self._published = "" if prefix == _API else f"{prefix}."

    def info(self, name: str) -> Meta | None:
        """The properties of an object, also of a deleted one; None when it never existed."""
        return self._look(name)[0]

    def _look(self, name: str) -> tuple[Meta | None, int]:
        """The properties of an object, and the sequence of its meta message, or 0."""
        try:
            found = self._js.get_message(self._stream, last_by_subject=self._meta_subject(name))
        except MessageNotFoundError:
            return None, 0
        try:
            return msgspec.json.decode(found.data, type=Meta), found.seq
        except msgspec.MsgspecError:
            return None, found.seq  # not a meta message: it is replaced

    def put(
        self,
        name: str,
        data: bytes | memoryview,
        nuid: str,
        *,
        description: str = "",
        headers: Mapping[str, Sequence[str]] | None = None,
        earlier: Collection[str] = (),
    ) -> bool:
        """Store an object; False when it is stored already with this id, or with one of ``earlier``
        attempts.

        Raises the errors of publishing; the chunks are removed then, as far as possible.
        """
        same = {nuid, *earlier}
        before, seq = self._look(name)
        if before is not None and before.nuid in same and not before.is_deleted:
            return False
        view = memoryview(data)
        self._drop_chunks(nuid)
        try:
            chunks = self._publish_chunks(view, nuid)
            digest = base64.urlsafe_b64encode(hashlib.sha256(view).digest()).decode()
            meta = Meta(
                name=name,
                bucket=self._bucket,
                nuid=nuid,
                size=len(view),
                chunks=chunks,
                mtime=datetime.now(UTC).isoformat(),
                digest=f"SHA-256={digest}",
                description=description or msgspec.UNSET,
                headers={key: list(values) for key, values in (headers or {}).items()}
                or msgspec.UNSET,
                options=MetaOptions(self._chunk_bytes),
            )
            while True:
                with contextlib.suppress(WrongLastSequenceError):
                    self._publish_meta(meta, seq)
                    break
                before, seq = self._look(name)
                if before is not None and before.nuid in same and not before.is_deleted:
                    if before.nuid != nuid:
                        self._drop_chunks(nuid)
                    return False
        except PeltonError:
            with contextlib.suppress(PeltonError):
                self._drop_chunks(nuid)
            raise
        for old in {*earlier, before.nuid if before is not None else ""} - {nuid, ""}:
            self._drop_chunks(old)
        return True

    def delete(self, name: str) -> bool:
        """Mark an object as deleted, and remove its chunks; False when there is none."""
        before, seq = self._look(name)
        if before is None or before.is_deleted:
            return False
        gone = msgspec.structs.replace(
            before,
            deleted=True,
            size=0,
            chunks=0,
            digest="",
            mtime=datetime.now(UTC).isoformat(),
        )
        try:
            self._publish_meta(gone, seq)
        except WrongLastSequenceError:
            return self.delete(name)
        self._drop_chunks(before.nuid)
        return True

    def _publish_chunks(self, data: memoryview, nuid: str) -> int:
        subject = f"{self._published}$O.{self._bucket}.C.{nuid}"
        size = self._chunk_bytes
        window = max(1, _IN_FLIGHT_BYTES // size)
        with self._js.publisher(window=window) as publisher:
            for start in range(0, len(data), size):
                publisher.publish(subject, bytes(data[start : start + size]))
        return -(-len(data) // size)

    def _publish_meta(self, meta: Meta, replaced: int) -> None:
        subject = self._published + self._meta_subject(meta.name)
        self._js.publish(
            subject,
            msgspec.json.encode(meta),
            headers={"Nats-Rollup": "sub"},
            expected_last_subject_seq=replaced,
        )

    def _meta_subject(self, name: str) -> str:
        encoded = base64.urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode()
        return f"$O.{self._bucket}.M.{encoded}"

    def _drop_chunks(self, nuid: str) -> None:
        self._js.purge_stream(self._stream, filter_subject=f"$O.{self._bucket}.C.{nuid}")
