"""The official JavaScript clients under Node, against both servers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.peers import available_servers
from tests.server.configured import configured
from tests.server.websocket.modules import need_modules, need_program

SCRIPT = """
const [lib, url] = process.argv.slice(2);
if (!globalThis.WebSocket) globalThis.WebSocket = (await import("ws")).WebSocket;
const m = await import(lib);
const nc = await (m.wsconnect ?? m.connect)({servers: url});
const sub = nc.subscribe("t.>", {max: 3});
nc.publish("t.a", "hello");
nc.publish("t.b", new Uint8Array(300000));
nc.publish("t.c");
let bytes = 0;
for await (const msg of sub) bytes += msg.data.length;
nc.subscribe("echo", {callback: (e, msg) => msg.respond("re:" + msg.string())});
const answer = await nc.request("echo", "x", {timeout: 5000});
let js, jsm;
if (nc.jetstream) {
  jsm = await nc.jetstreamManager();
  js = nc.jetstream();
} else {
  const j = await import("@nats-io/jetstream");
  jsm = await j.jetstreamManager(nc);
  js = j.jetstream(nc);
}
await jsm.streams.add({name: "S", subjects: ["s.>"], storage: "memory"});
const ack = await js.publish("s.x", "payload");
await jsm.consumers.add("S", {durable_name: "d", ack_policy: "explicit"});
const consumer = await js.consumers.get("S", "d");
const got = await consumer.next({expires: 5000});
got.ack();
await nc.drain();
console.log(JSON.stringify([bytes, answer.string(), ack.seq, got.string()]));
"""


@pytest.mark.peer
@pytest.mark.parametrize("compression", ["false", "true"])
@pytest.mark.parametrize("library", ["nats.ws", "@nats-io/nats-core"])
@pytest.mark.parametrize("kind", available_servers())
def test_a_client_does_its_work(kind: str, library: str, compression: str, tmp_path: Path) -> None:
    node = need_program("node")
    modules = need_modules("nats.ws", "@nats-io/nats-core", "@nats-io/jetstream", "ws")
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "work.mjs").write_text(SCRIPT)
    config = f"""listen: 127.0.0.1:@port
        jetstream {{ store_dir: "{tmp_path}/store" }}
        websocket {{ listen: 127.0.0.1:@ws, no_tls: true, compression: {compression} }}"""
    with configured(kind, config) as server:
        done = subprocess.run(
            [node, str(tmp_path / "work.mjs"), library, f"ws://127.0.0.1:{server.ports['ws']}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == '[300005,"re:x",1,"payload"]'
