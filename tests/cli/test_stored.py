"""``--store``: what reads a server reads its folder and its backups, with the same answers."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig, StreamSource
from pelton.cli.__main__ import main
from pelton.sync import connect
from tests.cli.terminal import Terminal
from tests.copies.local import LocalServer
from tests.ways import FULL, SEED, length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pelton.sync import JetStream
    from tests.peers import ServerProcess

    from .conftest import Ran

    Run = Callable[..., Ran]

COMMANDS = [
    ("stream", "ls"),
    ("stream", "ls", "--subject", "s.a"),
    ("stream", "info", "S"),
    ("stream", "info", "S", "--subjects", "s.>"),
    ("stream", "state", "S"),
    ("stream", "report"),
    ("stream", "subjects", "S"),
    ("stream", "gaps", "S"),
    ("stream", "find", "--subject", "s.a", "--stored"),
    ("stream", "search", "S", "7"),
    ("stream", "search", "S", "--header", "Colour: red"),
    ("stream", "search", "W", "work"),
    ("stream", "view", "S", "1000"),
    ("stream", "view", "W", "1000"),
    ("stream", "get", "S", "--last-for", "s.a"),
    ("consumer", "ls", "S"),
    ("consumer", "info", "S", "c"),
    ("consumer", "state", "S", "c"),
    ("consumer", "report", "S"),
    ("kv", "ls"),
    ("kv", "ls", "B"),
    ("kv", "info", "B"),
    ("kv", "get", "B", "k1"),
    ("kv", "history", "B", "k1"),
    ("kv", "dump", "B"),
    ("object", "ls"),
    ("object", "ls", "O"),
    ("object", "info", "O", "file"),
    ("sql", "select seq, subject, text from S order by seq"),
    ("sql", "select key, value from kv.B order by key"),
    ("sql", "select stream, name, delivered_seq, num_ack_pending from consumers order by all"),
    ("export",),
]
IGNORED = {"ts", "last_active", "cluster", "push_bound", "active"}


def fill(js: JetStream, seed: int) -> None:
    """Streams of each kind, with removals and consumers that have moved."""
    draw = random.Random(seed)
    js.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=draw.random() < 0.5))
    for number in range(draw.randrange(20, 60)):
        headers = {"Colour": draw.choice(["red", "blue"])} if draw.random() < 0.5 else {}
        js.publish(f"s.{draw.choice('abc')}", b'{"n": %d}' % number, headers=headers)
    for seq in draw.sample(range(2, 20), 5):
        js.delete_message("S", seq)
    config = ConsumerConfig(durable_name="c", ack_policy="explicit", ack_wait=3600)
    js.create_consumer("S", config)
    for message in js.consumer("S", "c").fetch(10):
        if draw.random() < 0.6:
            message.ack_sync()
    js.create_stream(StreamConfig(name="W", subjects=["w.>"], retention="workqueue"))
    for number in range(5):
        js.publish("w.x", b"work %d" % number)
    js.create_stream(StreamConfig(name="M", mirror=StreamSource(name="S")))
    js.create_key_value(KeyValueConfig(bucket="B", history=5))
    bucket = js.key_value("B")
    for number in range(20):
        bucket.put(f"k{draw.randrange(4)}", str(number).encode())
    bucket.put("k1", b"last")
    bucket.delete("k0")
    js.create_object_store(ObjectStoreConfig(bucket="O"))
    js.object_store("O").put("file", draw.randbytes(300_000))


def cleaned(value: Any) -> Any:
    """The answer without what belongs to the moment and the server."""
    if isinstance(value, dict):
        followed = {"mirror", "sources"} if "config" in value else set()  # a folder follows nothing
        return {
            k: cleaned(v)
            for k, v in sorted(value.items())
            if k not in IGNORED and k not in followed
        }
    return [cleaned(each) for each in value] if isinstance(value, list) else value


def told(ran: Ran) -> Any:
    """What a command has printed, as data."""
    assert ran.err == ""
    if ran.out.startswith("streams:"):
        return ran.status, ran.out
    try:
        return ran.status, cleaned(json.loads(ran.out))
    except ValueError:
        return ran.status, [cleaned(json.loads(line)) for line in ran.out.splitlines()]


def sums(folder: Path) -> dict[str, str]:
    """The files below a folder, but for the lock."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    store = tmp_path_factory.mktemp("live") / "store"
    with LocalServer(store=str(store)) as local:
        with connect(local.url) as client:
            fill(client.jetstream(), SEED)
        yield local


