"""nats.ws in a real browser: a page connects, subscribes, publishes and uses JetStream."""

from __future__ import annotations

import http.server
import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser import command, needs_browser
from tests.certificates import Authority
from tests.server.configured import configured
from tests.server.websocket.modules import need_modules

PAGE = """<!doctype html><script type="module">
const tell = (what) => fetch("/result", {method: "POST", body: JSON.stringify(what)});
try {
  const m = await import("/nats.js");
  const nc = await m.connect({servers: "@URL", timeout: 10000});
  const sub = nc.subscribe("t.>", {max: 2});
  nc.publish("t.a", m.StringCodec().encode("hello"));
  nc.publish("t.b", new Uint8Array(200000));
  let bytes = 0;
  for await (const msg of sub) bytes += msg.data.length;
  const jsm = await nc.jetstreamManager();
  await jsm.streams.add({name: "S", subjects: ["s.>"], storage: "memory"});
  const ack = await nc.jetstream().publish("s.x", m.StringCodec().encode("payload"));
  const stored = await jsm.streams.getMessage("S", {seq: 1});
  await nc.close();
  await tell([bytes, ack.seq, m.StringCodec().decode(stored.data)]);
} catch (problem) {
  await tell(String(problem));
}
</script>"""


@contextmanager
def site(url: str, script: bytes, cookie: str) -> Iterator[tuple[str, queue.Queue[object]]]:
    """A web server with the page; what it tells comes through the queue."""
    told: queue.Queue[object] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, kind = PAGE.replace("@URL", url).encode(), "text/html"
            if self.path == "/nats.js":
                body, kind = script, "text/javascript"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if cookie:
                self.send_header("Set-Cookie", f"{cookie}; Path=/")
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_address[1]}", told
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def browsing(address: str, folder: Path) -> Iterator[None]:
    """A browser without a window on that page."""
    chromium = command()
    assert chromium is not None
    arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--ignore-certificate-errors",
        f"--user-data-dir={folder / 'profile'}",
        address,
    ]
    with (folder / "browser.log").open("wb") as log:
        browser = subprocess.Popen([chromium, *arguments], stdout=log, stderr=log)
        try:
            yield
        finally:
            browser.terminate()
            browser.wait(20)


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", "compressed", "tls", "cookies"])
def test_a_page_does_its_work(way: str, tmp_path: Path) -> None:
    script = (need_modules("nats.ws") / "nats.ws" / "esm" / "nats.js").read_bytes()
    options, scheme, cookie, authorization = "no_tls: true", "ws", "", ""
    if way == "compressed":
        options += ", compression: true"
    if way == "tls":
        issued = Authority(tmp_path).server()
        scheme = "wss"
        options = f"""
            tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}" }}"""
    if way == "cookies":
        cookie = "pass=secret"
        options += ", user_cookie: user, pass_cookie: pass"
        authorization = "authorization { users: [{user: browser, pass: secret}] }"
    config = f"""listen: 127.0.0.1:@port
        jetstream {{ store_dir: "{tmp_path}/store" }}
        {authorization}
        websocket {{ listen: 127.0.0.1:@ws, {options}, allowed_origins: ["@site"] }}"""
    # The origin that is allowed is known when the site is there, and that wants the server's port.
    from tests.peers import free_port

    port = free_port()
    url = f"{scheme}://localhost:{port}"
    if cookie:
        cookie += "; Path=/\r\nSet-Cookie: user=browser"
    with site(url, script, cookie) as (address, told):
        config = config.replace("@ws", str(port)).replace("@site", address)
        with configured("pelton", config) as server, browsing(address, tmp_path):
            try:
                assert told.get(timeout=60) == [200005, 1, "payload"]
            except queue.Empty:
                raise AssertionError(server.log) from None
            assert "websocket" in server.log
