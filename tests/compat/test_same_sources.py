"""Mirrors and sources beside a real nats-server: what is refused, what is shown, what is stored."""

from __future__ import annotations

import base64
import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.pair import Pair, RawClient, both, comparable, difference
from tests.compat.scene import NEEDS_BOTH

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = NEEDS_BOTH
SECOND = 1_000_000_000
SOURCING = ("S", "T", "U", "D")  # streams that have sources, or had them


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with both() as servers:
        yield servers


class Twins:
    """One client of each; `api` asks both and compares."""

    def __init__(self, pair: Pair) -> None:
        self.clients = [RawClient(server) for server in pair]
        for name in json.loads(self.each("$JS.API.STREAM.NAMES", b"")[0])["streams"] or ():
            self.each(f"$JS.API.STREAM.DELETE.{name}", b"")

    def each(self, subject: str, payload: bytes, header: bytes = b"") -> list[bytes]:
        return [client.request(subject, payload, header=header) for client in self.clients]

    def api(self, call: str, body: Any = None) -> Any:
        """Our answer, which is theirs."""
        payload = b"" if body is None else json.dumps(body).encode()
        answers = [json.loads(each) for each in self.each(f"$JS.API.{call}", payload)]
        for answer in answers:
            answer.get("sources", []).sort(key=json.dumps)  # in no order there
        ours, theirs = (comparable(json.dumps(each).encode()) for each in answers)
        found = list(difference(ours, theirs))
        assert not found, f"{call} {body}: {found}"
        return ours[0]

    def publish(self, subject: str, payload: bytes = b"x", header: bytes = b"") -> None:
        ours, theirs = self.each(subject, payload, header)
        assert ours == theirs

    def settle(self, stream: str, last_seq: int) -> None:
        """Wait until both have a sequence."""
        deadline = time.monotonic() + 15
        for client in self.clients:
            while True:
                info = json.loads(client.request(f"$JS.API.STREAM.INFO.{stream}", b""))
                assert "state" in info, info
                if info["state"]["last_seq"] >= last_seq:
                    break
                assert time.monotonic() < deadline, info
                time.sleep(0.05)

    def holds(self, stream: str) -> Any:
        """State, lag and messages of a stream, the same in both, soon."""
        deadline = time.monotonic() + 15
        while True:
            answers = self.contents(stream)
            if not (found := list(difference(*answers))):
                return answers[0][0]
            assert time.monotonic() < deadline, f"{stream}: {found}"
            time.sleep(0.05)

    def contents(self, stream: str) -> list[Any]:
        """State, lag and messages of a stream in each."""
        answers = []
        for client in self.clients:
            info = json.loads(client.request(f"$JS.API.STREAM.INFO.{stream}", b""))
            for each in [info.get("mirror"), *info.get("sources", [])]:
                if each is not None:
                    each["active"] = -1 if each["active"] == -1 else 0
            state = info["state"]
            messages = {
                str(seq): json.loads(
                    client.request(f"$JS.API.STREAM.MSG.GET.{stream}", b'{"seq":%d}' % seq)
                )
                for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1)
            }
            info.get("sources", []).sort(key=json.dumps)  # in no order there
            if stream in SOURCING:
                without_identity(messages)
            both_parts = {"info": info, "messages": messages}
            answers.append(comparable(json.dumps(both_parts).encode()))
        return answers


def without_identity(messages: Any) -> None:
    """Take out the sixth word of the source header, a hash of the time when the origin was created."""
    for answer in messages.values():
        headers = base64.b64decode(answer["message"].get("hdrs", "")).decode()
        answer["message"]["hdrs"] = re.sub(
            r"(Nats-Stream-Source:( [^ \r]+){5}) [0-9A-Za-z]{8}\r", r"\1 identity\r", headers
        )


@pytest.fixture
def twins(pair: Pair) -> Twins:
    return Twins(pair)


