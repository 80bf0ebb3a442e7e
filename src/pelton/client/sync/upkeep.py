# Made of client/aio/upkeep.py by tools/gen_sync.py: change that file, and run it again.
"""What keeps the messages of an operation coming: requests after a loss, look-ups, and the end.

::

    tend ──► wait for news ──► tend ...             all is well
      │ doubted: no heartbeat, no responders ...
      └──► find the consumer ──► go on with it      or try again later, or end, as ``on_missing`` says

``Turns`` (of each half's backend) says who runs the turns: a task in asyncio; in blocking code the call that waits.

Some readers make consumers for themselves, one after another, and remove them. Each has a name that the
client chooses, so that it can be removed also when the answer to its creation is lost. Those of a reader that
was garbage collected, or that is open when its client closes, are removed without waiting for the answer.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pelton.errors import (
    ApiError,
    ConnectionLostError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    NoRespondersError,
    OutputFullError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
    PullError,
    StreamNotFoundError,
)

from ..base.answers import decode, present
from ..base.mailbox import RETRY_S
from ..base.models import ConsumerConfig, ConsumerInfo, ConsumerInfoResponse
from ..consume.intake import Intake, raise_lasting
from .locks import locked
from .workers import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.api.subjects import Api

    from ..protocol.connection import Connection
    from .jetstream import JetStream

RETRY_MAX_S = 2.0
"""The longest time between two attempts to find a consumer."""


class Upkeep(Turns):
    """Keeps the messages of one operation coming; subclasses know how a missing consumer is found."""

    def __init__(self, js: JetStream, intake: Intake) -> None:
        """``start`` follows."""
        super().__init__(js.client, intake)
        self._js = js
        self._attempts = 0  # to find the consumer
        self._retry_at = -math.inf

    @locked
    def turn(self, done: Callable[[], bool], seconds: float) -> None:
        """Do what is due, and wait until something else is, or until ``done()`` holds."""
        intake = self.intake
        try:
            self._turn(done, seconds)
        except (PeltonError, ValueError) as error:
            if isinstance(error, ConnectionLostError | OutputFullError):
                # After a pause, or a connection that breaks again and again would make this loop spin.
                intake.lost = error
                self.client._until(intake, intake.is_ending, RETRY_S)
            elif intake.told:
                intake.finish()
            else:
                intake.fail(error if isinstance(error, PeltonError) else PullError(0, str(error)))
        except BaseException:
            if intake.kept:
                intake.finish()  # the task was cancelled
            raise

    def _turn(self, done: Callable[[], bool], seconds: float) -> None:
        intake = self.intake
        if intake.told:
            self._close()
            return
        if intake.doubted is not None:
            self._recover_when_due(intake.doubted, done, seconds)
            return
        now = self.client._clock()
        due = intake.tend(now)

        def news() -> bool:
            return done() or intake.is_ending() or bool(intake.lost or intake.doubted)

        wait = max(0.0, min(seconds, due - now))
        self.client._until(intake, news, wait, self.waiting_for)

    # -- a consumer that does not answer -----------------------------------------------------------

    def _recover_when_due(self, why: Exception, done: Callable[[], bool], seconds: float) -> None:
        """Recover when it is time for it, and there is a connection."""
        client, intake = self.client, self.intake
        wait = self._retry_at - client._clock()
        # The connection is replaced in the background: until then a look-up could only time out.
        if wait <= 0 and client._stays_open and not client._connection.connected:
            wait = RETRY_S
        if wait <= 0:
            self._recover(why)
            return
        wait = max(0.0, min(wait, intake.look_meanwhile() - client._clock()))
        client._until(
            intake, lambda: done() or intake.is_ending(), min(wait, seconds), self.waiting_for
        )

    def _recover(self, why: Exception) -> None:
        """Try once to find the consumer and to ask for messages; raises as ``on_missing`` says."""
        intake = self.intake
        if isinstance(why, ConsumerDeletedError) and intake.on_missing == "raise":
            raise why
        self._attempts += 1
        try:
            info = self._find(self._attempts)
        except (StreamNotFoundError, ConsumerNotFoundError):
            if intake.on_missing == "raise":
                raise
        except PermissionsViolationError:
            if self._attempts > 1:  # it may not be looked up, so only ask again
                self._go_on(intake.info, why)
                return
        except PeltonError as error:
            self._check_lasting(error)
        else:
            self._go_on(info, why)
            return
        wait = min(RETRY_S * 2 ** min(self._attempts - 1, 8), RETRY_MAX_S)
        self._retry_at = self.client._clock() + wait

    def _check_lasting(self, error: PeltonError) -> None:
        """Raise an error that does not pass; return for one that the next attempt may not have."""
        raise_lasting(error)

    def _go_on(self, info: ConsumerInfo, why: Exception) -> None:
        self._attempts = 0
        self._retry_at = -math.inf
        self.intake.recovered(info, why)

    def _find(self, count: int) -> ConsumerInfo:
        """The consumer's info; creates a missing one when ``on_missing`` says so."""
        intake = self.intake
        name, events = intake.info.name, intake.events
        try:
            return self._look_up(name)
        except StreamNotFoundError as error:
            events.emit("stream_not_found", str(error), count=count, name=name)
            raise
        except ConsumerNotFoundError as error:
            events.emit("consumer_not_found", str(error), count=count, name=name)
            if intake.on_missing != "recreate" or intake.info.config is None:
                raise
        config = replace(intake.info.config, name=name)
        try:
            info = self._js.create_consumer(intake.stream, config)
        except StreamNotFoundError as error:
            events.emit("stream_not_found", str(error), count=count, name=name)
            raise
        events.emit("consumer_recreated", name=name)
        return info

    def _look_up(self, name: str) -> ConsumerInfo:
        """The consumer's info. Heartbeats that are missed meanwhile are counted in time."""
        client, js, intake = self.client, self._js, self.intake
        client._ready(js.timeout)
        # Not by ``consumer_info``, whose wait could not be interrupted for heartbeats.
        question = client._requests.ask(js._consumer("INFO", intake.stream, name), b"", b"")
        deadline = client._clock() + js.timeout
        try:
            while client._clock() < deadline:
                wait = min(deadline, intake.look_meanwhile()) - client._clock()
                if client._until(question, question.is_over, max(0.0, wait)):
                    break
        finally:
            client._requests.forget(question)
        answer = question.outcome(js.timeout)
        return present(decode(answer.data, ConsumerInfoResponse).info)

    # -- the end -----------------------------------------------------------------------------------

    def _close(self) -> None:
        """End the subscription; messages on their way are taken, or given back after ``stop``."""
        intake, connection = self.intake, self.client._connection
        intake.flowing = False
        try:
            # First at the server, so that no message comes after the round trip.
            connection.drain(intake._interest)
            if connection.connected:
                self.client.flush()
                self._tidy()
        except PeltonError:
            pass  # what was on its way is delivered again
        finally:
            intake.finish()

    def _tidy(self) -> None:
        """Do what is left to do at the server before the operation counts as ended."""


