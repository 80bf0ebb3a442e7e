"""Consumers of the simulated world: created, pulled, pushed, and acknowledged in every way.

Each delivery is compared with the published message; a message with a confirmed ack must not be
delivered again.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from . import configs
from .model import Consumer, Stream

if TYPE_CHECKING:
    from .clients import Clients
    from .world import Link

SECOND = 1_000_000_000


class Readers:
    """The reading side of all clients."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.world = clients.world
        self.random = clients.random
        self.draining = False
        self.made = 0  # how many consumers were created
        # the subscriptions to push consumers
        self.ears: dict[tuple[str, str], tuple[Link, int]] = {}

    def pair(self) -> tuple[Stream, Consumer] | None:
        stream = self.clients.stream()
        if stream is None:
            return None
        there = [c for c in stream.consumers.values() if c.there == "yes"]
        return (stream, self.random.choice(there)) if there else None

    # --- creating and deleting -------------------------------------------------------------------

    def create(self) -> None:
        stream = self.clients.stream()
        if stream is None or stream.unclear:
            return
        taken = len(stream.consumers)
        name = (
            f"k{taken % 3}" if stream.retention == "workqueue" else f"k{self.random.randrange(4)}"
        )
        there = stream.consumers.get(name)
        if there is not None:
            if there.there != "no":
                return
            self.world.read_all()  # requests that were sent to the consumer before
        config = configs.consumer(self.random, name, stream.config, int(name[1:]))
        if self.world.wide:
            configs.wider(self.clients.wide, config)
        self.made += 1
        consumer = Consumer(name, config, 1 << 60, number=self.made)
        stream.consumers[name] = consumer
        stream.all_consumers.append(consumer)

        def heard(answer: Any) -> None:
            consumer.there = self.clients.answered(answer, "no")
            if consumer.there == "yes":
                consumer.created = len(stream.order)
                self.world.counts["consumers"] += 1
            else:
                self.world.note("refused", answer)

        self.listen(stream, consumer)
        body = {"stream_name": stream.name, "config": config}
        self.clients.link().api(f"CONSUMER.CREATE.{stream.name}.{name}", body, heard)

    def listen(self, stream: Stream, consumer: Consumer) -> None:
        """Subscribe to the deliver subject of a push consumer. The subscriber of an earlier
        consumer of the same name unsubscribes: it would get messages of the group that the model
        never counts as delivered.
        """
        ear = self.ears.pop((stream.name, consumer.name), None)
        if ear is not None and ear[0] in self.world.links:
            ear[0].unsubscribe(ear[1])
        subject = consumer.config.get("deliver_subject")
        if subject is None:
            return

        def heard(headers: bytes, body: bytes, reply: str, subject: str) -> None:
            self.delivered(link, stream, consumer, headers, body, reply, subject)

        link = self.clients.link()
        sid = link.subscribe(subject, consumer.config.get("deliver_group", ""), heard)
        self.ears[stream.name, consumer.name] = link, sid

    def listen_again(self) -> None:
        """Subscribe again after a restart."""
        for stream in self.clients.streams.values():
            for consumer in stream.consumers.values():
                if consumer.there == "yes" and stream.there == "yes":
                    self.listen(stream, consumer)

    def delete(self) -> None:
        pair = self.pair()
        if pair is None:
            return
        stream, consumer = pair
        consumer.there = "maybe"

        def heard(answer: Any) -> None:
            if "error" not in answer:
                consumer.there = "no"
                self.world.counts["consumer deletes"] += 1
            else:
                consumer.there = "maybe" if self.world.troubled else "yes"

        self.clients.link().api(f"CONSUMER.DELETE.{stream.name}.{consumer.name}", None, heard)

    def send_update(
        self, stream: Stream, consumer: Consumer, config: dict[str, Any], what: str
    ) -> None:
        """Update a consumer to a configuration, and count an answered update as `what`."""
        consumer.unclear = True
        consumer.maybe_configs.append(config)
        consumer.configs.append(config)

        def heard(answer: Any) -> None:
            consumer.unclear = False
            if "error" not in answer:
                consumer.config = config
                consumer.maybe_configs.clear()
                self.world.counts[what] += 1
            elif not self.world.troubled:
                consumer.maybe_configs.remove(config)

        body = {"stream_name": stream.name, "config": config, "action": "update"}
        self.clients.link().api(f"CONSUMER.CREATE.{stream.name}.{consumer.name}", body, heard)

    # --- reading ---------------------------------------------------------------------------------

    def pull(self) -> None:
        pair = self.pair()
        if pair is None or "deliver_subject" in pair[1].config:
            return
        self.pull_from(*pair, self.random.choice([1, 3, 10]))

    def pull_from(self, stream: Stream, consumer: Consumer, count: int) -> None:
        link = self.clients.link()

        def heard(headers: bytes, body: bytes, reply: str, subject: str) -> None:
            self.delivered(link, stream, consumer, headers, body, reply, subject)

        # one inbox for each consumer that ever had the name
        inbox = f"in.{link.name}.{stream.name}.{consumer.name}.{consumer.number}"
        if inbox not in link.inboxes:
            link.inboxes.add(inbox)
            link.subscribe(inbox, "", heard)
        request: dict[str, Any] = {"batch": count, "no_wait": True}
        if "priority_groups" in consumer.config:
            request["group"] = "g"
            if consumer.pin:
                request["id"] = consumer.pin
        body = json.dumps(request).encode()
        link.send(f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}", body, reply=inbox)

    def delivered(
        self,
        link: Link,
        stream: Stream,
        consumer: Consumer,
        headers: bytes,
        body: bytes,
        reply: str,
        subject: str,
    ) -> None:
        if not reply.startswith("$JS.ACK."):
            if headers.startswith(b"NATS/1.0 423"):
                consumer.pin = ""  # another client is pinned
            return  # a status message
        if self.clients.streams.get(stream.name) is not stream:
            return  # another stream of the same name
        if stream.consumers.get(consumer.name) is not consumer:
            return  # another consumer of the same name
        found = re.search(rb"\r\nNats-Pin-Id: (\S+)\r\n", headers)
        if found:
            consumer.pin = found[1].decode()
        if self.world.turns >= consumer.paused[0] and self.world.now_ns < consumer.paused[1]:
            self.world.fail(f"{stream.name} {consumer.name} is paused, and delivered", reply)
        numbers = reply.split(".")[-5:]
        times, seq = int(numbers[0]), int(numbers[1])
        self.world.counts["deliveries"] += 1
        if times > 1 or consumer.delivered.get(seq, 0):
            self.world.counts["redeliveries"] += 1
        if consumer.confirmed_ack(seq):
            self.world.fail(f"{stream.name} {consumer.name}: {seq} again, its ack was confirmed")
        there = stream.acked_seqs.get(seq)
        if (
            there is not None
            and there.payload != body
            and not stream.config.get("allow_msg_counter")
        ):
            self.world.fail(f"{stream.name} {seq}: {body!r} delivered, {there.payload!r} acked")
        consumer.delivered[seq] = consumer.delivered.get(seq, 0) + 1
        if consumer.policy != "none":
            self.answer(link, consumer, seq, reply)
        if self.draining:
            consumer.drained.add(seq)

    def answer(self, link: Link, consumer: Consumer, seq: int, reply: str) -> None:
        choice = 0.2 if self.draining else self.random.random()
        if choice < 0.5:
            body = self.random.choice([b"", b"+ACK", b"+TERM"] if not self.draining else [b"+ACK"])
            if consumer.policy == "all":
                body = b"+ACK"
                consumer.acked_upto = max(consumer.acked_upto, seq)
            consumer.acks.add(seq)
            then = self.confirmation(consumer, seq) if self.random.random() < 0.5 else None
            link.send(reply, body, b"", then)
            self.world.counts["acks"] += 1
        elif choice < 0.65:
            link.send(reply, b"-NAK")
            self.world.counts["naks"] += 1
        elif choice < 0.7:
            link.send(reply, b"+WPI")

    def confirmation(self, consumer: Consumer, seq: int) -> Any:
        # the server may take an ack before a reset that was sent first, on another connection
        life, resets = self.world.life, consumer.resets
        counts = not consumer.resetting and self.world.turns > consumer.reset_turn

        def heard(headers: bytes, body: bytes, reply: str, subject: str) -> None:
            if counts and life == self.world.life and resets == consumer.resets:
                self.world.counts["acks confirmed"] += 1
                consumer.confirmed.add(seq)
                if consumer.policy == "all":
                    consumer.confirmed_upto = max(consumer.confirmed_upto, seq)

        return heard
