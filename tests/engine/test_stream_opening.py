"""Streams that open one after the other: which requests wait, and that waiting changes no answer."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pelton.api.calls import AccountLimits
from pelton.core.protocol.wire import OP_MSG
from tests.engine.house import House

SEGMENTS = 7
API_TOO_MUCH = 100_000


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A store where BIG has many segments and SMALL has few."""
    house = House(tmp_path / "store")
    house.stream("BIG", subjects=["big.>"])
    house.stream("SMALL", subjects=["small.>"])
    fill(house, "BIG")
    house.publish("small.x", b"first")
    return house


def fill(house: House, name: str, segments: int = SEGMENTS) -> None:
    """Messages with such gaps between them that each begins a segment."""
    log = house.account.streams[name].core.log
    subject = house.account.streams[name].config.subjects[0].replace(">", "x")
    for _ in range(segments):
        house.publish(subject)
        log.skip(log.last_seq + 6000)


def open_until(house: House, over: Callable[[], object]) -> int:
    """Recover step by step until a condition; return the number of steps."""
    for steps in range(API_TOO_MUCH):
        house.server.reactor.settle()
        if over():
            return steps
        assert house.engine.open_more() or over()
    raise AssertionError("it is never over")


def open_all(house: House) -> None:
    while house.engine.open_more():
        house.server.reactor.settle()
    assert house.engine.opening() == (0, 0, "")


class Asker:
    """A connection of its own, with the answers to its requests."""

    def __init__(self, house: House) -> None:
        self.client = house.server.client()
        self.inbox = f"_A.{self.client.connection.id}"
        self.client.send(f"SUB {self.inbox} 1\r\n")
        self.got: list[Any] = []

    def send(self, subject: str, body: bytes = b"x") -> "Asker":
        self.client.send(f"PUB {subject} {self.inbox} {len(body)}\r\n".encode() + body + b"\r\n")
        return self

    def answers(self) -> list[Any]:
        """Return all events: "PONG", the JSON of a message, or another event as it is."""
        for event in self.client.events():
            if event[0] != OP_MSG:
                self.got.append("PONG")
                continue
            headers, payload = bytes(event[4]), bytes(event[5])  # type: ignore[call-overload] # both are bytes
            text = payload or headers
            self.got.append(json.loads(text) if text.startswith(b"{") else text)
        return self.got


def test_a_stream_waits_for_no_other(house: House) -> None:
    house = house.crash(gradually=True)
    big, small = Asker(house).send("big.x"), Asker(house).send("small.x")
    assert big.answers() == small.answers() == []
    steps = open_until(house, small.answers)
    assert small.answers() == [{"stream": "SMALL", "seq": 2}]
    assert steps < SEGMENTS
    assert big.answers() == []
    open_until(house, big.answers)
    assert big.answers()[0]["stream"] == "BIG"


def test_what_nobody_waits_for_is_opened_too(house: House) -> None:
    house = house.crash(gradually=True)
    done, total, told = house.engine.opening()
    assert (done, total) == (0, 2)
    assert "0 of 2" in told
    open_all(house)
    assert set(house.account.streams) == {"BIG", "SMALL"}


def test_the_order_of_a_connection_is_kept(house: House) -> None:
    house = house.crash(gradually=True)
    asker = Asker(house).send("big.x").send("small.x")
    asker.client.send("PING\r\n")
    other = Asker(house)
    other.client.send("PING\r\n")
    assert other.answers() == ["PONG"]
    open_until(house, asker.answers)
    assert asker.answers()[0]["stream"] == "BIG"
    open_all(house)
    assert "PONG" in asker.answers()
    assert asker.answers()[-1] == {"stream": "SMALL", "seq": 2}


@pytest.mark.parametrize(
    "call",
    [
        "STREAM.INFO.SMALL",
        "STREAM.PURGE.SMALL",
        "STREAM.MSG.GET.SMALL",
        "CONSUMER.CREATE.SMALL.c",
        "CONSUMER.DURABLE.CREATE.SMALL.c",
        "CONSUMER.LIST.SMALL",
        "CONSUMER.INFO.SMALL.c",
        "CONSUMER.MSG.NEXT.SMALL.c",
        "DIRECT.GET.SMALL",
        "DIRECT.GET.SMALL.small.x",
        "STREAM.DELETE.SMALL",
        "CONSUMER.LEADER.STEPDOWN.SMALL.c",
    ],
)
def test_a_request_waits_for_its_stream_alone(tmp_path: Path, house: House, call: str) -> None:
    house.consumer("c", "SMALL", durable_name="c")
    house = house.crash(gradually=True)
    asker = Asker(house).send(f"$JS.API.{call}", b'{"seq":1,"batch":1}')
    assert asker.answers() == []
    open_until(house, lambda: "SMALL" in house.account.streams or asker.answers())
    house.server.reactor.settle()
    assert asker.answers()
    assert "BIG" not in house.account.streams


