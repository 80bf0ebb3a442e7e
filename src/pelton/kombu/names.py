"""The names and messages of kombu's queues in JetStream. Does not depend on connections.

With the prefix ``kombu``::

    kombu                    work-queue stream     kombu.queue.<queue>.<priority>     tasks
                                                   kombu.delayed.<queue>.<id>         tasks with an ETA
    kombu-transient          interest, in memory   kombu-transient.<queue>.<priority> replies, events
    kombu-bindings           the last per subject  kombu-bindings.<exchange>          JSON list of bindings
    (no stream)                                    kombu-fanout.<exchange>            broadcasts

A message's payload is the body of the task. Everything else that kombu says of it is one header with a
JSON object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from pelton.api.times import format_time

HEADER = "Kombu-Message"
"""The header with everything that kombu says of a message, except the body."""
PRIORITIES = 10
FORBIDDEN = set(". *>/\\\t\r\n\0")
"""Characters that the name of a stream can't have."""
SCHEDULE = "Nats-Schedule"
SCHEDULE_TARGET = "Nats-Schedule-Target"
SOON_S = 1.0
"""A task whose ETA is nearer than this is delivered at once: its worker waits for the rest."""


@dataclass(frozen=True)
class BrokerOptions:
    """``broker_transport_options``, which are the same for all processes of an application.

    prefix: the beginning of streams and subjects; the virtual host of the URL is appended to it.
    storage: where tasks are kept, "file" or "memory".
    replicas: copies of the streams in a cluster.
    ack_wait: seconds after which the task of a dead worker is delivered again. A worker that lives tells
        the server that it is busy, however long the task takes.
    confirm_acks: wait until the server confirms the ack of a task.
    schedules: tasks with an ETA or a countdown wait in the stream, when the server has schedules;
        otherwise the worker holds them.
    priorities: one consumer for each priority (0 to 9, 9 first) and queue.
    timeout: seconds to wait for an answer of the server.
    """

    prefix: str = "kombu"
    storage: str = "file"
    replicas: int = 1
    ack_wait: float = 60.0
    confirm_acks: bool = True
    schedules: bool = True
    priorities: bool = False
    timeout: float = 5.0

    @classmethod
    def of(cls, options: dict[str, Any], vhost: str = "") -> BrokerOptions:
        """The options of kombu's ``transport_options``; those of kombu itself are left to it.

        Raises ValueError for a value that can't be used.
        """
        known = {one.name for one in fields(cls)}
        found = cls(**{name: value for name, value in options.items() if name in known})
        if vhost.strip("/"):
            found = cls(**{**_values(found), "prefix": f"{found.prefix}-{token(vhost.strip('/'))}"})
        if not found.prefix or set(found.prefix) & FORBIDDEN:
            raise ValueError(f"the prefix is no name of a stream: {found.prefix!r}")
        if found.storage not in ("file", "memory"):
            raise ValueError(f"storage is 'file' or 'memory', got {found.storage!r}")
        if found.ack_wait < 1:
            raise ValueError(f"ack_wait is at least 1 second, got {found.ack_wait}")
        return found


def _values(options: BrokerOptions) -> dict[str, Any]:
    return {one.name: getattr(options, one.name) for one in fields(options)}


def token(name: str) -> str:
    """A name as one token of a subject, and as the name of a consumer."""
    return quote(name, safe="-_").replace(".", "%2E")


def name_of(text: str) -> str:
    """The name of a token."""
    return unquote(text)


@dataclass(frozen=True)
class Names:
    """The streams and subjects below one prefix."""

    prefix: str
    tasks: str = field(init=False)
    transient: str = field(init=False)
    bindings: str = field(init=False)

    def __post_init__(self) -> None:
        """The names of the streams."""
        object.__setattr__(self, "tasks", self.prefix)
        object.__setattr__(self, "transient", f"{self.prefix}-transient")
        object.__setattr__(self, "bindings", f"{self.prefix}-bindings")

    def stream(self, *, transient: bool) -> str:
        """The stream that holds the messages of a queue."""
        return self.transient if transient else self.tasks

    def subject(self, queue: str, priority: int | str, *, transient: bool) -> str:
        """The subject of a queue's messages of one priority; ``*`` for all."""
        base = self.transient if transient else f"{self.prefix}.queue"
        return f"{base}.{token(queue)}.{priority}"

    def delayed(self, queue: str, message_id: str) -> str:
        """The subject of one message that waits for its time; ``*`` for all of the queue."""
        return f"{self.prefix}.delayed.{token(queue)}.{message_id}"

    def binding(self, exchange: str) -> str:
        """The subject with the bindings of an exchange."""
        return f"{self.bindings}.{token(exchange)}"

    def fanout(self, exchange: str) -> str:
        """The subject of an exchange's broadcasts."""
        return f"{self.prefix}-fanout.{token(exchange)}"

    def consumers(self, queue: str, *, priorities: bool) -> list[tuple[str, int | str]]:
        """The consumers of a queue with the priority that each delivers, the first one first."""
        if not priorities:
            return [(token(queue), "*")]
        return [(f"{token(queue)}-p{one}", one) for one in reversed(range(PRIORITIES))]


def priority_of(message: dict[str, Any]) -> int:
    """The priority of a message, from 0 to 9; 0 when it has none."""
    try:
        wanted = int(message["properties"].get("priority") or 0)
    except (KeyError, TypeError, ValueError):
        return 0
    return max(0, min(wanted, PRIORITIES - 1))


def eta_of(message: dict[str, Any]) -> datetime | None:
    """When Celery wants the task to begin; None: at once."""
    text = (message.get("headers") or {}).get("eta")
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def schedule_headers(eta: datetime, target: str) -> dict[str, str]:
    """The headers that make a message wait in the stream until its time."""
    time_ns = int(eta.timestamp() * 1e6) * 1000
    return {SCHEDULE: f"@at {format_time(time_ns)}", SCHEDULE_TARGET: target}


def pack(message: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """The payload and the headers for a message of kombu."""
    body = message.get("body")
    data = body.encode() if isinstance(body, str) else bytes(body or b"")
    rest = {name: value for name, value in message.items() if name != "body"}
    return data, {HEADER: json.dumps(msgspec.to_builtins(rest), separators=(",", ":"))}


def unpack(data: bytes, header: str | None) -> dict[str, Any]:
    """A message of kombu from its payload and header.

    A message that another program published has no such header: its payload is the body, in JSON.
    """
    message: dict[str, Any] = {}
    if header is not None:
        message = msgspec.json.decode(header)
    message.setdefault("content-type", "application/json")
    message.setdefault("content-encoding", "utf-8")
    message.setdefault("headers", {})
    properties = message.setdefault("properties", {})
    properties.setdefault("delivery_info", {})
    message["body"] = data
    return message
