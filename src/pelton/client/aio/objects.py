"""Object stores, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..objects.models import ObjectInfo
from ..objects.store import Storing
from ..objects.watching import Watching
from .running import Awaited, Watched

if TYPE_CHECKING:
    from .connection import Client


class ObjectWatcher(Watched[ObjectInfo | None], Watching):
    """Changes of an object store; made by ``ObjectStore.watch``.

    Iterate over it with ``async for``, or await ``next``. Each item is the ObjectInfo of an object that
    was stored, changed or deleted; None once, when all objects that were there at the beginning have been
    told. Leave it with ``async with`` or ``stop``, which remove its consumer.

    ::

        async with store.watch() as watcher:
            while (info := await watcher.next(timeout=60)) is not None:
                print(info.name, info.size)
    """

    client: Client


class ObjectStore(Awaited, Storing[ObjectWatcher]):
    """Objects of any size in a bucket; made by ``JetStream.object_store`` and ``create_object_store``.

    Example::

        store = await js.create_object_store(ObjectStoreConfig(bucket="reports"))
        await store.put("july.pdf", pathlib.Path("july.pdf"))
        data = await store.get("july.pdf")
    """

    client: Client
    _watch_type = ObjectWatcher
