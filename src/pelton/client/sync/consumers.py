# Made of client/aio/consumers.py by tools/gen_sync.py: change that file, and run it again.
"""Consumers: pull, ordered and push consumers, each with ``next``, ``fetch``, ``consume`` and ``info``.

A fetch, from the call to the socket::

    Consumer.fetch ──► _collect ──► pull_once ──► Inbox.request ──► Connection.publish     (protocol/connection.py)
                                       │
                                       └──► client._until: wait until messages or a status have arrived
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Self

from pelton.errors import (
    ConnectionLostError,
    ConsumerBusyError,
    ConsumerDeletedError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
    PullError,
    StreamNotFoundError,
)

from ..base.arguments import check_number
from ..base.durations import Duration, Moment, to_nanoseconds
from ..base.mailbox import RETRY_S
from ..base.models import ConsumerConfig, ConsumerInfo, ConsumerPause
from ..consume.arrivals import WRONG_PIN, PullIntake, PushIntake
from ..consume.ordered import OrderedIntake, Position
from ..consume.pull import CONFLICT, Asking, Fetch, Inbox, Sizes, check_most, config_of
from .locks import locked
from .operations import ConsumerMessages, PushMessages
from .upkeep import OwnConsumers, Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..consume.events import ConsumerEvent
    from ..consume.intake import OnMissing
    from .connection import Client
    from .jetstream import JetStream
    from .messages import Message

TIMEOUT_S = 30.0
"""How long ``next`` and ``fetch`` wait, unless they are told."""
GRACE_S = 2.0
"""How much longer than the server's own deadline the client waits for an answer."""
PUSH_MESSAGES_MAX = 524_288


def pull_once(
    inbox: Inbox,
    asking: Asking,
    batch: int,
    seconds: float,
    *,
    max_bytes: int = 0,
    no_wait: bool = False,
) -> list[Message]:
    """The messages of one request; as ``Consumer.fetch``.

    The request is sent again while its consumer moves to another server.
    """
    client = inbox.client
    # Where no background task connects again, this call does.
    if not client._stays_open:
        client._ready(seconds)
    inbox.error = None  # what broke before this call is no concern of it
    fetch = Fetch(inbox.subject, batch)
    deadline = client._clock() + seconds
    if inbox.queue:  # of a request that was given up
        inbox.feed(fetch)
    if not fetch.done:
        # A request without a deadline would stay open at the server for ever.
        expires_ns = 0 if no_wait else max(1, int(seconds * 1e9))
        left = batch - len(fetch.messages)
        request = asking.body(left, expires=expires_ns, max_bytes=max_bytes, no_wait=bool(no_wait))
        while True:
            fetch.begin(inbox.request(request))
            try:
                client._until(inbox, partial(inbox.feed, fetch), seconds + GRACE_S)
            except BaseException:
                inbox.queue.extendleft(reversed(fetch.messages))  # nobody gets them: they go back
                raise
            if not fetch.done and not fetch.messages:
                inbox.check()
                raise PeltonTimeoutError(
                    f"no answer to a pull from {inbox.consumer!r} in {seconds} s"
                )
            if fetch.error is None or not fetch.may_begin_again(clustered=client.clustered):
                break
            seconds = deadline - client._clock() - RETRY_S
            # Messages that came before the change of leader are not held back.
            if fetch.messages or seconds <= 0:
                break
            client._sleep(RETRY_S)
    found: list[Message] = fetch.result()
    return found


