"""Carrying the bytes of objects: put from any content, get as bytes, into a file, or chunk by chunk.

The chunks go before the message that makes the object, and leave when that message cannot be stored.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pelton.errors import (
    LinkNotFollowedError,
    ObjectDamagedError,
    ObjectReplacedError,
    PeltonError,
    StreamNotFoundError,
)

from ..base.durations import Duration, to_seconds
from ..base.steps import Work, call, flow
from .downloading import ChunkMissing, Download
from .models import (
    ObjectInfo,
    check_chunk_size,
    check_headers,
    check_metadata,
    chunk_subject,
    digest_text,
    meta_subject,
)
from .persisting import completing, passing, persisting
from .properties import PATIENCE_S, Properties
from .sources import PathTarget, make_source, size_left, write_all
from .uploading import Upload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..base.steps import Flow, Steps
    from ..plans.jetstream import Headers
    from .sources import Content, Progress, Source, Target

REPLACED_MAX = 5
"""How often a get begins again because the object was replaced meanwhile."""


class Transfers(Properties):
    """The transfers of one object store."""

    # -- putting -----------------------------------------------------------------------------------

    def _putting(
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
        raises PeltonTimeoutError. When it raises, the earlier object is untouched and no chunk of the new one stays; if
        the server cannot be reached even for that, a note of the error names the subject to purge. A put
        that is cancelled while its last message is on the way stores the object. Other errors: ValueError and
        TypeError for bad arguments, ApiError when the stream refuses (sealed, or full), ObjectDamagedError when the
        stream has lost chunks that it acknowledged, and whatever ``content`` and ``progress`` raise.
        """
        size = check_chunk_size(chunk_size, self.client._connection.info.max_payload)
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
        committing = False
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
            committing = True
            before = yield from self._committing(info, before, seq, patience_s)
        except GeneratorExit:
            raise
        except BaseException as error:
            if committing and not isinstance(error, PeltonError):
                yield from self._completing(info, upload, before, seq, error)
            elif upload.may_be_stored:
                yield from self._rolling_back(info, upload, before, error)
            raise
        finally:
            upload.close()
            source.close()
        yield from self._replacing(before)
        return info

    put = call(_putting)

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

    def _completing(
        self,
        info: ObjectInfo,
        upload: Upload,
        before: ObjectInfo | None,
        seq: int,
        error: BaseException,
    ) -> Steps[None]:
        """Store the object of a put that was cancelled with its last message on the way.

        The server may take that message at any time, also after a question whether it has. Sent once more,
        it is answered after the first one, and only one of them is stored.
        """
        try:
            before = yield from self._committing(info, before, seq, self._js.timeout)
            yield from self._replacing(before)
        except PeltonError as reason:
            if not passing(reason):
                yield from self._rolling_back(info, upload, before, error)
            else:
                error.add_note(f"object {info.name!r} may be stored, or not: {reason}")

    def _rolling_back(
        self, info: ObjectInfo, upload: Upload, before: ObjectInfo | None, error: BaseException
    ) -> Steps[None]:
        """Remove the chunks of a put that failed, or of what it replaced if its object is complete after all."""
        try:
            if self.client._connection.connected:
                yield from upload.settle(self._js.timeout)
            found, _ = yield from persisting(
                self.client, lambda: self._looking(info.name), self._js.timeout
            )
            if found is None or found.nuid != info.nuid:
                yield from self._purging(info.nuid, self._js.timeout)
            else:
                yield from self._replacing(before)
        except StreamNotFoundError:
            return
        except PeltonError as reason:
            error.add_note(f"{self._left(info.nuid)}: {reason}")

    def _replacing(self, before: ObjectInfo | None) -> Steps[None]:
        """Remove the chunks of the object that was replaced; a failure harms nobody."""
        if before is None or before.deleted or before.link is not None or not before.nuid:
            return
        try:
            yield from completing(
                lambda patience_s: self._purging(before.nuid, patience_s),
                PATIENCE_S,
                self._js.timeout,
                self._left(before.nuid),
            )
        except PeltonError as error:
            self.client._report(error)

    # -- getting -----------------------------------------------------------------------------------

    def _finding(self, name: str, patience: Duration) -> Steps[tuple[Transfers, ObjectInfo]]:
        return persisting(
            self.client, lambda: self._targeting(name), to_seconds(patience), served=False
        )

    def _targeting(self, name: str) -> Steps[tuple[Transfers, ObjectInfo]]:
        """The object of that name, or the one that a link of that name leads to; and its store."""
        info = yield from self._informing(name)
        link = info.link
        if link is None:
            return self, info
        if not link.name:
            raise LinkNotFollowedError(
                f"{name!r} is a link to the bucket {link.bucket!r}: open that with object_store()"
            )
        store: Transfers = Transfers(self._js, link.bucket)
        info = yield from store._informing(link.name)
        if info.link is not None:
            raise LinkNotFollowedError(
                f"{name!r} leads to {link.name!r} in bucket {link.bucket!r}, which is a link itself"
            )
        return store, info

    def _chunking(
        self, name: str, *, progress: Progress | None = None, patience: Duration = PATIENCE_S
    ) -> Flow[bytes]:
        """The bytes of an object, chunk by chunk; only a few chunks are in memory at a time.

        The digest is checked after the last chunk: a damaged object raises ObjectDamagedError there. Raises
        ObjectReplacedError when another put removes the chunks meanwhile, and otherwise as ``get``.
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

    chunks = flow(_chunking)

    def _getting(
        self, name: str, *, progress: Progress | None = None, patience: Duration = PATIENCE_S
    ) -> Steps[bytes]:
        """The bytes of an object; follows a link to another object.

        ``progress`` is called with the bytes that have arrived, and the total. A lost connection is
        replaced, and the get goes on at the next chunk. Raises ObjectNotFoundError, ObjectDamagedError when chunks
        are missing or the digest is another one, LinkNotFollowedError, and PeltonTimeoutError after
        ``patience`` seconds without progress.
        """
        for _ in range(REPLACED_MAX):
            buffer = io.BytesIO()
            try:
                yield from self._receiving(name, _collecting(buffer), progress, patience)
            except ObjectReplacedError:
                continue
            return buffer.getvalue()
        raise self._replaced(name)

    get = call(_getting)

    def _getting_file(
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
        Raises as ``get``, OSError, and for an open file ObjectReplacedError.
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
            except ObjectReplacedError:
                continue
        raise self._replaced(name)

    get_file = call(_getting_file)

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
            found, _ = yield from persisting(
                self.client, lambda: self._looking(info.name), self._js.timeout
            )
            if found is None or found.nuid != info.nuid or found.deleted:
                raise self._replaced(info.name) from None
            raise ObjectDamagedError(
                f"object {info.name!r} in bucket {self.bucket!r} is damaged: the stream has "
                f"{download.done} of its {info.size} bytes"
            ) from None

    def _replaced(self, name: str) -> ObjectReplacedError:
        return ObjectReplacedError(
            f"object {name!r} in bucket {self.bucket!r} was replaced or deleted while it was read: "
            "read it again"
        )


def _writing(file: Any, *, finishes: bool = True) -> Callable[[list[bytes]], Steps[None]]:
    def take(chunks: list[bytes]) -> Steps[None]:
        yield Work(partial(write_all, file, chunks), finishes=finishes)

    return take


def _collecting(buffer: io.BytesIO) -> Callable[[list[bytes]], Steps[None]]:
    def take(chunks: list[bytes]) -> Steps[None]:
        buffer.writelines(chunks)
        yield from ()

    return take
