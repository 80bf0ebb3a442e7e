"""Object stores as steps: buckets, objects, links, and carrying the bytes of an object.

An object exists once the message with its properties does. That message expects the one that the writer
read, so of two writers of one name each knows whose chunks it replaces, and removes them.

Knows nothing of transports.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.api import error_from
from penstock.api.errors import ErrorBody
from penstock.api.times import parse_instant
from penstock.errors import (
    LinkNotFollowed,
    MessageNotFound,
    NoResponders,
    ObjectDamaged,
    ObjectExists,
    ObjectNotFound,
    ObjectReplaced,
    PenstockError,
    StreamNotFound,
    WrongLastSequence,
)

from ..durations import Duration, to_seconds
from ..steps import Work, call, flow
from .downloading import ChunkMissing, Download
from .managing import of_bucket
from .models import (
    ObjectInfo,
    ObjectLink,
    ObjectStoreStatus,
    check_chunk_size,
    check_headers,
    check_metadata,
    chunk_subject,
    decode_meta,
    digest_text,
    encode_meta,
    meta_subject,
    status_of,
    stream_of,
)
from .persisting import passing, pausing, persisting
from .sources import PathTarget, make_source, size_left, write_all
from .uploading import Upload
from .watching import Watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.api.fields import DeliverPolicy

    from ..jetstream import Headers
    from ..session import Session
    from ..steps import Flow, Steps
    from ..streams import Streams
    from .sources import Content, Progress, Source, Target

W = TypeVar("W", bound=Watching)

PATIENCE_S = 60.0
"""How long a transfer waits for the server before it gives up."""
REPLACED_MAX = 5
"""How often a get begins again because the object was replaced meanwhile."""
ROLLUP = {"Nats-Rollup": "sub"}
NOT_FOUND = 404

SEALED = ErrorBody(code=400, err_code=10109, description="invalid operation on sealed stream")


class Storing(Generic[W]):
    """The calls of one object store."""

    client: Session[Any]
    _watch_type: Callable[..., W]

    def __init__(self, js: Streams[Any], bucket: str) -> None:
        """Sends no request; ValueError for a name that no bucket can have."""
        self._stream = stream_of(bucket)
        self._js = js
        self.client = js.client
        self.bucket = bucket
        """The bucket's name."""
        self._sealed = False  # as far as this handle knows

    # -- properties --------------------------------------------------------------------------------

    def informing(self, name: str, *, show_deleted: bool = False) -> Steps[ObjectInfo]:
        """The properties of an object or a link; with ``show_deleted`` also of a deleted object.

        Raises ObjectNotFound, ObjectDamaged when the message about it cannot be read, ValueError for a
        name that no object can have.
        """
        info = yield from self._informing(name)
        if info is None or (info.deleted and not show_deleted):
            raise ObjectNotFound(self.bucket, name)
        return info

    info = call(informing)

    def _informing(self, name: str) -> Steps[ObjectInfo | None]:
        """What any replica knows, with one short request."""
        subject = meta_subject(self.bucket, name)
        direct = self._js.plans.subjects.direct_get(self._stream, subject)
        try:
            message = yield from self.client.requesting(direct, timeout=self._js.timeout)
        except NoResponders:  # the stream takes no direct gets
            return (yield from self._looking(name))[0]
        if message.status == NOT_FOUND:
            return None
        stamp = message.header("Nats-Time-Stamp")
        return decode_meta(message.data, self.bucket, parse_instant(stamp) if stamp else 0)

    def _looking(self, name: str) -> Steps[tuple[ObjectInfo | None, int]]:
        """What the stream's leader knows, and the sequence to expect when it is replaced."""
        subject = meta_subject(self.bucket, name)
        try:
            found = yield from self._js.plans.get_message(self._stream, last_by_subject=subject)
        except MessageNotFound:
            return None, 0
        try:
            return decode_meta(found.data, self.bucket, found.timestamp_ns), found.seq
        except ObjectDamaged:
            return None, found.seq  # it is replaced

    def _publishing(self, info: ObjectInfo, expected_seq: int) -> Steps[None]:
        yield from self._js.publishing(
            meta_subject(self.bucket, info.name),
            encode_meta(info),
            headers=ROLLUP,
            expected_stream=self._stream,
            expected_last_subject_seq=expected_seq,
        )

    def _committing(
        self, info: ObjectInfo, before: ObjectInfo | None, seq: int, patience_s: float
    ) -> Steps[ObjectInfo | None]:
        """Store the properties in place of those that were read; returns what they replaced."""
        deadline = self.client.clock() + patience_s
        while True:
            try:
                yield from self._publishing(info, seq)
            except WrongLastSequence:
                pass  # another writer was faster, or this message is stored already
            except PenstockError as error:
                if not passing(error) or self.client.clock() >= deadline:
                    raise
                yield from pausing()
            else:
                return before
            left = deadline - self.client.clock()
            found, seq = yield from persisting(self.client, lambda: self._looking(info.name), left)
            if found is not None and found.nuid == info.nuid and found.deleted == info.deleted:
                return before
            before = found

    def _purging(self, nuid: str, patience_s: float = PATIENCE_S) -> Steps[None]:
        """Remove the chunks of an object."""
        subject = chunk_subject(self.bucket, nuid)
        yield from persisting(
            self.client,
            lambda: self._js.plans.purge_stream(self._stream, filter_subject=subject),
            patience_s,
        )

    # -- putting -----------------------------------------------------------------------------------

    def putting(
        self,
        name: str,
        content: Content,
        *,
        description: str = "",
        headers: Headers | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        progress: Progress | None = None,
        patience: Duration = PATIENCE_S,
    ) -> Steps[ObjectInfo]:
        """Store an object, in place of an earlier one of that name; returns its properties.

        ``content``: bytes, a binary file, a ``pathlib.Path``, an iterator of bytes, or in asyncio an async
        iterator or reader. ``chunk_size``: bytes of one message, by default 128 KiB. ``progress`` is called
        with the bytes that are stored, and with the total or None.

        A lost connection is replaced, and the put goes on. After ``patience`` seconds without progress it
        raises Timeout. When it raises, the earlier object is untouched and no chunk of the new one stays; if
        the server cannot be reached even for that, a note of the error names the subject to purge. A put
        that is cancelled while its last message is on the way may have stored the object. Other errors:
        ValueError and TypeError for bad arguments, ApiError when the stream refuses (sealed, or full), and
        whatever ``content`` and ``progress`` raise.
        """
        size = check_chunk_size(chunk_size, self.client.connection.info.max_payload)
        patience_s = to_seconds(patience)
        info = ObjectInfo(
            name=name,
            bucket=self.bucket,
            nuid=self.client.new_id(),
            description=description,
            headers=check_headers(headers),
            metadata=check_metadata(metadata),
            chunk_size=size,
        )
        meta_subject(self.bucket, name)
        source = make_source(content, size)
        if self._sealed:
            yield from self._check_unsealed()
        upload = Upload(self._js, self._stream, chunk_subject(self.bucket, info.nuid), patience_s)
        before: ObjectInfo | None = None
        try:
            yield from source.begin()
            yield from upload.begin()
            digest, length = yield from self._carrying(source, upload, progress)
            # Asked while the last acks are on their way: a small put waits once for both.
            before, seq = yield from persisting(
                self.client, lambda: self._looking(name), patience_s, served=upload.acked > 0
            )
            yield from upload.finish()
            if progress is not None:
                progress(length, length)
            info = replace(info, size=length, chunks=upload.sent, digest=digest)
            before = yield from self._committing(info, before, seq, patience_s)
        except GeneratorExit:
            raise
        except BaseException as error:
            if upload.may_be_stored:
                yield from self._rolling_back(info, upload, before, error)
            raise
        finally:
            upload.close()
            source.close()
        yield from self._replacing(before)
        return info

    put = call(putting)

    def _check_unsealed(self) -> Steps[None]:
        """Raise what the stream would answer, before the object is sent; another may have made it anew."""
        self._sealed = (yield from self._describing()).sealed
        if self._sealed:
            raise error_from(SEALED)

    def _carrying(
        self, source: Source, upload: Upload, progress: Progress | None
    ) -> Steps[tuple[str, int]]:
        digest = hashlib.sha256()
        length = told = 0
        while chunks := (yield from source.read()):
            for chunk in chunks:
                digest.update(chunk)
                length += len(chunk)
                yield from upload.send(chunk)
                if progress is not None and upload.acked_bytes > told:
                    told = upload.acked_bytes
                    progress(told, source.total)
        return digest_text(digest.digest()), length

    def _rolling_back(
        self, info: ObjectInfo, upload: Upload, before: ObjectInfo | None, error: BaseException
    ) -> Steps[None]:
        """Remove the chunks of a put that failed, or of what it replaced if its object is complete after all."""
        try:
            if self.client.connection.connected:
                yield from upload.settle(self._js.timeout)
            found, _ = yield from persisting(
                self.client, lambda: self._looking(info.name), self._js.timeout
            )
            if found is None or found.nuid != info.nuid:
                yield from self._purging(info.nuid, self._js.timeout)
            else:
                yield from self._replacing(before)
        except StreamNotFound:
            return
        except PenstockError as reason:
            subject = chunk_subject(self.bucket, info.nuid)
            error.add_note(
                f"chunks of it may have stayed, purge {subject!r} of stream {self._stream!r}: {reason}"
            )

    def _replacing(self, before: ObjectInfo | None) -> Steps[None]:
        """Remove the chunks of the object that was replaced; a failure harms nobody."""
        if before is None or before.deleted or before.link is not None or not before.nuid:
            return
        try:
            yield from self._purging(before.nuid)
        except PenstockError as error:
            self.client.report(error)

    # -- getting -----------------------------------------------------------------------------------

    def _finding(self, name: str, patience: Duration) -> Steps[tuple[Storing[Any], ObjectInfo]]:
        return persisting(
            self.client, lambda: self._targeting(name), to_seconds(patience), served=False
        )

    def _targeting(self, name: str) -> Steps[tuple[Storing[Any], ObjectInfo]]:
        """The object of that name, or the one that a link of that name leads to; and its store."""
        info = yield from self.informing(name)
        link = info.link
        if link is None:
            return self, info
        if not link.name:
            raise LinkNotFollowed(
                f"{name!r} is a link to the bucket {link.bucket!r}: open that with object_store()"
            )
        store: Storing[Any] = Storing(self._js, link.bucket)
        info = yield from store.informing(link.name)
        if info.link is not None:
            raise LinkNotFollowed(
                f"{name!r} leads to {link.name!r} in bucket {link.bucket!r}, which is a link itself"
            )
        return store, info

    def chunking(
        self, name: str, *, progress: Progress | None = None, patience: Duration = PATIENCE_S
    ) -> Flow[bytes]:
        """The bytes of an object, chunk by chunk; only a few chunks are in memory at a time.

        The digest is checked behind the last chunk: a damaged object raises ObjectDamaged there. Raises
        ObjectReplaced when another put removes the chunks meanwhile, and otherwise as ``get``.
        """
        store, info = yield from self._finding(name, patience)
        download = store._download(info, patience)
        try:
            yield from download.begin()
            while chunks := (yield from store._more(download, info)):
                if progress is not None:
                    progress(download.done, info.size)
                yield from chunks
        finally:
            download.close()

    chunks = flow(chunking)

    def getting(
        self, name: str, *, progress: Progress | None = None, patience: Duration = PATIENCE_S
    ) -> Steps[bytes]:
        """The bytes of an object; follows a link to another object.

        ``progress`` is called with the bytes that have arrived, and the total. A lost connection is
        replaced, and the get goes on at the next chunk. Raises ObjectNotFound, ObjectDamaged when chunks
        are missing or the digest is another one, LinkNotFollowed, and Timeout after ``patience`` seconds
        without progress.
        """
        for _ in range(REPLACED_MAX):
            buffer = io.BytesIO()
            try:
                yield from self._receiving(name, _collecting(buffer), progress, patience)
            except ObjectReplaced:
                continue
            return buffer.getvalue()
        raise self._replaced(name)

    get = call(getting)

    def getting_file(
        self,
        name: str,
        target: Target,
        *,
        progress: Progress | None = None,
        patience: Duration = PATIENCE_S,
    ) -> Steps[ObjectInfo]:
        """Write an object to a path, or to an open binary file; returns its properties.

        A path gets the file when it is complete and its digest checked; until then it is written beside it
        under a temporary name, which does not stay. Into an open file, chunks are written as they arrive.
        Raises as ``get``, OSError, and for an open file ObjectReplaced.
        """
        if not isinstance(target, str) and hasattr(target, "write"):
            file = target
            if isinstance(file, io.TextIOBase):
                raise TypeError("the file to write is open as text: open it in binary mode")
            take = _writing(file, finishes=size_left(file) is not None)
            return (yield from self._receiving(name, take, progress, patience))
        if not isinstance(target, str | bytes | os.PathLike):
            raise TypeError(f"target is a path or an open binary file, not {target!r}")
        for _ in range(REPLACED_MAX):
            try:
                return (yield from self._getting_path(name, target, progress, patience))
            except ObjectReplaced:
                continue
        raise self._replaced(name)

    get_file = call(getting_file)

    def _getting_path(
        self, name: str, target: Any, progress: Progress | None, patience: Duration
    ) -> Steps[ObjectInfo]:
        path = PathTarget(target, self.client.new_id())
        try:
            file = yield Work(path.open)
            info = yield from self._receiving(name, _writing(file), progress, patience)
            yield Work(path.keep)
        except BaseException:
            path.drop()
            raise
        return info

    def _receiving(
        self,
        name: str,
        take: Callable[[list[bytes]], Steps[None]],
        progress: Progress | None,
        patience: Duration,
    ) -> Steps[ObjectInfo]:
        """Pass the chunks of an object to ``take``."""
        store, info = yield from self._finding(name, patience)
        download = store._download(info, patience)
        try:
            yield from download.begin()
            while chunks := (yield from store._more(download, info)):
                yield from take(chunks)
                if progress is not None:
                    progress(download.done, info.size)
        finally:
            download.close()
        return info

    def _download(self, info: ObjectInfo, patience: Duration) -> Download:
        subject = chunk_subject(self.bucket, info.nuid)
        return Download(self._js, self._stream, subject, info, to_seconds(patience))

    def _more(self, download: Download, info: ObjectInfo) -> Steps[list[bytes]]:
        try:
            return (yield from download.more())
        except ChunkMissing:
            found, _ = yield from self._looking(info.name)
            if found is None or found.nuid != info.nuid or found.deleted:
                raise self._replaced(info.name) from None
            raise ObjectDamaged(
                f"object {info.name!r} in bucket {self.bucket!r} is damaged: the stream has "
                f"{download.done} of its {info.size} bytes"
            ) from None

    def _replaced(self, name: str) -> ObjectReplaced:
        return ObjectReplaced(
            f"object {name!r} in bucket {self.bucket!r} was replaced or deleted while it was read: "
            "read it again"
        )

    # -- changing ----------------------------------------------------------------------------------

    def deleting(self, name: str) -> Steps[None]:
        """Delete an object or a link: its chunks are removed, a message says that it is deleted.

        Raises ObjectNotFound.
        """
        while True:
            before, seq = yield from self._looking(name)
            if before is None or before.deleted:
                raise ObjectNotFound(self.bucket, name)
            gone = replace(before, deleted=True, size=0, chunks=0, digest="")
            replaced = yield from self._committing(gone, before, seq, PATIENCE_S)
            if replaced is not None and replaced.nuid == before.nuid:
                break
        if before.nuid:
            yield from self._purging(before.nuid)

    delete = call(deleting)

    def updating_meta(
        self,
        name: str,
        *,
        rename: str | None = None,
        description: str | None = None,
        headers: Headers | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Steps[ObjectInfo]:
        """Change the name, description, headers or metadata of an object; what is None stays.

        The bytes stay as they are. Raises ObjectNotFound, and ObjectExists when another object has the new
        name. A rename that is cut off may leave the object under both names.
        """
        new = name if rename is None else rename
        meta_subject(self.bucket, new)
        before, seq = yield from self._looking(name)
        if before is None or before.deleted:
            raise ObjectNotFound(self.bucket, name)
        info = replace(
            before,
            name=new,
            description=before.description if description is None else description,
            headers=before.headers if headers is None else check_headers(headers),
            metadata=before.metadata if metadata is None else check_metadata(metadata),
            mtime_ns=0,
        )
        if new == name:
            yield from self._publishing(info, seq)
            return info
        hidden, new_seq = yield from self._looking(new)
        if hidden is not None and not hidden.deleted:
            raise ObjectExists(f"bucket {self.bucket!r} has an object {new!r} already")
        yield from self._publishing(info, new_seq)
        yield from self._js.plans.purge_stream(
            self._stream, filter_subject=meta_subject(self.bucket, name)
        )
        return info

    update_meta = call(updating_meta)

    def linking(self, name: str, target: ObjectInfo) -> Steps[ObjectInfo]:
        """Make a link to an object of this bucket or another one; ``target`` is what ``info`` returns.

        A link of that name is replaced. Raises ObjectExists when an object has the name, and ValueError for
        a target that is deleted or a link itself.
        """
        if not isinstance(target, ObjectInfo):
            raise TypeError(f"give the ObjectInfo of the target, not {type(target).__name__}")
        if target.deleted:
            raise ValueError(f"no link to {target.name!r}: it is deleted")
        if target.link is not None:
            raise ValueError(f"no link to {target.name!r}: it is a link itself")
        return (yield from self._linking(name, ObjectLink(target.bucket, target.name)))

    add_link = call(linking)

    def linking_bucket(self, name: str, bucket: Storing[Any] | str) -> Steps[ObjectInfo]:
        """Make a link to a whole bucket, which is given as its store or its name.

        A link of that name is replaced. Raises ObjectExists when an object has the name.
        """
        target = bucket.bucket if isinstance(bucket, Storing) else bucket
        stream_of(target)
        return (yield from self._linking(name, ObjectLink(target)))

    add_bucket_link = call(linking_bucket)

    def _linking(self, name: str, link: ObjectLink) -> Steps[ObjectInfo]:
        before, seq = yield from self._looking(name)
        if before is not None and before.link is None and not before.deleted:
            raise ObjectExists(f"bucket {self.bucket!r} has an object {name!r} already")
        info = ObjectInfo(name=name, bucket=self.bucket, nuid=self.client.new_id(), link=link)
        yield from self._publishing(info, seq)
        return info

    # -- the bucket --------------------------------------------------------------------------------

    def watch(
        self,
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
    ) -> W:
        """Follow the changes of the bucket: first its objects as they are, then None, then each change.

        ``updates_only``: only changes from now on, without the None. ``include_history``: every message
        about an object that the stream holds; a put removes the earlier one, so that is the last one, except
        of writers that keep them. ``ignore_deletes``: deleted objects are not told.

        In blocking code the watch begins at once. In asyncio it begins at its ``async with`` block, when it is
        awaited, or with its first call.
        """
        if include_history and updates_only:
            raise ValueError("give include_history or updates_only, not both")
        policy: DeliverPolicy = "all" if include_history else "last_per_subject"
        if updates_only:
            policy = "new"
        return self._watch_type(
            self._js, self.bucket, self._stream, policy, deletes=not ignore_deletes
        )

    def listing(self, *, show_deleted: bool = False) -> Steps[list[ObjectInfo]]:
        """The properties of all objects and links, in the order in which they were stored.

        With ``show_deleted`` also those of deleted objects.
        """
        watcher = Watching(
            self._js, self.bucket, self._stream, "last_per_subject", deletes=show_deleted
        )
        found: list[ObjectInfo] = []
        try:
            while (info := (yield from watcher.taking(self._js.timeout))) is not None:
                found.append(info)
        finally:
            yield from watcher.stopping()
        return found

    list = call(listing)

    def _describing(self) -> Steps[ObjectStoreStatus]:
        """The state of the bucket; BucketNotFound when it does not exist any more."""
        info = yield from of_bucket(self.bucket, self._js.plans.stream_info(self._stream))
        return status_of(info)

    status = call(_describing)

    def sealing(self) -> Steps[ObjectStoreStatus]:
        """Seal the bucket: nothing in it can be changed any more. This cannot be taken back.

        Raises BucketNotFound when it does not exist any more.
        """
        info = yield from of_bucket(self.bucket, self._js.plans.stream_info(self._stream))
        info.config.sealed = self._sealed = True
        return status_of((yield from self._js.plans.update_stream(info.config)))

    seal = call(sealing)

    def destroying(self) -> Steps[None]:
        """Remove the bucket with all objects, also a sealed one; BucketNotFound when it is gone."""
        yield from of_bucket(self.bucket, self._js.plans.delete_stream(self._stream))

    destroy = call(destroying)


def _writing(file: Any, *, finishes: bool = True) -> Callable[[list[bytes]], Steps[None]]:
    def take(chunks: list[bytes]) -> Steps[None]:
        yield Work(partial(write_all, file, chunks), finishes=finishes)

    return take


def _collecting(buffer: io.BytesIO) -> Callable[[list[bytes]], Steps[None]]:
    def take(chunks: list[bytes]) -> Steps[None]:
        buffer.writelines(chunks)
        yield from ()

    return take
