"""JetStream across accounts: our server and nats-server side by side."""

import json
from collections.abc import Iterator

import pytest

from tests.compat.cast import Cast, User, cast
from tests.peers import available_servers

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        "nats-server" not in available_servers(), reason="no nats-server from 2.14 on"
    ),
]

CONFIG = """
jetstream: {max_mem: 64MB, max_file: 64MB}
accounts {
  A {
    users: [{user: a, password: pw}]
    jetstream: enabled
    exports: [
      {service: "$JS.API.>", response: stream}
      {service: "$JS.ACK.>"}
      {service: "$JS.FC.>"}
      {service: "in.>"}
      {stream: "out.>"}
      {stream: "$JS.EVENT.>"}
    ]
  }
  B {
    users: [{user: b, password: pw}]
    imports: [
      {service: {account: A, subject: "$JS.API.>"}, to: "js.A.API.>"}
      {service: {account: A, subject: "$JS.ACK.>"}}
      {service: {account: A, subject: "$JS.FC.>"}}
      {service: {account: A, subject: "in.>"}, to: "store.>"}
      {stream: {account: A, subject: "out.>"}}
      {stream: {account: A, subject: "$JS.EVENT.>"}, prefix: "of.a"}
    ]
  }
  J {
    users: [{user: j, password: pw}]
    jetstream: {
      max_mem: 1MB, max_file: 2MB, max_streams: 2, max_consumers: 3, max_ack_pending: 50
      memory_max_stream_bytes: 1000, store_max_stream_bytes: 5000, max_bytes_required: true
    }
    imports: [
      {stream: {account: A, subject: "out.>"}, prefix: "fed"}
      {service: {account: A, subject: "$JS.API.>"}, to: "A.API.>", share: true}
    ]
  }
}
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    with cast(CONFIG, tmp_path_factory.mktemp("accounts"), []) as both:
        yield both


@pytest.fixture
def users(servers: Cast) -> Iterator[Cast]:
    """A fresh connection of every user, and streams that are gone afterwards."""
    fresh = Cast(*servers.ports, ["a", "b", "j"])
    yield fresh
    for name in "aj":
        for stream in ("S", "T", "U"):
            fresh.api(name, f"STREAM.DELETE.{stream}")
    fresh.close()


def stream(users: Cast, **fields: object) -> None:
    config = {"name": "S", "subjects": ["in.>"], "allow_direct": True, **fields}
    assert "error" not in users.api("a", "STREAM.CREATE.S", config)


def test_accounts_have_streams_of_their_own(users: Cast) -> None:
    stream(users)
    users.api("j", "STREAM.CREATE.S", {"name": "S", "subjects": ["in.>"], "max_bytes": 100})
    users.publish("a", "in.1", "a's")
    users.say("j", "SUB ack.* 1\r\n")
    users.publish("j", "in.1", "j's", reply="ack.1")
    for name in "aj":
        assert users.api(name, "STREAM.INFO.S")["state"]["messages"] == 1


def test_what_an_account_may_use(users: Cast) -> None:
    users.api("a", "INFO")
    users.api("j", "INFO")
    users.api("b", "INFO")
    users.api("j", "STREAM.CREATE.S", {"name": "S", "subjects": ["x"]})
    users.api("j", "STREAM.CREATE.S", {"name": "S", "subjects": ["x"], "max_bytes": 6000})
    users.api("j", "STREAM.CREATE.S", {"name": "S", "subjects": ["x"], "max_bytes": 5000})
    memory = {"storage": "memory", "max_bytes": 1001}
    users.api("j", "STREAM.CREATE.T", {"name": "T", "subjects": ["y"], **memory})
    users.api("j", "STREAM.CREATE.T", {"name": "T", "subjects": ["y"], "max_bytes": 100})
    users.api("j", "STREAM.CREATE.U", {"name": "U", "subjects": ["z"], "max_bytes": 100})
    config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 60}
    users.api("j", "CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    users.api("j", "INFO")


def test_publishing_through_a_service(users: Cast) -> None:
    stream(users)
    users.say("b", "SUB ack.* 1\r\n")
    assert users.publish("b", "store.x", "hello", reply="ack.1", headers="K: v")["b"]["1"]
    users.publish("b", "store.x", "", reply="ack.1", headers="Nats-Expected-Last-Sequence: 7")
    users.api("a", "STREAM.MSG.GET.S", {"seq": 1})
    users.api("b", "STREAM.MSG.GET.S", {"seq": 1}, prefix="js.A.API")
    users.api("b", "DIRECT.GET.S", {"seq": 1}, prefix="js.A.API")
    users.api("b", "STREAM.INFO.S", prefix="js.A.API")
    users.api("b", "STREAM.INFO.T", prefix="js.A.API")
    users.api("b", "STREAM.NAMES", prefix="js.A.API")
    users.api("b", "INFO", prefix="js.A.API")


def test_pulling_across_accounts(users: Cast) -> None:
    stream(users)
    for number in range(3):
        users.publish("a", f"in.{number}", f"m{number}")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    users.api(
        "b", "CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config}, "js.A.API"
    )
    users.say("b", "SUB box.* 1\r\n")
    request = '{"batch":2,"no_wait":true}'
    seen = users.publish("b", "js.A.API.CONSUMER.MSG.NEXT.S.c", request, reply="box.1")
    assert [message[0] for message in seen["b"]["1"]] == [b"in.0", b"in.1"]
    users.acknowledge("b", at=0)
    users.acknowledge("b", at=1)
    users.api("a", "CONSUMER.INFO.S.c")
    users.publish("b", "js.A.API.CONSUMER.MSG.NEXT.S.c", request, reply="box.2")
    users.publish("b", "js.A.API.CONSUMER.MSG.NEXT.S.c", '{"expires":300000000}', reply="box.3")
    users.publish("b", "js.A.API.CONSUMER.MSG.NEXT.S.none", "", reply="box.4")


def test_a_waiting_pull_ends_with_its_inbox(users: Cast) -> None:
    stream(users)
    config = {"durable_name": "c", "ack_policy": "explicit"}
    users.api("a", "CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    users.say("b", "SUB box.* 1\r\n")
    users.publish("b", "js.A.API.CONSUMER.MSG.NEXT.S.c", "", reply="box.1")
    assert users.api("a", "CONSUMER.INFO.S.c")["num_waiting"] == 1
    users.say("b", "UNSUB 1\r\n")
    users.publish("a", "in.1", "x")
    info = users.api("a", "CONSUMER.INFO.S.c")
    assert info["delivered"]["consumer_seq"] == 0


def test_pushing_across_accounts(users: Cast) -> None:
    stream(users)
    users.publish("a", "in.1", "before")
    config = {
        "durable_name": "p",
        "ack_policy": "explicit",
        "deliver_subject": "out.p",
    }
    users.api("a", "CONSUMER.DURABLE.CREATE.S.p", {"stream_name": "S", "config": config})
    assert not users.api("a", "CONSUMER.INFO.S.p").get("push_bound")
    seen = users.say("b", "SUB out.p 1\r\n")
    assert users.publish("a", "in.2", "later")["b"]["1"] or seen
    assert users.api("a", "CONSUMER.INFO.S.p")["push_bound"]
    users.acknowledge("b", at=0)
    users.acknowledge("b", at=1)
    users.api("a", "CONSUMER.INFO.S.p")
    users.say("b", "UNSUB 1\r\n")
    assert not users.publish("a", "in.3", "nobody")["b"]
    assert not users.api("a", "CONSUMER.INFO.S.p").get("push_bound")


def test_pushing_to_a_group_across_accounts(users: Cast) -> None:
    stream(users)
    config = {
        "durable_name": "p",
        "ack_policy": "none",
        "deliver_subject": "out.p",
        "deliver_group": "g",
    }
    users.api("a", "CONSUMER.DURABLE.CREATE.S.p", {"stream_name": "S", "config": config})
    users.say("b", "SUB out.p other 1\r\n")
    users.publish("a", "in.1", "1")
    users.say("b", "SUB out.p g 2\r\n")
    users.publish("a", "in.2", "2")
    users.api("a", "CONSUMER.INFO.S.p")


def test_a_stream_of_an_imported_stream(users: Cast) -> None:
    config = {"name": "T", "subjects": ["fed.out.>"], "max_bytes": 1000}
    users.api("j", "STREAM.CREATE.T", config)
    users.publish("a", "out.x", "through", headers="A: b")
    assert users.api("j", "STREAM.INFO.T")["state"]["messages"] == 1
    users.api("j", "STREAM.MSG.GET.T", {"seq": 1})


def test_advisories_name_the_account(users: Cast) -> None:
    stream(users)  # whose two advisories come in no order
    users.say("a", "SUB $JS.EVENT.ADVISORY.> 1\r\n")
    users.say("b", "SUB of.a.> 1\r\n")
    users.api("a", "STREAM.INFO.S")
    users.api("b", "STREAM.INFO.S", prefix="js.A.API")
    users.api("j", "STREAM.INFO.S", prefix="A.API")
    for name in "ab":
        users.say(name, "UNSUB 1\r\n")


def test_a_mirror_of_another_accounts_stream(users: Cast) -> None:
    stream(users)
    users.publish("a", "in.1", "x")
    config = {
        "name": "T",
        "max_bytes": 1000,
        "mirror": {"name": "S", "external": {"api": "A.API", "deliver": "fed.out"}},
    }
    users.publish("j", "$JS.API.STREAM.CREATE.T", json.dumps(config))
    users.wait(1.0)
    for _ in range(100):
        if all(_messages(user) for user in users.pairs["j"]):
            break
        users.wait(0.2)
    users.api("j", "STREAM.MSG.GET.T", {"seq": 1})


def _messages(user: User) -> int:
    user.seen = {}
    user.send(b"SUB count 7\r\nPUB $JS.API.STREAM.INFO.T count 0\r\n\r\nUNSUB 7 1\r\n")
    while "7" not in user.seen:
        assert user.read(2.0)
    count: int = user.seen["7"][0][3]["state"]["messages"]
    return count


@pytest.mark.parametrize("tail", ["in.>", "in.*", "in.*.x", "in.1", ">", "*.>"])
def test_a_consumer_with_its_filter_in_the_request_across_accounts(users: Cast, tail: str) -> None:
    stream(users)
    for number in range(3):
        users.publish("a", f"in.{number}", f"m{number}")
    users.say("b", "SUB out.w 1\r\n")
    config = {
        "name": "w",
        "filter_subject": tail,
        "deliver_subject": "out.w",
        "ack_policy": "none",
        "deliver_policy": "last_per_subject",
        "headers_only": True,
    }
    request = {"stream_name": "S", "config": config, "action": "create"}
    made = users.api("b", f"CONSUMER.CREATE.S.w.{tail}", request, "js.A.API")
    assert made.get("config", {}).get("filter_subject") == tail or "error" in made
    users.publish("a", "in.7", "later")
    users.api("b", "CONSUMER.INFO.S.w", None, "js.A.API")
    other = {"stream_name": "S", "config": {**config, "filter_subject": "in.9.>"}}
    assert "error" in users.api("b", f"CONSUMER.CREATE.S.v.{tail}", other, "js.A.API")
