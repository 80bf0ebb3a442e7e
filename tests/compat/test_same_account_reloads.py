"""Accounts whose configuration changes while they are used, and their limits: side by side with
nats-server.
"""

from pathlib import Path

import pytest

from tests.compat.cast import cast
from tests.peers import available_servers

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        "nats-server" not in available_servers(), reason="no nats-server from 2.14 on"
    ),
]

A = 'A { users: [{user: a, password: pw}], exports: [{stream: "news.*"}, {service: help}] %s}'
B = "B { users: [{user: b, password: pw}] %s}"
IMPORTS = ", imports: [{stream: {account: A, subject: 'news.*'}%s}, {service: {account: A, subject: help}}]"


def accounts(*each: str) -> str:
    return "accounts {\n" + "\n".join(each) + "\n}\n"


def test_imports_come_change_and_go(tmp_path: Path) -> None:
    with cast(accounts(A % "", B % ""), tmp_path, ["a", "b"]) as users:
        users.say("a", "SUB help 1\r\nSUB in 2\r\n")
        users.say("b", "SUB > 1\r\nSUB in 2\r\n")
        assert "b" not in {name for name, seen in users.publish("a", "news.x").items() if seen}
        users.publish("b", "help", reply="in")
        users.reload(accounts(A % "", B % (IMPORTS % "")))
        assert users.publish("a", "news.x", "1")["b"]["1"]
        users.publish("b", "help", reply="in")
        users.answer("a", "yes")
        users.reload(accounts(A % "", B % (IMPORTS % ", prefix: from")))
        assert users.publish("a", "news.x", "1")["b"]["1"][0][0] == b"from.news.x"
        users.reload(accounts(A % "", B % ""))
        assert not users.publish("a", "news.x", "1")["b"]
        users.publish("b", "help", reply="in")


def test_mappings_come_and_go(tmp_path: Path) -> None:
    with cast(accounts(A % "", B % ""), tmp_path, ["a"]) as users:
        users.say("a", "SUB > 1\r\n")
        assert users.publish("a", "old", "1")["a"]["1"][0][0] == b"old"
        users.reload(accounts(A % ", mappings: {old: new}", B % ""))
        assert users.publish("a", "old", "1")["a"]["1"][0][0] == b"new"
        users.reload(accounts(A % ", mappings: {old: newer}", B % ""))
        assert users.publish("a", "old", "1")["a"]["1"][0][0] == b"newer"
        users.reload(accounts(A % "", B % ""))
        assert users.publish("a", "old", "1")["a"]["1"][0][0] == b"old"


def test_an_account_that_goes_takes_its_clients_along(tmp_path: Path) -> None:
    with cast(accounts(A % "", B % ""), tmp_path, ["a", "b"]) as users:
        users.reload(accounts(A % ""))
        users.say("a", "")
        assert users.pairs["b"][0].closed
        users.reload(accounts(A % "", B % (IMPORTS % "")))
        users.add("b", "again")
        users.say("again", "SUB news.* 1\r\n")
        assert users.publish("a", "news.x", "1")["again"]["1"]


def test_the_default_account_has_mappings_too(tmp_path: Path) -> None:
    config = "mappings: {old: new}\nauthorization {users: [{user: x, password: pw}]}\n"
    with cast(config, tmp_path, ["x"]) as users:
        users.say("x", "SUB > 1\r\n")
        assert users.publish("x", "old", "1")["x"]["1"][0][0] == b"new"
        users.reload(config.replace("new", "other"))
        assert users.publish("x", "old", "1")["x"]["1"][0][0] == b"other"


def test_limits_of_an_account(tmp_path: Path) -> None:
    limits = ", limits: {max_connections: 2, max_subscriptions: 3, max_payload: 10}"
    with cast(accounts(A % limits, B % ""), tmp_path, ["a", "b"]) as users:
        users.say("a", "SUB x 1\r\nSUB x 2\r\nSUB x 3\r\nSUB x 4\r\n")
        users.publish("a", "x", "0123456789")
        users.add("a", "second")
        users.say("second", "SUB x 1\r\n")
        users.add("a", "third")
        for user in users.pairs.pop("third"):
            while user.read(2.0):
                pass
            assert user.seen == {"line": [(b"-ERR 'maximum account active connections exceeded'",)]}
        users.publish("b", "x", "more than ten bytes")
        users.both("second", lambda user: user.send(b"PUB x 19\r\n"), "claims too much")
        assert users.pairs["second"][0].closed
        users.add("a", "fourth")
        users.say("fourth", "SUB x 1\r\n")


def test_jetstream_of_an_account_comes_and_goes(tmp_path: Path) -> None:
    js = "jetstream: {max_mem: 64MB, max_file: 64MB}\n"
    with cast(js + accounts(A % ", jetstream: {max_streams: 1}", B % ""), tmp_path, ["a"]) as users:
        config = {"name": "S", "subjects": ["s"]}
        users.api("a", "STREAM.CREATE.S", config)
        users.api("a", "STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
        users.reload(js + accounts(A % ", jetstream: {max_streams: 2}", B % ""))
        users.api("a", "STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
        users.publish("a", "s", "kept")
        users.api("a", "INFO")
        users.api("a", "STREAM.INFO.S")


def test_a_system_account(tmp_path: Path) -> None:
    config = "system_account: HQ\n" + accounts("HQ {users: [{user: h, password: pw}]}", A % "")
    with cast(config, tmp_path, ["h", "a"]) as users:
        users.say("h", "SUB own 1\r\n")
        assert users.publish("h", "own", "1")["h"]["1"]
        assert not users.publish("a", "own", "1")["h"]