@pytest.fixture(scope="module")
def backups(server: LocalServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Backups of the folder, and of single streams; the sequences of a mirror are there, but not its origin."""
    folder = tmp_path_factory.mktemp("backups")
    assert main(["store", "backup", server.store, str(folder / "whole")]) == 0
    for name in ("S", "W", "M", "KV_B", "OBJ_O"):
        place = str(folder / "single" / name)
        assert main(["--server", server.url, "stream", "backup", name, place]) == 0
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_folder_and_its_backups_answer_as_the_server(
    cli: Run, server: LocalServer, backups: Path, command: tuple[str, ...]
) -> None:
    """Of both kinds of backups one, in turns."""
    there = sums(backups)
    live = told(cli("--server", server.url, *command, "--json"))
    assert told(cli(*command, "--json", "--store", server.store)) == live
    kinds = ("whole", "single")
    for backup in kinds if FULL else kinds[COMMANDS.index(command) % 2 :][:1]:
        # single streams are restored: that is a new creation
        found = told(cli(*command, "--json", "--store", backups / backup))
        if backup == "single":
            live, found = (json.loads(json.dumps(each)) for each in (live, found))
        assert without_created(found) == without_created(live), backup
    assert sums(backups) == there


def without_created(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_created(v) for k, v in value.items() if k != "created"}
    return [without_created(each) for each in value] if isinstance(value, list | tuple) else value


def test_a_backup_of_any_server(
    at: Run, cli: Run, peer: ServerProcess, unique: str, tmp_path: Path
) -> None:
    with connect(peer.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], max_age=3600))
        for number in range(30):
            js.publish(f"{unique}.{number % 3}", b"%d" % number, headers={"A": "b"})
        js.delete_message(unique, 5)
        js.create_consumer(
            unique, ConsumerConfig(durable_name="c", ack_policy="explicit", ack_wait=3600)
        )
        js.consumer(unique, "c").fetch(4)[0].ack_sync()
    assert at("stream", "backup", unique, tmp_path / "b").status == 0
    for command in (
        ("stream", "view", unique, "100"),
        ("stream", "state", unique),
        ("stream", "gaps", unique),
        ("consumer", "state", unique, "c"),
        ("explain", unique, "c", "2"),
        ("explain", unique, "c", "9"),
    ):
        live = told(at(*command, "--json"))
        found = told(cli(*command, "--json", "--store", tmp_path / "b"))
        if command[0] == "explain":
            live, found = (sorted(r["kind"] for r in each[1]["reasons"]) for each in (live, found))
            live = [kind for kind in live if kind != "no_request"]
            found = [kind for kind in found if kind != "open"]
            if peer.kind == "nats-server" and "9" not in command:  # which does not say it exactly
                assert (live, found) == (["delivered"], ["waits"]) or live == found
                continue
        if command[1:2] == ("state",):  # configurations name the version of their server
            live, found = ([each[0], each[1] | {"config": None}] for each in (live, found))
        assert without_created(found) == without_created(live), command


def test_nothing_is_written(cli: Run, server: LocalServer, tmp_path: Path) -> None:
    shutil.copytree(server.store, tmp_path / "s")
    there = sums(tmp_path)
    for command in COMMANDS:
        assert cli(*command, "--store", tmp_path / "s").status == 0
    assert sums(tmp_path) == there
    with connect(server.url) as client:  # the server goes on
        assert client.jetstream().publish("s.a", b"more").seq > 0


def test_an_object_comes_out_of_a_folder(cli: Run, server: LocalServer, tmp_path: Path) -> None:
    with connect(server.url) as client:
        data = client.jetstream().object_store("O").get("file")
    ran = cli("object", "get", "O", "file", "-O", tmp_path / "out", "--store", server.store)
    assert ran.status == 0, ran.err
    assert (tmp_path / "out").read_bytes() == data


def test_old_messages_are_there(cli: Run, tmp_path: Path) -> None:
    """What the next start of a server would expire, and what it would deliver again."""
    store = tmp_path / "store"
    with LocalServer(store=str(store)) as local, connect(local.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s"], max_age=1))
        js.publish("s", b"old")
        local.kill()
    info = cli("stream", "info", "S", "--store", store, "--json").json
    while _age_s(info) < 1.1:  # until it is older than max_age, which the folder does not mind
        time.sleep(0.05)
    ran = cli("stream", "view", "S", "--store", store, "--json")
    assert [each["data"] for each in ran.lines] == ["old"]
    assert cli("stream", "info", "S", "--store", store, "--json").json["state"] == info["state"]


def _age_s(info: Any) -> float:
    from pelton.api.times import parse_time

    return (time.time_ns() - parse_time(info["state"]["last_ts"])) / 1e9


def test_accounts_of_a_folder(cli: Run, tmp_path: Path) -> None:
    config = tmp_path / "conf"
    config.write_text(
        "accounts { A { jetstream: enabled, users: [{user: a, password: p}] },"
        " B { jetstream: enabled, users: [{user: b, password: p}] } }"
    )
    store = tmp_path / "store"
    with LocalServer(store=str(store), options=["-c", str(config)]) as local:
        for user in ("a", "b"):
            with connect(local.url, user=user, password="p") as client:
                client.jetstream().create_stream(StreamConfig(name=f"S_{user}", subjects=["s"]))
    ran = cli("stream", "ls", "--store", store)
    assert ran.status == 1
    assert "A, B" in ran.err
    assert "--account" in ran.err
    assert cli("stream", "ls", "-n", "--store", store, "--account", "B").out == "S_b\n"
    assert cli("stream", "ls", "--store", store, "--account", "C").status == 1
    ran = cli("sql", "select name from streams", "-j", "--store", store, "--account", "A")
    assert ran.json == [{"name": "S_a"}]


def test_an_encrypted_folder(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, store = tmp_path / "conf", tmp_path / "store"
    key = "a key of thirty-two bytes, or so"
    config.write_text(f'jetstream {{ key: "{key}", cipher: aes }}')
    with (
        LocalServer(store=str(store), options=["-c", str(config)]) as local,
        connect(local.url) as client,
    ):
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s"]))
        js.publish("s", b"secret")
    assert cli("store", "backup", store, tmp_path / "b").status == 0
    for place in (store, tmp_path / "b"):
        locked = cli("stream", "view", "S", "--store", place)
        assert (locked.status, "encrypted" in locked.err) == (1, True), locked
        monkeypatch.setenv("PELTON_STORE_KEY", key)
        ran = cli("stream", "view", "S", "--store", place, "--json")
        assert [each["data"] for each in ran.lines] == ["secret"]
        monkeypatch.setenv("PELTON_STORE_KEY", "another key of thirty-two bytes.")
        assert cli("stream", "view", "S", "--store", place).status == 1
        monkeypatch.delenv("PELTON_STORE_KEY")


def test_an_earlier_backup(cli: Run, tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "b"
    with LocalServer(store=str(store)) as local, connect(local.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s"]))
        for number in range(2):
            js.publish("s", b"%d" % number)
            assert cli("store", "backup", store, target).status == 0
    ids = [each["id"] for each in cli("store", "backups", target, "-j").json]
    shown = [
        len(cli("stream", "view", "S", "-j", "--store", target, "--backup", each).lines)
        for each in ids
    ]
    assert shown == [1, 2]
    assert cli("stream", "ls", "--store", target, "--backup", "20200101T000000Z").status == 1


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is not a store"),
        (lambda path: path.write_bytes(b"text"), "neither"),
        (lambda path: path.write_bytes(b"NATSARC1\x01"), "truncated"),
        (lambda path: _folder(path, b"{", b""), "backup.json"),
        (lambda path: _folder(path, b"{}", b""), "names no stream"),
        (lambda path: _folder(path, b'{"config":{"name":"S"}}', b"junk" * 200), "stream.tar.s2"),
    ],
)
def test_what_is_no_store(
    cli: Run, tmp_path: Path, make: Callable[[Path], None], told: str
) -> None:
    make(tmp_path / "x")
    ran = cli("stream", "ls", "--store", tmp_path / "x")
    assert ran.status == 1
    assert ran.err.count("\n") == 1
    assert told in ran.err


def _folder(path: Path, facts: bytes, archive: bytes) -> None:
    path.mkdir()
    (path / "backup.json").write_bytes(facts)
    (path / "stream.tar.s2").write_bytes(archive)


def test_commands_that_change_something_have_no_store(cli: Run, server: LocalServer) -> None:
    for command in (
        ("stream", "rm", "S", "-f"),
        ("stream", "purge", "S", "-f"),
        ("pub", "s.a", "x"),
        ("kv", "put", "B", "k", "v"),
        ("consumer", "next", "S", "c"),
    ):
        ran = cli(*command, "--store", server.store)
        assert (ran.status, "--store" in ran.err) == (2, True), command


def test_results_of_sql_go_to_a_running_server(at: Run, server: LocalServer, unique: str) -> None:
    assert at("stream", "add", unique, "--subjects", f"{unique}.>", "--defaults").status == 0
    query = "select text from W"
    assert at("sql", query, "--store", server.store, "--to", f"{unique}.x").status == 0
    assert at("stream", "state", unique, "--json").json["state"]["messages"] == 5


def test_a_folder_at_a_terminal(server: LocalServer) -> None:
    """The streams of the folder are offered; SQL has a prompt."""
    with Terminal("stream", "state", "--store", server.store) as terminal:
        terminal.expect("Which stream")
        terminal.send("W")
        terminal.expect("Messages: 5")
        assert terminal.status() == 0
    with Terminal("sql", "--store", server.store) as terminal:
        terminal.expect("pelton>")
        terminal.press("select 40 + count(*) as n from W;\r")
        terminal.expect("45")
        terminal.expect("1 row from 5 messages")
        terminal.press("select nothing from W;\r")
        terminal.expect("Binder Error")
        terminal.press(".tables\r")
        terminal.expect("kv.B")
        terminal.press(".quit\r")
        assert terminal.status() == 0


def test_while_a_server_writes(cli: Run, tmp_path: Path) -> None:
    """Each look sees a state of one moment: no message that was acknowledged before is missing."""
    store = tmp_path / "store"
    stop = threading.Event()
    acked = [0]

    def publish(url: str) -> None:
        with connect(url) as client:
            js = client.jetstream()
            number = 0
            while not stop.is_set():
                with js.publisher() as publisher:
                    for _ in range(200):
                        publisher.publish(f"s.{number % 5}", b"%d" % number)
                        number += 1
                acked[0] = number
                for message in js.consumer("S", "c").fetch(50):
                    message.ack()

    with LocalServer(store=str(store)) as local, connect(local.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s.*"], max_msgs=3000))
        js.create_consumer("S", ConsumerConfig(durable_name="c", ack_policy="explicit"))
        writer = threading.Thread(target=publish, args=(local.url,))
        writer.start()
        try:
            for _ in range(length(5, 12)):
                before = acked[0]
                found = cli("stream", "state", "S", "--json", "--store", store)
                assert found.status == 0, found.err
                assert found.json["state"]["last_seq"] >= before
                assert found.json["state"]["messages"] <= 3000
                seen = cli("stream", "export", "S", "-", "--store", store).lines
                assert [int(each["data"]) + 1 for each in seen] == [each["seq"] for each in seen]
                place = cli("consumer", "state", "S", "c", "--json", "--store", store)
                assert place.status == 0, place.err
                assert place.json["ack_floor"]["stream_seq"] <= acked[0]
        finally:
            stop.set()
            writer.join()