class Consumer:
    """A pull consumer; made by ``JetStream.consumer``.

    ``next``, ``fetch`` and ``consume`` may be used at the same time and by several tasks, or threads. ::

        consumer = js.consumer("ORDERS", "billing")
        message = consumer.next(timeout=5)
        if message is not None:
            message.ack()
    """

    def __init__(self, js: JetStream, info: ConsumerInfo) -> None:
        """``info`` of the consumer; ValueError when it is a push consumer."""
        if config_of(info).deliver_subject:
            raise ValueError(
                f"{info.name!r} is a push consumer: use push_consumer, or make a pull consumer"
            )
        self.client: Client = js.client
        """The client that it belongs to."""
        self.stream = info.stream_name
        """The name of the stream."""
        self.name = info.name
        """The name of the consumer."""
        self.cached_info = info
        """The last info that the server sent."""
        self._js = js
        self._subject = js.subjects.next_message(self.stream, self.name)
        self._config = config_of(info)
        self._pins: dict[str, str] = {}
        self._asking: Asking | None = None  # of calls that name no priority group
        self._idle: list[Inbox] = []  # one for each call that runs at the same time

    def __repr__(self) -> str:
        """Consumer and stream."""
        return f"<{type(self).__name__} {self.name!r} of stream {self.stream!r}>"

    @locked
    def __enter__(self) -> Self:
        """The consumer itself."""
        return self

    @locked
    def __exit__(self, *_: object) -> None:
        """``close``."""
        self.close()

    @locked
    def close(self) -> None:
        """End the subscriptions of ``next`` and ``fetch``; a later call makes a new one.

        Operations of ``consume`` go on, and the consumer itself stays.
        """
        while self._idle:
            self._idle.pop().close()

    # -- the consumer itself -----------------------------------------------------------------------

    @locked
    def info(self) -> ConsumerInfo:
        """The consumer's configuration and state now; ConsumerNotFoundError, StreamNotFoundError."""
        self.cached_info = self._js.consumer_info(self.stream, self.name)
        self._config, self._asking = config_of(self.cached_info), None
        return self.cached_info

    @locked
    def delete(self) -> None:
        """Remove the consumer from its stream; ConsumerNotFoundError, StreamNotFoundError."""
        self.close()
        self._js.delete_consumer(self.stream, self.name)

    @locked
    def pause(self, until: Moment) -> ConsumerPause:
        """Deliver nothing until a moment: a datetime with a zone, RFC 3339 text or nanoseconds.

        NotEnabledError before nats-server 2.11.
        """
        return self._js.pause_consumer(self.stream, self.name, until)

    @locked
    def resume(self) -> ConsumerPause:
        """Deliver again after ``pause``."""
        return self._js.resume_consumer(self.stream, self.name)

    @locked
    def reset(self, seq: int = 0) -> ConsumerInfo:
        """Deliver again from a stream sequence on, or from the message after the ack floor.

        Forgets deliveries and acks after that. NotEnabledError before nats-server 2.14.
        """
        return self._js.reset_consumer(self.stream, self.name, seq)

    @locked
    def unpin(self, group: str) -> None:
        """Take the pin of a priority group from the client that has it, so that another one gets it."""
        self._js.unpin_consumer(self.stream, self.name, group)

    # -- batches -----------------------------------------------------------------------------------

    @locked
    def next(
        self,
        timeout: Duration = TIMEOUT_S,
        *,
        group: str = "",
        min_pending: int = 0,
        min_ack_pending: int = 0,
        priority: int = 0,
    ) -> Message | None:
        """The next message, or None when none arrived in ``timeout``; raises as ``fetch``."""
        found = self.fetch(
            1,
            timeout=timeout,
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
        )
        return found[0] if found else None

    @locked
    def fetch(
        self,
        batch: int = 1,
        *,
        timeout: Duration = TIMEOUT_S,
        max_bytes: int = 0,
        no_wait: bool = False,
        group: str = "",
        min_pending: int = 0,
        min_ack_pending: int = 0,
        priority: int = 0,
    ) -> list[Message]:
        """Up to ``batch`` messages: as soon as all arrived, or those that arrived in ``timeout``.

        With ``max_bytes`` no more than so many bytes, with subjects and headers; with ``no_wait`` only
        the messages that the consumer has right now. An empty list when there are none. A call goes on
        after a reconnect and a change of leader, until its time is over; a consumer that has no leader
        then had no messages. ``group`` and the parameters after it belong to priority groups.

        Raises ConsumerNotFoundError, StreamNotFoundError, ConsumerDeletedError, PullError for a request that the
        server refuses, and ConnectionLostError or PeltonTimeoutError without an answer in time; but it returns
        messages first if some arrived.
        """
        seconds = to_nanoseconds(timeout, "timeout") / 1e9
        check_most(batch, max_bytes)
        asking = self._asking
        if asking is None or group or min_pending or min_ack_pending or priority:
            asking = Asking(
                self._config,
                self._pins,
                group=group,
                min_pending=min_pending,
                min_ack_pending=min_ack_pending,
                priority=priority,
            )
            if not (group or min_pending or min_ack_pending or priority):
                self._asking = asking  # the same for every call
        # Calls at the same time need one each: a status must find its request, and a message its caller.
        inbox = self._idle.pop() if self._idle else self._new_inbox()
        try:
            found = self._collect(inbox, asking, batch, seconds, max_bytes, no_wait)
        except BaseException:
            # Its answer may still come: nobody may take it for that of another request.
            inbox.leave() if self._config.ack_policy == "explicit" else inbox.close()
            raise
        self._idle.append(inbox)
        if asking.pinned:
            for message in found:
                asking.learn(message)
        return found

    def _new_inbox(self) -> Inbox:
        inbox = Inbox(self.client, self._subject, self.name)
        # A number, and neither inbox nor consumer: what a finalizer refers to is never collected. At exit
        # the connection ends anyway.
        abandon = self.client._connection.abandon
        weakref.finalize(self, abandon, inbox._interest.sid).atexit = False
        return inbox

    def _collect(
        self,
        inbox: Inbox,
        asking: Asking,
        batch: int,
        seconds: float,
        max_bytes: int,
        no_wait: bool,
    ) -> list[Message]:
        """Requests within the consumer's limits, until one ends early or all messages are there."""
        clock, config = self.client._clock, self._config
        deadline = clock() + seconds
        step = min(batch, config.max_batch or batch)
        longest = config.max_expires / 1e9 if config.max_expires else seconds
        found: list[Message] = []
        while True:
            left = max(0.0, deadline - clock())
            wait = min(left, longest)
            count = min(step, batch - len(found))
            try:
                got = pull_once(inbox, asking, count, wait, max_bytes=max_bytes, no_wait=no_wait)
            except (ConnectionLostError, NoRespondersError, PullError) as error:
                # The next call gets the error, if it is still true then.
                if found:
                    return found
                if not self._passes(error, asking, deadline):
                    if isinstance(error, NoRespondersError):
                        return found  # the consumer exists, and has no leader
                    raise
                continue
            found += got
            whole = len(got) == count or longest < left  # the request ended because of a limit
            if no_wait or max_bytes or not whole or len(found) >= batch:
                return found

    def _passes(self, error: Exception, asking: Asking, deadline: float) -> bool:
        """Whether a request may be sent again after this error."""
        if isinstance(error, PullError):
            return error.status == WRONG_PIN and asking.unpin()
        if isinstance(error, NoRespondersError):
            self.info()  # says what is missing, if anything is
        if deadline - self.client._clock() <= RETRY_S:
            return False
        self.client._sleep(RETRY_S)
        return True

    # -- without end -------------------------------------------------------------------------------

    @locked
    def consume(
        self,
        callback: Callable[[Message], object] | None = None,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        threshold: int | None = None,
        expires: Duration = 30.0,
        heartbeat: Duration = 5.0,
        on_missing: OnMissing = "wait",
        concurrency: int | None = None,
        auto_ack: bool = False,
        auto_extend: bool | None = None,
        nak_delay: Duration | None = None,
        on_status: Callable[[ConsumerEvent], object] | None = None,
        group: str = "",
        min_pending: int = 0,
        min_ack_pending: int = 0,
        priority: int = 0,
    ) -> ConsumerMessages:
        """Messages without end: iterate over them, or give a callback.

        max_messages: how many messages are requested and not handled at most (500), or
        max_bytes: how many bytes. More are requested when
        threshold: at most so much is left; half of it by default.
        expires, heartbeat: how long a request waits, and how often the server says that it is alive;
            when it misses two heartbeats, the consumer is looked up and a new request is sent.
        on_missing: when the consumer or its stream is deleted: "wait" until it is there again, "raise"
            ConsumerDeletedError, ConsumerNotFoundError or StreamNotFoundError, or "recreate" the consumer from its
            last known configuration.
        concurrency: how many handlers run at a time (1).
        auto_ack: acknowledge a message when its handler returns.
        auto_extend: extend the ack wait of buffered messages and of those that are being handled: by the
            callback, or by the loop until it asks for the next one.
        nak_delay: when a handler raises, its message is delivered again after this time.
        on_status: called with each ConsumerEvent.
        group, min_pending, min_ack_pending, priority: of a consumer with priority groups.

        Goes on after reconnects, restarts of the server and changes of the leader. Raises ValueError
        for options that contradict each other or the consumer. An iteration raises PullError when the
        server refuses the requests, PermissionsViolationError, and ConnectionClosedError when the client is lost.
        """
        sizes = Sizes(
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold=threshold,
            expires=expires,
            heartbeat=heartbeat,
        )
        asking = Asking(
            self._config,
            self._pins,
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
        )
        info = self.cached_info
        intake = PullIntake(self.client, self._subject, info, asking, sizes, on_missing)
        return ConsumerMessages(
            Upkeep(self._js, intake),
            callback,
            concurrency=concurrency,
            auto_ack=auto_ack,
            auto_extend=auto_extend,
            nak_delay=nak_delay,
            on_status=on_status,
        )


