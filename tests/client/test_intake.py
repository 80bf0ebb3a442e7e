"""The intake of an operation beside a model of a server: it never stalls, and buffers no more than asked."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pelton.client.base.message import BaseMessage
from pelton.client.base.models import ConsumerConfig, ConsumerInfo
from pelton.client.consume.arrivals import PullIntake
from pelton.client.consume.pull import Asking, Sizes, size_of
from pelton.errors import ConnectionLostError
from tests.client.by_hand import House


class Model:
    """A server: what each request is still owed, in order; and the messages on offer."""

    def __init__(self, limit: int, by_bytes: bool) -> None:
        self.client = House()
        config = ConsumerConfig(durable_name="c")
        info = ConsumerInfo(stream_name="S", name="c", config=config)
        sizes = Sizes(max_bytes=limit) if by_bytes else Sizes(max_messages=limit)
        subject = "$JS.API.CONSUMER.MSG.NEXT.S.c"
        self.intake = PullIntake(self.client, subject, info, Asking(config, {}), sizes, "wait")
        self.by_bytes = by_bytes
        self.requests: list[list[Any]] = []
        self.seq = 0
        self.open: BaseMessage | None = None
        self.intake.begin()
        self.read()

    def read(self) -> None:
        """Take the requests that the client has sent."""
        data = self.client._connection.data_to_send()
        while data:
            line, _, data = data.partition(b"\r\n")
            words = line.decode().split()
            if words and words[0] == "PUB" and "MSG.NEXT" in words[1]:
                size = int(words[-1])
                asked = json.loads(data[:size])
                amount = asked["max_bytes"] if self.by_bytes else asked["batch"]
                self.requests.append([words[2], amount])
                data = data[size + 2 :]

    def status(self, reply: str, text: str) -> None:
        block = f"NATS/1.0 {text}\r\n\r\n".encode()
        self.intake._on_message(BaseMessage(reply, "", block, b"", self.intake._interest))

    def deliver(self) -> None:
        """A message for the first request."""
        if not self.requests:
            return
        self.seq += 1
        ack = f"$JS.ACK.S.c.1.{self.seq}.{self.seq}.1.0"
        message = BaseMessage("s.a", ack, b"", b"x" * (self.seq % 5), self.intake._interest)
        cost = size_of(message) if self.by_bytes else 1
        if cost > self.requests[0][1]:
            reply, left = self.requests.pop(0)
            pending = f"Nats-Pending-Messages: 9\r\nNats-Pending-Bytes: {left}"
            self.status(reply, f"409 Message Size Exceeds MaxBytes\r\n{pending}")
            return
        self.requests[0][1] -= cost
        if not self.requests[0][1]:
            self.requests.pop(0)
        self.intake._on_message(message)

    def end(self, text: str, *, told: bool) -> None:
        """End the first request."""
        if not self.requests:
            return
        reply, left = self.requests.pop(0)
        pending = f"\r\nNats-Pending-Messages: {left}\r\nNats-Pending-Bytes: {left}"
        self.status(reply, text + (pending if told else ""))

    def lose(self) -> None:
        """The connection breaks, and the server forgets its requests."""
        self.requests.clear()
        self.intake._on_lost(ConnectionLostError("lost"))
        self.turn()

    def turn(self) -> None:
        """One look of the loop that keeps messages coming."""
        self.intake.tend(self.client.now)

    def take(self) -> bool:
        """The user has handled the message before, and takes one."""
        handled, self.open = self.open, None
        if handled is not None:
            self.intake.took(handled)
        if self.intake.queue:
            self.open = self.intake.queue.popleft()
        return self.open is not None


ACTIONS = ["deliver", "deliver", "deliver", "take", "take", "expire", "move", "lose", "wait"]


@given(
    st.integers(1, 12),
    st.booleans(),
    st.lists(st.sampled_from(ACTIONS), max_size=80),
)
def test_an_operation_never_stalls_and_buffers_no_more_than_asked(
    limit: int, by_bytes: bool, actions: list[str]
) -> None:
    model = Model(limit * 60 if by_bytes else limit, by_bytes)
    most = limit * 60 if by_bytes else limit
    for action in actions:
        if action == "deliver":
            model.deliver()
        elif action == "take":
            model.take()
        elif action == "expire":
            model.end("408 Request Timeout", told=True)
        elif action == "move":
            model.end("409 Leadership Change", told=False)
        elif action == "lose":
            model.lose()
        else:
            model.client.now += 3.0
            model.intake.heartbeats.heard = True
            model.turn()
        model.read()
        owed = sum(amount for _, amount in model.requests)
        here = [*model.intake.queue, *([model.open] if model.open is not None else [])]
        buffered = sum(map(size_of, here)) if by_bytes else len(here)
        assert model.intake.held == model.intake.expected + buffered
        if "move" not in actions:  # the client gives up all requests, the server only one
            assert owed + buffered <= most
    while model.take():
        model.read()
    model.client.now += 3.0
    model.intake.heartbeats.heard = True
    model.turn()
    model.read()
    assert model.requests, "nothing is requested though everything is handled"


@given(st.integers(1, 500), st.integers(0, 500), st.integers(0, 10), st.booleans())
def test_requests_keep_within_the_limits_of_the_consumer(
    limit: int, max_batch: int, expires_s: int, by_bytes: bool
) -> None:
    sizes = Sizes(max_bytes=limit) if by_bytes else Sizes(max_messages=limit)
    sizes.fit(ConsumerConfig(max_batch=max_batch, max_expires=expires_s))
    asked = json.loads(sizes.body(Asking(ConsumerConfig(), {}), sizes.limit))
    assert asked["batch"] <= (max_batch or max(asked["batch"], 1))
    assert asked["expires"] <= (expires_s or 30) * 10**9
    assert 0 < 2 * asked["idle_heartbeat"] <= asked["expires"]
    assert 0 <= sizes.low < sizes.limit
