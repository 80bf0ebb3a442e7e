"""What a stream holds, kept beside a real one: every change is made to both."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pelton.api.times import format_time
from pelton.client.base.models import StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.sync.jetstream import JetStream

MANY = 1_000_000
_names = itertools.count(1)


class ModelStream:
    """A stream of a server, and what must be in it: sequence -> (subject, headers, payload)."""

    def __init__(
        self,
        js: JetStream,
        *,
        compression: str = "none",
        name: str = "",
        heeds_first_limit: bool = True,
    ) -> None:
        """A new stream; ``heeds_first_limit`` is whether the server applies a first limit per subject at once."""
        self.js = js
        self.heeds_first_limit = heeds_first_limit
        self.name = name or f"M{next(_names)}"
        self.prefix = self.name.lower()
        self.held: dict[int, tuple[str, dict[str, list[str]] | None, bytes]] = {}
        self.last = 0
        self.config = StreamConfig(
            name=self.name,
            subjects=[f"{self.prefix}.>"],
            allow_direct=True,
            allow_rollup_hdrs=True,
            compression=compression,
        )
        self.born = format_time(js.create_stream(self.config).created)

    @property
    def first(self) -> int:
        """Where it begins; behind its end when it is empty."""
        return min(self.held, default=self.last + 1)

    def subject(self, token: int) -> str:
        """One of the subjects; a few have a second token."""
        return f"{self.prefix}.{token}" + (".x" if token % 2 else "")

    def publish(self, token: int, data: bytes, headers: dict[str, list[str]] | None = None) -> None:
        """Store a message; the limits apply, and a rollup."""
        subject = self.subject(token)
        ack = self.js.publish(subject, data, headers=headers)
        self.last += 1
        assert ack.seq == self.last
        rollup = (headers or {}).get("Nats-Rollup", [""])[0]
        if rollup:
            self._keep(lambda seq, held: rollup == "sub" and held != subject)
        self.held[self.last] = (subject, headers, data)
        self._limit()

    def fill(self, count: int, size: int = 0, tokens: int = 4) -> None:
        """Many messages at once, every fifth with headers."""
        with self.js.publisher() as publisher:
            for seq in range(self.last + 1, self.last + count + 1):
                headers = {"K": [str(seq), "b"], "\u00e9": ["\u00fc"]} if seq % 5 == 0 else None
                data = f"m{seq}".encode().ljust(size, b".")
                publisher.publish(self.subject(seq % tokens), data, headers=headers)
                self.held[seq] = (self.subject(seq % tokens), headers, data)
        self.last += count
        self._limit()

    def delete(self, seq: int) -> None:
        """Remove one message, if it is there."""
        if self.held.pop(seq, None) is not None:
            self.js.delete_message(self.name, seq)

    def purge(self, *, seq: int | None = None, token: int | None = None) -> None:
        """Remove what is below a sequence, on a subject, or all."""
        subject = None if token is None else self.subject(token)
        self.js.purge_stream(self.name, filter_subject=subject, seq=seq)
        self._keep(
            lambda number, held: (
                (seq is not None and number >= seq) or (subject not in (None, held))
            )
        )

    def limit(self, messages: int, per_subject: int) -> None:
        """Keep no more than so many messages, -1 for no limit."""
        if not self.heeds_first_limit:
            self.config.max_msgs_per_subject = MANY
            self.js.update_stream(self.config)
        self.config.max_msgs, self.config.max_msgs_per_subject = messages, per_subject
        self.js.update_stream(self.config)
        self._limit()

    def _keep(self, wanted: object) -> None:
        assert callable(wanted)
        self.held = {seq: each for seq, each in self.held.items() if wanted(seq, each[0])}

    def _limit(self) -> None:
        per_subject, messages = self.config.max_msgs_per_subject, self.config.max_msgs
        if per_subject > 0:
            kept: dict[str, int] = {}
            for seq in sorted(self.held, reverse=True):
                subject = self.held[seq][0]
                kept[subject] = kept.get(subject, 0) + 1
                if kept[subject] > per_subject:
                    del self.held[seq]
        if messages > 0:
            for seq in sorted(self.held)[: max(0, len(self.held) - messages)]:
                del self.held[seq]

    def rows(self, first: int, last: int, wanted: object = None) -> Iterator[dict[str, object]]:
        """The rows of a range, as a read with every column gives them, but for their times."""
        for seq in sorted(self.held):
            subject, headers, data = self.held[seq]
            if first <= seq <= last and (wanted is None or wanted(subject)):
                yield {
                    "stream": self.name,
                    "seq": seq,
                    "subject": subject,
                    "headers": None if headers is None else list(headers.items()),
                    "data": data,
                    "born": self.born,
                }
