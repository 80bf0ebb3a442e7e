"""Object stores, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..objects.models import ObjectInfo
from ..objects.store import Storing
from ..objects.watching import Watching
from .running import Blocking, Watched

if TYPE_CHECKING:
    from .connection import Client


class ObjectWatcher(Watched[ObjectInfo | None], Watching):
    """Changes of an object store; made by ``ObjectStore.watch``.

    Iterate over it, or call ``next``. Each item is the ObjectInfo of an object that was stored, changed or
    deleted; None once, when all objects that were there at the beginning have been told. Leave it with
    ``with`` or ``stop``, which remove its consumer.

    ::

        with store.watch() as watcher:
            while (info := watcher.next(timeout=60)) is not None:
                print(info.name, info.size)
    """

    client: Client


class ObjectStore(Blocking, Storing[ObjectWatcher]):
    """Objects of any size in a bucket; made by ``JetStream.object_store`` and ``create_object_store``.

    Example::

        store = js.create_object_store(ObjectStoreConfig(bucket="reports"))
        store.put("july.pdf", pathlib.Path("july.pdf"))
        data = store.get("july.pdf")
    """

    client: Client
    _watch_type = ObjectWatcher
