"""Bodies that are no JSON, or not the JSON that a call wants: the same words as a nats-server's."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.twins import Twin
from tests.peers import ServerProcess, available_servers, running_server

pytestmark = pytest.mark.peer

BODIES = [
    b"x",
    b"[]",
    b"{} {}",
    b'{"seq":1} x',
    b'{"seq":1}{"seq":2}',
    b'{"seq":1}}',
    b'[{"seq":1}]',
    b'{"seq":1,}',
    b'{"seq":01}',
    b'{"seq":1.0}',
    b'{"seq":1e2}',
    b'{"seq":-1}',
    b'{"seq":"1"}',
    b'{"seq":null}',
    b'{"seq":true}',
    b'{"seq":[1]}',
    b'{"seq":{}}',
    b'{"seq":18446744073709551616}',
    b'{"seq":18446744073709551615}',
    b'{"subject":1}',
    b'{"filter":1}',
    b'{"offset":"x"}',
    b'{"offset":1.5}',
    b'{"start_time":1}',
    b'{"start_time":"x"}',
    b'{"start_time":"2001-01-01"}',
    b'{"multi_last":"x"}',
    b'{"multi_last":[1]}',
    b'{"multi_last":["a",null]}',
    b'{"no_hdr":1}',
    b'{"last_by_subj":null}',
    b"{'seq':1}",
    b'{"seq" 1}',
    b'{"seq":1 "x":2}',
    b"{seq:1}",
    b'"abc',
    b'{"a":"\x01"}',
    b'{"a":"\\x"}',
    b'{"a":"\\u12"}',
    b'{"seq":tru}',
    b'{"seq":nul',
    b'{"seq":',
    b'{"seq',
    b"{",
    b"[",
    b"nul",
    b"  ",
    b"\xff",
    b'{"seq":1}\xff',
    b'\xef\xbb\xbf{"seq":1}',
    b'{"SEQ":1,"seq":2}',
    b'{"seq":1,"seq":2}',
    b'{"a":1}',
    b'{"A b<>&":1}',
    b'{"seq":-}',
    b'{"seq":+1}',
    b'{"seq":.5}',
    b'{"seq":1.}',
    b'{"seq":1e}',
    b'{"seq":0x1}',
    b'{"deleted_details":1}',
    b'{"keep":-1}',
    b'{"config":1}',
    b'{"config":{"name":1}}',
    b'{"config":{"backoff":"x"}}',
    b'{"config":{"backoff":[1,"x"]}}',
    b'{"config":{"metadata":[]}}',
    b'{"config":{"metadata":{"a":1}}}',
    b'{"sources":{}}',
    b'{"sources":[1]}',
    b'{"sources":[{"name":1}]}',
    b'{"sources":[{"external":1}]}',
    b'{"placement":"x"}',
    b'{"mirror":{"opt_start_time":"x"}}',
    b'{"max_msg_size":99999999999}',
    b'{"metadata":{"a":null}}',
    b'{"subjects":["a",1]}',
    b'{"num_replicas":1e400}',
    b'{"no_erase":"x"}',
    b'{"peer":1}',
    b'{"a\x7f\xc2\x85":1}',
    b'{"\\ud800":1}',
    b'{"\\n\\"\\\\":1}',
    b"true",
    b"12",
    b"-",
    b'"a" "b"',
    b'{"consumer_limits":{"max_ack_pending":"x"}}',
    b'{"republish":{"x":1}}',
    b'{"pause_until":5}',
]
CALLS = (
    "STREAM.CREATE.S",
    "STREAM.MSG.GET.S",
    "STREAM.MSG.DELETE.S",
    "STREAM.PURGE.S",
    "STREAM.NAMES",
    "CONSUMER.CREATE.S.c",
)
# nats-server gives no answer at all to a purge below the highest sequence there is
UNANSWERED = ("STREAM.PURGE.S", b'{"seq":18446744073709551615}')


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[ServerProcess, ServerProcess]]:
    kinds = ("pelton", "nats-server")
    missing = [kind for kind in kinds if kind not in available_servers()]
    if missing:
        pytest.skip(f"not on this machine: {missing}")
    with running_server(kinds[0]) as ours, running_server(kinds[1]) as theirs:
        yield ours, theirs


def answers(twin: Twin, call: str, bodies: list[bytes]) -> list[Any]:
    """The errors, each asked for when the one before has come."""
    found = []
    for body in bodies:
        twin.seen = {}
        twin.send(b"PUB $JS.API.%s answer %d\r\n%s\r\n" % (call.encode(), len(body), body))
        while not twin.seen.get("1"):
            assert twin.read(4), f"no answer to {call} {body!r}"
        found.append(twin.seen["1"][0][3].get("error"))
    return found


@pytest.mark.parametrize("call", CALLS)
def test_same_words(servers: tuple[ServerProcess, ServerProcess], call: str) -> None:
    twins = [Twin(server.port) for server in servers]
    bodies = [body for body in BODIES if (call, body) != UNANSWERED]
    found = []
    for twin in twins:
        twin.send(b"SUB answer 1\r\n")
        assert answers(twin, "STREAM.DELETE.S", [b""])
        create = json.dumps({"name": "S", "subjects": ["s"]}).encode()
        assert answers(twin, "STREAM.CREATE.S", [create]) == [None]
        found.append(answers(twin, call, bodies))
        twin.close()
    ours, theirs = (dict(zip(bodies, each, strict=True)) for each in found)
    assert {body: ours[body] for body in bodies if ours[body] != theirs[body]} == {}
