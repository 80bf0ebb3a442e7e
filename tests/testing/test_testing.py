"""Servers for the length of a test: they come, they go, and leave nothing behind."""

import asyncio
import gc
import os
import subprocess
import sys

import pytest

from pelton import StreamConfig, testing
from pelton.sync import connect


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_blocking_client_with_a_server_behind_it():
    with testing.server_blocking() as nc:
        subscription = nc.subscribe("a")
        nc.publish("a", b"x")
        assert subscription.next().data == b"x"
        assert nc.jetstream().account_info().streams == 0


def test_an_asyncio_client_with_a_server_behind_it():
    async def scenario():
        async with testing.server(options=["-n", "mine"]) as nc:
            js = nc.jetstream()
            await js.create_stream(StreamConfig(name="S", num_replicas=1))
            return (await js.publish("S", b"x")).seq, nc.server_info.server_name

    assert asyncio.run(scenario()) == (1, "mine")


def test_a_server_that_cant_start_says_why():
    with pytest.raises(testing.StartFailedError, match="unknown option --bogus"):
        testing.LocalServer(options=["--bogus"]).wait_ready()


def test_a_killed_server_comes_back_with_its_store_and_port():
    with testing.LocalServer() as local:
        pid, port = local.pid, local.port
        with connect(local.url) as nc:
            nc.jetstream().create_stream(StreamConfig(name="S", num_replicas=1))
            nc.jetstream().publish("S", b"x")
        local.kill()
        assert gone(pid)
        assert local.pid == 0
        local.start()
        local.wait_ready()
        assert (local.port, local.pid == pid) == (port, False)
        with connect(local.url) as nc:
            assert nc.jetstream().stream_info("S").state.messages == 1
        folder = local.store
    assert not os.path.exists(folder)


def test_a_stopped_server_starts_again_on_its_port_with_a_new_store():
    local = testing.LocalServer()
    local.wait_ready()
    port = local.port
    with connect(local.url) as nc:
        nc.jetstream().create_stream(StreamConfig(name="S", num_replicas=1))
    local.stop()
    local.stop()
    assert (local.pid, local.log()) == (0, "")
    assert not os.path.exists(local.store)
    with pytest.raises(testing.StartFailedError, match="was stopped"):
        local.wait_ready()
    local.start()
    with local:
        assert local.port == port
        with connect(local.url) as nc:
            assert nc.jetstream().stream_names() == []
    assert local.pid == 0


def test_a_handle_that_is_dropped_takes_its_server_along():
    local = testing.LocalServer()
    local.wait_ready()
    pid, folder = local.pid, os.path.dirname(local.store)
    assert not gone(pid)
    del local
    gc.collect()
    assert gone(pid)
    assert not os.path.exists(folder)


FORGETFUL = """
from pelton import testing
local = testing.LocalServer()
local.wait_ready()
print(local.pid, local.store, flush=True)
raise SystemExit(1)
"""


def test_the_end_of_the_program_takes_its_servers_along():
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL], capture_output=True, text=True, timeout=60, check=False
    )
    pid, store = done.stdout.split()
    assert done.returncode == 1
    assert gone(int(pid))
    assert not os.path.exists(os.path.dirname(store))


def test_a_store_of_ones_own_is_kept(tmp_path):
    for expected in (1, 2):
        with testing.server_blocking(store=str(tmp_path)) as nc:
            js = nc.jetstream()
            js.create_stream(StreamConfig(name="S", num_replicas=1))
            assert js.publish("S", b"x").seq == expected


def test_monitoring_when_asked_for():
    with testing.LocalServer(options=["-m", "-1"]) as local:
        assert local.monitoring_url.startswith("http://127.0.0.1:")
        while "Server is ready" not in local.log():
            assert local.pid, "the server has ended"
        assert local.end() == 0
