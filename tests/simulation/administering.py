"""What administrators do to consumers: pause and resume them, update them, unpin a client.

A paused consumer delivers nothing before the answered time, by whichever server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clients import at

if TYPE_CHECKING:
    from .readers import Readers

SECOND = 1_000_000_000


class Administering:
    def __init__(self, readers: Readers) -> None:
        self.clients = readers.clients
        self.world = readers.world
        self.readers = readers
        self.pair = readers.pair
        self.random = readers.clients.wide

    def pause(self) -> None:
        """Pause a consumer for some seconds, or resume it."""
        pair = self.pair()
        if pair is None:
            return
        stream, consumer = pair
        until_ns = self.world.now_ns + self.random.choice([0, 1, 3, 10]) * SECOND
        body = {"pause_until": at(until_ns)} if until_ns > self.world.now_ns else {}
        alone = consumer.pausing == 0  # otherwise the server may do this one first
        consumer.pauses += 1
        consumer.pausing += 1
        consumer.paused = (0, 0)  # until the answer, both is right
        number = consumer.pauses

        def heard(answer: Any) -> None:
            consumer.pausing -= 1
            if "error" not in answer and alone and consumer.pauses == number and body:
                # Other connections may still have messages that were sent before.
                consumer.paused = (self.world.turns + 1, until_ns)
                self.world.counts["consumers paused"] += 1

        self.clients.link().api(f"CONSUMER.PAUSE.{stream.name}.{consumer.name}", body, heard)

    def update(self) -> None:
        """Change what a consumer allows."""
        pair = self.pair()
        if pair is None or pair[1].unclear:
            return
        stream, consumer = pair
        config = consumer.config | {"description": f"d{self.clients.count}"}
        if "backoff" not in config:
            config["ack_wait"] = self.random.choice([1, 2, 4]) * SECOND
        self.readers.send_update(stream, consumer, config, "consumer updates")

    def unpin(self) -> None:
        """Take the messages of a group from the client that has them."""
        pair = self.pair()
        if pair is None or pair[1].config.get("priority_policy") != "pinned_client":
            return
        stream, consumer = pair
        body = {"group": "g"}

        def heard(answer: Any) -> None:
            self.world.counts["clients unpinned"] += "error" not in answer

        self.clients.link().api(f"CONSUMER.UNPIN.{stream.name}.{consumer.name}", body, heard)
