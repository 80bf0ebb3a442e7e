"""JetStream in whole processes: what survives what, whose folder it is, what is reported."""

import json
import os
import re
import signal
import time
import urllib.request

import pytest

from pelton import ConsumerConfig, StreamConfig
from pelton.api import ApiError
from pelton.sync import connect
from tests.peers import available_servers

from .configured import configured
from .process import ServerProcess, Wire, running


def client(server):
    return connect(f"nats://127.0.0.1:{server.port()}")


def start(store, *more):
    return ServerProcess("-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(store), *more)


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("sync", ["always", "1h"])
def test_what_was_acknowledged_is_there_after_a_restart(tmp_path, end, sync):
    server = start(tmp_path, "--sync_interval", sync)
    with client(server) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s.>"], num_replicas=1))
        js.create_consumer("S", ConsumerConfig(durable_name="c", name="c", ack_policy="explicit"))
        for number in range(100):
            js.publish("s.a", b"%d" % number, msg_id=f"id{number}")
        first = js.consumer("S", "c").fetch(10)
        for message in first[:5]:
            message.ack_sync()
    if end == "kill":
        server.signal(signal.SIGKILL)
        assert server.end() == -signal.SIGKILL
    else:
        assert server.stop() == 0, server.text
    server = start(tmp_path, "--sync_interval", sync)
    with client(server) as nc:
        js = nc.jetstream()
        info = js.stream_info("S")
        assert (info.state.messages, info.state.last_seq) == (100, 100)
        assert [js.get_message("S", n).data for n in (1, 100)] == [b"0", b"99"]
        assert js.publish("s.a", b"again", msg_id="id7").duplicate
        if end == "stop":
            state = js.consumer_info("S", "c")
            assert state.ack_floor.stream_seq == 5
            assert state.num_pending == 90
    assert server.stop() == 0, server.text


def test_two_servers_dont_share_a_store(tmp_path):
    with running("-js", "-sd", str(tmp_path)) as server:
        other = start(tmp_path)
        assert other.end() == 1
        (line,) = other.text.splitlines()
        assert f"in use by another server (pid {server.pid})" in line
    again = start(tmp_path)
    again.port()
    assert again.stop() == 0


def test_the_store_of_a_nats_server_is_left_alone(tmp_path):
    folder = tmp_path / "jetstream" / "$G" / "streams" / "S"
    folder.mkdir(parents=True)
    (folder / "meta.inf").write_text("{}")
    server = start(tmp_path)
    assert server.end() == 1
    (line,) = server.text.splitlines()
    assert "contains streams of a nats-server" in line


@pytest.mark.parametrize("where", ["/proc/no/such", "/dev/null/x", "file"])
def test_a_store_that_cant_be_used_is_told_in_one_line(tmp_path, where):
    if where == "file":
        (tmp_path / "file").write_text("x")
        where = str(tmp_path / "file")
    server = start(where)
    assert server.end() == 1
    (line,) = server.text.splitlines()
    assert "[FTL] Can't start JetStream: " in line
    assert where in line
    assert line.endswith("choose another with -sd")


def test_a_broken_stream_folder_does_not_stop_the_others(tmp_path):
    server = start(tmp_path)
    with client(server) as nc:
        js = nc.jetstream()
        for name in ("A", "B"):
            js.create_stream(StreamConfig(name=name, num_replicas=1))
    assert server.stop() == 0
    broken = tmp_path / "jetstream" / "$G" / "streams" / "A"
    for name in ("meta.json", "meta.json.copy"):
        (broken / name).write_text("{broken")
    server = start(tmp_path)
    with client(server) as nc:
        assert nc.jetstream().stream_names() == ["A", "B"]
        assert nc.jetstream().stream_info("B").state.messages == 0
        with pytest.raises(ApiError, match="stream is offline"):
            nc.jetstream().stream_info("A")
    assert server.stop() == 0
    assert "[WRN]" in server.text
    assert os.path.exists(tmp_path / "jetstream" / "$G" / "streams" / "A" / "meta.json")


def test_without_jetstream_nobody_answers(tmp_path):
    from pelton.errors import NoRespondersError

    with running() as server, client(server) as nc:
        assert not nc.server_info.jetstream
        with pytest.raises(NoRespondersError):
            nc.jetstream().account_info()


def test_start_lines_say_where_and_how(tmp_path):
    with running("-js", "-sd", str(tmp_path), "--sync_interval", "2m") as server:
        server.port()
    assert f'Store Directory: "{tmp_path}/jetstream"' in server.text
    assert "Sync Interval:   120s" in server.text
    assert "JetStream Shutdown" in server.text


def test_settings_come_from_the_file_too(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text(
        f"jetstream {{ store_dir: {tmp_path}/s, domain: hub, sync_interval: 1s, max_file: 1GB }}"
    )
    with running("-c", str(path)) as server, client(server) as nc:
        js = nc.jetstream(domain="hub")
        js.create_stream(StreamConfig(name="S", num_replicas=1))
        assert js.stream_info("S").domain == "hub"
        assert js.publish("S", b"x").domain == "hub"
    assert (tmp_path / "s" / "jetstream").is_dir()


def test_limits_come_from_the_file(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text(
        f"jetstream {{ store_dir: {tmp_path}/s, max_file: 1000, max_mem: 2000\n"
        'limits { max_ack_pending: 5, duplicate_window: "10s", batch { timeout: "1s" } } }'
    )
    with running("-c", str(path)) as server, client(server) as nc:
        js = nc.jetstream()
        with pytest.raises(ApiError, match="insufficient storage resources"):
            js.create_stream(StreamConfig(name="S", num_replicas=1, max_bytes=1001))
        info = js.create_stream(StreamConfig(name="S", num_replicas=1))
        assert info.config.duplicate_window == 10 * 10**9
        js.publish("S", bytes(900))
        js.publish("S", bytes(900))
        with pytest.raises(ApiError, match="insufficient resources"):
            js.publish("S", b"")


def test_monitoring_reports_streams_and_consumers(tmp_path):
    with running("-js", "-sd", str(tmp_path), "-m", "-1") as server:
        base = f"http://127.0.0.1:{server.http_port()}"

        def get(path):
            with urllib.request.urlopen(base + path, timeout=20) as found:
                return json.load(found)

        with client(server) as nc:
            js = nc.jetstream()
            js.create_stream(StreamConfig(name="S", num_replicas=1))
            js.create_consumer("S", ConsumerConfig(durable_name="c", name="c"))
            js.publish("S", b"x")
            found = get("/jsz?consumers=1&config=1")
        (stream,) = found["account_details"][0]["stream_detail"]
        assert (found["streams"], found["consumers"], found["messages"]) == (1, 1, 1)
        assert stream["config"]["name"] == "S"
        assert stream["state"]["messages"] == 1
        assert stream["consumer_detail"][0]["num_pending"] == 1
        config = get("/varz")["jetstream"]["config"]
        assert (config["sync_interval"], config["sync_always"]) == (120 * 10**9, True)
        assert get("/healthz?account=$G&stream=S&consumer=c") == {"status": "ok"}
        with pytest.raises(urllib.error.HTTPError) as caught:
            get("/healthz?account=$G&stream=T")
        assert caught.value.code == 404
        with urllib.request.urlopen(base + "/metrics", timeout=20) as found:
            text = found.read().decode()
        assert 'pelton_consumer_pending{account="$G",consumer="c",stream="S"} 1.0' in text


def test_timers_run_without_traffic(tmp_path):
    """Messages get too old, and unacknowledged ones come again, though no client says a word."""
    with running("-js", "-sd", str(tmp_path)) as server, client(server) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name="S", num_replicas=1, max_age=0.2))
        js.create_stream(StreamConfig(name="T", num_replicas=1))
        config = ConsumerConfig(durable_name="c", name="c", ack_policy="explicit", ack_wait=0.1)
        js.create_consumer("T", config)
        js.publish("S", b"x")
        js.publish("T", b"y")
        pull = js.consumer("T", "c")
        assert [m.metadata.delivered for m in pull.fetch(1)] == [1]
        (again,) = pull.fetch(1, timeout=5)
        assert again.metadata.delivered == 2
        patience = time.monotonic() + 10
        while js.stream_info("S").state.messages and time.monotonic() < patience:
            pass
        assert js.stream_info("S").state.messages == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_acknowledged_message_is_lost_when_the_end_comes_under_load(tmp_path, number):
    server = start(tmp_path)
    with client(server) as nc:
        nc.jetstream().create_stream(StreamConfig(name="S", num_replicas=1))
    wire = Wire(server.port())
    wire.send("SUB ack 1\r\n")
    batch = b"PUB S ack 100\r\n" + b"x" * 100 + b"\r\n"
    wire.send(batch * 2000)
    wire.read_until(b'"seq":500')
    server.signal(number)
    acks = re.findall(rb'"seq":(\d+)', b'"seq":500' + wire.rest())
    wire.close()
    assert server.end() == (0 if number == signal.SIGTERM else -number), server.text
    assert "Internal error" not in server.text
    acked = max(map(int, acks))
    server = start(tmp_path)
    with client(server) as nc:
        state = nc.jetstream().stream_info("S").state
        assert state.last_seq >= acked
        assert state.messages == state.last_seq
        assert state.lost is None
    assert server.stop() == 0


def test_waiting_pull_requests_are_told_when_the_server_stops(tmp_path):
    server = start(tmp_path)
    with client(server) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name="S", num_replicas=1))
        js.create_consumer("S", ConsumerConfig(durable_name="c", name="c"))
    wire = Wire(server.port(), hello='{"verbose":false,"headers":true}')
    body = '{"batch":1,"expires":60000000000}'
    wire.send(f"SUB in 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.c in {len(body)}\r\n{body}\r\n")
    wire.ping()
    assert server.stop() == 0
    assert b"409 Server Shutdown" in wire.rest()