ORIGIN = {"name": "O"}
EXTERNAL = {"name": "O", "external": {"api": "$JS.hub.API", "deliver": ""}}


def transforms(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"src": src, "dest": dest} for src, dest in pairs]


MIRRORS: list[dict[str, Any]] = [
    {"mirror": ORIGIN, "first_seq": 5, "subjects": ["x"]},
    {"mirror": ORIGIN, "subjects": ["x"], "sources": [ORIGIN]},
    {"mirror": ORIGIN, "sources": [ORIGIN]},
    {"mirror": ORIGIN, "allow_msg_counter": True, "allow_atomic": True},
    {"mirror": ORIGIN, "allow_atomic": True, "allow_batched": True},
    {"mirror": ORIGIN, "allow_batched": True, "allow_msg_schedules": True},
    {"mirror": ORIGIN, "allow_msg_schedules": True},
    {"mirror": {**ORIGIN, "consumer": {"name": "", "deliver_subject": "d"}}},
    {"mirror": {**ORIGIN, "consumer": {"name": "c", "deliver_subject": "d.*"}}},
    {"mirror": {**ORIGIN, "consumer": {"name": "c", "deliver_subject": "d"}, "opt_start_seq": 1}},
    {
        "mirror": {
            **ORIGIN,
            "consumer": {"name": "c", "deliver_subject": "d"},
            "filter_subject": "o",
        }
    },
    {
        "mirror": {
            **ORIGIN,
            "filter_subject": "o.a",
            "subject_transforms": transforms(("o.>", "x.>")),
        }
    },
    {"mirror": ORIGIN, "subject_delete_marker_ttl": SECOND},
    {"mirror": {**ORIGIN, "subject_transforms": transforms(("o..a", "x"))}},
    {"mirror": {**ORIGIN, "subject_transforms": transforms(("o.*", "x"), ("*.a", "y"))}},
    {"mirror": {"name": ""}},
    {"mirror": {"name": "a.b"}},
    {"mirror": ORIGIN, "max_msg_size": 10},
    {"mirror": ORIGIN, "max_msg_size": 100},
    {"mirror": {**ORIGIN, "opt_start_seq": 1, "opt_start_time": "2024-01-01T00:00:00Z"}},
    {"mirror": {**ORIGIN, "external": {"api": "$JS.*.API", "deliver": ""}}},
    {"mirror": {**ORIGIN, "external": {"api": "$JS.API", "deliver": ""}}},
    {"mirror": {**ORIGIN, "external": {"api": "$JS.API.x", "deliver": ""}}},
    {"mirror": {**ORIGIN, "external": {"api": "a b", "deliver": ""}}},
    {"mirror": {**ORIGIN, "external": {"api": "", "deliver": "d.*"}}},
    {"mirror": {"name": "V"}},
    {"mirror": ORIGIN, "mirror_direct": True, "pedantic": True},
    {"mirror": ORIGIN, "pedantic": True},
    {"mirror": ORIGIN, "duplicate_window": 10 * SECOND},
    {"mirror": ORIGIN, "discard": "new", "max_msgs": 3},
    {"mirror_direct": True},
    {"mirror": {"name": "nobody"}, "mirror_direct": True},
    {"mirror": {**ORIGIN, "filter_subject": "o..a"}},
    {"mirror": {**ORIGIN, "filter_subject": "elsewhere"}},
]
SOURCES: list[dict[str, Any]] = [
    {"sources": [ORIGIN], "allow_msg_schedules": True},
    {"sources": [{"name": ""}]},
    {"sources": [{"name": "a b"}]},
    {"sources": [ORIGIN, ORIGIN]},
    {"sources": [ORIGIN, {**ORIGIN, "filter_subject": ">"}]},
    {"sources": [ORIGIN, {**ORIGIN, "filter_subject": "o.a"}]},
    {"sources": [ORIGIN, {**ORIGIN, "opt_start_seq": 4}]},
    {"sources": [{**ORIGIN, "filter_subject": "o", "subject_transforms": transforms(("o", "x"))}]},
    {"sources": [{**ORIGIN, "subject_transforms": transforms((" ", "x"))}]},
    {"sources": [{**ORIGIN, "subject_transforms": transforms(("o.*", "x.$1"), ("o.a", "y"))}]},
    {"sources": [{**ORIGIN, "subject_transforms": transforms(("", "x"), ("o.a", "y"))}]},
    {"sources": [{**ORIGIN, "consumer": {"name": "c.d", "deliver_subject": "d"}}]},
    {"sources": [{**ORIGIN, "consumer": {"name": "c", "deliver_subject": ""}}]},
    {"sources": [{**ORIGIN, "consumer": {"name": "c", "deliver_subject": "d"}}] * 2},
    {
        "sources": [
            {**ORIGIN, "consumer": {"name": "c", "deliver_subject": "d"}},
            {
                **ORIGIN,
                "consumer": {"name": "c", "deliver_subject": "e"},
                "subject_transforms": transforms(("o.a", "x")),
            },
        ]
    },
    {"sources": [ORIGIN], "max_msg_size": 10},
    {"sources": [{**ORIGIN, "external": {"api": "$JS.*.API", "deliver": ""}}]},
    {"sources": [{**ORIGIN, "external": {"api": "$JS.API", "deliver": "x"}}]},
    {"sources": [{**ORIGIN, "external": {"api": "$JS.d.API", "deliver": "x.>"}}]},
    {"sources": [ORIGIN, {"name": "ALL", "external": {"api": "$JS.d.API", "deliver": "all"}}]},
    {"sources": [{"name": "V"}]},
    {"sources": [{"name": "V"}], "subjects": ["v.a"]},
    {"sources": [{"name": "V", "filter_subject": "v.b"}], "subjects": ["v.a"]},
    {"sources": [{"name": "V", "filter_subject": "v.*"}], "subjects": ["v.a"]},
    {"sources": [{"name": "CYCLE"}], "subjects": ["v.a"]},
    {"sources": [{"name": "CYCLE", "filter_subject": "c"}], "subjects": ["v.a"]},
    {"sources": [ORIGIN], "subjects": ["v.a"], "duplicate_window": 5 * SECOND},
    {"sources": [ORIGIN], "first_seq": 100},
    {"sources": [{**ORIGIN, "opt_start_seq": 1, "opt_start_time": "2024-01-01T00:00:00Z"}]},
    {"sources": [None]},
    {"sources": []},
]


