"""Following the changes of an object store: the present objects first, then each change.

Reads through an ordered consumer, which is replaced when it is lost. Does not depend on transports.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from pelton.errors import ConnectionClosedError, ObjectDamagedError, PeltonError, PeltonTimeoutError

from ..base.steps import SEND, Ended, Ready, Until, call, pausing
from ..jetstream.ordered import Ordered
from ..jetstream.pull import Flow as Requests
from ..jetstream.pulling import Inbox, Pulling
from ..session.own_consumers import OwnConsumers
from .models import decode_meta

if TYPE_CHECKING:
    from pelton.api.fields import DeliverPolicy

    from ..base.durations import Duration
    from ..base.message import BaseMessage
    from ..base.steps import Steps
    from ..jetstream.streams import Streams
    from .models import ObjectInfo

BATCH = 256
EXPIRES_NS = 30 * 10**9
HEARTBEAT_S = 5.0


class Watching:
    """Changes of an object store; made by ``ObjectStore.watch``.

    Iterate over it, or call ``next``. Each item is the ObjectInfo of an object that was stored, changed or
    deleted; None once, when all objects that were there at the beginning have been told. A message that
    does not describe an object is reported as an error of the client. Survives a lost connection. Leave
    it with its block, or with ``stop``.
    """

    def __init__(
        self, js: Streams[Any], bucket: str, stream: str, policy: DeliverPolicy, *, deletes: bool
    ) -> None:
        """``deletes``: whether deleted objects are told, too."""
        self.client = js.client
        self._js = js
        self._bucket = bucket
        self._stream = stream
        self._state = Ordered(stream, [f"$O.{bucket}.M.>"], 1, policy, False)
        self._consumers = OwnConsumers(js.client, js._plans, stream)
        self._deletes = deletes
        self._handle: Pulling[Any] | None = None
        self._inbox: Inbox | None = None
        self._requests = Requests("", BATCH, 0, 0, 0)
        self._arrived: deque[ObjectInfo | None] = deque()
        self._telling = (
            policy != "new"
        )  # whether the end of the present objects is still to be told
        self._stopped = False

    def _beginning(self) -> Steps[None]:
        """Create the first consumer, or leave none: from now on every change is told."""
        if self._handle is not None or self._stopped:
            return
        try:
            yield from self._begin()
        except GeneratorExit:  # nobody carries out steps
            raise
        except BaseException:
            yield from self._stopping()
            raise

    def _begin(self) -> Steps[None]:
        """Create a consumer, and ask for its messages, so that they come as they are stored."""
        yield from self._state.checking(self._js._plans)
        info = yield from self._consumers.creating(self._state.config())
        self._state.started(info)
        self._handle = handle = Pulling(self._js, self._stream, info.name)
        yield from self._consumers.removing(keep=info.name)
        self._requests = Requests(
            self._js._plans.subjects.next_message(self._stream, info.name),
            BATCH,
            0,
            EXPIRES_NS,
            int(HEARTBEAT_S * 10**9),
        )
        self._inbox = yield from handle._begin()
        yield from self._ask(handle, self._inbox)
        if not info.num_pending:
            self._tell_end()

    def _tell_end(self) -> None:
        if self._telling:
            self._telling = False
            self._arrived.append(None)

    def _taking(self, timeout: Duration | None = None) -> Steps[ObjectInfo | None]:
        """The next change; None once, when all objects that were there at the beginning have been told.

        ``timeout`` in seconds, none by default. Raises PeltonTimeoutError, and ConnectionClosedError when the
        watcher was stopped or the client closed.
        """
        seconds = math.inf if timeout is None else self.client._timeout_of(timeout)
        deadline = self.client._clock() + seconds
        while not self._arrived:
            if self._stopped:
                raise ConnectionClosedError(f"the watcher of bucket {self._bucket!r} was stopped")
            left = deadline - self.client._clock()
            if left <= 0:
                raise PeltonTimeoutError(f"no change of bucket {self._bucket!r} in {seconds} s")
            try:
                if self._handle is None:
                    yield from self._begin()
                else:
                    yield from self._pull(left)
            except PeltonError as error:
                if self._stopped:
                    continue
                if self.client.closed or not self._state.recoverable(error):
                    raise
                yield from self._discarding()
                yield from pausing()
        return self._arrived.popleft()

    next = call(_taking)

    def _pull(self, left: float) -> Steps[None]:
        """Ask for messages if it is time, and take those that arrive."""
        inbox, handle = self._inbox, self._handle
        assert inbox is not None
        assert handle is not None
        quiet = 2 * HEARTBEAT_S
        if not inbox.queue:
            yield Ready(left)
            if inbox.error is not None:
                inbox.error = None
                self._requests.restart()
            yield from self._ask(handle, inbox)
            wait = min(left, quiet)
            if not (yield Until(inbox, inbox._has_news, wait)) and wait == quiet:
                self._requests.restart()  # not even a heartbeat: the request is lost
        if inbox.ended and not inbox.queue and not self._stopped:
            inbox._interest.check()
            raise ConnectionClosedError(f"the watcher of bucket {self._bucket!r} was stopped")
        whole = True
        while inbox.queue and whole and not self._arrived:
            message = inbox.queue.popleft()
            if self._requests.take(message, clustered=self.client.clustered):
                whole = self._take(message)
        if not whole:
            yield from self._discarding()

    def _ask(self, handle: Pulling[Any], inbox: Inbox) -> Steps[None]:
        """Ask for messages if it is time."""
        body = self._requests.due()
        if body is not None:
            handle._request(inbox, body)
            yield SEND

    def _take(self, message: BaseMessage) -> bool:
        metadata = message.metadata
        if not self._state.take(metadata):
            return False
        try:
            info = decode_meta(message.data, self._bucket, metadata.timestamp_ns)
        except ObjectDamagedError as error:
            self.client._report(error)
        else:
            if self._deletes or not info.deleted:
                self._arrived.append(info)
        if not metadata.pending:
            self._tell_end()
        return True

    def _following(self) -> Steps[ObjectInfo | None]:
        """The next change; Ended when the watcher was stopped."""
        try:
            return (yield from self._taking())
        except ConnectionClosedError:
            if self._stopped:
                raise Ended from None
            raise

    def _stopping(self) -> Steps[None]:
        """Stop: no change follows. The consumer is removed."""
        if self._stopped:
            return
        self._stopped = True
        yield from self._discarding()

    stop = call(_stopping)

    def _discarding(self) -> Steps[None]:
        handle, self._handle, self._inbox = self._handle, None, None
        if handle is not None:
            handle.close()
        if not self.client.closed:
            yield from self._consumers.removing()

    def _leaving(self, _: type[BaseException] | None) -> Steps[None]:
        """The end of the block."""
        yield from self._stopping()
