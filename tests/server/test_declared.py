"""Streams, consumers and buckets that the configuration declares."""

import json
import re
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.server.config import read_config
from pelton.server.config.declared import duration_ns
from pelton.server.config.grammar import Item
from pelton.server.errors import ConfigError

from .process import ServerProcess, Wire, running

SECOND = 1_000_000_000


def declared(text):
    settings, _ = read_config(text, "t.conf", environ={})
    return settings.declared


def test_fields_are_those_of_the_api_with_readable_durations_and_sizes():
    text = (
        'streams { ORDERS { subjects: ["orders.>"], max_age: 7d, max_bytes: 10GB\n'
        "  duplicate_window: 30s, consumer_limits { inactive_threshold: 5m }\n"
        "  metadata { a: 007 } } }\n"
    )
    (stream,) = declared(text)
    assert (stream.stream, stream.consumer, stream.place) == ("ORDERS", "", "t.conf:1:11")
    assert stream.fields == {
        "name": "ORDERS",
        "subjects": ["orders.>"],
        "max_age": 7 * 86_400 * SECOND,
        "max_bytes": 10 << 30,
        "duplicate_window": 30 * SECOND,
        "consumer_limits": {"inactive_threshold": 300 * SECOND},
        "metadata": {"a": "007"},
    }


def test_an_array_of_streams_with_names_is_the_same():
    assert declared("streams: [{name: A, subjects: [a]}]") == declared(
        "streams { A { subjects: [a] } }"
    )


def test_consumers_are_durable_and_belong_to_a_stream():
    (consumer,) = declared("consumers { S { C { ack_wait: 45s, backoff: [1s, 2m] } } }")
    assert (consumer.stream, consumer.consumer) == ("S", "C")
    assert consumer.fields == {
        "name": "C",
        "durable_name": "C",
        "ack_wait": 45 * SECOND,
        "backoff": [SECOND, 120 * SECOND],
    }


def test_buckets_are_streams_as_clients_make_them():
    bucket, store = declared(
        'kv { p { history: 5, ttl: 1m, max_value_size: "64KB" } }\n objects { f { ttl: 1h } }'
    )
    assert bucket.fields == {
        "name": "KV_p",
        "subjects": ["$KV.p.>"],
        "max_msgs_per_subject": 5,
        "max_age": 60 * SECOND,
        "duplicate_window": 60 * SECOND,
        "max_msg_size": 64 * 1024,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
    }
    assert store.fields["subjects"] == ["$O.f.C.>", "$O.f.M.>"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("streams { A { max_age: 7 } }", r't.conf:1:15: max_age: 7 needs a unit, such as "7s"'),
        ("streams { A { max_bytez: 7 } }", r't.conf:1:11: stream "A": .*unknown field "max_bytez"'),
        ("streams { A { subjects: 5 } }", r't.conf:1:11: stream "A": json: cannot unmarshal'),
        ("streams { A.B {} }", r't.conf:1:11: "A.B" can\'t be the name of a stream'),
        ("streams { A: 5 }", r"t.conf:1:11: A: expected a map, got 5"),
        ("streams: 5", r"t.conf:1:1: streams: expected a map of names to streams, got 5"),
        ("streams: [{subjects: [a]}]", r"t.conf:1:11: a stream in an array needs a name"),
        ("streams: [{name: A}, {name: A}]", r'stream "A" is declared twice, also at t.conf:1:11'),
        ("kv { a { history: 65 } }", r"t.conf:1:6: a: history is 1 to 64"),
        ("kv { a { subjects: [x] } }", r't.conf:1:6: a: unknown field "subjects"; a bucket has'),
        ("objects { a { history: 1 } }", r'a: unknown field "history"'),
        ("kv { a.b {} }", r'"a.b" can\'t be the name of a bucket'),
        ("kv { a { max_bytes: lots } }", r't.conf:1:10: max_bytes: "lots" is not a size'),
        ("consumers { S { C { nonsense: 1 } } }", r'consumer "C" of stream "S": .*"nonsense"'),
        ("consumers { S: [{}] }", r"a consumer in an array needs a name"),
    ],
)
def test_mistakes_are_told_with_their_place(text, message):
    with pytest.raises(ConfigError, match=message):
        declared(text)