def test_configurations(twins: Twins) -> None:
    found = []
    origin = {"name": "O", "subjects": ["o.>", "o"], "max_msg_size": 50, "allow_direct": True}
    twins.api("STREAM.CREATE.O", origin)
    twins.api(
        "STREAM.CREATE.CYCLE", {"name": "CYCLE", "subjects": ["c"], "sources": [{"name": "V"}]}
    )
    for fields in [*MIRRORS, *SOURCES]:
        config = {"name": "V", **fields}
        try:
            twins.api("STREAM.CREATE.V", config)
        except AssertionError as difference:
            found.append(str(difference))
        twins.each("$JS.API.STREAM.DELETE.V", b"")
    assert not found, "\n".join(found)


def test_what_is_stored_and_shown(twins: Twins) -> None:
    twins.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"], "allow_direct": True})
    for number in range(1, 7):
        twins.publish(f"o.{'ab'[number % 2]}.{number}", b"%d" % number)
    header = b"NATS/1.0\r\nK: v\r\nNats-Expected-Last-Sequence: 6\r\nNats-Msg-Id: x\r\n\r\n"
    twins.publish("o.h", b"h", header)
    only = b"NATS/1.0\r\nNats-Expected-Stream: O\r\n\r\n"
    twins.publish("o.only", b"", only)
    twins.api("STREAM.MSG.DELETE.O", {"seq": 3})
    followers: list[tuple[str, dict[str, Any], int]] = [
        ("M", {"mirror": ORIGIN}, 8),
        ("F", {"mirror": {**ORIGIN, "filter_subject": "o.b.*"}}, 5),
        ("Q", {"mirror": {**ORIGIN, "opt_start_seq": 4}}, 8),
        ("X", {"mirror": {**ORIGIN, "subject_transforms": transforms(("o.a.*", "x.$1"))}}, 6),
        ("S", {"sources": [ORIGIN], "subjects": ["s"]}, 7),
        ("T", {"sources": [{**ORIGIN, "filter_subject": "o.a.*"}]}, 3),
        (
            "U",
            {
                "sources": [
                    {
                        **ORIGIN,
                        "subject_transforms": transforms(("o.b.*", "y.$1"), ("o.a.*", "z.$1")),
                    }
                ]
            },
            5,
        ),
        ("D", {"sources": [{"name": "S"}]}, 7),
    ]
    for name, fields, _ in followers:
        created = twins.api(f"STREAM.CREATE.{name}", {"name": name, **fields})
        assert "error" not in created, created
    for name, _, last_seq in followers:
        twins.settle(name, last_seq)
    time.sleep(2.5)
    for name, _, _ in followers:
        twins.holds(name)
    twins.publish("o.a.9", b"9")
    for name, _, last_seq in followers:
        last = {"F": last_seq, "M": 9, "Q": 9, "X": 9}.get(name, last_seq + 1)
        twins.settle(name, last)
        twins.holds(name)


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_was_taken_leaves_the_origin(twins: Twins, retention: str) -> None:
    twins.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"], "retention": retention})
    twins.api("STREAM.CREATE.S", {"name": "S", "sources": [ORIGIN]})
    time.sleep(1)
    for number in range(3):
        twins.publish(f"o.{number}")
    twins.settle("S", 3)
    deadline = time.monotonic() + 15
    while any(
        json.loads(each)["state"]["messages"] for each in twins.each("$JS.API.STREAM.INFO.O", b"")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    twins.holds("S")
    twins.holds("O")


def test_updates(twins: Twins) -> None:
    for name in ("O", "P"):
        twins.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
    twins.api("STREAM.CREATE.M", {"name": "M", "mirror": ORIGIN})
    twins.api("STREAM.CREATE.S", {"name": "S", "sources": [ORIGIN]})
    twins.publish("O.1")
    twins.publish("P.1")
    twins.settle("M", 1)
    twins.settle("S", 1)
    time.sleep(2.5)
    two = [ORIGIN, {"name": "P", "filter_subject": "P.*"}]
    for name, fields in (
        ("M", {"mirror": {"name": "P"}}),
        ("M", {"mirror": {**ORIGIN, "filter_subject": "O.1"}}),
        ("M", {"mirror": ORIGIN, "subjects": ["m"]}),
        ("S", {"sources": [ORIGIN, ORIGIN]}),
        ("S", {"sources": [{**ORIGIN, "subject_transforms": transforms(("a.*", "b.$2"))}]}),
        ("S", {"mirror": ORIGIN}),
    ):
        twins.api(f"STREAM.UPDATE.{name}", {"name": name, **fields})
    for name, fields in (
        ("M", {"mirror": ORIGIN, "description": "d"}),
        ("S", {"sources": two}),
        ("M", {"subjects": ["m"]}),
        ("S", {"sources": two[1:], "subjects": ["s"]}),
        ("S", {"subjects": ["s"]}),
    ):
        answers = twins.each(
            f"$JS.API.STREAM.UPDATE.{name}", json.dumps({"name": name, **fields}).encode()
        )
        assert all(b'"error"' not in answer for answer in answers), answers
        if name == "S" and "sources" in fields:
            twins.settle("S", 2)
        time.sleep(2.5)
        twins.holds(name)
    twins.publish("m")
    twins.publish("s")
    twins.publish("P.2")
    time.sleep(1)
    twins.holds("M")
    twins.holds("S")
