"""Object stores: put, get, change, link, list and watch objects."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pelton.api import error_from
from pelton.api.errors import ErrorBody
from pelton.api.times import parse_instant
from pelton.errors import (
    LinkNotFollowedError,
    NoRespondersError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectReplacedError,
    PeltonTimeoutError,
    WrongLastSequenceError,
)

from ..base.arguments import refuse
from ..consume.ordered import WatchPosition
from ..objects.models import (
    ObjectInfo,
    ObjectLink,
    ObjectStoreStatus,
    check_chunk_size,
    check_properties,
    decode_meta,
    meta_subject,
    of_bucket,
    status_of,
    stream_of,
)
from ..objects.sources import (
    Content,
    PathTarget,
    Progress,
    Target,
    make_source,
    size_left,
    write_all,
)
from .objecttransfers import NOT_FOUND, Download, ObjectStream, Put, complete
from .watches import ObjectWatch

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Callable, Mapping

    from pelton.api.fields import DeliverPolicy

    from ..base.durations import Duration
    from ..base.message import HeadersLike
    from ..objects.transfers import Deadline
    from .connection import Client
    from .jetstream import JetStream

REPLACED_MAX = 5
"""How often a get begins again because the object was replaced meanwhile."""
SEALED = ErrorBody(code=400, err_code=10109, description="invalid operation on sealed stream")


class ObjectStore:
    """Objects of any size in a bucket; made by ``JetStream.object_store`` and ``create_object_store``.

    ::

        store = await js.create_object_store("reports")
        await store.put("july.pdf", pathlib.Path("july.pdf"))
        data = await store.get("july.pdf")

    A call raises PeltonTimeoutError after ``timeout`` without progress, by default that of JetStream.
    """

    def __init__(self, js: JetStream, bucket: str) -> None:
        """Sends no request; ValueError for a name that no bucket can have."""
        self._stream = ObjectStream(js, bucket)
        self._js = js
        self.client: Client = js.client
        """The client that it belongs to."""
        self.bucket = bucket
        """The bucket's name."""
        self._sealed = False  # as far as this handle knows

    def __repr__(self) -> str:
        """The name of the bucket."""
        return f"<{type(self).__name__} {self.bucket}>"

    # -- putting -----------------------------------------------------------------------------------

    async def put(
        self,
        name: str,
        content: Content,
        *,
        description: str = "",
        headers: HeadersLike | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        progress: Progress | None = None,
        timeout: Duration | None = None,
    ) -> ObjectInfo:
        """Store an object, in place of an earlier one of that name; returns its properties.

        ``content``: bytes, a binary file, a ``pathlib.Path``, an iterator of bytes, or in asyncio an async
        iterator or reader. ``chunk_size``: bytes of one message, by default 128 KiB. ``progress`` is called
        with the bytes that are stored, and with the total or None.

        A lost connection is replaced, and the put goes on. After ``timeout`` without progress of the server it
        raises PeltonTimeoutError. When it raises, the earlier object is untouched and no chunk of the new one
        stays; if the server does not answer even for that, a note of the error names the subject to purge. A put
        that is cancelled while its last message is on the way stores the object. Other errors: ValueError and
        TypeError for bad arguments, ApiError when the stream refuses (sealed, or full), ObjectDamagedError when the
        stream has lost chunks that it acknowledged, and whatever ``content`` and ``progress`` raise.
        """
        meta_subject(self.bucket, name)
        _check_progress(progress)
        size = check_chunk_size(chunk_size, self.client.server_info.max_payload)
        deadline = self._stream.deadline(timeout)
        new = ObjectInfo(name=name, bucket=self.bucket, nuid=self.client.new_id(), chunk_size=size)
        info = check_properties(new, description=description, headers=headers, metadata=metadata)
        source = make_source(content, size)
        if self._sealed:
            # Raise what the stream would answer, before the object is sent; another may have made it anew.
            self._sealed = (await self.status()).sealed
            if self._sealed:
                raise error_from(SEALED)
        return await Put(self._stream, info, source, deadline).run(progress)

    # -- getting -----------------------------------------------------------------------------------

    async def get(
        self, name: str, *, progress: Progress | None = None, timeout: Duration | None = None
    ) -> bytes:
        """The bytes of an object; follows a link to another object.

        ``progress`` is called with the bytes that have arrived, and the total. A lost connection is
        replaced, and the get goes on at the next chunk. Raises ObjectNotFoundError, ObjectDamagedError when chunks
        are missing or the digest is another one, LinkNotFollowedError, and PeltonTimeoutError after
        ``timeout`` without progress.
        """
        # Nobody has seen the bytes of a replaced object yet, so the new one can be read instead.
        for _ in range(REPLACED_MAX):
            buffer = io.BytesIO()
            try:
                async for chunk in self.chunks(name, progress=progress, timeout=timeout):
                    buffer.write(chunk)
            except ObjectReplacedError as error:
                failure = error
                continue
            return buffer.getvalue()
        raise failure

    async def get_file(
        self,
        name: str,
        target: Target,
        *,
        progress: Progress | None = None,
        timeout: Duration | None = None,
    ) -> ObjectInfo:
        """Write an object to a path, or to an open binary file; returns its properties.

        A path gets the file when it is complete and its digest checked; until then it is written beside it
        under a temporary name, which does not stay. Into an open file, chunks are written as they arrive.
        Raises as ``get``, OSError, and for an open file ObjectReplacedError.
        """
        if not isinstance(target, str) and hasattr(target, "write"):
            if isinstance(target, io.TextIOBase):
                raise TypeError("the file to write is open as text: open it in binary mode")
            # A write to a pipe may block for ever: a cancelled call does not wait for it.
            finishes = size_left(target) is not None
            return await self._write(name, target, progress, timeout, finishes=finishes)
        if not isinstance(target, str | bytes | os.PathLike):
            raise TypeError(f"target is a path or an open binary file, not {target!r}")
        for _ in range(REPLACED_MAX):
            path = PathTarget(target, self.client.new_id())
            try:
                file = await self.client._work(path.open)
                info = await self._write(name, file, progress, timeout)
                await self.client._work(path.keep)
            except ObjectReplacedError as error:
                path.drop()
                failure = error
            except BaseException:
                path.drop()
                raise
            else:
                return info
        raise failure

    async def chunks(
        self, name: str, *, progress: Progress | None = None, timeout: Duration | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes of an object, chunk by chunk; only a few chunks are in memory at a time.

        The digest is checked after the last chunk: a damaged object raises ObjectDamagedError there. Raises
        ObjectReplacedError when another put removes the chunks meanwhile, and otherwise as ``get``.
        """
        _check_progress(progress)
        info, download = await self._download(name, self._stream.deadline(timeout))
        try:
            await download.begin()
            while chunks := await download.more():
                if progress is not None:
                    progress(download.done, info.size)
                for chunk in chunks:
                    yield chunk
        finally:
            download.close()

    async def _write(
        self,
        name: str,
        file: Any,
        progress: Progress | None,
        timeout: Duration | None,
        *,
        finishes: bool = True,
    ) -> ObjectInfo:
        """Write the chunks of an object to a file."""
        _check_progress(progress)
        info, download = await self._download(name, self._stream.deadline(timeout))
        try:
            await download.begin()
            while chunks := await download.more():
                await self.client._work(partial(write_all, file, chunks), finishes=finishes)
                if progress is not None:
                    progress(download.done, info.size)
        finally:
            download.close()
        return info

    async def _download(self, name: str, deadline: Deadline) -> tuple[ObjectInfo, Download]:
        """The object of that name, or the one that a link of that name leads to."""
        info = await self._find(name, deadline)
        stream, link = self._stream, info.link
        if link is None:
            return info, Download(stream, info, deadline)
        if not link.name:
            raise LinkNotFollowedError(
                f"{name!r} is a link to the bucket {link.bucket!r}: open that with object_store()"
            )
        # One link only: following more could go round in a circle.
        store = ObjectStore(self._js, link.bucket)
        info = await store._find(link.name, deadline)
        if info.link is not None:
            raise LinkNotFollowedError(
                f"{name!r} leads to {link.name!r} in bucket {link.bucket!r}, which is a link itself"
            )
        return info, Download(store._stream, info, deadline)

    # -- properties --------------------------------------------------------------------------------

    async def info(self, name: str, *, show_deleted: bool = False) -> ObjectInfo:
        """The properties of an object or a link; with ``show_deleted`` also of a deleted object.

        In a cluster a replica may lag behind and answer with the object before. Raises ObjectNotFoundError, which is
        what the leader of the stream knows, ObjectDamagedError when the message about it cannot be read,
        ValueError for a name that no object can have.
        """
        deadline = self._stream.deadline()
        return await self._read(self._js, name, deadline, show_deleted=show_deleted)

    async def _find(self, name: str, deadline: Deadline) -> ObjectInfo:
        """``info`` that is repeated until the deadline."""
        return await self._stream.repeat(
            lambda js: self._read(js, name, deadline), deadline, served=False
        )

    async def _read(
        self, js: JetStream, name: str, deadline: Deadline, *, show_deleted: bool = False
    ) -> ObjectInfo:
        info = await self._read_any(js, name, deadline)
        if (info is None or info.deleted) and self.client.clustered:
            info, _ = await self._stream.look(name, deadline)  # a replica may not know yet
        if info is None or (info.deleted and not show_deleted):
            raise ObjectNotFoundError(self.bucket, name)
        return info

    async def _read_any(self, js: JetStream, name: str, deadline: Deadline) -> ObjectInfo | None:
        """What any replica knows, with one short request."""
        subject = meta_subject(self.bucket, name)
        direct = js.subjects.direct_get(self._stream.name, subject)
        try:
            message = await self.client._read(direct, b"", js.timeout)
        except NoRespondersError:  # the stream takes no direct gets
            return (await self._stream.look(name, deadline, served=False))[0]
        if message.status == NOT_FOUND:
            return None
        stamp = message.header("Nats-Time-Stamp")
        return decode_meta(message.data, self.bucket, parse_instant(stamp) if stamp else 0)

    async def list(
        self, *, show_deleted: bool = False, timeout: Duration | None = None
    ) -> builtins.list[ObjectInfo]:
        """The properties of all objects and links, in the order in which they were stored.

        With ``show_deleted`` also those of deleted objects. Raises PeltonTimeoutError after ``timeout`` without
        one more of them.
        """
        seconds = self._stream.deadline(timeout).seconds
        stream = ObjectStream(self._stream.within(seconds), self.bucket)
        watch = ObjectWatch(
            stream.js,
            self.bucket,
            _position(self._stream.name, self.bucket, "last_per_subject"),
            ignore_deletes=not show_deleted,
        )
        await watch._begin(seconds)
        try:
            return await watch.initial(seconds)
        except PeltonTimeoutError:
            await watch._abandon()  # removing its consumer would wait for the same server again
            raise
        finally:
            await watch.stop()

    async def watch(
        self,
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
    ) -> ObjectWatch:
        """Follow the changes of the bucket: first its objects as they are, then each change.

        ``updates_only``: only changes from now on. ``include_history``: every message
        about an object that the stream holds; a put removes the earlier one, so that is the last one, except
        of writers that keep them. ``ignore_deletes``: deleted objects are left out. ::

            async with await store.watch() as watch:
                async for info in watch:
                    ...
        """
        if include_history and updates_only:
            raise ValueError("give include_history or updates_only, not both")
        policy: DeliverPolicy = "all" if include_history else "last_per_subject"
        if updates_only:
            policy = "new"
        position = _position(self._stream.name, self.bucket, policy)
        watch = ObjectWatch(self._js, self.bucket, position, ignore_deletes=ignore_deletes)
        await watch._begin()
        return watch

    # -- changing ----------------------------------------------------------------------------------

    async def delete(self, name: str, *, timeout: Duration | None = None) -> None:
        """Delete an object or a link: its chunks are removed, a message says that it is deleted.

        A delete that is cancelled while that message is on the way deletes the object. An object that is put in
        its place meanwhile stays. Raises ObjectNotFoundError, also when it is renamed meanwhile, and
        PeltonTimeoutError after ``timeout``.
        """
        stream, deadline = self._stream, self._stream.deadline(timeout)
        before, seq = await stream.look(name, deadline, served=False)
        if before is None or before.deleted:
            raise ObjectNotFoundError(self.bucket, name)
        deadline.renew()
        await complete(
            lambda: self._mark_deleted(before, seq, deadline), deadline, stream.remains(before.nuid)
        )

    async def _mark_deleted(self, before: ObjectInfo, seq: int, deadline: Deadline) -> None:
        """Mark this object as deleted, and remove its chunks.

        One that is put in its place meanwhile stays, and its writer removes the chunks.
        """
        stream = self._stream
        info: ObjectInfo | None = before
        while info is not None and info.nuid == before.nuid:
            # Its properties first: without chunks an object that is not marked would look damaged.
            gone = replace(info, deleted=True, size=0, chunks=0, digest="")
            if info.deleted or await stream.try_to_store(gone, seq, deadline):
                if info.nuid:
                    await stream.purge(info.nuid, deadline)
                return
            info, seq = await stream.look(before.name, deadline)
        if info is None or info.deleted:
            raise ObjectNotFoundError(self.bucket, before.name)

    async def update_meta(
        self,
        name: str,
        *,
        rename: str | None = None,
        description: str | None = None,
        headers: HeadersLike | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Change the name, description, headers or metadata of an object; what is None stays.

        The bytes stay as they are. What is put under the name meanwhile gets the changes. Raises
        ObjectNotFoundError, and ObjectExistsError when another object has the new name. A rename that is cancelled
        on its way is completed; one that fails may leave the object under both names. What is put under
        the old name meanwhile is renamed, too, or stays: never lost.
        """
        if rename is not None and not isinstance(rename, str):
            refuse("rename", "text", rename)
        new = name if rename is None else rename
        meta_subject(self.bucket, new)

        def changed(info: ObjectInfo) -> ObjectInfo:
            return check_properties(
                replace(info, name=new, mtime_ns=0),
                description=description,
                headers=headers,
                metadata=metadata,
            )

        changed(ObjectInfo(name=new, bucket=self.bucket, nuid=""))  # before anything is sent
        before, seq = await self._look(name)
        if before is None or before.deleted:
            raise ObjectNotFoundError(self.bucket, name)
        if new == name:
            return await self._change(before, seq, changed)
        renaming = _Rename(self, before, seq, changed)
        await renaming.begin(new)
        deadline = self._stream.deadline()
        remains = f"the object may have both names, {name!r} and {new!r}"
        return await complete(renaming.attempt, deadline, remains)

    async def _change(
        self, info: ObjectInfo, seq: int, changed: Callable[[ObjectInfo], ObjectInfo]
    ) -> ObjectInfo:
        """Change the properties that were read, or those that another call has stored in their place."""
        while True:
            try:
                await self._store(changed(info), seq)
            except WrongLastSequenceError:
                newer, seq = await self._look(info.name)
                if newer is None or newer.deleted:
                    raise ObjectNotFoundError(self.bucket, info.name) from None
                info = newer
            else:
                return changed(info)

    async def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Make a link to an object of this bucket or another one; ``target`` is what ``info`` returns.

        A link of that name is replaced. Raises ObjectExistsError when an object has the name, and ValueError for
        a target that is deleted or a link itself.
        """
        meta_subject(self.bucket, name)
        if not isinstance(target, ObjectInfo):
            refuse("target", "an ObjectInfo", target)
        if target.deleted:
            raise ValueError(f"no link to {target.name!r}: it is deleted")
        if target.link is not None:
            raise ValueError(f"no link to {target.name!r}: it is a link itself")
        return await self._store_link(name, ObjectLink(target.bucket, target.name))

    async def add_bucket_link(self, name: str, bucket: ObjectStore | str) -> ObjectInfo:
        """Make a link to a whole bucket, which is given as its store or its name.

        A link of that name is replaced. Raises ObjectExistsError when an object has the name.
        """
        target = bucket.bucket if isinstance(bucket, ObjectStore) else bucket
        stream_of(target)
        return await self._store_link(name, ObjectLink(target))

    async def _store_link(self, name: str, link: ObjectLink) -> ObjectInfo:
        info = ObjectInfo(name=name, bucket=self.bucket, nuid=self.client.new_id(), link=link)
        while True:
            before, seq = await self._look(name)
            if before is not None and before.link is None and not before.deleted:
                raise ObjectExistsError(f"bucket {self.bucket!r} has an object {name!r} already")
            try:
                await self._store(info, seq)
            except WrongLastSequenceError:
                continue  # another call was first
            return info

    async def _look(self, name: str) -> tuple[ObjectInfo | None, int]:
        """What the stream's leader knows of an object now, with one request."""
        return await self._stream.look(name, self._stream.deadline(), served=False)

    async def _store(self, info: ObjectInfo, expected_seq: int) -> int:
        return await self._stream.store(info, expected_seq, self._js.timeout)

    # -- the bucket --------------------------------------------------------------------------------

    async def status(self) -> ObjectStoreStatus:
        """The state of the bucket; BucketNotFoundError when it does not exist any more."""
        with of_bucket(self.bucket):
            return status_of(await self._js.stream_info(self._stream.name))

    async def seal(self) -> ObjectStoreStatus:
        """Seal the bucket: nothing in it can be changed any more. This cannot be taken back.

        Raises BucketNotFoundError when it does not exist any more.
        """
        config = (await self.status()).stream_info.config
        config.sealed = self._sealed = True
        return status_of(await self._js.update_stream(config))

    async def destroy(self) -> None:
        """Remove the bucket with all objects, also a sealed one; BucketNotFoundError when it is gone."""
        with of_bucket(self.bucket):
            await self._js.delete_stream(self._stream.name)


class _Rename:
    """A rename: the object gets its new name, then loses its old one. ``attempt`` may be repeated.

    Both names have the same chunks meanwhile. The old name is taken from exactly the message that was read, so of a
    rename and a put, a delete or another rename of the same object, one is first, and the other one knows::

        old name   read at 7 ──────────────────► purge up to 7     ─► removed: it is renamed
        new name               stored at 9                         ─► nothing:  another one was first

    What was put or changed first is renamed in its turn. What was deleted or renamed first is not found, and the
    new name is withdrawn.
    """

    def __init__(
        self,
        store: ObjectStore,
        before: ObjectInfo,
        seq: int,
        changed: Callable[[ObjectInfo], ObjectInfo],
    ) -> None:
        """``before`` was read at ``seq``; ``changed`` gives it the new name."""
        self.client = store.client
        self._store = store
        self._before = before
        self._seq = seq
        self._changed = changed
        self._new_seq = 0  # of the message with the new name
        self._doubt = False  # whether the old name may be gone already

    async def begin(self, new: str) -> None:
        """Raise ObjectExistsError when another object has the new name."""
        hidden, self._new_seq = await self._store._look(new)
        if hidden is not None and not hidden.deleted:
            raise ObjectExistsError(f"bucket {self._store.bucket!r} has an object {new!r} already")

    async def attempt(self) -> ObjectInfo:
        """Rename the object; ObjectNotFoundError when another one has deleted or renamed it meanwhile."""
        while True:
            info = self._changed(self._before)
            await self._add(info)
            if await self._remove_old():
                return info

    async def _add(self, info: ObjectInfo) -> None:
        """Store the new name; ObjectExistsError when another object has it meanwhile."""
        store = self._store
        while True:
            try:
                self._new_seq = await store._store(info, self._new_seq)
            except WrongLastSequenceError:
                found, self._new_seq = await store._look(info.name)
                if found is None or found.deleted:
                    continue
                if found.nuid != info.nuid:
                    raise ObjectExistsError(
                        f"bucket {store.bucket!r} has an object {info.name!r} meanwhile"
                    ) from None
            return

    async def _remove_old(self) -> bool:
        """Whether the old name is gone; if another message has it, that is renamed next."""
        store, before = self._store, self._before
        # True while the purge is on its way: after a cancel, the next attempt may find that it is done.
        doubt, self._doubt = self._doubt, True
        purged = await self._purge(before.name, self._seq)
        self._doubt = False
        if purged:
            return True
        found, seq = await store._look(before.name)
        if doubt and (found is None or found.nuid != before.nuid):
            return True
        if found is None or found.deleted:
            await self._purge(self._changed(before).name, self._new_seq)
            raise ObjectNotFoundError(store.bucket, before.name)
        self._before, self._seq = found, seq
        return False

    async def _purge(self, name: str, seq: int) -> int:
        """Remove the message of that name up to this sequence; returns how many there were."""
        store = self._store
        subject = meta_subject(store.bucket, name)
        return await store._js.purge_stream(store._stream.name, filter_subject=subject, seq=seq + 1)


def _check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        refuse("progress", "a function", progress)


def _position(stream: str, bucket: str, policy: DeliverPolicy) -> WatchPosition:
    """Where a watch of objects begins."""
    subjects = [f"$O.{bucket}.M.>"]
    first = None if policy == "all" else policy
    return WatchPosition(stream, subjects, first, 1, headers_only=False)
