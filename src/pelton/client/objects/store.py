"""Object stores as a user's handle: change and link objects without their bytes, watch, seal, destroy.

``properties`` has what is known about objects, ``transfers`` carries their bytes. Does not
depend on transports.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    WrongLastSequenceError,
)

from ..base.steps import call
from .managing import of_bucket
from .models import (
    ObjectInfo,
    ObjectLink,
    ObjectStoreStatus,
    check_headers,
    check_metadata,
    meta_subject,
    status_of,
    stream_of,
)
from .persisting import completing, persisting
from .properties import PATIENCE_S
from .renaming import Renaming
from .transfers import Transfers
from .watching import Watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pelton.api.fields import DeliverPolicy

    from ..base.steps import Steps
    from ..plans.jetstream import Headers

W = TypeVar("W", bound=Watching)


class Storing(Transfers, Generic[W]):
    """The calls of one object store."""

    _watch_type: Callable[..., W]

    # -- changing ----------------------------------------------------------------------------------

    def _deleting(self, name: str) -> Steps[None]:
        """Delete an object or a link: its chunks are removed, a message says that it is deleted.

        A delete that is cancelled while that message is on the way deletes the object. An object that is put in
        its place meanwhile stays. Raises ObjectNotFoundError, also when it is renamed meanwhile.
        """
        before, seq = yield from persisting(
            self.client, lambda: self._looking(name), self._js.timeout, served=False
        )
        if before is None or before.deleted:
            raise ObjectNotFoundError(self.bucket, name)
        yield from completing(
            lambda patience_s: self._marking_deleted(before, seq, patience_s),
            PATIENCE_S,
            self._js.timeout,
            self._left(before.nuid),
        )

    delete = call(_deleting)

    def _marking_deleted(self, before: ObjectInfo, seq: int, patience_s: float) -> Steps[None]:
        """Mark this object as deleted, and remove its chunks.

        One that is put in its place meanwhile stays, and its writer removes the chunks.
        """
        deadline = self.client._clock() + patience_s
        info: ObjectInfo | None = before
        while info is not None and info.nuid == before.nuid:
            gone = replace(info, deleted=True, size=0, chunks=0, digest="")
            if info.deleted or (yield from self._trying(gone, seq, deadline)):
                if info.nuid:
                    yield from self._purging(info.nuid, patience_s)
                return
            left = deadline - self.client._clock()
            info, seq = yield from persisting(self.client, lambda: self._looking(before.name), left)
        if info is None or info.deleted:
            raise ObjectNotFoundError(self.bucket, before.name)

    def _updating_meta(
        self,
        name: str,
        *,
        rename: str | None = None,
        description: str | None = None,
        headers: Headers | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Steps[ObjectInfo]:
        """Change the name, description, headers or metadata of an object; what is None stays.

        The bytes stay as they are. What is put under the name meanwhile gets the changes. Raises
        ObjectNotFoundError, and ObjectExistsError when another object has the new name. A rename that is cancelled
        on its way is completed; one that fails may leave the object under both names. What is put under
        the old name meanwhile is renamed, too, or stays: never lost.
        """
        new = name if rename is None else rename
        meta_subject(self.bucket, new)
        before, seq = yield from self._looking(name)
        if before is None or before.deleted:
            raise ObjectNotFoundError(self.bucket, name)
        its_headers = None if headers is None else check_headers(headers)
        its_metadata = None if metadata is None else check_metadata(metadata)

        def changed(info: ObjectInfo) -> ObjectInfo:
            return replace(
                info,
                name=new,
                description=info.description if description is None else description,
                headers=info.headers if its_headers is None else its_headers,
                metadata=info.metadata if its_metadata is None else its_metadata,
                mtime_ns=0,
            )

        if new == name:
            return (yield from self._changing(before, seq, changed))
        renaming = Renaming(self, name, new, changed)
        yield from renaming.begin(before, seq)
        return (
            yield from completing(
                lambda _: renaming.attempt(),
                PATIENCE_S,
                self._js.timeout,
                f"the object may have both names, {name!r} and {new!r}",
            )
        )

    update_meta = call(_updating_meta)

    def _changing(
        self, before: ObjectInfo, seq: int, changed: Callable[[ObjectInfo], ObjectInfo]
    ) -> Steps[ObjectInfo]:
        """Change the properties that were read, or those that another call has stored in their place."""
        name, found = before.name, before
        while True:
            info = changed(found)
            try:
                yield from self._publishing(info, seq)
            except WrongLastSequenceError:
                newer, seq = yield from self._looking(name)
                if newer is None or newer.deleted:
                    raise ObjectNotFoundError(self.bucket, name) from None
                found = newer
            else:
                return info

    def _linking(self, name: str, target: ObjectInfo) -> Steps[ObjectInfo]:
        """Make a link to an object of this bucket or another one; ``target`` is what ``info`` returns.

        A link of that name is replaced. Raises ObjectExistsError when an object has the name, and ValueError for
        a target that is deleted or a link itself.
        """
        if not isinstance(target, ObjectInfo):
            raise TypeError(f"give the ObjectInfo of the target, not {type(target).__name__}")
        if target.deleted:
            raise ValueError(f"no link to {target.name!r}: it is deleted")
        if target.link is not None:
            raise ValueError(f"no link to {target.name!r}: it is a link itself")
        return (yield from self._storing_link(name, ObjectLink(target.bucket, target.name)))

    add_link = call(_linking)

    def _linking_bucket(self, name: str, bucket: Storing[Any] | str) -> Steps[ObjectInfo]:
        """Make a link to a whole bucket, which is given as its store or its name.

        A link of that name is replaced. Raises ObjectExistsError when an object has the name.
        """
        target = bucket.bucket if isinstance(bucket, Storing) else bucket
        stream_of(target)
        return (yield from self._storing_link(name, ObjectLink(target)))

    add_bucket_link = call(_linking_bucket)

    def _storing_link(self, name: str, link: ObjectLink) -> Steps[ObjectInfo]:
        info = ObjectInfo(name=name, bucket=self.bucket, nuid=self.client.new_id(), link=link)
        while True:
            before, seq = yield from self._looking(name)
            if before is not None and before.link is None and not before.deleted:
                raise ObjectExistsError(f"bucket {self.bucket!r} has an object {name!r} already")
            try:
                yield from self._publishing(info, seq)
            except WrongLastSequenceError:
                continue  # another call was first
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

    def _listing(self, *, show_deleted: bool = False) -> Steps[list[ObjectInfo]]:
        """The properties of all objects and links, in the order in which they were stored.

        With ``show_deleted`` also those of deleted objects.
        """
        watcher = Watching(
            self._js, self.bucket, self._stream, "last_per_subject", deletes=show_deleted
        )
        found: list[ObjectInfo] = []
        try:
            while (info := (yield from watcher._taking(self._js.timeout))) is not None:
                found.append(info)
        finally:
            yield from watcher._stopping()
        return found

    list = call(_listing)

    def _sealing(self) -> Steps[ObjectStoreStatus]:
        """Seal the bucket: nothing in it can be changed any more. This cannot be taken back.

        Raises BucketNotFoundError when it does not exist any more.
        """
        info = yield from of_bucket(self.bucket, self._js._plans.stream_info(self._stream))
        info.config.sealed = self._sealed = True
        return status_of((yield from self._js._plans.update_stream(info.config)))

    seal = call(_sealing)

    def _destroying(self) -> Steps[None]:
        """Remove the bucket with all objects, also a sealed one; BucketNotFoundError when it is gone."""
        yield from of_bucket(self.bucket, self._js._plans.delete_stream(self._stream))

    destroy = call(_destroying)
