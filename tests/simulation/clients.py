"""The clients of the simulated world: their requests, and their use of the answers.

Several publishes are in flight at a time, with ids and without. After a crash, the clients send
unanswered publishes again with the same id. Acks are sent plain, or with a reply that confirms
them.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from . import configs
from .model import Consumer, Publish, Removal, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from .world import Link, World

SECOND = 1_000_000_000
COPIES = 0.4  # the part of the streams that copy others, in seeds with alterations


def block(*lines: str) -> bytes:
    return ("NATS/1.0\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


class Clients:
    """All clients, and the model of the promises to them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.wide = Random(f"{world.seed} wide choices")  # for what the wider choice adds
        self.streams: dict[str, Stream] = {}
        self.ever: list[Stream] = []  # also deleted streams, whose messages other streams may have
        self.count = 0
        # publishes that a crash left unanswered
        self.retries: list[tuple[Stream, Publish, list[str]]] = []
        # reply subject -> the publish in flight
        self.flying: dict[str, tuple[Stream, Publish, list[str]]] = {}

    # --- helpers ---------------------------------------------------------------------------------

    def link(self) -> Link:
        return self.random.choice(self.world.links)

    def stream(self) -> Stream | None:
        there = [s for s in self.streams.values() if s.there == "yes"]
        return self.random.choice(there) if there else None

    def payload(self) -> bytes:
        self.count += 1
        size = self.random.choice([0, 0, 10, 100, 600])
        return b"%d-" % self.count + b"x" * size

    # --- publishing ------------------------------------------------------------------------------

    def publish(self) -> None:
        """Publish one to six messages, all in flight together."""
        stream = self.stream()
        if stream is None or "mirror" in stream.config:
            return
        if stream.config.get("allow_atomic") and self.random.random() < 0.6:
            self.batch(stream)
            return
        if stream.config.get("allow_batched") and self.random.random() < 0.6:
            self.fast(stream)
            return
        if stream.config.get("metadata", {}).get("kind") == "weeds":
            self.weed(stream)
            return
        link = self.link()
        for _ in range(self.random.choice([1, 1, 2, 6])):
            self.publish_one(stream, link)

    def publish_one(self, stream: Stream, link: Link) -> None:
        random, config = self.random, stream.config
        subject = f"{stream.name}.{random.choice(configs.SUBJECTS)}"
        publish = Publish(subject, self.payload(), self.world.now_ns)
        lines: list[str] = []
        if config.get("allow_msg_counter"):
            self.increment(stream, link, publish)
            return
        if random.random() < 0.4:
            publish.msg_id = f"id{self.count}"
            lines.append(f"Nats-Msg-Id: {publish.msg_id}")
        if config.get("allow_msg_schedules") and random.random() < 0.3:
            publish.subject = f"{stream.name}.plan.{random.choice('xyz')}"
            publish.plan = True
            lines += [
                "Nats-Schedule: @every 1s"
                if random.random() < 0.2
                else "Nats-Schedule: @at " + at(self.world.now_ns + random.randint(0, 6) * SECOND),
                f"Nats-Schedule-Target: {stream.name}.out",
            ]
            lines = [line for line in lines if not line.startswith("Nats-Msg-Id")]
            publish.msg_id = ""
        elif config.get("allow_msg_ttl") and random.random() < 0.5:
            seconds = random.randint(1, 8)
            publish.ttl_ns = seconds * SECOND
            lines.append(f"Nats-TTL: {seconds}")
        elif config.get("allow_rollup_hdrs") and "max_age" not in config and random.random() < 0.15:
            publish.rollup = random.choice(["sub", "sub", "all"])
            lines.append(f"Nats-Rollup: {publish.rollup}")
        stream.add(publish)
        self.send(stream, publish, lines, link)

    def send(self, stream: Stream, publish: Publish, lines: list[str], link: Link) -> None:
        headers = block(*lines) if lines else b""
        answer = self.heard_ack(stream, publish)
        publish.passed_ns = publish.passed_ns or self.world.passed_ns
        publish.tries += 1
        reply = link.send(publish.subject, publish.payload, headers, answer)
        self.flying[reply] = (stream, publish, lines)
        self.world.counts["messages sent"] += 1

    def heard_ack(
        self, stream: Stream, publish: Publish
    ) -> Callable[[bytes, bytes, str, str], None]:
        def heard(headers: bytes, body: bytes, reply: str, subject: str) -> None:
            self.flying.pop(subject, None)
            ack = json.loads(body) if body else {"error": {}}  # no responders: no stream
            publish.refused = "error" in ack and publish.tries == 1
            if "error" in ack:
                self.world.counts["publishes refused"] += 1
                return
            self.take_ack(stream, publish, ack["seq"])
            if ack.get("duplicate"):
                self.world.counts["duplicates told"] += 1
                if not publish.msg_id:
                    self.world.fail("a duplicate without an id:", publish, ack)

        return heard

    def take_ack(self, stream: Stream, publish: Publish, seq: int) -> None:
        self.world.counts["messages acked"] += 1
        wrong = stream.acknowledged(publish, seq)
        if wrong:
            self.world.fail(wrong)

    def increment(self, stream: Stream, link: Link, publish: Publish) -> None:
        number = self.random.randint(-5, 100)

        def heard(headers: bytes, body: bytes, reply: str, subject: str) -> None:
            ack = json.loads(body) if body else {"error": 1}
            if "error" not in ack:
                publish.payload = b'{"val":"%s"}' % ack["val"].encode()
                self.take_ack(stream, publish, ack["seq"])

        stream.add(publish)
        link.send(publish.subject, b"", block(f"Nats-Incr: {number:+d}"), heard)

    def batch(self, stream: Stream) -> None:
        """Publish an atomic batch, which gets one answer."""
        self.count += 1
        name, link = f"b{self.count}", self.link()
        total = self.random.randint(1, 6)
        batch = []
        for _ in range(total):
            subject = f"{stream.name}.{self.random.choice(configs.SUBJECTS)}"
            publish = Publish(subject, self.payload(), self.world.now_ns, batch=name)
            batch.append(stream.add(publish))

        def heard(headers: bytes, body: bytes, reply: str, subject: str) -> None:
            ack = json.loads(body) if body else {}
            for each in batch:
                each.refused |= "error" in ack
            if "seq" in ack and "error" not in ack:
                self.world.counts["atomic batches"] += 1
                for back, each in enumerate(reversed(batch)):
                    self.take_ack(stream, each, ack["seq"] - back)

        for n, publish in enumerate(batch, 1):
            lines = [f"Nats-Batch-Id: {name}", f"Nats-Batch-Sequence: {n}"]
            lines += ["Nats-Batch-Commit: 1"] if n == total else []
            link.send(publish.subject, publish.payload, block(*lines), heard)

    def fast(self, stream: Stream) -> None:
        """Publish a fast-ingest batch, which gets acks on the way and one at the end."""
        self.count += 1
        link, total = self.link(), self.random.randint(2, 12)
        prefix = f"{link.name}.fast{self.count}.4.ok"
        batch: list[Publish] = []

        def heard(headers: bytes, body: bytes, reply: str, subject: str) -> None:
            ack = json.loads(body) if body else {}
            if "stream" in ack and ack.get("count") == len(batch):
                self.world.counts["fast batches"] += 1
                for back, each in enumerate(reversed(batch)):
                    each.acked = True
                    if back == 0:
                        self.take_ack(stream, each, ack["seq"])

        for n in range(1, total + 1):
            subject = f"{stream.name}.{self.random.choice(configs.SUBJECTS)}"
            publish = Publish(subject, self.payload(), self.world.now_ns)
            batch.append(stream.add(publish))
            operation = 0 if n == 1 else 2 if n == total else 1
            reply = f"{prefix}.{n}.{operation}.$FI"
            link.send(subject, publish.payload, b"", heard, reply)

    def retry(self) -> None:
        """Send unanswered publishes again with their ids after a crash."""
        again, self.retries = self.retries, []
        link = self.link()
        for stream, publish, lines in again:
            window_ns = min(config["duplicate_window"] for config in stream.limits)
            # the server knows an id for as long as the window lasts, also when its clock goes back
            if self.world.passed_ns - publish.passed_ns > window_ns // 2 or not publish.msg_id:
                continue
            if self.streams.get(stream.name) is stream and stream.there == "yes":
                self.world.counts["publishes sent again"] += 1
                stream.order.append(publish)  # its rollup takes place now
                publish.sent_ns = min(
                    publish.sent_ns, self.world.now_ns
                )  # of a clock that went back
                if publish.payload not in stream.held:
                    publish.forgotten.append(stream.opened_last)
                self.send(stream, publish, lines, link)
        # the server knows their ids when these messages come, however long a later request waits
        self.world.read_all()

    # --- streams ---------------------------------------------------------------------------------

    def create_stream(self) -> None:
        name = f"S{self.random.randrange(4)}"
        there = self.streams.get(name)
        if there is not None:
            if there.there != "no":
                return
            self.world.read_all()  # requests that were sent to the stream before
        others = [
            s.name for s in self.streams.values() if s.there == "yes" and "mirror" not in s.config
        ]
        copy = self.world.altering and self.wide.random() < COPIES
        stream = Stream(name, configs.stream(self.random, name, others, copy=copy))
        stream.copied = any(name in sources(each) for each in self.streams.values())
        for each in sources(stream):
            self.streams[each].copied = True
            stream.origins[each] = self.streams[each]
        self.streams[name] = stream
        self.ever.append(stream)

        def heard(answer: Any) -> None:
            stream.there = self.answered(answer, "no")
            if stream.there == "no":
                self.world.note("refused", answer)
            self.world.counts[f"streams: {stream.config['metadata']['kind']}"] += 1

        self.link().api(f"STREAM.CREATE.{name}", stream.config, heard)

    def answered(self, answer: Any, otherwise: str) -> str:
        """Record an admin call; an error while the disk fails leaves either result possible."""
        if "error" not in answer:
            return "yes"
        self.world.counts["admin calls refused"] += 1
        return "maybe" if self.world.troubled else otherwise

    def update_stream(self) -> None:
        stream = self.stream()
        if stream is None or "mirror" in stream.config or stream.unclear:
            return
        config = dict(stream.config)
        choice = self.random.random()
        if choice < 0.4:
            config["max_msgs"] = self.random.choice([10, 50, -1])
        elif choice < 0.7:
            config["description"] = f"d{self.count}"
        else:
            config["compression"] = self.random.choice(["none", "s2"])
        if config.get("discard_new_per_subject") and config.get("max_msgs", 0) <= 0:
            return
        self.send_update(stream, config, "stream updates")

    def send_update(self, stream: Stream, config: dict[str, Any], what: str) -> None:
        """Update a stream to a configuration, and count an answered update as `what`."""
        stream.unclear = True
        stream.maybe_configs.append(config)
        stream.limits.append(config)

        def heard(answer: Any) -> None:
            stream.unclear = False
            if "error" not in answer:
                stream.config = config
                stream.maybe_configs.clear()
                self.world.counts[what] += 1
            elif not self.world.troubled:
                stream.maybe_configs.remove(config)

        self.link().api(f"STREAM.UPDATE.{stream.name}", config, heard)

    def delete_stream(self) -> None:
        stream = self.stream()
        if stream is None or stream.unclear:
            return
        stream.there = "maybe"

        def heard(answer: Any) -> None:
            if "error" not in answer:
                stream.there = "no"
                self.world.counts["stream deletes"] += 1
            else:
                stream.there = "maybe" if self.world.troubled else "yes"

        self.link().api(f"STREAM.DELETE.{stream.name}", None, heard)

    def remove(self) -> None:
        """Purge, or delete a message."""
        stream = self.stream()
        if stream is None:
            return
        removal = Removal()
        random, most = self.random, max(stream.ever_last, len(stream.order), 1)
        if random.random() < 0.6:
            removal.seq = random.randint(1, most)
            call = "MSG.DELETE"
            body: dict[str, Any] = {"seq": removal.seq, "no_erase": random.random() < 0.5}
        else:
            call, body = "PURGE", {}
            if random.random() < 0.5:
                removal.below = body["seq"] = random.randint(1, most)
            if random.random() < 0.6:
                removal.subject = body["filter"] = (
                    f"{stream.name}.{random.choice(configs.SUBJECTS)}"
                )
            elif random.random() < 0.7 and "seq" not in body:
                removal.keep = body["keep"] = random.randint(1, 10)
        self.send_removal(stream, removal, call, body)

    def weed(self, stream: Stream) -> None:
        """Fill old segments with few messages each, and with removal records that soon become
        useless.
        """
        link, some = self.link(), sorted(stream.acked_seqs)
        for n in range(7):
            kept = n == 3 and self.random.random() < 0.3
            publish = Publish(
                f"{stream.name}.{'c' if kept else 'a'}",
                self.payload() + b"y" * 600,
                self.world.now_ns,
            )
            self.send(stream, stream.add(publish), [], link)
        if self.random.random() < 0.4:
            for seq in self.random.sample(some, min(len(some), 4)):
                removal = Removal(seq=seq)
                self.send_removal(stream, removal, "MSG.DELETE", {"seq": seq, "no_erase": True})
        if self.random.random() < 0.4:
            removal = Removal(subject=f"{stream.name}.a")
            self.send_removal(stream, removal, "PURGE", {"filter": removal.subject})

    def send_removal(
        self, stream: Stream, removal: Removal, call: str, body: dict[str, Any]
    ) -> None:
        stream.removals.append(removal)
        meant = stream.meant(removal)

        def heard(answer: Any) -> None:
            removal.answered = min(removal.answered, len(stream.order))
            if "error" not in answer:
                self.world.counts["removals"] += 1
                stream.removed |= meant

        self.link().api(f"STREAM.{call}.{stream.name}", body, heard)


def sources(stream: Stream) -> list[str]:
    """Return the streams whose messages a stream copies."""
    named = [stream.config.get("mirror"), *stream.config.get("sources", [])]
    return [each["name"] for each in named if each is not None]


def at(ns: int) -> str:
    from pelton.api.times import format_time

    return format_time(ns)


__all__ = ["Clients", "Consumer", "at", "block"]
