"""Faults between clients and server: lost, late and refused messages.

A message that a client publishes to a subject with a fault is led to a subject of this module, as by a
subject mapping of its account, and this module decides about it. Messages of the server are not touched.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from pelton.api.errors import ApiError, ErrorBody
from pelton.core.broker.router import CallbackSink
from pelton.core.protocol.subjects import matches
from pelton.errors import ApiError as AnyApiError
from pelton.errors import NoRespondersError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.core.broker.reactor import Connection
    from pelton.core.broker.router import Router
    from pelton.server.app import Server

PREFIX = "$PELTON.FAULT."
NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"

Refusal: TypeAlias = "AnyApiError | type[NoRespondersError] | int | str"
"""An error to answer with: an ApiError, its ``err_code``, a text (code 500), or the class NoRespondersError."""


@dataclass(eq=False)
class Fault:
    """The fault of messages on a pattern; ``left``: to so many of them, None: to all."""

    kind: str  # drop, delay or fail
    pattern: str
    left: int | None
    delay_ns: int = 0
    answer: tuple[bytes, bytes] = (b"", b"")  # headers and payload
    hits: int = 0

    def takes(self, subject: str) -> bool:
        """Whether the fault concerns this message; counts it."""
        if self.left == 0 or not matches(subject, self.pattern):
            return False
        if self.left is not None:
            self.left -= 1
        self.hits += 1
        return True


@dataclass(frozen=True)
class Held:
    """A message that is published later."""

    router: Router
    subject: str
    reply: str
    headers: bytes
    payload: bytes


def answer_of(error: Refusal) -> tuple[bytes, bytes]:
    """The headers and the payload that say an error; TypeError for anything else."""
    if error is NoRespondersError:
        return NO_RESPONDERS, b""
    if isinstance(error, bool):
        raise TypeError(
            "an error is an ApiError, an err_code, a text or NoRespondersError, got a bool"
        )
    if isinstance(error, int):
        body = _by_code(error)
    elif isinstance(error, str):
        body = ErrorBody(code=500, description=error)
    elif isinstance(error, AnyApiError):
        body = ErrorBody(code=error.code, err_code=error.err_code, description=error.description)
    else:
        raise TypeError(
            f"an error is an ApiError, an err_code, a text or NoRespondersError, got {error!r}"
        )
    return b"", msgspec.json.encode({"error": body})


def _by_code(err_code: int) -> ErrorBody:
    kind = ApiError._by_err_code.get(err_code)
    if kind is None:
        raise ValueError(f"there is no API error {err_code}: `pelton errors ls` lists them")
    text = kind.template
    while "{" in text:
        before, _, rest = text.partition("{")
        text = f"{before}injected by the test{rest.partition('}')[2]}"
    return ErrorBody(code=kind.code, err_code=err_code, description=text)


class Faults:
    """The faults of one broker; used in the server's thread."""

    def __init__(self, later: Callable[[int, Callable[[], None]], None] | None) -> None:
        """``later``: call after so many nanoseconds of the machine's clock; None: the clock is manual."""
        self.faults: list[Fault] = []
        self._later = later
        self._app: Server | None = None
        self._numbers = itertools.count(1)
        self._led: dict[str, tuple[Fault, str, Router]] = {}  # by the subject they are led to
        self._held: list[tuple[int, int, Held]] = []  # heap of delayed messages
        self._before: dict[Router, Callable[[str], str | None] | None] = {}

    def install(self, app: Server) -> None:
        """Stand between the clients and the accounts of a server that has just started."""
        self._app = app
        self._led.clear()
        self._held.clear()
        self._before.clear()

    def add(self, fault: Fault) -> None:
        """Begin a fault."""
        self.faults.append(fault)
        self._stand_between()

    def clear(self) -> None:
        """End all faults; held messages are published now."""
        self.faults.clear()
        held, self._held = sorted(self._held), []
        for _, _, message in held:
            self._publish(message)

    def forget(self) -> None:
        """End all faults; held messages are lost."""
        self.faults.clear()
        self._held.clear()

    def _stand_between(self) -> None:
        assert self._app is not None
        for account in self._app.accounts.all():
            router = account.router
            if router not in self._before:
                self._before[router] = router.mapping
                router.mapping = self._mapping(router, router.mapping)
                router.attach_prefix(PREFIX, CallbackSink(self._take))

    def _mapping(
        self, router: Router, before: Callable[[str], str | None] | None
    ) -> Callable[[str], str | None]:
        def lead(subject: str) -> str | None:
            mapped = subject if before is None else before(subject)
            if mapped is None or not self.faults:
                return mapped
            fault = next((each for each in self.faults if each.takes(mapped)), None)
            if fault is None:
                return mapped
            led = f"{PREFIX}{next(self._numbers)}"
            self._led[led] = fault, mapped, router
            return led

        return lead

    def _take(
        self, _: Connection | None, subject: str, reply: str, headers: bytes, payload: bytes
    ) -> bool:
        found = self._led.pop(subject, None)
        if found is None:
            return False
        fault, target, router = found
        if fault.kind == "fail" and reply:
            status, body = fault.answer
            router.publish_message(reply, body, headers=status)
        elif fault.kind == "delay":
            self._hold(fault.delay_ns, Held(router, target, reply, headers, payload))
        return True

    def _hold(self, delay_ns: int, message: Held) -> None:
        assert self._app is not None
        due_ns = self._app.event_loop.now_ns + delay_ns
        heapq.heappush(self._held, (due_ns, next(self._numbers), message))
        if self._later is not None:
            self._later(delay_ns, self._on_time)

    def _on_time(self) -> None:
        assert self._app is not None
        loop = self._app.event_loop
        loop.now_ns = loop.clock.now()
        self.run_due(loop.now_ns)
        loop.kick()

    def next_due_ns(self) -> int:
        """When a held message is due; 0: none is held."""
        return self._held[0][0] if self._held else 0

    def run_due(self, now_ns: int) -> None:
        """Publish the held messages whose time has come."""
        while self._held and self._held[0][0] <= now_ns:
            self._publish(heapq.heappop(self._held)[2])

    def _publish(self, message: Held) -> None:
        taken = message.router.publish_message(
            message.subject, message.payload, message.reply, message.headers
        )
        if not taken and message.reply:
            message.router.publish_message(message.reply, b"", headers=NO_RESPONDERS)
