"""Messages with every header that means something, alone and together, get the same answer from our
server and a nats-server, byte for byte, and leave the same stream behind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.compat.pair import Judges, both
from tests.compat.seeds import examples, seed_of
from tests.compat.waivers import PUBLISH_WAIVERS
from tests.ways import FULL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.peer

Config = dict[str, Any]
Headers = list[tuple[str, str]]
Publish = tuple[str, Headers, bytes]  # subject behind "v.", headers, body

SECOND = 1_000_000_000
CALLS = settings(
    max_examples=examples(20),
    database=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)

STREAMS: dict[str, Config] = {
    "plain": {},
    "memory": {"storage": "memory"},
    "small": {"max_msg_size": 60},
    "discard_old": {"max_msgs": 2},
    "discard_new": {"max_msgs": 2, "discard": "new"},
    "discard_new_bytes": {"max_bytes": 200, "discard": "new"},
    "per_subject": {"max_msgs_per_subject": 1},
    "per_subject_new": {"max_msgs_per_subject": 1, "discard": "new"},
    "discard_new_per_subject": {
        "max_msgs_per_subject": 1,
        "discard": "new",
        "discard_new_per_subject": True,
    },
    "rollup": {"allow_rollup_hdrs": True},
    "rollup_per_subject": {
        "allow_rollup_hdrs": True,
        "max_msgs_per_subject": 2,
        "discard": "new",
        "discard_new_per_subject": True,
    },
    "ttl": {"allow_msg_ttl": True},
    "markers": {"subject_delete_marker_ttl": 5 * SECOND, "max_age": 3600 * SECOND},
    "counter": {"allow_msg_counter": True},
    "counter_rollup": {"allow_msg_counter": True, "allow_rollup_hdrs": True, "max_msg_size": 40},
    "atomic": {"allow_atomic": True, "allow_rollup_hdrs": True},
    "batched": {"allow_batched": True},
    "schedules": {"allow_msg_schedules": True, "allow_msg_ttl": True},
    "interest": {"retention": "interest"},
    "interest_rollup": {"retention": "interest", "allow_rollup_hdrs": True},
    "workqueue": {"retention": "workqueue"},
    "transform": {"subject_transform": {"src": "v.a", "dest": "v.changed"}},
    "republish": {"republish": {"src": "v.>", "dest": "again.>"}},
    "first": {"first_seq": 100},
    "no_window": {"duplicate_window": 0},
    "no_ack": {"no_ack": True},
    "async": {"persist_mode": "async"},
}
HEADERS: dict[str, Sequence[str]] = {
    "Nats-Msg-Id": ["a", "b", "", " a "],
    "Nats-Expected-Stream": ["V", "W", ""],
    "Nats-Expected-Last-Sequence": [
        "0",
        "1",
        "2",
        "3",
        "x",
        "-1",
        "",
        "01",
        "99999999999999999999",
    ],
    "Nats-Expected-Last-Subject-Sequence": ["0", "1", "2", "x", "", "-1"],
    "Nats-Expected-Last-Subject-Sequence-Subject": ["v.a", "v.*", "v.b", "elsewhere", "", "a b"],
    "Nats-Expected-Last-Msg-Id": ["a", "b", ""],
    "Nats-Rollup": ["sub", "all", "x", "SUB", ""],
    "Nats-TTL": ["1", "60", "1s", "2m", "never", "0", "-1", "500ms", "x", "1.5", "", "1h30m"],
    "Nats-Incr": [
        "1",
        "+1",
        "-5",
        "0",
        "x",
        "",
        "1.5",
        "123456789012345678901234567890",
        "+",
        "--1",
    ],
    "Nats-Batch-Id": ["b1", "b2", "x" * 64, "x" * 65, "", "a b"],
    "Nats-Batch-Sequence": ["1", "2", "3", "0", "x", ""],
    "Nats-Batch-Commit": ["1", "eob", "0", "x", ""],
    "Nats-Schedule": [
        "@at 2099-01-01T00:00:00Z",
        "@every 1h",
        "@every 1ms",
        "@hourly",
        "0 0 * * * *",
        "* * *",
        "x",
        "",
        "@at x",
    ],
    "Nats-Schedule-Target": ["v.target", "v.*", "elsewhere", "v.a", "", "a b"],
    "Nats-Schedule-TTL": ["1s", "x", "never", "60", "0"],
    "Nats-Schedule-Source": ["v.b", "v.*", "v.target", "elsewhere"],
    "Nats-Schedule-Time-Zone": ["Europe/Berlin", "Nowhere/None", "UTC", "utc", "Local", ""],
    "Nats-Schedule-Rollup": ["sub", "all", ""],
    "Nats-Schedule-Next": ["purge", "x", ""],
    "Nats-Scheduler": ["v.a", "v.b", ""],
    "Nats-Required-Api-Level": ["0", "1", "99", "x"],
    "KV-Operation": ["DEL", "PURGE"],
    "Nats-Marker-Reason": ["MaxAge"],
    "Nats-Trace-Dest": [],
    "nats-msg-id": ["a"],
    "Nats-Stream": ["X"],
    "Nats-Sequence": ["77"],
    "Nats-Counter-Sources": ["x", '{"A":{"v.a":"5"}}'],
    "Other": ["value", "a: b", ""],
}
PAIRS = [(name, value) for name, values in HEADERS.items() for value in values]
BODIES = [b"", b"body", b"x" * 61, b'{"val":"4"}']


def block(headers: Headers) -> bytes:
    """The header block; none for no headers."""
    if not headers:
        return b""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"NATS/1.0\r\n{lines}\r\n".encode()


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    with both() as pair:
        yield Judges(pair)


def messages(judges: Judges) -> None:
    """The state and every message of V are the same on both."""
    ours, _ = judges.ask("STREAM.INFO.V")
    # of an empty stream a nats-server says that sequence 0 is deleted
    details = bool(ours[0]["state"]["last_seq"])
    judges.same("STREAM.INFO.V", {"deleted_details": details, "subjects_filter": ">"})
    for seq in range(ours[0]["state"]["first_seq"], ours[0]["state"]["last_seq"] + 1):
        judges.same("STREAM.MSG.GET.V", {"seq": seq})


def run(judges: Judges, config: Config, publishes: Sequence[Publish]) -> None:
    """The same publishes to a new stream; acks, state and messages are the same."""
    kind = {"name": "V", "subjects": ["v.*"], **config}
    try:
        if judges.same("STREAM.CREATE.V", kind) is not True:
            return
        said = []
        for subject, headers, body in publishes:
            if any(waiver.sent(headers, config) for waiver in PUBLISH_WAIVERS):
                return
            said.append((subject, headers, body[:20]))
            wait_s = 0.002 if config.get("no_ack") else 8
            ours, theirs = judges.publish(f"v.{subject}", body, block(headers), wait_s)
            assert ours == theirs, (
                f"{json.dumps(config)}\nafter {said}\nours   {ours}\ntheirs {theirs}"
            )
        if config.get("no_ack"):
            judges.settle("V")
        messages(judges)
    except AssertionError as error:
        raise AssertionError(f"{error}\nstream {config}\npublished {publishes}") from None
    finally:
        judges.ask("STREAM.DELETE.V")


@pytest.mark.parametrize("kind", STREAMS)
def test_each_header_alone(judges: Judges, kind: str) -> None:
    """One after another, with and without a body (one of both in turns): to a stream that grows."""
    ways = ("a", b""), ("b", b"body")
    turn = [*STREAMS].index(kind)
    publishes = [
        (subject, [pair], body)
        for number, pair in enumerate(PAIRS, turn)
        for subject, body in (ways if FULL else ways[number % 2 :][:1])
        if not any(waiver.sent([pair], STREAMS[kind]) for waiver in PUBLISH_WAIVERS)
    ]
    for start in range(0, len(publishes), 40):
        run(judges, STREAMS[kind], publishes[start : start + 40])


HEADER_LISTS = st.lists(st.sampled_from(PAIRS), max_size=4)
RELATED = (
    ["Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit", "Nats-Msg-Id", "Nats-Rollup"],
    [name for name in HEADERS if name.startswith("Nats-Schedule")],
    [name for name in HEADERS if name.startswith("Nats-Expected")],
    ["Nats-TTL", "Nats-Rollup", "Nats-Msg-Id", "KV-Operation"],
    ["Nats-Incr", "Nats-Rollup", "Nats-Expected-Last-Sequence", "Nats-Counter-Sources"],
)
TOGETHER = st.one_of(
    HEADER_LISTS,
    *(
        st.lists(st.sampled_from([pair for pair in PAIRS if pair[0] in names]), max_size=5)
        for names in RELATED
    ),
)
PUBLISHES = st.lists(
    st.tuples(st.sampled_from("ab"), TOGETHER, st.sampled_from(BODIES)), min_size=1, max_size=5
)


@pytest.mark.parametrize("kind", STREAMS)
def test_headers_together(judges: Judges, kind: str) -> None:
    @seed(seed_of(sorted(STREAMS).index(kind)))
    @CALLS
    @given(PUBLISHES)
    def judge(publishes: list[Publish]) -> None:
        run(judges, STREAMS[kind], publishes)

    judge()