@given(st.integers(0, 3000), st.integers(0, 86_399))
def test_days_and_the_rest_add_up(days, seconds):
    rest = f"{seconds}s" if seconds else ""
    item = Item(f"{days}d{rest}", "t", 1, 1)
    assert duration_ns(item) == (days * 86_400 + seconds) * SECOND


@given(st.integers(1_000_000, 1 << 62))
def test_a_number_is_nanoseconds_as_in_the_api(ns):
    assert duration_ns(Item(ns, "t", 1, 1, str(ns))) == ns


TEXT = """jetstream {{ store_dir: "{store}", max_file: 1GB }}
streams {{ ORDERS {{ subjects: ["orders.>"], max_msgs: {most}, max_age: 7d }} }}
consumers {{ ORDERS {{ packing {{ ack_policy: {policy}, ack_wait: 45s }} }} }}
kv {{ profiles {{ history: 5 }} }}
"""


def config_of(wire, stream):
    wire.send(f"SUB reply.{stream} 1\r\nPUB $JS.API.STREAM.INFO.{stream} reply.{stream} 0\r\n\r\n")
    wire.line()
    config = json.loads(wire.line())["config"]
    wire.send("UNSUB 1\r\n")
    return config


def test_what_is_declared_is_there_before_the_first_client(tmp_path):
    path = tmp_path / "x.conf"

    def write(most, policy="explicit"):
        path.write_text(TEXT.format(store=tmp_path / "store", most=most, policy=policy))

    write(100)
    with running("-c", str(path)) as server, Wire(server.port()) as wire:
        assert config_of(wire, "ORDERS")["max_msgs"] == 100
        assert config_of(wire, "KV_profiles")["max_msgs_per_subject"] == 5
        wire.send("PUB orders.1 1\r\nx\r\n")
        write(200)
        server.signal(signal.SIGHUP)
        server.wait_for('Updated stream "ORDERS", declared at .*x.conf:2:11')
        server.wait_for("Reloaded server configuration")
        assert config_of(wire, "ORDERS")["max_msgs"] == 200
        assert len(re.findall("Created|Updated", server.text)) == 4
        write(200, "all")
        server.signal(signal.SIGHUP)
        server.wait_for(
            r"Cannot apply the declaration: \S+x.conf:3:22: consumer .*ack policy can not be updated"
        )
    refused(path)
    write(200)
    with running("-c", str(path)) as server:
        # Nothing has changed: nothing is made or written anew.
        assert not re.search("Created|Updated", server.text)


def refused(path):
    """A start that fails, since the consumer can't become what is declared."""
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1", "-c", str(path))
    assert server.end() == 1
    assert re.search(r"\[FTL\] \S+x.conf:3:22: consumer .*ack policy can not be", server.text)


def test_declared_streams_need_jetstream(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("streams { A { subjects: [a] } }")
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1", "-c", str(path))
    assert server.end() == 1
    assert 'x.conf:1:11: stream "A" needs JetStream' in server.text


ACCOUNTS = """jetstream {{ store_dir: "{store}" }}
accounts {{
  A {{ jetstream: enabled, users: [{{user: a, password: a}}], streams {{ S {{ subjects: [s] }} }} }}
  B {{ {jetstream} users: [{{user: b, password: b}}], streams {{ S {{ subjects: [t] }} }} }}
}}
"""


def test_an_account_declares_its_own(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text(ACCOUNTS.format(store=tmp_path / "store", jetstream="jetstream: enabled,"))
    with running("-c", str(path)) as server:
        for user, subjects in (("a", ["s"]), ("b", ["t"])):
            hello = json.dumps({"verbose": False, "user": user, "pass": user})
            with Wire(server.port(), hello=hello) as wire:
                assert config_of(wire, "S")["subjects"] == subjects
    path.write_text(ACCOUNTS.format(store=tmp_path / "store", jetstream=""))
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1", "-c", str(path))
    assert server.end() == 1
    assert re.search(r'x.conf:4:\d+: stream "S": account "B" has no JetStream', server.text)
