"""A whole server on a disk on which any one call fails, once or until the disk is repaired.

The calls of a scenario are counted; then the scenario runs once for each of them. Promises to
clients hold, no client loses its connection, and the server continues by itself when the disk is
repaired.
"""

from __future__ import annotations

import errno
import json
from base64 import b64decode
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.core.broker.reactor import HandedSync
from pelton.testing.simulated_disk import SimDisk
from tests.core.log.test_disk_recovery import NthFails
from tests.engine.house import SECOND, House
from tests.ways import FULL, SEED

STORE = Path("store")


class Client:
    """Publishes and consumes, and records the promises of the server."""

    def __init__(self, house: House, disk: SimDisk) -> None:
        self.disk = disk
        self.ended = 0  # number of finished background syncs
        self.acked: dict[tuple[str, int], bytes] = {}
        self.confirmed: set[int] = set()  # sequences of W with a confirmed ack
        self.waiting: dict[str, tuple[str, bytes]] = {}
        self.asked: dict[str, int] = {}
        self.refused: list[str] = []
        self.gone: set[str] = set()  # streams that were deleted, or whose delete was left in doubt
        self.purged: dict[str, int] = {}
        self.number = 0
        self.updated = False  # whether S was updated
        self.names: set[str] = set()  # consumers of S
        self.use(house)

    def use(self, house: House) -> None:
        self.house = house
        self.syncs: list[HandedSync] = []
        house.server.reactor.on_sync = self.syncs.append  # syncs that run in the background
        self.out = house.server.client().send("SUB in.> 1\r\n")

    def publish(self, subject: str, count: int = 3, headers: bool = False) -> None:
        for _ in range(count):
            self.number += 1
            payload = b"%d " % self.number + b"x" * 700
            reply = f"in.{self.number}"
            self.waiting[reply] = (subject, payload)
            self.out.send(
                b"PUB %s %s %d\r\n%s\r\n"
                % (subject.encode(), reply.encode(), len(payload), payload)
            )
        self.hear()

    def end_syncs(self) -> bool:
        """End the background syncs; return whether any ended."""
        some = bool(self.syncs)
        while self.syncs:
            sync = self.syncs.pop(0)
            code = 0
            try:
                self.disk.sync(sync.handle)
            except OSError as error:
                code = error.errno or errno.EIO
            sync.end(code)
            self.ended += 1
        return some

    def pass_time(self, ns: int) -> None:
        for _ in range(0, ns, SECOND // 20):
            self.house.pass_time(SECOND // 20)
            self.end_syncs()

    def hear(self) -> list[Any]:
        """Read the events, and record the PubAcks."""
        others = []
        events = self.out.events()
        while self.end_syncs():
            events += self.out.events()
        for event in events:
            reply = str(event[1])
            if reply in self.waiting:
                subject, payload = self.waiting.pop(reply)
                if not event[5]:
                    continue  # no responders: the stream could not be created
                answer = json.loads(bytes(event[5]))  # type: ignore[call-overload] # the payload of a message
                if "error" in answer:
                    assert answer["error"]["code"] == 503, answer
                    self.refused.append(answer["error"]["description"])
                else:
                    self.acked[(subject, answer["seq"])] = payload
            elif reply in self.asked:
                self.confirmed.add(self.asked.pop(reply))
            else:
                others.append(event)
        return others

    def work(self, count: int) -> None:
        """Pull messages of W and acknowledge them with a reply."""
        self.number += 1
        body = json.dumps({"batch": count, "no_wait": True})
        self.out.send(
            f"PUB $JS.API.CONSUMER.MSG.NEXT.W.w in.p{self.number} {len(body)}\r\n{body}\r\n"
        )
        for event in self.hear():
            if not event[3] or not str(event[3]).startswith("$JS.ACK"):
                continue
            seq = int(str(event[3]).split(".")[5])
            assert seq not in self.confirmed, f"{seq} came again after its ack was confirmed"
            if seq % 3:
                self.number += 1
                self.asked[f"in.a{self.number}"] = seq
                self.out.send(f"PUB {event[3]} in.a{self.number} 4\r\n+ACK\r\n")
        self.hear()

    def api(self, call: str, body: Any = b"") -> Any:
        answer = self.house.api(call, body)
        self.hear()
        return answer

    def check(self, *, whole: bool) -> None:
        """Check that the log has each acknowledged message, or (not `whole`) that a client gets it or
        the error of the disk.
        """
        for (subject, seq), payload in self.acked.items():
            if subject in self.gone or seq < self.purged.get(subject, 0):
                continue
            if subject == "W" and (seq in self.confirmed or seq in self.asked.values()):
                continue
            if whole:
                message = self.house.account.streams[subject].core.log.get(seq)
                assert message is not None, (subject, seq, self.house.reports)
                assert message.payload == payload
                continue
            answer = self.api(f"STREAM.MSG.GET.{subject}", {"seq": seq})
            if "error" in answer:
                assert answer["error"]["err_code"] != 10037, (subject, seq, answer)
                continue
            assert b64decode(answer["message"]["data"]) == payload


def scenario(client: Client) -> None:
    client.publish("S")
    client.api(
        "STREAM.CREATE.T",
        {"name": "T", "subjects": ["T"], "max_msgs": 6, "max_msgs_per_subject": 4},
    )
    client.publish("T", 5)
    client.publish("W", 6)
    client.work(4)
    client.pass_time(SECOND // 4)
    client.api(
        "CONSUMER.CREATE.S.d",
        {"stream_name": "S", "config": {"durable_name": "d", "ack_policy": "explicit"}},
    )
    client.publish("S", 8)
    client.api("STREAM.MSG.DELETE.T", {"seq": 4})
    client.gone.add("T")  # limits and the delete may have removed them
    client.purged["S"] = 3
    client.api("STREAM.PURGE.S", {"seq": 3})
    change = {"name": "S", "subjects": ["S"], "allow_direct": True, "max_age": 3600 * SECOND}
    client.updated = "error" not in client.api("STREAM.UPDATE.S", change)
    client.work(4)
    client.pass_time(SECOND)
    client.publish("W", 2)
    client.out.send("PUB $JS.API.DIRECT.GET.S in.x 9\r\n" + '{"seq":4}' + "\r\n")
    client.hear()
    client.api("STREAM.INFO.S")
    client.api("CONSUMER.INFO.W.w")
    client.api("CONSUMER.DELETE.S.d")
    client.names = set(client.api("CONSUMER.NAMES.S")["consumers"] or [])
    client.api("STREAM.CREATE.G", {"name": "G", "subjects": ["G"]})
    client.publish("G", 2)
    client.gone.add("G")
    client.api("STREAM.DELETE.G")
    client.publish("S", 3)
    client.check(whole=False)
    client.pass_time(SECOND)


def begin(disk: NthFails, *, background: bool = False) -> Client:
    house = House(STORE, disk=PyDisk(disk, background))
    house.stream("S", subjects=["S"], allow_direct=True)
    house.stream("W", subjects=["W"], retention="workqueue")
    house.consumer("w", "W", durable_name="w", ack_policy="explicit", ack_wait=SECOND)
    house.server.reactor.settle()
    return Client(house, disk)


def count_calls(*, background: bool) -> tuple[int, int]:
    disk = NthFails(Random(1), forever=False)
    client = begin(disk, background=background)
    first = disk.count
    scenario(client)
    assert client.refused == []
    assert (client.ended > 10) == background
    assert len(client.acked) > 20
    assert len(client.confirmed) > 3
    client.check(whole=True)
    return first, disk.count


def goes_on(client: Client) -> None:
    """The server continues without a request."""
    house = client.house
    client.pass_time(15 * SECOND)
    client.hear()
    for name, entry in house.account.streams.items():
        assert entry.core.failure == "", (name, entry.core.failure)
        assert entry.core.unread == ""
    before = len(client.acked)
    for name in ("S", "W"):
        client.publish(name, 2)
    assert len(client.acked) == before + 4, client.refused
    client.work(30)
    client.check(whole=True)
    assert client.asked == {}, "acks that were to be confirmed are answered in the end"
    assert len(house.reports) < 15, house.reports


@pytest.mark.parametrize(
    "code", [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EROFS], ids=errno.errorcode.get
)
@pytest.mark.parametrize("background", [False, True], ids=["", "background"])
@pytest.mark.parametrize("forever", [False, True], ids=["once", "until repaired"])
def test_any_call_may_fail(code: int, forever: bool, background: bool) -> None:
    first, end = count_calls(background=background)
    step = 1 if FULL else 3 if code == errno.EIO and not forever else 13
    for nth in range(first + (SEED + code) % step, end, step):
        disk = NthFails(Random(nth), nth, code, forever=forever)
        disk.nth = -1
        client = begin(disk, background=background)
        assert disk.count == first
        disk.nth = nth
        try:
            scenario(client)
            assert client.house.server.errors == []
            assert not client.out.connection.closed
            disk.repair()
            goes_on(client)
            streams = client.api("STREAM.NAMES")["streams"]
            disk.crash(Random(nth))
            client.use(client.house.crash())
            client.gone |= {"T"}
            client.check(whole=True)
            config = client.api("STREAM.INFO.S")["config"]
            assert (config["max_age"] > 0) == client.updated
            assert set(client.api("CONSUMER.NAMES.S")["consumers"] or []) == client.names
            assert client.api("STREAM.NAMES")["streams"] == streams
            client.work(30)
            goes_on(client)
        except BaseException:
            print(f"seed {SEED}, call {nth} failed: {disk.failed[:3]}; {client.house.reports}")
            raise


@pytest.fixture
def unreadable() -> tuple[House, NthFails]:
    """A server that has just started, with nothing in memory, on a disk that refuses reads."""
    disk = NthFails(Random(1), forever=False)
    house = House(STORE, disk=PyDisk(disk))
    short = SECOND // 10  # a start reads the messages in this window
    house.stream("S", subjects=["S"], allow_direct=True, max_msgs=20, duplicate_window=short)
    house.stream("W", subjects=["W"], retention="workqueue", duplicate_window=short)
    house.consumer("c", ack_policy="explicit")
    house.consumer("w", "W", durable_name="w", ack_policy="explicit")
    for number in range(20):
        house.publish("S", b"%d " % number + b"x" * 5000)
        house.publish("W", b"%d " % number + b"x" * 5000)
    house = house.restart()
    disk.fail_read = errno.EIO
    return house, disk


def test_what_can_not_be_read_now_is_not_lost(unreadable: tuple[House, NthFails]) -> None:
    house, disk = unreadable
    assert house.pull(5) == []
    code, text = house.error("STREAM.MSG.GET.S", {"seq": 3})
    assert (code, text) == (10051, "Input/output error")
    ((headers, _),) = house.request("$JS.API.DIRECT.GET.S", {"seq": 3})
    assert headers.startswith(b"NATS/1.0 500 Input/output error")
    state = house.ok("STREAM.INFO.S")["state"]
    assert (state["messages"], state.get("lost")) == (20, None)
    house.ok("CONSUMER.INFO.S.c")
    assert house.publish("S", b"new")["seq"] == 21  # and the oldest message is removed
    last = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 21\r\n\r\n"
    assert house.publish("S", b"next", last)["seq"] == 22
    house.pass_time(3 * SECOND)
    assert house.pull(5) == []
    assert len([line for line in house.reports if "cannot read messages" in line]) == 1
    disk.fail_read = 0
    house.pass_time(3 * SECOND)
    got = house.pull(30)
    assert [int(event[3].split(".")[5]) for event in got] == list(range(3, 23))
    assert house.reports[-1].startswith("stream S reads messages again after ")
    assert not house.client.connection.closed
    assert house.server.errors == []


def test_a_waiting_pull_request_gets_what_could_not_be_read(
    unreadable: tuple[House, NthFails],
) -> None:
    house, disk = unreadable
    body = json.dumps({"batch": 2, "expires": 30 * SECOND})
    house.client.send(f"PUB $JS.API.CONSUMER.MSG.NEXT.W.w _I.w {len(body)}\r\n{body}\r\n")
    assert house.client.events() == []
    house.pass_time(2 * SECOND)
    disk.fail_read = 0
    house.pass_time(2 * SECOND)
    got = house.client.events()
    assert [bytes(event[5])[:2] for event in got] == [b"0 ", b"1 "]  # type: ignore[call-overload] # payloads
    for event in got:
        house.send(str(event[3]), b"+ACK")
    assert house.ok("STREAM.INFO.W")["state"]["messages"] == 18


def test_the_operator_and_clients_are_told_once() -> None:
    disk = NthFails(Random(1), forever=False)
    house = House(STORE, disk=PyDisk(disk))
    house.stream("S", subjects=["S"])
    house.client.send("SUB $JS.EVENT.ADVISORY.SERVER.> 2\r\n")
    disk.room = disk.used() + 3000
    while True:
        answers = house.request("S", b"x" * 600)
        if not answers or "error" in json.loads(answers[0][1]):
            break
    refused = house.publish("S", b"x" * 600)
    assert refused["error"] == {
        "code": 503,
        "err_code": 10077,
        "description": "No space left on device",
    }
    house.pass_time(10 * SECOND)
    (event,) = house.client.events()
    told = json.loads(bytes(event[5]))  # type: ignore[call-overload] # a payload
    assert event[1] == "$JS.EVENT.ADVISORY.SERVER.OUT_OF_STORAGE"
    assert told["type"] == "io.nats.jetstream.advisory.v1.server_out_of_space"
    assert (told["server"], told["stream"]) == ("house", "S")
    assert len(house.reports) == 1
    disk.room = None
    house.pass_time(SECOND)  # no client publishes
    (late,) = house.client.events()
    assert json.loads(bytes(late[5]))["stream"] == "S"  # type: ignore[call-overload] # a payload
    (line,) = house.reports[1:]
    assert line.startswith("stream S accepts messages again after 10.")
    assert "error" not in house.publish("S", b"x")


def test_a_purge_is_answered_when_it_is_written_where_acks_promise_the_page_cache() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk), sync_interval_ns=120 * SECOND)
    house.stream("S", subjects=["S"])
    house.stream("M", subjects=["M"], storage="memory")
    client = Client(house, disk)
    client.publish("S", 4)
    client.publish("M", 1)
    disk.room = disk.used()
    assert house.request("$JS.API.STREAM.PURGE.S", {"seq": 3}) == []
    assert house.request("$JS.API.STREAM.MSG.DELETE.S", {"seq": 4, "no_erase": True}) == []
    assert house.api("STREAM.PURGE.M")["purged"] == 1
    disk.room = None
    client.pass_time(SECOND)
    answers = [json.loads(payload) for *_, payload in house.client.events()]
    assert [(a["success"], a.get("purged")) for a in answers] == [(True, 2), (True, None)]
    disk.kill()
    house = House(STORE, disk=PyDisk(disk), sync_interval_ns=120 * SECOND)
    assert house.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_a_purge_that_finds_nothing_left_is_answered_when_that_is_on_the_disk() -> None:
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk, background=True))
    house.stream("S", subjects=["S"])
    client = Client(house, disk)
    client.publish("S", 4)
    while client.end_syncs():
        house.server.reactor.turn()
    assert house.request("$JS.API.STREAM.PURGE.S", {"seq": 3}) == []
    # the messages are already removed
    assert house.request("$JS.API.STREAM.PURGE.S", {"seq": 3}) == []
    while client.end_syncs():
        house.server.reactor.turn()
    answers = [json.loads(payload) for *_, payload in house.client.events()]
    assert [(a["success"], a.get("purged", 0)) for a in answers] == [(True, 2), (True, 0)]
    disk.crash()
    house = House(STORE, disk=PyDisk(disk))
    assert house.api("STREAM.INFO.S")["state"]["messages"] == 2
