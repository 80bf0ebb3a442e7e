"""Publishes that say which message they expect to be the last, of the stream or of their subject.

Such a publish is stored only behind that message. A refusal names the last sequence, so it must not
deny a message that was acknowledged before.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import configs
from .clients import block
from .model import Publish, Stream

if TYPE_CHECKING:
    from .clients import Clients

WRONG_LAST = 10071
LIMITS = ("max_msgs", "max_bytes", "max_msgs_per_subject")
HEADERS = {
    "stream": "Nats-Expected-Last-Sequence",
    "subject": "Nats-Expected-Last-Subject-Sequence",
}


def newest(stream: Stream, subject: str = "") -> Publish | None:
    """The acknowledged message with the highest sequence, of one subject if it is named."""
    known = [p for p in stream.acked_seqs.values() if not subject or p.subject == subject]
    return max(known, key=lambda publish: publish.seq, default=None)


class Expecting:
    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.world = clients.world
        self.random = clients.wide

    def publish(self) -> None:
        """Publish one to three messages that expect a last message; those behind the first expect
        what they may not find.
        """
        stream = self.clients.stream()
        if stream is None or not takes_expectations(stream):
            return
        link = self.clients.link()
        for _ in range(self.random.choice([1, 1, 3])):
            subject = f"{stream.name}.{self.random.choice(configs.SUBJECTS)}"
            publish = Publish(subject, self.clients.payload(), self.world.now_ns)
            publish.expects = self.random.choice(list(HEADERS))
            last = newest(stream, subject if publish.expects == "subject" else "")
            publish.expected = last.seq if last else 0
            if self.random.random() < 0.2:
                publish.expected = self.random.randint(0, max(stream.ever_last, 1))
            stream.add(publish)
            line = f"{HEADERS[publish.expects]}: {publish.expected}"
            link.send(subject, publish.payload, block(line), self.heard(stream, publish, last))
            self.world.counts["publishes with an expectation"] += 1

    def heard(self, stream: Stream, publish: Publish, last: Publish | None) -> Any:
        """Compare the answer with the acknowledged message that was the last when this was sent."""
        # its sequence now: a power cut may take a message back that no sync has covered
        before = replace(last) if last else None

        def heard(headers: bytes, body: bytes, reply: str, subject: str) -> None:
            ack = json.loads(body) if body else {"error": {}}
            publish.refused = "error" in ack
            if "error" not in ack:
                self.clients.take_ack(stream, publish, ack["seq"])
                self.met(stream, publish)
            elif ack["error"].get("err_code") == WRONG_LAST and before is not None:
                self.world.counts["expectations not met"] += 1
                told = int(ack["error"]["description"].rsplit(" ", 1)[1])
                if told < before.seq and (
                    publish.expects == "stream" or self.stays(stream, before)
                ):
                    self.world.fail(f"{stream.name}: {before} was acked, {ack} denies it")

        return heard

    def stays(self, stream: Stream, publish: Publish) -> bool:
        """Whether nothing removes a message, not even a message whose PubAck is still on its way."""
        limited = any(config.get(name, 0) > 0 for config in stream.limits for name in LIMITS)
        return not limited and not stream.may_be_gone(publish, self.world.latest_ns)

    def met(self, stream: Stream, publish: Publish) -> None:
        """Check that a stored message found what it expected."""
        if publish.expects == "stream":
            if publish.seq != publish.expected + 1:
                self.world.fail(f"{stream.name}: {publish} is not behind {publish.expected}")
            return
        for seq, other in stream.acked_seqs.items():
            if (
                other.subject == publish.subject
                and publish.expected < seq < publish.seq
                and not stream.may_be_gone(other, self.world.latest_ns)
            ):
                self.world.fail(f"{stream.name}: {publish} expected none like {other}")


def takes_expectations(stream: Stream) -> bool:
    """Whether clients may send such publishes, and the model knows the subjects of all messages."""
    unknown = ("mirror", "sources", "subject_transform", "allow_msg_counter")
    return not any(stream.ever(name) for name in unknown)
