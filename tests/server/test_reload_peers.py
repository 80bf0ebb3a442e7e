"""The same reload on this server and on a nats-server: what the log says about it."""

import os
import re
import select
import signal
import subprocess
import time

import pytest

from tests.peers import available_servers, command_of, free_port

STORE = "<store>"
CASES = [
    ("", "max_payload: 2000"),
    ("", "debug: true"),
    ("", "trace_headers: true"),
    ("", "max_connections: 5, max_control_line: 2000"),
    ("", 'ping_interval: "5s", ping_max: 5, write_deadline: "1m"'),
    ("", "server_tags: [a], server_metadata {a: b}"),
    ("", "connect_error_reports: 5, max_traced_msg_len: 5"),
    ("", "authorization {user: a, password: b, timeout: 5}"),
    ("", "no_fast_producer_stall: true"),
    ("", "max_pending: 5000000"),
    ("", 'lame_duck_duration: "5m"'),
    ("", 'lame_duck_grace_period: "5s"'),
    ("", "server_name: x"),
    ("", 'http_base_path: "/x"'),
    ("", "feature_flags {a: true}"),
    ("", "no_header_support: true"),
    ("", "max_closed_clients: 5"),
    ("", 'default_js_domain {"$G": b}'),
    ("", "system_account: A, accounts {A {}}"),
    (f"jetstream {{{STORE}}}", f"jetstream {{{STORE}, max_mem: 1G}}"),
    (f"jetstream {{{STORE}, max_mem: 2G}}", f"jetstream {{{STORE}, max_mem: 1G}}"),
    (f"jetstream {{{STORE}, max_mem: 2G}}", f"jetstream {{{STORE}, max_mem: 3G}}"),
    (f"jetstream {{{STORE}}}", 'jetstream {store_dir: "/elsewhere"}'),
    (f"jetstream {{{STORE}}}", f"jetstream {{{STORE}, domain: x}}"),
    (f"jetstream {{{STORE}}}", f"jetstream {{{STORE}, strict: false}}"),
    (f"jetstream {{{STORE}}}", f"jetstream {{{STORE}, limits {{max_ack_pending: 5}}}}"),
]
# nats-server says these with every reload.
ALWAYS = {"Reloaded: authorization users", "Reloaded: accounts"}


def until(child, pattern):
    """What the child wrote until it matches."""
    text, deadline = "", time.monotonic() + 20
    while not re.search(pattern, text):
        assert select.select([child.stderr], [], [], max(deadline - time.monotonic(), 0))[0], text
        data = os.read(child.stderr.fileno(), 65536)
        assert data, text
        text += data.decode()
    return text


def reload(kind, folder, before, after):
    """The lines about a reload from one configuration to another."""
    folder.mkdir()
    path = folder / "x.conf"
    port = free_port()

    def write(text):
        text = text.replace(STORE, f'store_dir: "{folder / "store"}"')
        path.write_text(f"host: 127.0.0.1, port: {port}\n{text}\n")

    write(before)
    child = subprocess.Popen(
        [*command_of(kind), "-c", str(path)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        until(child, "Server is ready")
        write(after)
        child.send_signal(signal.SIGHUP)
        said = until(child, r"Reloaded server configuration .*\n|Failed to reload .*\n")
    finally:
        child.kill()
        child.communicate()
    lines = re.findall(r"\[(?:INF|ERR)\] (Reload.*|Failed.*)", said)
    return sorted(re.sub(r"\(sha256:\w+\)", "", line) for line in lines if line not in ALWAYS)


@pytest.mark.peer
@pytest.mark.skipif("nats-server" not in available_servers(), reason="no nats-server from 2.14 on")
@pytest.mark.parametrize(("before", "after"), CASES)
def test_both_say_the_same(before, after, tmp_path):
    ours = reload("pelton", tmp_path / "ours", before, after)
    assert ours == reload("nats-server", tmp_path / "theirs", before, after)
