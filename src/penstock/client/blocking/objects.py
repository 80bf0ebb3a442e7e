"""Object stores, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ConnectionClosed

from ..objects.store import Storing
from ..objects.watching import Watching
from .running import Blocking, Entered, run

if TYPE_CHECKING:
    from ..objects.models import ObjectInfo
    from .connection import BlockingClient


class ObjectWatcher(Entered, Watching):
    """Changes of an object store; made by ``ObjectStore.watch``.

    Iterate over it, or call ``next``. Each item is the ObjectInfo of an object that was stored, changed or
    deleted; None once, when all objects that were there at the beginning have been told. Leave it with
    ``with`` or ``stop``, which remove its consumer.

    ::

        with store.watch() as watcher:
            while (info := watcher.next(timeout=60)) is not None:
                print(info.name, info.size)
    """

    client: BlockingClient

    def __iter__(self) -> ObjectWatcher:
        """Changes until ``stop``."""
        return self

    def __next__(self) -> ObjectInfo | None:
        """The next change; ConnectionClosed when the client is closed."""
        try:
            return run(self.client, self.taking())
        except ConnectionClosed:
            if self._stopped:
                raise StopIteration from None
            raise


class ObjectStore(Blocking, Storing[ObjectWatcher]):
    """Objects of any size in a bucket; made by ``JetStream.object_store`` and ``create_object_store``.

    Example::

        store = js.create_object_store(ObjectStoreConfig(bucket="reports"))
        store.put("july.pdf", pathlib.Path("july.pdf"))
        data = store.get("july.pdf")
    """

    client: BlockingClient
    _watcher_type = ObjectWatcher