class OrderedConsumer:
    """An ordered consumer; made by ``JetStream.ordered_consumer``. One operation at a time.

    ::

        ordered = js.ordered_consumer("ORDERS", filter_subjects=["orders.new"])
        with ordered.consume() as messages:
            for message in messages:
                print(message.metadata.stream_seq)
    """

    def __init__(self, js: JetStream, position: Position, name_prefix: str = "") -> None:
        """Sends nothing yet."""
        self.client: Client = js.client
        """The client that it belongs to."""
        self.stream = position.stream
        """The name of the stream."""
        self._js = js
        self._position = position
        self._consumers = OwnConsumers(js, position.stream, name_prefix)
        self._busy = ""  # the operation that runs
        self._name = ""  # the consumer of ``next`` and ``fetch``
        self._inbox: Inbox | None = None

    def __repr__(self) -> str:
        """Stream and position."""
        return f"<{type(self).__name__} of stream {self.stream!r} at {self._position.next_seq}>"

    @locked
    def __enter__(self) -> Self:
        """The consumer itself."""
        return self

    @locked
    def __exit__(self, *_: object) -> None:
        """Remove the consumer of ``next`` and ``fetch``."""
        self._discard()

    @locked
    def close(self) -> None:
        """Remove the consumer of ``next`` and ``fetch``; a later call makes a new one."""
        self._occupy("close")
        try:
            self._discard()
        finally:
            self._release()

    @locked
    def info(self) -> ConsumerInfo:
        """The state of the consumer that ``next`` and ``fetch`` use; makes it when there is none."""
        self._occupy("info")
        try:
            self._ready()
            return self._js.consumer_info(self.stream, self._name)
        finally:
            self._release()

    # -- batches -----------------------------------------------------------------------------------

    @locked
    def next(self, timeout: Duration = TIMEOUT_S) -> Message | None:
        """The next message, or None when none arrived in ``timeout``; raises as ``fetch``."""
        found = self.fetch(1, timeout=timeout)
        return found[0] if found else None

    @locked
    def fetch(
        self, batch: int = 1, *, timeout: Duration = TIMEOUT_S, max_bytes: int = 0
    ) -> list[Message]:
        """Up to ``batch`` messages in order: as soon as all arrived, or those that arrived in ``timeout``.

        With ``max_bytes`` no more than so many bytes. An empty list when there are none. Raises
        ConsumerBusyError while another operation runs, StreamNotFoundError, PullError, and ConnectionLostError or
        PeltonTimeoutError without an answer in time; but it returns messages first if some arrived.
        """
        seconds = to_nanoseconds(timeout, "timeout") / 1e9
        check_most(batch, max_bytes)
        self._occupy("fetch or next")
        found: list[Message] = []
        try:
            self._collect(found, batch, seconds, max_bytes)
        except PeltonError:
            if not found:
                raise
        except BaseException:
            if found:
                # The call was cancelled: nobody gets these messages, so the next one begins with them.
                self._position.rewind(found[0].metadata.stream_seq)
            self._drop()
            raise
        finally:
            self._release()
        return found

    def _collect(self, found: list[Message], batch: int, seconds: float, max_bytes: int) -> None:
        clock = self.client._clock
        deadline = clock() + seconds
        asking = Asking(ConsumerConfig(), {})
        while True:
            left = max(0.0, deadline - clock())
            made = False
            try:
                inbox = self._ready()
                made = True
                got = pull_once(inbox, asking, batch - len(found), left, max_bytes=max_bytes)
            except PeltonError as error:
                self._discard()
                recoverable = self._position.recoverable(error)
                if not recoverable or deadline - clock() <= RETRY_S:
                    lost = isinstance(error, ConsumerDeletedError | NoRespondersError)
                    if made and recoverable and lost:
                        return  # the next call makes another one
                    raise
                self.client._sleep(RETRY_S)
                continue
            # The rest after a gap is delivered again by the next consumer.
            for message in got:
                if not self._position.take(message.metadata):
                    self._discard()
                    break
                found.append(message)
            else:
                return
            if clock() >= deadline:
                return

    # -- its consumers on the server ---------------------------------------------------------------

    def _occupy(self, operation: str) -> None:
        """Begin an operation; ConsumerBusyError while another one runs."""
        if self._busy:
            raise ConsumerBusyError(
                f"this ordered consumer is busy with {self._busy}: wait for its end or stop it, "
                "or use another ordered consumer"
            )
        self._busy = operation

    def _release(self) -> None:
        """The operation has ended."""
        self._busy = ""

    def _ready(self) -> Inbox:
        """The inbox of requests to the current consumer, which is made when there is none."""
        if self._inbox is None:
            info, _ = create_next(self._js, self._position, self._consumers)
            self._position.started(info)
            self._name = info.name
            subject = self._js.subjects.next_message(self.stream, info.name)
            self._inbox = inbox = Inbox(self.client, subject, info.name)
            abandon = self.client._connection.abandon
            weakref.finalize(self, abandon, inbox._interest.sid).atexit = False
            self._consumers.remove(info.name)
        return self._inbox

    def _drop(self) -> None:
        """Forget the current consumer; it is removed at the latest with the next one."""
        inbox, self._inbox, self._name = self._inbox, None, ""
        self._position.forget()
        if inbox is not None:
            inbox.close()

    def _discard(self) -> None:
        """Forget the current consumer, and remove it from the server."""
        self._drop()
        self._consumers.remove()

    # -- without end -------------------------------------------------------------------------------

    @locked
    def consume(
        self,
        callback: Callable[[Message], object] | None = None,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        threshold: int | None = None,
        expires: Duration = 30.0,
        heartbeat: Duration = 5.0,
        on_missing: OnMissing = "wait",
        concurrency: int | None = None,
        on_status: Callable[[ConsumerEvent], object] | None = None,
    ) -> ConsumerMessages:
        """Messages without end, in order and without gaps: iterate over them, or give a callback.

        Begins after the last message of an earlier operation. The options are those of ``Consumer.consume``;
        on_missing concerns the stream, and is "wait" or "raise". A message whose handler raises does not come
        again. ConsumerBusyError while another operation runs.
        """
        if on_missing == "recreate":
            raise ValueError(
                "an ordered consumer is always made again; on_missing concerns its stream"
            )
        sizes = Sizes(
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold=threshold,
            expires=expires,
            heartbeat=heartbeat,
        )
        self._occupy("consume")
        self._drop()
        intake = OrderedIntake(self.client, self._position, self._consumers, sizes, on_missing)
        intake.freed = self._release
        upkeep = OrderedUpkeep(self._js, intake, self._consumers)
        return ConsumerMessages(upkeep, callback, concurrency=concurrency, on_status=on_status)


