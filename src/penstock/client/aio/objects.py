"""Object stores, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ConnectionClosed

from ..objects.store import Storing
from ..objects.watching import Watching
from .running import Awaited, Entered, run

if TYPE_CHECKING:
    from ..objects.models import ObjectInfo
    from .connection import Client


class ObjectWatcher(Entered, Watching):
    """Changes of an object store; made by ``ObjectStore.watch``.

    Iterate over it with ``async for``, or await ``next``. Each item is the ObjectInfo of an object that
    was stored, changed or deleted; None once, when all objects that were there at the beginning have been
    told. Leave it with ``async with`` or ``stop``, which remove its consumer.

    ::

        async with await store.watch() as watcher:
            while (info := await watcher.next(timeout=60)) is not None:
                print(info.name, info.size)
    """

    client: Client

    def __aiter__(self) -> ObjectWatcher:
        """Changes until ``stop``."""
        return self

    async def __anext__(self) -> ObjectInfo | None:
        """The next change; ConnectionClosed when the client is closed."""
        try:
            return await run(self.client, self.taking())
        except ConnectionClosed:
            if self._stopped:
                raise StopAsyncIteration from None
            raise


class ObjectStore(Awaited, Storing[ObjectWatcher]):
    """Objects of any size in a bucket; made by ``JetStream.object_store`` and ``create_object_store``.

    Example::

        store = await js.create_object_store(ObjectStoreConfig(bucket="reports"))
        await store.put("july.pdf", pathlib.Path("july.pdf"))
        data = await store.get("july.pdf")
    """

    client: Client
    _watcher_type = ObjectWatcher