def test_a_request_that_does_not_wait_is_held_up_by_missing_acks(tmp_path):
    with running("-js", "-sd", str(tmp_path)) as server:
        with client(server) as nc:
            js = nc.jetstream()
            js.create_stream(StreamConfig(name="S", num_replicas=1))
            config = ConsumerConfig(
                durable_name="c", name="c", ack_policy="explicit", max_ack_pending=2
            )
            js.create_consumer("S", config)
            for _ in range(5):
                js.publish("S", b"x")
        with Wire(server.port(), hello='{"verbose":false,"headers":true}') as wire:
            body = '{"batch":5,"no_wait":true,"expires":300000000}'
            wire.send(f"SUB in 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.c in {len(body)}\r\n{body}\r\n")
            text = wire.read_until(b"408 Request Timeout\r\n")
        assert text.count(b"$JS.ACK.") == 2


SYSTEM = """
port: @port
jetstream { store_dir: "%s" }
system_account: S
accounts { S { users: [{user: s, password: s}] }, A { jetstream: enabled } }
"""


def test_a_purge_of_an_unknown_account_removes_its_folder(tmp_path):
    unknown = tmp_path / "jetstream" / "un%3Aknown"
    unknown.mkdir(parents=True)
    hello = '{"verbose":false,"user":"s","pass":"s"}'
    with (
        configured("pelton", SYSTEM % tmp_path) as server,
        Wire(server.ports["port"], hello=hello) as wire,
    ):
        wire.send("SUB r 1\r\nPUB $JS.API.ACCOUNT.PURGE.un:known r 0\r\n\r\n")
        while "initiated" not in wire.line():
            pass
    assert not unknown.exists()