def create_next(
    js: JetStream, position: Position, consumers: OwnConsumers
) -> tuple[ConsumerInfo, bool]:
    """Create the consumer that goes on at a position; also whether the stream was made again before."""
    renewed = False
    if position.made_before:
        try:
            found = js.stream_info(position.stream)
        except PermissionsViolationError:
            pass  # the user may read the stream, and not ask about it
        else:
            renewed = position.look_at(found)
    return consumers.create(position.config()), renewed


class OrderedUpkeep(Upkeep):
    """Keeps the messages of an ordered consumer coming: a new consumer after each gap and loss."""

    intake: OrderedIntake

    def __init__(self, js: JetStream, intake: OrderedIntake, consumers: OwnConsumers) -> None:
        """``start`` follows."""
        super().__init__(js, intake)
        self._consumers = consumers

    def _recover(self, why: Exception) -> None:
        """Make the next consumer: that the last one was deleted is no error."""
        super()._recover(PullError(CONFLICT, str(why)))

    def _find(self, count: int) -> ConsumerInfo:
        """Make a new consumer after the last message."""
        intake = self.intake
        intake.position.forget()
        intake.give_up()
        try:
            info, renewed = create_next(self._js, intake.position, self._consumers)
        except StreamNotFoundError as error:
            if intake.created:
                intake.events.emit("stream_not_found", str(error), count=count)
            raise
        subject = self._js.subjects.next_message(intake.stream, info.name)
        intake.restarted(info, subject, renewed=renewed)
        self._consumers.remove(info.name)
        return info

    def _tidy(self) -> None:
        """Remove the consumer: it is gone when the block ends."""
        self._consumers.remove()