MADE_MAX = 100
"""The most consumers of one reader that are remembered to be removed."""
NOT_FOUND = 404


class OwnConsumers:
    """Consumers of one reader on one stream."""

    def __init__(self, js: JetStream, stream: str, name_prefix: str = "") -> None:
        """None is made yet. Names begin with ``<name_prefix>_`` when a prefix is given."""
        self.client = client = js.client
        """The client that it belongs to."""
        self._js = js
        self._stream = stream
        self._prefix = f"{name_prefix}_" if name_prefix else ""
        self._made: list[str] = []  # the server may have them: that in use, and doubtful ones
        self._unanswered: set[str] = set()  # the server may be making these only now
        # The finalizer has the list of names and not this object, which it would keep alive.
        client._own_consumers.add(self)
        weakref.finalize(
            self, _abandon, client._connection, js.subjects, stream, self._made
        ).atexit = False

    @locked
    def create(self, config: ConsumerConfig) -> ConsumerInfo:
        """Create the next consumer."""
        name = self._prefix + self.client.new_id()
        # Before the request: if its answer is lost or the call cancelled, the server may have the consumer.
        self._made.append(name)
        del self._made[:-MADE_MAX]
        self._unanswered.intersection_update(self._made)
        self._unanswered.add(name)
        try:
            info = self._js.create_consumer(self._stream, replace(config, name=name))
        except (ApiError, NoRespondersError) as error:
            self._unanswered.discard(name)
            if not isinstance(error, ApiError) or error.code < 500:
                self._made.remove(name)  # it was not made
            raise
        except (TypeError, ValueError):  # nothing was sent
            self._unanswered.discard(name)
            self._made.remove(name)
            raise
        self._unanswered.discard(name)
        return info

    @locked
    def remove(self, keep: str = "") -> None:
        """Remove every consumer but ``keep`` that the server may have.

        Ends when the connection is lost or the server does not answer: the next call goes on. What is never
        removed the server removes itself, when it has been inactive for a while.
        """
        for name in [name for name in self._made if name != keep]:
            # Closing must not wait for a server that is away.
            if not self.client._connection.connected:
                return
            try:
                self._delete(name)
            except ApiError as error:
                if error.code >= 500:
                    continue
                if name in self._unanswered:  # asked once more later: it may still be made
                    self._unanswered.discard(name)
                    continue
            except PeltonTimeoutError:
                return
            except PeltonError:
                if not self.client._connection.connected:
                    return
                continue
            if name in self._made:
                self._made.remove(name)
            self._unanswered.discard(name)

    def give(self, name: str) -> None:
        """Somebody else removes this consumer."""
        self._made.remove(name)

    def leave(self) -> None:
        """Request the removal of every consumer that the server may have, without waiting for it."""
        connection = self.client._connection
        if connection.connected:
            for subject in _removals(self._js.subjects, self._stream, self._made):
                connection.publish(subject, b"")
            # Emptied in place, because the finalizer has this list.
            self._made.clear()

    def _delete(self, name: str) -> None:
        """Delete a consumer. nats-server may delete one first, in vain, whose creation it has just got."""
        try:
            self._js.delete_consumer(self._stream, name)
        except ApiError as error:
            if error.code != NOT_FOUND or name not in self._unanswered:
                raise
            self.client._sleep(RETRY_S)  # the creation was sent before the removal
            self._js.delete_consumer(self._stream, name)


def _removals(subjects: Api, stream: str, names: list[str]) -> list[str]:
    """The subjects of the requests that remove consumers."""
    return [subjects.consumer("DELETE", stream, name) for name in names]


def _abandon(connection: Connection, subjects: Api, stream: str, made: list[str]) -> None:
    """The reader was garbage collected: have its consumers removed."""
    if made:
        connection.abandon_requests(_removals(subjects, stream, made))
