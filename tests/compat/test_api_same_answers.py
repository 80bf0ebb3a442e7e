"""The same raw API requests to our server and to a nats-server get the same answers, field by
field.

What may differ is normalised; the only other differences are calls that we refuse as not supported.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.pair import (
    Pair,
    RawClient,
    Step,
    both,
    comparable,
    not_gone,
    payload_of,
    refused_here,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.peer

# Calls that nobody answers: these are waited for a moment only.
SILENT = {"NONSENSE", "STREAM.CREATE.a.b"}


def answer(client: RawClient, step: Step) -> Any:
    what, body = step
    subject = what[2:] if what.startswith("> ") else f"$JS.API.{what}"
    return comparable(client.request(subject, payload_of(body), 0.3 if what in SILENT else 10))


def create(name: str = "S", **fields: Any) -> Step:
    return f"STREAM.CREATE.{name}", {"name": name, "subjects": ["s.>"], **fields}


def update(**fields: Any) -> Step:
    return "STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **fields}


def consumer(name: str = "c", **fields: Any) -> Step:
    top = {key: fields.pop(key) for key in ("action", "pedantic") if key in fields}
    config = {"name": name, **fields}
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config, **top}


def durable(**fields: Any) -> Step:
    return consumer(durable_name="c", ack_policy="explicit", **fields)


PUBLISHED: list[Step] = [(f"> s.{n % 3}", b"payload %d" % n) for n in range(9)]

SCENARIOS: dict[str, list[Step]] = {
    "nothing there": [
        ("INFO", b""),
        ("STREAM.NAMES", b""),
        ("STREAM.LIST", b""),
        ("STREAM.INFO.S", b""),
        ("STREAM.DELETE.S", b""),
        ("STREAM.PURGE.S", b""),
        ("STREAM.UPDATE.S", {"name": "S"}),
        ("STREAM.MSG.GET.S", {"seq": 1}),
        ("STREAM.MSG.DELETE.S", {"seq": 1}),
        ("CONSUMER.NAMES.S", b""),
        ("CONSUMER.LIST.S", b""),
        ("CONSUMER.INFO.S.c", b""),
        ("CONSUMER.DELETE.S.c", b""),
        consumer(),
        ("NONSENSE", b""),
        ("STREAM.CREATE.a.b", {"name": "a"}),
        ("> nobody.listens", b"x"),
        ("CONSUMER.MSG.NEXT.S.c", b""),
        ("DIRECT.GET.S", {"seq": 1}),
        ("INFO", b""),
    ],
    "life of a stream": [
        create(description="a & <b>", metadata={"z": "1", "a": "2"}),
        create(description="a & <b>", metadata={"z": "1", "a": "2"}),
        create(),
        create("T"),
        create("T", subjects=["t", "u.*"], storage="memory", max_bytes=100_000),
        ("STREAM.NAMES", b""),
        ("STREAM.NAMES", {"subject": "u.x"}),
        ("STREAM.NAMES", {"subject": "x"}),
        ("STREAM.NAMES", {"offset": 1}),
        ("STREAM.LIST", b""),
        ("STREAM.LIST", {"subject": "x"}),
        *PUBLISHED,
        ("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": "s.*"}),
        ("STREAM.INFO.S", {"subjects_filter": "s.*", "offset": 1}),
        update(max_msgs=4),
        ("STREAM.INFO.S", b""),
        update(subjects=["s.*", "x"], max_msgs=4, deny_delete=True),
        update(max_msgs=4),
        update(storage="memory"),
        ("INFO", b""),
        ("STREAM.DELETE.T", b"x"),
        ("STREAM.DELETE.T", b"{ }"),
        ("STREAM.DELETE.S", b""),
        ("STREAM.DELETE.S", b""),
    ],
    "bodies": [
        *[
            ("STREAM.CREATE.S", body)
            for body in (
                b"",
                b"{",
                b"x",
                b"null",
                b'"s"',
                b"[]",
                b'{"name":"S"} x',
                b'{"name":"S",}',
                b'{"name":"S" "c"}',
                b'{"name":1}',
                b'{"name":"S","max_msgs":"5"}',
                b'{"name":"S","max_msgs":1.5}',
                b'{"name":"S","max_msg_size":99999999999}',
                b'{"name":"S","subjects":"x"}',
                b'{"name":"S","no_ack":1}',
                b'{"name":"S","nonsense":1}',
                b'{"name":"S","consumer_limits":{"nonsense":1}}',
                b'{"name":"S","retention":"x"}',
                b'{"name":"S","storage":"x"}',
                b'{"name":"S","discard":5}',
                b'{"name":"S","compression":"x"}',
                b'{"NAME":"S","Subjects":["s.>"],"name":"S"}',
                b'{"name":"S"}{"subjects":["s.>"]}',
            )
        ],
        *[
            ("CONSUMER.CREATE.S.c", body)
            for body in (
                b"",
                b"{",
                b'{"stream_name":"S","action":"x"}',
                b'{"stream_name":"S","config":{"ack_policy":"x"}}',
                b'{"stream_name":"S","config":{"priority_policy":"x"}}',
                b'{"stream_name":"S","config":{"opt_start_time":"x"}}',
                b'{"stream_name":"S","config":null}',
                b'{"stream_name":"S"}',
            )
        ],
        ("STREAM.PURGE.S", b"garbage"),
        ("STREAM.PURGE.S", b'{"nonsense":1}'),
        ("STREAM.PURGE.S", b"[]"),
        ("STREAM.NAMES", b"garbage"),
        ("STREAM.INFO.S", b' {"nonsense":1}'),
        ("CONSUMER.INFO.S.c", b"x"),
        ("STREAM.LEADER.STEPDOWN.S", b""),
        ("STREAM.PEER.REMOVE.S", {"peer": "x"}),
        ("CONSUMER.LEADER.STEPDOWN.S.c", b""),
    ],
    "messages": [
        create(allow_direct=True),
        *PUBLISHED,
        *[
            (call, body)
            for call in ("STREAM.MSG.GET.S",)
            for body in (
                b"",
                {},
                {"seq": 1},
                {"seq": 100},
                {"last_by_subj": "s.1"},
                {"last_by_subj": "s.*"},
                {"last_by_subj": "none"},
                {"next_by_subj": "s.1", "seq": 3},
                {"next_by_subj": "s.2"},
                {"seq": 1, "last_by_subj": "s.1"},
                {"batch": 2, "seq": 1},
                {"seq": 1, "nonsense": 1},
            )
        ],
        ("STREAM.MSG.DELETE.S", {"seq": 4}),
        ("STREAM.MSG.DELETE.S", {"seq": 4}),
        ("STREAM.MSG.DELETE.S", {"seq": 100}),
        ("STREAM.MSG.DELETE.S", {}),
        ("STREAM.MSG.DELETE.S", {"seq": 9, "no_erase": True}),
        ("STREAM.INFO.S", {"deleted_details": True}),
        ("STREAM.PURGE.S", {"seq": 1}),
        ("STREAM.PURGE.S", {"seq": 3}),
        ("STREAM.PURGE.S", {"filter": "s.0", "keep": 1}),
        ("STREAM.PURGE.S", {"seq": 2, "keep": 1}),
        ("STREAM.PURGE.S", {"filter": "a b"}),
        ("STREAM.INFO.S", {"deleted_details": True}),
        ("STREAM.PURGE.S", {"seq": 50}),
        ("STREAM.INFO.S", {"deleted_details": True}),
        ("> s.1", b"x"),
        ("STREAM.PURGE.S", b""),
        ("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"}),
        ("DIRECT.GET.S", b""),
        ("DIRECT.GET.S", {"seq": 1}),
        ("DIRECT.GET.S", b"{"),
    ],
    "consumers": [
        create(),
        *PUBLISHED,
        consumer(),
        consumer("d", durable_name="d"),
        consumer("e", durable_name="f"),
        consumer("last", deliver_policy="last", filter_subject="s.1"),
        consumer("new", deliver_policy="new"),
        consumer("subj", deliver_policy="last_per_subject", filter_subjects=["s.1", "s.2"]),
        consumer("seq", deliver_policy="by_start_sequence", opt_start_seq=7),
        consumer("far", deliver_policy="by_start_sequence", opt_start_seq=70),
        consumer("time", deliver_policy="by_start_time", opt_start_time="2020-01-01T00:00:00Z"),
        consumer("push", durable_name="push", deliver_subject="d", ack_policy="all"),
        ("CONSUMER.NAMES.S", b""),
        ("CONSUMER.LIST.S", {"offset": 3}),
        ("CONSUMER.CREATE.S.x.s.1", {"stream_name": "S", "config": {"filter_subject": "s.1"}}),
        ("CONSUMER.CREATE.S.x.s.1", {"stream_name": "S", "config": {"filter_subject": "s.2"}}),
        ("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"durable_name": "x"}}),
        ("CONSUMER.DURABLE.CREATE.S.y", {"stream_name": "S", "config": {"durable_name": "y"}}),
        ("CONSUMER.DURABLE.CREATE.S.y", {"stream_name": "S", "config": {}}),
        ("CONSUMER.DELETE.S.c", b""),
        durable(action="update"),
        durable(action="create"),
        durable(action="create"),
        durable(action="create", description="x"),
        durable(description="x"),
        durable(deliver_policy="new"),
        durable(max_waiting=3),
        durable(deliver_subject="d"),
        durable(mem_storage=True),
        durable(filter_subject="s.1", max_ack_pending=5),
        ("CONSUMER.INFO.S.c", b""),
        ("STREAM.INFO.S", b""),
        update(consumer_limits={"max_ack_pending": 2}),
        ("CONSUMER.DELETE.S.c", b""),
        ("CONSUMER.DELETE.S.c", b""),
        ("INFO", b""),
    ],
}


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with both() as pair:
        yield pair


def compare(servers: Pair, steps: list[Step]) -> list[tuple[Step, Any, Any]]:
    """The steps whose answers differ; every stream is gone afterwards."""
    clients = [RawClient(server) for server in servers]
    wrong = []
    for step in steps:
        ours, theirs = (answer(client, step) for client in clients)
        while step[0].startswith("STREAM.CREATE.") and not_gone(ours, theirs):
            for client in clients:
                client.request(f"$JS.API.{step[0].replace('CREATE', 'DELETE')}", b"")
            time.sleep(0.05)
            ours, theirs = (answer(client, step) for client in clients)
        if ours != theirs:
            wrong.append((step, ours, theirs))
    for client in clients:
        for stream in ("S", "T", "V"):
            client.request(f"$JS.API.STREAM.DELETE.{stream}", b"")
        client.close()
    return wrong


def shown(wrong: list[tuple[Step, Any, Any]]) -> str:
    return "\n\n".join(f"{step}\n  ours   {a}\n  theirs {b}" for step, a, b in wrong)


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_answers(servers: Pair, name: str) -> None:
    wrong = compare(servers, SCENARIOS[name])
    assert not wrong, shown(wrong)


def recorded() -> list[Step]:
    """The requests whose verdicts the engine's own tests hold, each on a clean slate."""
    folder = Path(__file__).parents[1] / "engine"
    steps: list[Step] = [create(), *PUBLISHED]
    for name in ("stream_verdicts.jsonl", "consumer_verdicts.jsonl"):
        for line in (folder / name).read_text().splitlines():
            row = json.loads(line)
            steps.append((row["call"], row["request"]))
            remove = ("STREAM.DELETE.V",) if "STREAM" in row["call"] else CONSUMERS
            steps += [(call, b"") for call in remove]
    return steps


CONSUMERS = ("CONSUMER.DELETE.S.c", "CONSUMER.DELETE.S.d")
# Deletes clean up what one server made and the other refused.
CLEANING = {"STREAM.DELETE.V", *CONSUMERS}


def test_same_verdicts(servers: Pair) -> None:
    found = compare(servers, recorded())
    assert not any(refused_here(ours) for _, ours, _ in found)
    wrong = [each for each in found if each[0][0] not in CLEANING]
    assert not wrong, shown(wrong)