class PushConsumer:
    """A push consumer; made by ``JetStream.push_consumer``.

    ::

        old = js.push_consumer("ORDERS", "old")
        with old.consume() as messages:
            for message in messages:
                message.ack()
    """

    def __init__(self, js: JetStream, info: ConsumerInfo) -> None:
        """``info`` of the consumer; ValueError when it is not a push consumer for users."""
        config = config_of(info)
        if not config.deliver_subject:
            raise ValueError(f"{info.name!r} is a pull consumer: use consumer")
        if config.ack_policy == "flow_control":
            raise ValueError(f"{info.name!r} is acknowledged by flow control: it is for mirrors")
        self.client: Client = js.client
        """The client that it belongs to."""
        self.stream = info.stream_name
        """The name of the stream."""
        self.name = info.name
        """The name of the consumer."""
        self.cached_info = info
        """The last info that the server sent."""
        self._js = js
        self._buffer: PushMessages | None = None  # of ``next`` and ``fetch``

    def __repr__(self) -> str:
        """Consumer and stream."""
        return f"<{type(self).__name__} {self.name!r} of stream {self.stream!r}>"

    @locked
    def __enter__(self) -> Self:
        """The consumer itself."""
        return self

    @locked
    def __exit__(self, *_: object) -> None:
        """``close``."""
        self.close()

    @locked
    def close(self) -> None:
        """End the subscription of ``next`` and ``fetch``: buffered messages go back; a later call makes a new one."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.__exit__(None)

    @locked
    def info(self) -> ConsumerInfo:
        """The consumer's configuration and state now; ConsumerNotFoundError, StreamNotFoundError."""
        self.cached_info = self._js.consumer_info(self.stream, self.name)
        return self.cached_info

    @locked
    def delete(self) -> None:
        """Remove the consumer from its stream; ConsumerNotFoundError, StreamNotFoundError."""
        self._js.delete_consumer(self.stream, self.name)

    @locked
    def next(self, timeout: Duration = TIMEOUT_S) -> Message | None:
        """The next message, or None when none arrived in ``timeout``; raises as ``consume``."""
        found = self.fetch(1, timeout=timeout)
        return found[0] if found else None

    @locked
    def fetch(self, batch: int = 1, *, timeout: Duration = TIMEOUT_S) -> list[Message]:
        """Up to ``batch`` messages: as soon as all arrived, or those that arrived in ``timeout``.

        The first call subscribes, and the server sends as much as it may: what is not taken is buffered until
        ``close``. An empty list when nothing arrived. Raises as ``consume``.
        """
        seconds = to_nanoseconds(timeout, "timeout") / 1e9
        check_most(batch, 0)
        if self._buffer is None or self._buffer.ended:
            self._buffer = self.consume()
        return self._buffer._take(batch, seconds)

    @locked
    def consume(
        self,
        callback: Callable[[Message], object] | None = None,
        *,
        on_missing: OnMissing = "wait",
        max_messages: int = PUSH_MESSAGES_MAX,
        concurrency: int | None = None,
        auto_ack: bool = False,
        auto_extend: bool | None = None,
        nak_delay: Duration | None = None,
        on_status: Callable[[ConsumerEvent], object] | None = None,
    ) -> PushMessages:
        """Messages without end: iterate over them, or give a callback.

        A consumer with a queue group shares its messages among all that consume it. Flow control is
        answered when the messages before are taken. A consumer without flow control may send more than
        the program handles: messages above max_messages are dropped, and the server delivers them again.

        on_missing: when the consumer or its stream is deleted: "wait" until it is there again, "raise"
            ConsumerNotFoundError or StreamNotFoundError, or "recreate" the consumer from its last known
            configuration. Noticed by missed heartbeats, so the consumer needs an idle_heartbeat.
        concurrency: how many handlers run at a time (1).
        auto_ack: acknowledge a message when its handler returns.
        auto_extend: extend the ack wait of buffered messages and of those that are being handled.
        nak_delay: when a handler raises, its message is delivered again after this time.
        on_status: called with each ConsumerEvent.

        Raises ValueError for options that contradict each other. An iteration raises
        PermissionsViolationError, and ConnectionClosedError when the client is lost.
        """
        check_number("max_messages", max_messages)
        if max_messages < 1:
            raise ValueError(f"max_messages is at least 1, got {max_messages}")
        intake = PushIntake(self.client, self.cached_info, on_missing, max_messages)
        return PushMessages(
            Upkeep(self._js, intake),
            callback,
            concurrency=concurrency,
            auto_ack=auto_ack,
            auto_extend=auto_extend,
            nak_delay=nak_delay,
            on_status=on_status,
        )
