"""Fills a server with what stores can hold, and writes down what the server answers about it.

``tests/store/kept`` has stores that former versions wrote, each with these answers: whoever opens one must give
the same. To keep the store of a version, start its server with a new folder and run::

    python -m tests.store.keep nats://127.0.0.1:4222 > answers.json

Then stop the server, and pack both: ``tar -cJf kept/DATE-plain.tar.xz answers.json store``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pelton.sync import Client, connect

MESSAGES = 120
_YEARS_NS = 10 * 365 * 86_400 * 1_000_000_000
_CHANGING = ("ts", "cluster", "type", "total", "offset", "limit")
"""Fields that tell of the moment, or of the server."""

STREAMS: list[dict[str, Any]] = [
    {"name": "PLAIN", "subjects": ["plain.>"], "metadata": {"kept": "yes"}},
    {"name": "PACKED", "subjects": ["packed.>"], "compression": "s2", "max_msgs_per_subject": 5},
    {"name": "KV_USERS", "subjects": ["$KV.USERS.>"], "max_msgs_per_subject": 3, "discard": "new"}
    | {"allow_rollup_hdrs": True, "deny_delete": True, "allow_direct": True},
    {"name": "TTLS", "subjects": ["ttls.>"], "allow_msg_ttl": True}
    | {"subject_delete_marker_ttl": _YEARS_NS},
    {"name": "COUNTS", "subjects": ["counts.>"], "allow_msg_counter": True, "allow_direct": True},
    {"name": "LATER", "subjects": ["later.>"], "allow_msg_schedules": True, "allow_msg_ttl": True},
    {"name": "WORK", "subjects": ["work.>"], "retention": "workqueue"},
    {"name": "COPY", "mirror": {"name": "PLAIN"}},
]
CONSUMERS: list[tuple[str, dict[str, Any]]] = [
    ("PLAIN", {"durable_name": "each", "ack_policy": "explicit", "ack_wait": _YEARS_NS}),
    ("PLAIN", {"durable_name": "all", "ack_policy": "all", "ack_wait": _YEARS_NS}),
    (
        "PLAIN",
        {"durable_name": "some", "ack_policy": "explicit", "ack_wait": _YEARS_NS}
        | {"filter_subjects": ["plain.1.>", "plain.3.>"], "max_deliver": 4},
    ),
    ("WORK", {"durable_name": "worker", "ack_policy": "explicit", "ack_wait": _YEARS_NS}),
]


def asked(client: Client, call: str, body: object = None) -> dict[str, Any]:
    """The answer of the JetStream API; AssertionError for an error."""
    text = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads(client.request(f"$JS.API.{call}", text, timeout=20).data)
    assert "error" not in answer, (call, answer)
    return answer


def put(client: Client, subject: str, data: bytes, **headers: str) -> None:
    """Store a message; header names have _ for -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = json.loads(client.request(subject, data, headers=named, timeout=20).data)
    assert "error" not in answer, (subject, answer)


def taken(client: Client, stream: str, consumer: str, count: int) -> list[Any]:
    """The next messages of a consumer."""
    inbox = client.new_inbox()
    with client.subscribe(inbox) as inbound:
        body = json.dumps({"batch": count, "expires": 20_000_000_000}).encode()
        client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", body, reply=inbox)
        return [inbound.next(timeout=20) for _ in range(count)]


def fill(client: Client) -> None:
    """Make the streams and consumers, with messages, removals, acknowledgements and redeliveries."""
    for stream in STREAMS:
        asked(client, f"STREAM.CREATE.{stream['name']}", {"num_replicas": 1, **stream})
    for n in range(MESSAGES):
        put(
            client,
            f"plain.{n % 5}.x{n}",
            b"%d it is on; " % n * (n % 9),
            A=str(n),
            Nats_Msg_Id=f"id{n}",
        )
        put(client, f"packed.{n % 60}", b"it is on, and on; " * 4 + b"%d" % n)
    for seq in (3, 50, 51, 52, MESSAGES):
        asked(client, "STREAM.MSG.DELETE.PLAIN", {"seq": seq, "no_erase": seq % 2 == 0})
    asked(client, "STREAM.PURGE.PLAIN", {"filter": "plain.2.>", "keep": 4})
    asked(client, "STREAM.PURGE.PLAIN", {"seq": 20})
    for n in range(30):
        put(client, f"$KV.USERS.user{n % 6}", b'{"n": %d}' % n)
    put(client, "$KV.USERS.user1", b"", KV_Operation="DEL")
    put(client, "$KV.USERS.user2", b"", KV_Operation="PURGE", Nats_Rollup="sub")
    for n in range(6):
        put(client, f"ttls.{n}", b"for years", Nats_TTL="87600h" if n % 2 else "never")
        put(client, "counts.one", b"", Nats_Incr=f"+{n}")
        put(client, f"work.{n}", b"task %d" % n)
    at = "@at 2100-01-01T00:00:00Z"
    put(client, "later.one", b"a new century", Nats_Schedule=at, Nats_Schedule_Target="later.out")
    for stream_name, config in CONSUMERS:
        name = config["durable_name"]
        body = {"stream_name": stream_name, "config": config}
        asked(client, f"CONSUMER.DURABLE.CREATE.{stream_name}.{name}", body)
    each = taken(client, "PLAIN", "each", 30)
    for n, message in enumerate(each):
        if n % 3 == 0:
            client.request(message.reply, b"+ACK", timeout=20)
    client.publish(each[1].reply, b"-NAK")
    client.request(taken(client, "PLAIN", "each", 1)[0].reply, b"+WPI", timeout=20)
    client.request(taken(client, "PLAIN", "all", 12)[7].reply, b"+ACK", timeout=20)
    client.request(taken(client, "PLAIN", "some", 9)[0].reply, b"+TERM", timeout=20)
    client.request(taken(client, "WORK", "worker", 3)[1].reply, b"+ACK", timeout=20)


def described(client: Client) -> dict[str, Any]:
    """What the server answers about all streams, their messages, and their consumers."""
    found: dict[str, Any] = {}
    for name in sorted(asked(client, "STREAM.NAMES")["streams"]):
        info = asked(
            client, f"STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"}
        )
        state, gone = info["state"], set(info["state"].get("deleted") or ())
        messages = [
            asked(client, f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
            for seq in range(state["first_seq"], state["last_seq"] + 1)
            if seq not in gone
        ]
        consumers = asked(client, f"CONSUMER.NAMES.{name}").get("consumers") or []
        found[name] = {
            "info": settled(info),
            "messages": messages,
            "consumers": {
                each: settled(asked(client, f"CONSUMER.INFO.{name}.{each}"))
                for each in sorted(consumers)
            },
        }
    return found


def settled(info: dict[str, Any]) -> dict[str, Any]:
    """An info without what tells of the moment."""
    kept = {field: value for field, value in info.items() if field not in _CHANGING}
    kept.pop("mirror", None)  # how long ago it was active
    return kept


def main() -> None:
    """Fill the server of a URL, and print what it answers."""
    with connect(sys.argv[1]) as client:
        fill(client)
        while asked(client, "STREAM.INFO.COPY")["state"]["last_seq"] < MESSAGES:
            pass
        print(json.dumps(described(client), indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
