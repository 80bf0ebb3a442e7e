"""A stream of a test's own on both servers of a comparison, and the few things tests do with it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.compat.twins import Twins
from tests.peers import available_servers

NEXT = "$JS.API.CONSUMER.MSG.NEXT"
numbers = itertools.count()

# For test modules whose tests need both servers.
NEEDS_BOTH = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not {"nats-server", "pelton"} <= set(available_servers()),
        reason="no nats-server from 2.14 on (NATS_SERVER, PATH, /usr/sbin)",
    ),
]


class Scene:
    """A stream of its own on both servers."""

    def __init__(self, client: Twins, **config: Any) -> None:
        self.client = client
        self.name = f"S{next(numbers)}"
        self.consumers: set[str] = set()  # those that a test has asked for
        client.made.append(self.name)
        self.ok(
            f"STREAM.CREATE.{self.name}",
            {"name": self.name, "subjects": [f"{self.name}.>"], "storage": "file", **config},
        )

    def ok(self, subject: str, body: Any = b"") -> Any:
        """A request that has to succeed."""
        answer = self.client.ask(subject, body)
        assert "error" not in answer, answer
        return answer

    def fill(self, count: int, *subjects: str) -> None:
        """Publish so many messages over these subjects (below the stream's), each when the one before
        is stored.
        """
        for index in range(count):
            subject = (subjects or ("a",))[index % len(subjects or ("a",))]
            self.client.publish(f"{self.name}.{subject}", f"m{index}", reply="stored")

    def consumer(self, name: str = "c", *, check: bool = True, **config: Any) -> Any:
        """Create a durable consumer, or update it. An update is asked again while the answers differ:
        its answer has a state, in which nats-server may have made the deliveries that it allows.
        """
        settings = {"durable_name": name, "ack_policy": "explicit", **config}
        ask = self.client.agree if name in self.consumers else self.client.ask
        self.consumers.add(name)
        answer = ask(
            f"CONSUMER.CREATE.{self.name}.{name}", {"stream_name": self.name, "config": settings}
        )
        assert not check or "error" not in answer, answer
        return answer

    def pull(self, body: Any = "", reply: str = "in.a", name: str = "c") -> None:
        """One pull request."""
        text = json.dumps(body) if isinstance(body, dict) else str(body)
        self.client.say(f"PUB {NEXT}.{self.name}.{name} {reply} {len(text)}\r\n{text}\r\n")

    def reset(self, body: Any = b"", name: str = "c") -> Any:
        """Reset the consumer; asked again while the answers differ.

        A reset to the first message, while nats-server writes the consumer's file, is not written: it
        answers with the state that it reads there, of before the reset. Another reset mends that.
        """
        return self.client.agree(f"CONSUMER.RESET.{self.name}.{name}", body, changes=True)

    def info(self, name: str = "c") -> Any:
        """The consumer's info."""
        return self.client.info(self.name, name)


def second(number: float) -> int:
    """Nanoseconds."""
    return int(number * 1e9)