@pytest.mark.parametrize("kind", ["pelton", "nats-server"])
def test_the_system_account_hears_that_it_has_no_jetstream(tmp_path, kind):
    if kind not in available_servers():
        pytest.skip(f"no {kind} here")
    hello = '{"verbose":false,"headers":true,"no_responders":true,"user":"s","pass":"s"}'
    with (
        configured(kind, SYSTEM % tmp_path) as server,
        Wire(server.ports["port"], hello=hello) as wire,
    ):
        wire.send("SUB r 1\r\n")

        def ask(call: str) -> dict:
            wire.send(f"PUB $JS.API.{call} r 0\r\n\r\n")
            while (line := wire.line()).split(" ")[0] != "MSG":
                assert line == "PONG", line
            return json.loads(wire.line())

        refused = {
            "code": 503,
            "err_code": 10039,
            "description": "JetStream not enabled for account",
        }
        for call in ("INFO", "STREAM.NAMES", "STREAM.CREATE.X", "DIRECT.GET.X", "NOTHING"):
            kind_of = "account_info_response" if call == "INFO" else "system_response"
            answer = {"type": f"io.nats.jetstream.api.v1.{kind_of}", "error": refused}
            assert ask(call) == answer
        assert ask("ACCOUNT.PURGE.A")["initiated"] is True
        wire.send("PUB $JS.API.INFO 0\r\n\r\n")
        assert wire.ping() == b""
