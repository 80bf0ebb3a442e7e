"""Clients ask for single messages while everything goes on: `STREAM.MSG.GET` and direct gets.

An answer has the acknowledged message of its sequence. A message that was acknowledged before the
request is found, unless something may have removed it; one whose removal was answered is not.
"""

from __future__ import annotations

import base64
import json
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .clients import Clients
    from .model import Publish, Stream

NO_MESSAGE = 10037


class Asking:
    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.world = clients.world
        self.random = Random(f"{clients.world.seed} asking")

    def get(self) -> None:
        """Ask for a few messages by their sequences, or for the last of a subject."""
        stream = self.clients.stream()
        if stream is None or not stream.ever_last:
            return
        for _ in range(self.random.choice([1, 3, 8])):
            seq = self.random.randint(1, stream.ever_last)
            if stream.config.get("allow_direct") and self.random.random() < 0.6:
                self.directly(stream, seq)
            else:
                self.by_call(stream, seq)

    def by_call(self, stream: Stream, seq: int) -> None:
        check = self.check(stream, seq)

        def heard(answer: Any) -> None:
            if "message" in answer:
                check(base64.b64decode(answer["message"].get("data", "")), answer)
            elif answer["error"].get("err_code") == NO_MESSAGE:
                check(None, answer)

        self.clients.link().api(f"STREAM.MSG.GET.{stream.name}", {"seq": seq}, heard)

    def directly(self, stream: Stream, seq: int) -> None:
        check = self.check(stream, seq)

        def heard(headers: bytes, body: bytes, reply: str, subject: str) -> None:
            if not stream.config.get("allow_direct"):
                return  # a mirror may answer instead, and it keeps what was removed here
            if b"\r\nNats-Sequence: " in headers:
                check(body, headers)
            elif headers.startswith(b"NATS/1.0 404"):
                check(None, headers)

        body = json.dumps({"seq": seq}).encode()
        self.clients.link().send(f"$JS.API.DIRECT.GET.{stream.name}", body, then=heard)

    def check(self, stream: Stream, seq: int) -> Callable[[bytes | None, object], None]:
        """Return the check of an answer (None: no message) to a request that is sent now."""
        before: Publish | None = stream.acked_seqs.get(seq)
        removed = seq in stream.removed
        life = self.world.life

        def check(payload: bytes | None, answer: object) -> None:
            if self.world.life != life or self.clients.streams.get(stream.name) is not stream:
                return
            self.world.counts["messages asked for"] += 1
            if stream.config.get("allow_msg_counter") or "mirror" in stream.config:
                return
            if payload is not None:
                there = stream.acked_seqs.get(seq)
                if removed:
                    self.world.fail(f"{stream.name} {seq} was removed, and is given:", answer)
                if there is not None and there.payload != payload:
                    self.world.fail(f"{stream.name} {seq}:", answer, "acked was", there)
            elif before is not None:
                entry = self.world.account.streams.get(stream.name)
                if entry is None:
                    return  # it was deleted in the same turn
                stream.ever_last = max(stream.ever_last, entry.core.log.last_seq)
                if not stream.may_be_gone(before, self.world.latest_ns):
                    self.world.fail(f"{stream.name}: {before} was acked, and is not there:", answer)

        return check
