"""What a server itself has in a stream, over a bare connection: none of the code that is tried."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tests.crash.reading import ADDED
from tests.crash.wire import Wire
from tests.spark.exact.ledger import Ledger
from tests.spark.exact.shapes import STREAMS, Headers, by_name

_STEP = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


_IDLE_SECONDS = 30.0


class Line:
    """A connection that is made anew when it was not used for a while: nobody answers the server's
    pings meanwhile.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._wire: Wire | None = None
        self._used = 0.0

    def wire(self) -> Wire:
        """For one conversation now."""
        if self._wire is None or time.monotonic() - self._used > _IDLE_SECONDS:
            if self._wire is not None:
                self._wire.close()
            self._wire = Wire(self._port, 60)
        self._used = time.monotonic()
        return self._wire


class Message(NamedTuple):
    """One message of a stream."""

    seq: int
    subject: str
    headers: Headers
    payload: bytes
    time_us: int


def stored(wire: Wire, stream: str) -> Iterator[Message]:
    """Every message of a stream, in order; RuntimeError when the server does not answer."""
    state = wire.ok(f"STREAM.INFO.{stream}")["state"]
    at, last, asked = state["first_seq"], state["last_seq"], 0
    while at <= last:
        asked += 1
        body = b'{"seq":%d,"batch":%d}' % (at, min(_STEP, last - at + 1))
        wire.publish(f"$JS.API.DIRECT.GET.{stream}", body, f"all.{asked}")
        before, ended, quiet = at, False, 0
        while not ended:
            events = wire.events(1.0)
            quiet = 0 if events else quiet + 1
            if wire.gone or quiet > 60:
                raise RuntimeError(f"no end of a batch of {stream} from {before}")
            for event in events:
                if event.subject != f"all.{asked}":
                    continue
                if b"Nats-Subject:" not in event.headers:
                    ended = True
                    at = last + 1 if event.headers.startswith(b"NATS/1.0 404") else at
                    continue
                message = _message(event.headers, event.payload)
                at = message.seq + 1
                if message.seq <= last:
                    yield message
        if at == before:
            raise RuntimeError(f"{stream} gives nothing from {at} on")


def _message(block: bytes, payload: bytes) -> Message:
    kept, added = [], {}
    for line in block.split(b"\r\n")[1:-2]:
        name, _, value = line.partition(b":")
        if name + b":" in ADDED:
            added[name] = value.strip().decode()
        else:
            kept.append((name.decode(), value.removeprefix(b" ").decode()))
    when = (datetime.fromisoformat(added[b"Nats-Time-Stamp"]) - _EPOCH) // _MICROSECOND
    seq, subject = int(added[b"Nats-Sequence"]), added[b"Nats-Subject"]
    return Message(seq, subject, by_name(tuple(kept)), payload, when)


def settle(wire: Wire, ledger: Ledger) -> list[str]:
    """Compare the server's streams with the ledger, which learns when messages were stored. What
    is wrong, in words: then it is the server, or this proof.
    """
    wrong = []
    for name in STREAMS:
        known = ledger.streams[name]
        expected = iter(ledger.live(name))
        for message in stored(wire, name):
            seq = next(expected, None)
            if seq != message.seq:
                wrong.append(f"{name}: the server has {message.seq}, the ledger {seq}")
                break
            shape = ledger.shape(name, seq)
            if (shape.subject, shape.headers, shape.payload) != message[1:4]:
                wrong.append(f"{name} {seq} is another message than was acknowledged")
            known.times_us[seq] = message.time_us
        else:
            missing = next(expected, None)
            if missing is not None:
                wrong.append(f"{name}: the server does not have {missing}")
    return wrong