@pytest.mark.parametrize("call", ["STREAM.NAMES", "STREAM.LIST", "INFO", "STREAM.CREATE.NEW"])
def test_what_concerns_all_waits_for_all(house: House, call: str) -> None:
    house = house.crash(gradually=True)
    body = b'{"name":"NEW","subjects":["big.x"]}' if "CREATE" in call else b""
    asker = Asker(house).send(f"$JS.API.{call}", body)
    open_until(house, asker.answers)
    assert house.engine.opening() == (0, 0, "")
    answer = asker.answers()[0]
    if call == "STREAM.NAMES":
        assert answer["streams"] == ["BIG", "SMALL"]
    elif call == "INFO":
        assert answer["streams"] == 2
        used = sum(each.core.log.bytes for each in house.account.streams.values())
        assert answer["storage"] == used > 0
    elif call == "STREAM.CREATE.NEW":
        assert answer["error"]["err_code"] == 10065


def test_a_request_by_another_way_waits_too(house: House) -> None:
    house = house.crash(gradually=True)
    asker = Asker(house)
    assert house.engine.take("$G", None, "$JS.API.STREAM.INFO.SMALL", asker.inbox, b"", b"")
    assert asker.answers() == []
    open_until(house, lambda: "SMALL" in house.account.streams)
    assert asker.answers()[0]["config"]["name"] == "SMALL"


def test_a_stream_that_is_unknown_is_not_waited_for(house: House) -> None:
    house = house.crash(gradually=True)
    asker = Asker(house).send("$JS.API.STREAM.INFO.NONE").send("nobody.there")
    answers = asker.answers()
    assert answers[0]["error"]["err_code"] == 10059
    assert b"503" in answers[1]


def test_who_waits_for_a_stream_that_fails_goes_on(house: House) -> None:
    house.engine.close()
    log = Path(house.account.files.stream("SMALL").log_folder)
    shutil.rmtree(log)
    log.write_bytes(b"no folder")
    house = house.crash(gradually=True)
    asker = Asker(house).send("small.x").send("$JS.API.STREAM.INFO.SMALL").send("big.x")
    open_all(house)
    answers = asker.answers()
    assert b"503" in answers[0]
    assert answers[1]["error"]["err_code"] == 10194  # the stream is offline
    assert answers[2]["stream"] == "BIG"
    assert any("stays offline" in line for line in house.reports)


