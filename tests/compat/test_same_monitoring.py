"""Monitoring and the system account: our server and nats-server under the same load, answer by answer.

Both have the same keys in the same order and values of the same types; values that do not depend on
the server (see UNCOMMON) are equal.
"""

import asyncio
import gzip
import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nats
import pytest

from tests.peers import ServerProcess, available_servers, free_port, running_server

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        "nats-server" not in available_servers(), reason="no nats-server from 2.14 on"
    ),
]

CONFIG = """
server_name: same
server_tags: [b, "a:x"]
server_metadata {{ rack: "7", "a.b": c }}
feature_flags {{ js_ack_fc_v2: false, bogus: true, js_raft_delete_range: false }}
http: 127.0.0.1:{http}
jetstream {{ sync_interval: "2m", max_mem: 64MB, max_file: 64MB }}
accounts {{
  $SYS {{ users: [{{user: sys, password: pw}}] }}
  A {{
    jetstream: enabled
    users: [{{user: a, password: pw}}, {{user: c, password: pw, permissions: {{publish: "x.>"}}}}]
    exports: [
      {{service: "ask"}}
      {{service: "open", allow_trace: true, accounts: [B]}}
      {{service: "timed", latency: {{sampling: "50%", subject: "lat"}}}}
      {{service: "many", response: stream}}
      {{stream: "pub.>"}}
      {{stream: "heard", accounts: [B]}}
    ]
    mappings: {{
      "old": "new"
      "half": [{{destination: "half.a", weight: 30%}}, {{destination: "half.b", weight: 40%}}]
    }}
  }}
  B {{
    users: [{{user: b, password: pw}}]
    imports: [
      {{service: {{account: A, subject: "ask"}}}}
      {{service: {{account: A, subject: "open"}}}}
      {{service: {{account: A, subject: "timed"}}, to: "mine", share: true}}
      {{stream: {{account: A, subject: "pub.>"}}, prefix: "from"}}
      {{stream: {{account: A, subject: "heard"}}, to: "hear", allow_trace: true}}
    ]
  }}
}}
"""

# Of one server only: times, ids, sizes of the process, counts that hold internal subscriptions.
UNCOMMON = {
    *("server_id", "id", "now", "start", "version", "ver", "go", "port", "http_port", "mem"),
    *("cpu", "gomaxprocs", "uptime", "idle", "rtt", "last_activity", "stop", "config_load_time"),
    *("config_digest", "subscriptions", "num_subscriptions", "num_cache"),
    *("num_inserts", "num_removes", "num_matches", "cache_hit_rate", "max_fanout", "avg_fanout"),
    *("created", "ts", "first_ts", "last_ts", "last_active", "active", "store_dir", "level"),
    *("update_time", "time", "timestamp", "seq", "flags", "memstats", "cmdline", "host", "cid"),
    *("in_bytes", "out_bytes", "in_client_bytes", "out_client_bytes", "bytes", "sid", "msgs"),
    *("ip", "consumers", "account_tag", "pending_bytes", "total", "leader", "num_subs"),
    *("out_msgs", "in_msgs", "out_client_msgs", "in_client_msgs"),
}
# What nats-server has and we do not: a limit, its build. The metadata of streams has the version.
LEFT_OUT = {"default_max_consumers", "_nats.ver", "http_req_stats", "git_commit"}


