"""A client whose server is the test, and whose calls the test carries out: no transport, no loop, time as it says."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from pelton.client.aio.connection import Client
from pelton.client.aio.messages import Message
from pelton.client.protocol.options import Options
from pelton.client.session.session import Session
from pelton.errors import ConnectionLostError

if TYPE_CHECKING:
    from pelton.client.protocol.events import Event

INFO = b'INFO {"headers":true,"max_payload":1000000,"cluster":"c","version":"2.15.1"}\r\nPONG\r\n'


class Until(NamedTuple):
    """A call waits until ``done()`` holds."""

    done: Callable[[], bool]
    seconds: float


class Pause(NamedTuple):
    """A call waits for the next attempt to connect."""

    seconds: float


class Dial(NamedTuple):
    """A call connects."""

    server: object


@types.coroutine
def suspended(step: Any) -> Generator[Any, Any, Any]:
    """Give the step to whoever carries out the call."""
    return (yield step)


class House(Client):
    """A client with a connection that stands."""

    _stays_open = False
    _much_waits = False

    def __init__(self, options: Options | None = None, *, info: bytes = INFO) -> None:
        self.now = 0.0
        self.reports: list[Exception] = []
        Session.__init__(self, options or Options(), Message, lambda: self.now, random.Random(1))
        if info:
            self._connection.connected_to(self.options.servers[0])
            self.hear(info)
            self.said()

    async def _until(
        self, box: Any, done: Callable[[], bool], seconds: float, other: Any = None
    ) -> bool:
        return bool(await suspended(Until(done, seconds)))

    async def _pause(self, seconds: float) -> None:
        await suspended(Pause(seconds))

    async def _dial(self, server: Any) -> None:
        await suspended(Dial(server))

    def _flush_output(self) -> None:
        pass

    def _plan_flush(self) -> None:
        pass

    def _release_socket(self) -> None:
        pass

    def _report(self, error: Exception) -> None:
        self.reports.append(error)

    def _changed(self, event: Event) -> None:
        waiters = getattr(event, "waiters", None)
        if waiters is not None:
            self._tell_lost(ConnectionLostError("gone"), waiters)

    def hear(self, data: bytes) -> None:
        """Bytes come from the server."""
        self._connection.receive_data(data)
        self._process()

    def said(self) -> list[list[bytes]]:
        """The words of the lines that went to the server."""
        return [line.split() for line in self._connection.data_to_send().split(b"\r\n") if line]


def carry_on(call: Any, answer: Any = None, error: BaseException | None = None) -> Any:
    """A call up to its next step that waits, or its result."""
    try:
        return call.throw(error) if error is not None else call.send(answer)
    except StopIteration as stop:
        return stop.value


def published(house: House) -> tuple[str, str, bytes]:
    """The subject, the reply subject and the body of the request that went to the server."""
    lines = house._connection.data_to_send().split(b"\r\n")
    [at] = [n for n, line in enumerate(lines) if line.startswith(b"PUB ")]
    _, subject, reply, _ = lines[at].split()
    return subject.decode(), reply.decode(), lines[at + 1]


def answered(house: House, call: Any, *answers: bytes) -> tuple[list[tuple[str, bytes]], Any]:
    """Subjects and bodies of the requests of a call that gets these answers, and its result."""
    requests = []
    step = carry_on(call)
    for answer in answers:
        assert isinstance(step, Until), step
        subject, reply, body = published(house)
        requests.append((subject, body))
        house.hear(b"MSG %s 1 %d\r\n%s\r\n" % (reply.encode(), len(answer), answer))
        assert step.done()
        step = carry_on(call, answer=True)
    assert not isinstance(step, Until), "it asks for more than there are answers"
    return requests, step