def test_a_fault_of_ours_costs_one_stream(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(account: Any, stream: Any) -> None:
        if stream.config.name == "SMALL":
            raise RuntimeError("no")

    monkeypatch.setattr("pelton.engine.lifecycles.consumers.recover", broken)
    house = house.crash(gradually=True)
    asker = Asker(house).send("small.x")
    open_all(house)
    assert b"503" in asker.answers()[0]
    assert set(house.account.streams) == {"BIG"}
    assert house.account.storage.used == house.account.streams["BIG"].core.log.bytes
    monkeypatch.undo()
    house = house.restart()
    assert house.api("STREAM.INFO.SMALL")["state"]["messages"] == 1


def test_what_one_stream_sends_to_another_is_kept_for_it(tmp_path: Path) -> None:
    house = House(tmp_path / "store")
    house.stream("B", subjects=["b.>"])
    house.stream("A", subjects=["a.>"], republish={"src": "a.>", "dest": "b.>"})
    fill(house, "B")
    before = house.api("STREAM.INFO.B")["state"]
    house = house.crash(gradually=True)
    asker = Asker(house).send("a.x", b"through")
    open_until(house, asker.answers)
    assert "B" not in house.account.streams
    open_all(house)
    state = house.api("STREAM.INFO.B")["state"]
    assert state["messages"] == before["messages"] + 1


def test_acks_wait_for_their_stream(house: House) -> None:
    house.consumer("c", "SMALL", durable_name="c", ack_policy="explicit")
    [message] = house.pull(stream="SMALL")
    ack = message[3] if isinstance(message[3], str) else message[3].decode()
    house.pass_time(10**9)
    house = house.crash(gradually=True)
    asker = Asker(house).send(ack, b"+ACK")
    assert asker.answers() == []
    open_all(house)
    assert asker.answers() == [b""]
    assert house.api("CONSUMER.INFO.SMALL.c")["ack_floor"]["stream_seq"] == 1


def test_message_ids_are_known_before_the_stream_takes_any(house: House) -> None:
    house.publish("small.x", b"x", b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n")
    house = house.crash(gradually=True)
    asker = Asker(house)
    head = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    sizes = b"%d %d" % (len(head), len(head) + 1)
    asker.client.send(b"HPUB small.x %s %s\r\n%sx\r\n" % (asker.inbox.encode(), sizes, head))
    open_all(house)
    assert asker.answers() == [{"stream": "SMALL", "seq": 2, "duplicate": True}]


def test_sources_go_on_when_all_is_there(tmp_path: Path) -> None:
    house = House(tmp_path / "store")
    house.stream("ORIGIN", subjects=["o.>"])
    house.stream("COPY", sources=[{"name": "ORIGIN"}])
    house.publish("o.x")
    house.pass_time(10**9)
    house = house.crash(gradually=True)
    asker = Asker(house).send("o.x").send("$JS.API.STREAM.INFO.COPY")
    open_all(house)
    house.pass_time(10**9)
    assert house.api("STREAM.INFO.COPY")["state"]["messages"] == 2
    assert asker.answers()[1]["sources"][0]["name"] == "ORIGIN"


def test_an_end_in_the_middle_changes_nothing(house: House) -> None:
    before = house.api("STREAM.INFO.BIG")["state"]
    for steps in range(2 * SEGMENTS + 6):
        house = house.crash(gradually=True)
        asker = Asker(house).send("big.y" if steps % 2 else "nobody")
        for _ in range(steps):
            house.engine.open_more()
        if steps % 3 == 0:
            house.engine.close()
            assert asker.answers()  # the client gets "no responders"
    house = house.crash()
    after = house.api("STREAM.INFO.BIG")["state"]
    assert after["first_seq"] == before["first_seq"]
    assert after["messages"] - before["messages"] == after["last_seq"] - before["last_seq"]


def test_who_waits_when_the_server_stops_is_not_told_that_the_stream_is_unknown(
    house: House,
) -> None:
    house = house.crash(gradually=True)
    asker = Asker(house).send("$JS.API.STREAM.INFO.BIG", b"").send("$JS.API.STREAM.NAMES", b"")
    asker.send("$JS.API.STREAM.CREATE.BIG", b'{"name": "BIG", "subjects": ["big.>"]}')
    house.engine.open_more()
    house.engine.close()
    asker.send("$JS.API.STREAM.INFO.SMALL", b"")
    answers = asker.answers()
    assert len(answers) == 4
    assert all(b"503" in answer for answer in answers)


def test_an_account_that_goes_while_it_is_opened(house: House) -> None:
    house = house.crash(gradually=True)
    asker = Asker(house).send("big.x")
    house.engine.open_more()
    house.engine.remove("$G")
    assert b"503" in asker.answers()[0]
    assert not house.engine.open_more()


def test_limits_hold_once_all_is_there(tmp_path: Path) -> None:
    limits = {"": AccountLimits(max_storage=2000)}
    house = House(tmp_path / "store", account_limits=limits)
    house.stream("A", subjects=["a.>"], max_bytes=900)
    house.stream("B", subjects=["b.>"], max_bytes=900)
    house.publish("a.x", b"x" * 500)
    house.publish("b.x", b"x" * 500)
    house = house.crash(gradually=True)
    open_all(house)
    assert house.account.storage.used == house.api("INFO")["storage"] > 1000


@pytest.mark.parametrize("seed", range(5))
def test_nothing_acked_is_lost_by_kills_while_opening(house: House, seed: int) -> None:
    draw = Random(seed)
    acked: dict[str, dict[int, bytes]] = {"BIG": {}, "SMALL": {}}
    sent = 0
    for _ in range(12):
        house = house.crash(gradually=True)
        waiting: list[tuple[Asker, bytes]] = []
        for _ in range(draw.randrange(3 * SEGMENTS)):
            if draw.random() < 0.2:
                sent += 1
                body = b"%d" % sent
                waiting.append((Asker(house).send(draw.choice(["big.x", "small.x"]), body), body))
            house.engine.open_more()
            house.server.reactor.settle()
        for asker, body in waiting:
            for answer in asker.answers():
                assert answer["seq"] not in acked[answer["stream"]]
                acked[answer["stream"]][answer["seq"]] = body
    house = house.crash()
    assert sum(map(len, acked.values())) > 0
    for name, messages in acked.items():
        log = house.account.streams[name].core.log
        assert {seq: log.get(seq).payload for seq in messages} == messages


def test_a_log_that_waits_for_the_disk_is_not_begun(house: House) -> None:
    house = house.crash(gradually=True)
    slow = house.account.files.stream("BIG").log_folder
    house.engine.may_open = lambda folder: folder != slow
    big, small = Asker(house).send("big.x"), Asker(house).send("small.x")
    open_until(house, small.answers)
    assert house.engine.open_more()
    assert house.engine.waiting
    assert big.answers() == []
    house.engine.may_open = lambda folder: True
    assert house.engine.open_more()
    assert not house.engine.waiting
    open_until(house, big.answers)
