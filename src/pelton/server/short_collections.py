"""Short garbage collections: Python's full collection looks at every object, and while it does, no client is
served. With 200,000 subscriptions that takes more than 100 ms.

Objects that survive a long collection are set aside (gc.freeze), so the next collection looks only
at new objects. Objects that are set aside are freed as usual when nobody refers to them; only
circles of them are kept, and the server makes none for connections, subscriptions or streams. Once
an hour a collection that is due looks at everything. This concerns the whole process: only a server
that owns its process does it.
"""

import gc
import time
from collections.abc import Callable

LONG_SECONDS = 0.003
WHOLE_AGAIN_SECONDS = 3600.0
_FULL = 2  # the oldest generation


class ShortCollections:
    """Sets objects aside after long collections, from `open` to `close`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._begun = 0.0
        self._whole_at = clock() + WHOLE_AGAIN_SECONDS

    def open(self) -> None:
        """Watch the collections."""
        gc.callbacks.append(self._watch)

    def close(self) -> None:
        """Stop watching."""
        gc.callbacks.remove(self._watch)

    def _watch(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < _FULL:
            return
        now = self._clock()
        if phase == "start":
            if now >= self._whole_at:
                self._whole_at = now + WHOLE_AGAIN_SECONDS
                gc.unfreeze()
            self._begun = now
        elif now - self._begun >= LONG_SECONDS:
            gc.freeze()