# Lists whose order means nothing.
UNORDERED: dict[str, Any] = {
    "account_statz": lambda row: row["acc"],
    "exports": lambda row: row["subject"],
    "imports": lambda row: (row["account"], row["local_subject"]),
    "stream_detail": lambda row: row["name"],
    "subscriptions_list": str,
    "subscriptions_list_detail": lambda row: (len(row["subject"]), int(row["sid"])),
}


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """What is not alike, as sentences."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        own, other = ({k: v for k, v in d.items() if k not in LEFT_OUT} for d in (ours, theirs))
        if list(own) != list(other):
            return [f"{where}: keys {list(own)} / {list(other)}"]
        return [
            line for key in other for line in differences(own[key], other[key], f"{where}.{key}")
        ]
    if isinstance(theirs, list) and isinstance(ours, list):
        key = where.rpartition(".")[2]
        if key in UNORDERED:
            ours, theirs = sorted(ours, key=UNORDERED[key]), sorted(theirs, key=UNORDERED[key])
        if len(ours) != len(theirs):
            return [f"{where}: {len(ours)} / {len(theirs)} items"]
        return [
            line
            for at, (a, b) in enumerate(zip(ours, theirs, strict=True))
            for line in differences(a, b, f"{where}[{at}]")
        ]
    numbers = (int, float)
    if isinstance(ours, bool) != isinstance(theirs, bool) or not (
        isinstance(ours, type(theirs))
        or (isinstance(ours, numbers) and isinstance(theirs, numbers))
    ):
        return [f"{where}: {ours!r} / {theirs!r}"]
    key = where.rpartition(".")[2].partition("[")[0]
    if "_INBOX" in str(ours) and "_INBOX" in str(theirs):
        return []
    return [] if key in UNCOMMON or ours == theirs else [f"{where}: {ours!r} / {theirs!r}"]


class Side:
    """One server with its monitoring port."""

    def __init__(self, server: ServerProcess, http: int) -> None:
        self.server = server
        self.http = http

    def get(self, path: str) -> tuple[int, str, str]:
        """(status, content type, text)."""
        url = f"http://127.0.0.1:{self.http}{path}"
        try:
            with urllib.request.urlopen(url, timeout=20) as found:
                return found.status, found.headers["Content-Type"], found.read().decode()
        except urllib.error.HTTPError as found:
            return found.code, found.headers["Content-Type"], found.read().decode()

    async def connect(self, user: str, **options: Any) -> Any:
        return await nats.connect(
            self.server.url, user=user, password="pw", name=user, allow_reconnect=False, **options
        )


async def nothing(_: Any) -> None:
    """A subscription that only counts."""


async def load(side: Side) -> list[Any]:
    """Connections that stay, one that is gone, a stream with a consumer."""
    a, b, gone = [await side.connect(user) for user in ("a", "b", "b")]
    await a.subscribe("foo.*", cb=nothing)
    await a.subscribe("foo.>", queue="q", cb=nothing)
    await gone.subscribe("bye", cb=nothing)
    await b.flush()
    for _ in range(5):
        await a.publish("foo.x", b"12345")
    js = a.jetstream()
    await js.add_stream(name="S", subjects=["s.>"], max_bytes=10000)
    await js.add_stream(name="T", subjects=["t"], storage="memory")
    await js.add_consumer("S", durable_name="c", ack_policy="explicit")
    for at in range(3):
        await js.publish(f"s.{at}", b"payload")
    pull = await js.pull_subscribe("s.>", "c", stream="S")
    await pull.fetch(1)
    for each in (a, b, gone):
        await each.flush()
    await gone.close()
    return [a, b]


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, loop: asyncio.AbstractEventLoop
) -> Iterator[tuple[Side, Side]]:
    folder: Path = tmp_path_factory.mktemp("monitoring")
    with ExitStack() as stack:
        sides = []
        for kind in ("pelton", "nats-server"):
            http = free_port()
            path = folder / f"{kind}.conf"
            path.write_text(CONFIG.format(http=http))
            server = stack.enter_context(running_server(kind, "-c", str(path)))
            sides.append(Side(server, http))
        held = [loop.run_until_complete(load(side)) for side in sides]
        yield sides[0], sides[1]
        for connections in held:
            for each in connections:
                loop.run_until_complete(each.close())


PAGES = [
    "/varz",
    "/connz",
    "/connz?sort=subs",
    "/connz?sort=msgs_from&limit=1",
    "/connz?offset=1",
    "/connz?subs=1&acc=A",
    "/connz?subs=detail&acc=A&auth=1",
    "/connz?auth=true&sort=bytes_to",
    "/connz?state=closed&subs=detail&auth=1",
    "/connz?state=any&sort=uptime",
    "/connz?state=closed&sort=stop",
    "/connz?state=closed&sort=reason",
    "/connz?user=a",
    "/connz?user=nobody",
    "/connz?acc=nobody",
    "/connz?cid=4711",
    "/connz?acc=A&filter_subject=foo.a",
    "/routez",
    "/routez?subs=detail",
    "/gatewayz?accs=1",
    "/leafz?subs=1",
    "/subsz",
    "/subsz?acc=nobody&subs=1",
    "/subscriptionsz?acc=B",
    "/accstatz",
    "/jsz",
    "/jsz?accounts=1",
    "/jsz?streams=1",
    "/jsz?consumers=1",
    "/jsz?consumers=1&config=1&raft=1&direct-consumers=1",
    "/jsz?acc=A&streams=true",
    "/jsz?acc=B&streams=true",
    "/jsz?accounts=1&offset=7",
    "/jsz?accounts=1&limit=1&leader-only=1&stream-leader-only=1",
    "/ipqueuesz",
    "/healthz",
    "/healthz?details=1",
    "/healthz?js-enabled-only=1",
    "/healthz?js-enabled=1",
    "/healthz?js-server-only=true",
    "/healthz?account=A",
    "/healthz?account=A&stream=S&consumer=c",
]


@pytest.mark.parametrize("path", PAGES)
def test_the_same_page(path: str, pair: tuple[Side, Side]) -> None:
    ours, theirs = (side.get(path) for side in pair)
    assert ours[:2] == theirs[:2]
    pages = [json.loads(each[2]) for each in (ours, theirs)]
    if "sort=uptime" in path:  # which of the closed ones lived longer is chance
        for page in pages:
            page["connections"].sort(key=lambda each: ("stop" in each, each.get("name", "")))
    assert not differences(*pages)
    assert ours[2].startswith("{\n  ") == theirs[2].startswith("{\n  ")


REFUSED = [
    "/nope",
    "/varz/",
    "/connz?subs=x",
    "/connz?limit=x",
    "/connz?offset=99999999999999999999",
    "/connz?cid=-1",
    "/connz?auth=2",
    "/connz?sort=beauty",
    "/connz?sort=stop",
    "/connz?sort=reason&state=any",
    "/connz?state=lost",
    "/subsz?test=a.*&subs=1",
    "/subsz?offset=-",
    "/accountz?acc=nobody",
    "/accstatz?unused=x",
    "/jsz?config=yes",
    "/leafz?subs=x",
    "/routez?subs=x",
    "/gatewayz?accs=x",
    "/raftz",
    "/ipqueuesz?all=x",
    "/healthz?details=x",
    "/healthz?stream=S",
    "/healthz?consumer=c",
    "/healthz?account=nobody",
    "/healthz?account=nobody&details=1",
    "/healthz?account=A&stream=Z",
    "/healthz?account=A&stream=Z&details=true",
    "/healthz?account=A&stream=S&consumer=z",
    "/healthz?account=A&stream=S&consumer=z&details=1",
]


@pytest.mark.parametrize("path", REFUSED)
def test_the_same_refusal(path: str, pair: tuple[Side, Side]) -> None:
    ours, theirs = (side.get(path) for side in pair)
    assert ours == theirs
    assert ours[0] >= 400


TARGETS = [
    *(
        "http://x/varz",
        "HTTP://x/varz?a=1",
        "http:///varz",
        "http:/varz",
        "http://x",
        "ftp://x/varz",
    ),
    *("//varz", "//varz?x=1", "///varz", "/varz//", "//", "/./varz", "/a/../varz", "/../varz"),
    *("http://x//varz", "/%76arz", "/varz%2f", "/%2e%2e/varz", "/%2fvarz", "/var%zz", "/varz?%zz"),
    *("*", "varz", "/varz#f", "/connz?subs=1;x", "/connz?subs=1&limit=;", "/a b", "/%3cvarz%22//"),
]


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_target(target: str, pair: tuple[Side, Side]) -> None:
    """Absolute forms, and paths that are not clean: the status, and where the client has to go."""
    seen = []
    for side in pair:
        with socket.create_connection(("127.0.0.1", side.http), timeout=20) as connected:
            ask = f"GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
            connected.sendall(ask.encode())
            got = b"".join(iter(lambda: connected.recv(65536), b""))
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        place = [line for line in lines if line.startswith(b"Location:")]
        seen.append((lines[0], place, body if place else b""))
    assert seen[0] == seen[1]


def test_the_same_subscription_is_found(pair: tuple[Side, Side]) -> None:
    rows = [
        json.loads(side.get("/subsz?subs=1&acc=A&test=foo.z")[2])["subscriptions_list"]
        for side in pair
    ]
    found = [[(row["subject"], row.get("qgroup")) for row in each] for each in rows]
    assert sorted(found[0]) == sorted(found[1]) == [("foo.*", None), ("foo.>", "q")]
    assert not differences(rows[0][0], rows[1][0])


def test_the_same_accounts(pair: tuple[Side, Side]) -> None:
    ours, theirs = (json.loads(side.get("/accountz")[2]) for side in pair)
    assert sorted(ours["accounts"]) == sorted(theirs["accounts"]) == ["$G", "$SYS", "A", "B"]
    for name in theirs["accounts"]:
        details = [json.loads(side.get(f"/accountz?acc={name}")[2]) for side in pair]
        assert not differences(details[0], details[1])


# -- the system account


async def ask(
    side: Side, user: str, subject: str, body: bytes, headers: Any, timeout_s: float = 0.7
) -> Any:
    connection = await side.connect(user)
    try:
        if "ID" in subject:
            said = await connection.request("$SYS.REQ.SERVER.PING.IDZ", timeout=5)
            subject = subject.replace("ID", json.loads(said.data)["id"])
        found = await connection.request(subject, body, timeout=timeout_s, headers=headers)
    except (nats.errors.TimeoutError, nats.errors.NoRespondersError) as problem:
        return type(problem).__name__
    finally:
        await connection.close()
    packed = (found.headers or {}).get("Content-Encoding") == "gzip"
    return json.loads(gzip.decompress(found.data) if packed else found.data)


REPORTS = [
    "STATSZ",
    "VARZ",
    "SUBSZ",
    "CONNZ",
    "ROUTEZ",
    "GATEWAYZ",
    "LEAFZ",
    "JSZ",
    "HEALTHZ",
    "RAFTZ",
    "NOPE",
]
QUESTIONS: list[tuple[str, str, bytes]] = [
    *(("sys", f"$SYS.REQ.SERVER.PING.{name}", b"") for name in REPORTS),
    ("sys", "$SYS.REQ.SERVER.ID.VARZ", b""),
    ("sys", "$SYS.REQ.SERVER.PING", b""),
    ("sys", "$SYS.REQ.SERVER.PING.IDZ", b""),
    ("sys", "$SYS.REQ.SERVER.PING.VARZ", b'{"server_name":"nope"}'),
    ("sys", "$SYS.REQ.SERVER.PING.VARZ", b'{"server_name":"am"}'),
    ("sys", "$SYS.REQ.SERVER.PING.VARZ", b'{"server_name":"am","exact_match":true}'),
    ("sys", "$SYS.REQ.SERVER.PING.STATSZ", b'{"tags":["x"]}'),
    ("sys", "$SYS.REQ.SERVER.PING.VARZ", b'{"domain":"hub"}'),
    ("sys", "$SYS.REQ.SERVER.PING.CONNZ", b'{"sort":"bogus"}'),
    ("sys", "$SYS.REQ.SERVER.PING.CONNZ", b'{"auth":true,"acc":"A","filter_subject":"foo.b"}'),
    ("sys", "$SYS.REQ.SERVER.PING.CONNZ", b'{"subscriptions_detail":true,"user":"b"}'),
    ("sys", "$SYS.REQ.SERVER.PING.JSZ", b'{"consumer":true,"config":true}'),
    ("sys", "$SYS.REQ.SERVER.PING.HEALTHZ", b'{"account":"A","stream":"zz"}'),
    *(
        ("sys", f"$SYS.REQ.ACCOUNT.A.{name}", b"")
        for name in ["CONNZ", "LEAFZ", "JSZ", "STATZ", "CONNS"]
    ),
    ("sys", "$SYS.REQ.ACCOUNT.A.JSZ", b'{"streams":true,"consumer":true}'),
    *(
        ("sys", f"$SYS.REQ.ACCOUNT.ZZ.{name}", b"")
        for name in ["CONNZ", "JSZ", "INFO", "STATZ", "CONNS"]
    ),
    ("sys", "$SYS.REQ.ACCOUNT.PING.CONNZ", b""),
    *((user, "$SYS.REQ.USER.INFO", b"") for user in ("sys", "a", "b")),
    ("b", "$SYS.REQ.ACCOUNT.PING.STATZ", b""),
    ("b", "$SYS.REQ.ACCOUNT.PING.CONNZ", b""),
    ("b", "$SYS.REQ.SERVER.PING.CONNZ", b'{"acc":"A"}'),
    ("b", "$SYS.REQ.SERVER.PING.VARZ", b""),
    ("b", "$SYS.REQ.ACCOUNT.A.CONNZ", b""),
    ("sys", "$SYS.DEBUG.SUBSCRIBERS", b"$SYS.x"),
    ("a", "$SYS.DEBUG.SUBSCRIBERS", b"foo.x"),
    ("sys", "$SYS.REQ.SERVER.ID.RELOAD", b""),
    ("sys", "$SYS.REQ.SERVER.PING.RELOAD", b""),
    ("sys", "$SYS.REQ.SERVER.ID.LDM", b'{"cid":4711}'),
    ("sys", "$SYS.REQ.SERVER.ID.KICK", b'{"cid":4711}'),
    ("sys", "$SYS.REQ.SERVER.ID.PROFILEZ", b'{"name":"zz"}'),
    ("sys", "$SYS.REQ.SERVER.ID.PROFILEZ", b"{}"),
    ("sys", "$SYS.REQ.SERVER.ID.PROFILEZ", b'{"name":"cpu","duration":99000000000}'),
    ("sys", "$JS.API.ACCOUNT.PURGE.nobody", b""),
]


@pytest.mark.parametrize(("user", "subject", "body"), QUESTIONS)
def test_the_same_answer(
    user: str,
    subject: str,
    body: bytes,
    pair: tuple[Side, Side],
    loop: asyncio.AbstractEventLoop,
) -> None:
    def answers(timeout_s: float) -> list[Any]:
        asked = (ask(side, user, subject, body, None, timeout_s) for side in pair)
        return [loop.run_until_complete(each) for each in asked]

    ours, theirs = answers(0.7)
    if (ours == "TimeoutError") != (theirs == "TimeoutError"):  # one may be slow beside load
        ours, theirs = answers(10)
    assert not differences(ours, theirs)


def test_an_answer_is_packed_when_it_is_asked_for(
    pair: tuple[Side, Side], loop: asyncio.AbstractEventLoop
) -> None:
    found = [
        loop.run_until_complete(
            ask(side, "sys", "$SYS.REQ.SERVER.PING.ROUTEZ", b"", {"Accept-Encoding": "gzip"})
        )
        for side in pair
    ]
    assert not differences(found[0], found[1])


async def events(side: Side) -> dict[str, list[Any]]:
    """What the system account hears of one client that comes, is kicked, and of one refused."""
    found: dict[str, list[Any]] = {}
    system = await side.connect("sys")
    said = await system.request("$SYS.REQ.SERVER.PING.IDZ", timeout=5)
    own = json.loads(said.data)["id"]

    async def hear(message: Any) -> None:
        if "STATSZ" not in message.subject and ".$SYS." not in message.subject:
            subject = message.subject.replace(own, "ID")
            found.setdefault(subject, []).append(json.loads(message.data))

    await system.subscribe("$SYS.ACCOUNT.>", cb=hear)
    await system.subscribe("$SYS.SERVER.>", cb=hear)
    await system.flush()
    client = await side.connect("a")
    await client.flush()
    body = json.dumps({"cid": client.client_id}).encode()
    await system.request(f"$SYS.REQ.SERVER.{own}.KICK", body, timeout=5)
    with pytest.raises(nats.errors.Error):
        await nats.connect(
            side.server.url,
            user="a",
            password="wrong",
            name="bad",
            allow_reconnect=False,
            connect_timeout=5,
        )
    deadline = time.monotonic() + 30
    while not {"$SYS.ACCOUNT.$G.DISCONNECT", "$SYS.ACCOUNT.A.DISCONNECT"} <= found.keys():
        assert time.monotonic() < deadline, sorted(found)
        await asyncio.sleep(0.05)
    await client.close()
    await system.close()
    return found


def test_the_same_events(pair: tuple[Side, Side], loop: asyncio.AbstractEventLoop) -> None:
    ours, theirs = (loop.run_until_complete(events(side)) for side in pair)
    assert sorted(ours) == sorted(theirs)
    assert "$SYS.SERVER.ID.CLIENT.AUTH.ERR" in ours
    for subject, bodies in ours.items():
        assert not differences(bodies, theirs[subject], subject)


# -- traces


async def traced(side: Side, user: str, subject: str, headers: dict[str, str]) -> list[Any]:
    """The traces of one message, without times and numbers."""
    found: list[Any] = []
    connection = await side.connect(user)
    hearer = await side.connect(user)
    other = await side.connect("a")

    async def hear(message: Any) -> None:
        body = re.sub(r'"(ts|cid)":("[^"]*"|\d+)', r'"\1":0', message.data.decode())
        body = json.loads(body)
        del body["server"]
        found.append(body)

    await hearer.subscribe("traces", cb=hear)
    await other.subscribe("ask", cb=nothing)
    await other.subscribe("open", cb=nothing)
    await other.subscribe("new", cb=nothing)
    importer = await side.connect("b")
    await importer.subscribe("hear", cb=nothing)
    await importer.subscribe("from.pub.x", cb=nothing)
    for each in (hearer, other, importer):
        await each.flush()
    await connection.publish(subject, b"x" * 10, reply="back", headers=headers)
    await connection.flush()
    for _ in range(6):
        await hearer.flush()
        await asyncio.sleep(0.05)
        if found:
            break
    for each in (connection, hearer, other, importer):
        await each.close()
    return found


@pytest.mark.parametrize("only", [None, "true"])
@pytest.mark.parametrize(
    ("user", "subject", "more"),
    [
        ("a", "nobody", {}),
        ("a", "new", {}),
        ("a", "old", {}),
        ("a", "s.1", {}),
        ("a", "s.1", {"Nats-Expected-Stream": "Z"}),
        ("a", "s.1", {"Nats-Expected-Last-Sequence": "77"}),
        ("a", "s.1", {"Nats-Expected-Last-Subject-Sequence": "77"}),
        ("a", "$JS.API.INFO", {}),
        ("a", "$SYS.REQ.USER.INFO", {}),
        ("b", "ask", {}),
        ("b", "open", {}),
        ("a", "heard", {}),
        ("a", "pub.x", {}),
        ("a", "new", {"Nats-Trace-Dest": "wild.*"}),
        ("a", "new", {"Nats-Trace-Origin-Account": "Z"}),
        ("c", "x.1", {}),
    ],
)
def test_the_same_trace(
    user: str,
    subject: str,
    more: dict[str, str],
    only: str | None,
    pair: tuple[Side, Side],
    loop: asyncio.AbstractEventLoop,
) -> None:
    headers = {"Nats-Trace-Dest": "traces"} | more
    if only:
        headers["Nats-Trace-Only"] = only
    ours, theirs = (
        loop.run_until_complete(traced(side, user, subject, dict(headers))) for side in pair
    )
    if subject == "s.1":  # each traced message that is stored moves the stream on
        text = [re.sub(r" vs \d+", " vs N", json.dumps(each)) for each in (ours, theirs)]
        assert text[0] == text[1]
    else:
        assert ours == theirs
