"""A server inside the program: both ways to run it, over memory and over a port."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys

import nats
import pytest
import uvloop

from pelton import (
    ConnectError,
    ConnectionClosedError,
    Options,
    StreamConfig,
    connect,
    embedded,
    sync,
)
from pelton.client.base.addresses import open_socket, parse_server, parse_servers
from tests.client.shells import SHELLS, connected


def stored(client, name="S"):
    return client.jetstream().stream_info(name).state.messages


@pytest.mark.parametrize("shell", SHELLS)
def test_both_shells_connect_over_memory(shell):
    with embedded.Server() as server, connected(shell, server.memory_url) as client:
        assert server.port == 0
        assert server.url == ""
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
        for number in range(300):
            js.publish("s.x", b"%d" % number * 1000)
        assert stored(client) == 300
        assert js.get_message("S", 7).data == b"6" * 1000


@pytest.mark.parametrize("shell", SHELLS)
def test_both_shells_connect_to_the_port(shell):
    with embedded.Server(port=0) as server, connected(shell, server.url) as client:
        assert client.request("$JS.API.INFO").data.startswith(b"{")
        assert client.server_info.port == server.port


def test_a_server_in_the_running_loop_keeps_its_store(tmp_path):
    async def scenario(publish):
        async with embedded.Server(store=str(tmp_path)) as server, server.connect() as nc:
            js = nc.jetstream()
            if publish:
                await js.create_stream(StreamConfig(name="S"))
                await js.publish("S", b"x")
            return (await js.stream_info("S")).state.messages

    assert asyncio.run(scenario(True)) == 1
    assert asyncio.run(scenario(False)) == 1


def test_nats_py_uses_the_port():
    async def scenario():
        async with embedded.Server(port=0, name="mine") as server:
            client = await nats.connect(server.url)
            js = client.jetstream()
            await js.add_stream(name="S", subjects=["s"])
            ack = await js.publish("s", b"x")
            got = await js.get_msg("S", ack.seq)
            await client.close()
            return server.name, got.data

    assert asyncio.run(scenario()) == ("mine", b"x")


def test_messages_of_one_transport_reach_the_other():
    with (
        embedded.Server(port=0) as server,
        sync.connect(server.url) as far,
        server.connect_sync() as near,
    ):
        heard = near.subscribe("a")
        near.flush()
        far.publish("a", b"x" * 500_000)
        far.flush()
        assert heard.next().data == b"x" * 500_000


def test_a_temporary_store_goes_with_the_server():
    server = embedded.Server()
    with server, server.connect_sync() as client:
        client.jetstream().create_stream(StreamConfig(name="S"))
        folder = server._host._folder
        assert os.path.exists(folder)
    assert not os.path.exists(folder)
    assert not server.running
    with server, server.connect_sync() as client:  # it can start again
        assert client.jetstream().stream_names() == []


def test_without_jetstream_there_is_no_store():
    with embedded.Server(jetstream=False) as server, server.connect_sync() as client:
        assert not server._host._folder
        client.publish("a", b"x")
        client.flush()


def test_signals_and_logging_stay_the_programs(caplog):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    frozen = logging.getLogger("pelton.server").handlers[:]
    with caplog.at_level(logging.INFO, "pelton.server"), embedded.Server():
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert "Server is ready" in caplog.messages
    assert "Server Exiting.." in caplog.messages
    assert logging.getLogger("pelton.server").handlers == frozen


def test_nothing_is_left_open():
    def files():
        return len(os.listdir("/proc/self/fd"))

    with embedded.Server(port=0):
        pass
    before = files()
    lives = 10
    for _ in range(lives):
        with embedded.Server(port=0) as server, server.connect_sync() as client:
            client.jetstream().create_stream(StreamConfig(name="S"))
    assert files() < before + lives  # what another test has left may open and close some meanwhile


def test_users_are_asked_over_memory_too():
    with embedded.Server(user="anna", password="secret") as server:
        with pytest.raises(ConnectError, match="Authorization"):
            server.connect_sync()
        with server.connect_sync(user="anna", password="secret") as client:
            client.flush()
        url = server.memory_url.replace("//", "//anna:secret@")
        with sync.connect(url) as client:
            client.flush()


def test_a_configuration_file_and_command_line_options(tmp_path):
    config = tmp_path / "server.conf"
    config.write_text(
        "server_name: filed\nmax_payload: 3000\naccounts { A { users [ {user: a} ] } }"
    )
    with embedded.Server(config=str(config), arguments=["--logtime=false"]) as server:
        assert server.name == "filed"
        assert server.memory_url == "memory://filed"
        with server.connect_sync(user="a", password="") as client:
            assert client.server_info.max_payload == 3000


def test_a_client_comes_back_after_a_restart(tmp_path):
    server = embedded.Server(store=str(tmp_path), name="again")
    server.start_thread()
    with server.connect_sync(timeout=30) as client:
        client.jetstream().create_stream(StreamConfig(name="S"))
        server.stop_thread()
        server.stop_thread()
        server.start_thread()
        try:
            assert client.wait_until(lambda: client.reconnects == 1)
            assert stored(client) == 0
        finally:
            server.stop_thread()


def test_a_server_without_a_name_is_found_again():
    server = embedded.Server()
    server.start_thread()
    with server.connect_sync(timeout=30) as client:
        url = server.memory_url
        server.stop_thread()
        with server:
            assert server.memory_url == url
            assert client.wait_until(lambda: client.reconnects == 1)


def test_another_event_loop():
    async def scenario():
        async with (
            embedded.Server(port=0) as server,
            connect(server.url) as far,
            server.connect() as near,
        ):
            heard = await near.subscribe("a")
            await near.flush()
            await far.publish("a", b"x")
            return (await heard.next()).data

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scenario()) == b"x"


def test_a_reload_keeps_a_temporary_store():
    with embedded.Server() as server:
        thread, app = server._thread, server._host.app
        assert thread.call(app.commands.reload) == ""


# -- refusals -----------------------------------------------------------------------------------------


def test_a_taken_port_is_a_start_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = embedded.Server(port=taken.getsockname()[1])
        with pytest.raises(embedded.StartError, match="the port is taken"):
            server.start_thread()
        assert not server.running


def test_a_used_store_is_a_start_error(tmp_path):
    with (
        embedded.Server(store=str(tmp_path)),
        pytest.raises(embedded.StartError, match="another server"),
        embedded.Server(store=str(tmp_path)),
    ):
        pass
    with embedded.Server(store=str(tmp_path)):
        pass  # the failed start has not kept the lock


def test_a_used_name_is_a_start_error(tmp_path):
    with embedded.Server(name="one"):
        second = embedded.Server(name="one", store=str(tmp_path))
        with pytest.raises(embedded.StartError, match="choose another"):
            second.start_thread()
    with second:
        pass  # neither store nor name was kept


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"colour": "red"}, TypeError, "no option colour"),
        ({"port": 70000}, ValueError, "port must be"),
        ({"ping_interval": 0}, ValueError, "above 0"),
        ({"ping_interval": "soon"}, ValueError, "no duration"),
        ({"password": "x"}, ValueError, "without user"),
        ({"user": "a", "token": "t"}, ValueError, "not both"),
        ({"config": "/nowhere.conf"}, embedded.StartError, "/nowhere.conf"),
        ({"arguments": ["--bogus"]}, embedded.StartError, "unknown option --bogus"),
        ({"arguments": ["--help"]}, embedded.StartError, "options of a start only"),
    ],
)
def test_bad_options_are_refused_before_the_start(options, error, text):
    with pytest.raises(error, match=text):
        embedded.Server(**options)


def test_a_server_runs_once_at_a_time():
    server = embedded.Server()
    with pytest.raises(RuntimeError, match="does not run"):
        server.connect()
    with server, pytest.raises(RuntimeError, match="runs already"):
        server.start_thread()


def test_a_blocking_client_in_the_servers_thread_is_refused():
    async def scenario():
        async with embedded.Server() as server:
            with pytest.raises(ConnectError, match="use connect"):
                server.connect_sync(timeout=1)
            with await asyncio.to_thread(server.connect_sync) as client:
                await asyncio.to_thread(client.flush)

    asyncio.run(scenario())


def test_a_stopped_server_is_named():
    with embedded.Server(name="gone") as server:
        url = server.memory_url
    with pytest.raises(ConnectError, match="memory://gone: this process has no server"):
        sync.connect(url, reconnect_attempts_max=0)
    with pytest.raises(ConnectionRefusedError):
        open_socket("gone", waits=False)


def test_another_process_has_no_server_over_memory():
    with embedded.Server() as server:
        child = os.fork()
        if not child:
            try:
                open_socket(server.memory_url.removeprefix("memory://"), waits=True)
            except ConnectionRefusedError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_stop_ends_the_clients():
    async def scenario():
        server = embedded.Server()
        await server.start()
        client = await server.connect(reconnect=False)
        await server.stop()
        await server.stop()
        while not client.closed:
            await asyncio.sleep(0)
        with pytest.raises(ConnectionClosedError):
            await client.flush()

    asyncio.run(scenario())


def test_the_url_of_memory():
    server = parse_server("memory://a:b@Orders")
    assert (server.memory, server.host, server.user, server.password) == (True, "Orders", "a", "b")
    assert str(server) == "memory://Orders"
    with pytest.raises(ValueError, match="no host"):
        parse_server("memory://")
    options = Options(servers=parse_servers("memory://x"))
    assert options.servers[0].memory


def test_the_seed_is_drawn_before_maps_exist():
    program = "import pelton.client.aio, pelton.client.sync, pelton.embedded as e; print(e.SEEDED)"
    late = "import pelton.server.app, pelton.embedded as e; print(e.SEEDED)"
    outputs = [
        subprocess.run([sys.executable, "-c", each], capture_output=True, text=True, check=True)
        for each in (program, late)
    ]
    assert [each.stdout.strip() for each in outputs] == ["True", "False"]


def test_connect_takes_the_url_in_asyncio():
    async def scenario(url):
        async with connect(url) as nc:
            return (await nc.request("$JS.API.INFO")).data[:1]

    with embedded.Server() as server:
        assert asyncio.run(scenario(server.memory_url)) == b"{"
