"""Single messages: get, delete, direct get."""

import base64
from typing import Any

import pytest

from pelton.core.log import maintenance
from tests.engine.house import SECOND, START_NS, House

HEADERS = b"NATS/1.0\r\nA: 1\r\n\r\n"


@pytest.fixture
def filled(house: House, request: pytest.FixtureRequest) -> House:
    """A stream with subjects s.0, s.1, s.0, s.1, s.0 at one message a second; the third message has
    headers, and 4 is deleted.
    """
    storage = getattr(request, "param", "file")
    house.stream(subjects=["s.*"], storage=storage, allow_direct=True)
    for n in range(5):
        house.publish(f"s.{n % 2}", b"m%d" % n, HEADERS if n == 2 else b"")
        house.pass_time(SECOND)
    house.ok("STREAM.MSG.DELETE.S", {"seq": 4})
    return house


BOTH = pytest.mark.parametrize("filled", ["file", "memory"], indirect=True)


def time_of(seconds: int) -> str:
    return f"2023-11-14T22:13:{20 + seconds}Z"


REQUESTS: list[tuple[dict[str, Any], int]] = [
    ({"seq": 1}, 1),
    ({"seq": 4}, 0),
    ({"seq": 9}, 0),
    ({"last_by_subj": "s.0"}, 5),
    ({"last_by_subj": "s.1"}, 2),
    ({"last_by_subj": "s.*"}, 5),
    ({"last_by_subj": "x"}, 0),
    ({"last_by_subj": "a b"}, 0),
    ({"next_by_subj": "s.1"}, 2),
    ({"next_by_subj": "s.1", "seq": 3}, 0),
    ({"next_by_subj": "s.0", "seq": 2}, 3),
    ({"next_by_subj": "s.*", "seq": 4}, 5),
    ({"start_time": time_of(2)}, 3),
    ({"start_time": time_of(3)}, 5),
    ({"start_time": time_of(9)}, 0),
    ({"start_time": time_of(1), "next_by_subj": "s.0"}, 3),
]


def test_the_clock_of_these_tests() -> None:
    assert START_NS == 1_700_000_000_000_000_000  # 2023-11-14T22:13:20Z


@BOTH
@pytest.mark.parametrize(("body", "seq"), REQUESTS, ids=str)
def test_both_ways_find_the_same_message(filled: House, body: dict[str, Any], seq: int) -> None:
    answer = filled.api("STREAM.MSG.GET.S", body)
    [(headers, payload)] = filled.request("$JS.API.DIRECT.GET.S", body)
    if not seq:
        assert answer["error"]["err_code"] == 10037
        assert headers == b"NATS/1.0 404 Message Not Found\r\n\r\n"
        return
    message = answer["message"]
    assert message["seq"] == seq
    assert message["time"] == time_of(seq - 1)
    assert base64.b64decode(message["data"]) == payload == b"m%d" % (seq - 1)
    assert f"Nats-Sequence: {seq}\r\n".encode() in headers
    assert f"Nats-Time-Stamp: {time_of(seq - 1)}\r\n".encode() in headers
    assert base64.b64decode(message.get("hdrs", "")) == (HEADERS if seq == 3 else b"")


@pytest.mark.parametrize(
    "body",
    [
        {},
        b"",
        {"seq": 0},
        {"seq": 1, "last_by_subj": "s.0"},
        {"seq": 1, "start_time": time_of(1)},
        {"last_by_subj": "s.0", "start_time": time_of(1)},
        {"last_by_subj": "s.0", "next_by_subj": "s.0"},
    ],
    ids=str,
)
def test_bad_requests(filled: House, body: Any) -> None:
    assert filled.error("STREAM.MSG.GET.S", body)[0] == 10003
    [(headers, _)] = filled.request("$JS.API.DIRECT.GET.S", body)
    assert headers.startswith(b"NATS/1.0 408 ")


def test_headers_can_be_left_out(filled: House) -> None:
    assert "hdrs" in filled.ok("STREAM.MSG.GET.S", {"seq": 3})["message"]
    assert "hdrs" not in filled.ok("STREAM.MSG.GET.S", {"seq": 3, "no_hdr": True})["message"]
    assert filled.request("$JS.API.DIRECT.GET.S", {"seq": 3, "no_hdr": True}) == [(b"", b"m2")]


def test_direct_get_by_subject(filled: House) -> None:
    [(headers, payload)] = filled.request("$JS.API.DIRECT.GET.S.s.0")
    assert payload == b"m4"
    assert headers == (
        b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s.0\r\nNats-Sequence: 5\r\n"
        b"Nats-Time-Stamp: " + time_of(4).encode() + b"\r\n\r\n"
    )
    assert filled.request("$JS.API.DIRECT.GET.S.s.0", {"no_hdr": True}) == [(b"", b"m4")]
    [(refused, _)] = filled.request("$JS.API.DIRECT.GET.S.s.0", {"seq": 1})
    assert refused == b"NATS/1.0 408 Bad Request\r\n\r\n"
    [(kept, _)] = filled.request("$JS.API.DIRECT.GET.S", {"seq": 3})
    assert kept.startswith(b"NATS/1.0\r\nA: 1\r\nNats-Stream: S\r\n")
    assert kept.endswith(b"Z\r\n\r\n")
    [(malformed, _)] = filled.request("$JS.API.DIRECT.GET.S", b"{")
    assert malformed == b"NATS/1.0 408 Malformed Request\r\n\r\n"
    [(empty, _)] = filled.request("$JS.API.DIRECT.GET.S")
    assert empty == b"NATS/1.0 408 Empty Request\r\n\r\n"


def test_direct_get_is_an_offer(house: House) -> None:
    house.stream()
    for stream in ("S", "missing"):
        [(headers, _)] = house.request(f"$JS.API.DIRECT.GET.{stream}", {"seq": 1})
        assert headers.startswith(b"NATS/1.0 503")


@BOTH
def test_delete(filled: House) -> None:
    for seq in (1, 3):
        assert filled.ok("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": seq == 3})["success"]
        assert filled.error("STREAM.MSG.GET.S", {"seq": seq})[0] == 10037
    state = filled.ok("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"], state["num_deleted"]) == (2, 2, 2)
    assert filled.error("STREAM.MSG.DELETE.S", {"seq": 3}) == (10043, "sequence 3 not found")
    assert filled.error("STREAM.MSG.DELETE.S", {})[0] == 10003
    assert filled.error("STREAM.MSG.DELETE.missing", {"seq": 1})[0] == 10059


def test_what_can_not_be_deleted_is_named_by_its_place(house: House) -> None:
    house.stream()
    house.publish("S")
    assert house.error("STREAM.MSG.DELETE.S", {"seq": 9}) == (10057, "stream store EOF")
    assert house.error("STREAM.MSG.DELETE.S", {"seq": 0}) == (10057, "no message found")
    house.publish("S")
    house.ok("STREAM.MSG.DELETE.S", {"seq": 1})
    assert house.error("STREAM.MSG.DELETE.S", {"seq": 1}) == (10057, "no message found")
    house.stream("M", storage="memory")
    assert house.error("STREAM.MSG.DELETE.M", {"seq": 9}) == (10043, "sequence 9 not found")


@pytest.mark.parametrize("place", ["unwritten", "active", "sealed", "compacted", "recovered"])
def test_no_copy_of_an_erased_message_stays(house: House, place: str) -> None:
    """Erased messages in the tail, in the active segment, in a segment with an index file, in a
    compacted one and in one that was opened again: no file has headers or payload afterwards.
    """
    house.stream(subjects=["s.*"], allow_direct=True)
    secret = b"NATS/1.0\r\nSecret: word\r\n\r\n"
    core = house.engine.accounts["$G"].streams["S"].core
    for n in range(40):
        core.publish(f"s.{n}", b"very secret" if n == 7 else bytes(1000), secret if n == 7 else b"")
    if place != "unwritten":
        house.server.reactor.settle()
    if place in ("sealed", "compacted"):
        for _ in range(18):
            core.publish("s.x", bytes(1 << 20))
            house.server.reactor.settle()
    if place == "compacted":
        for n in range(1, 40):
            if n != 8:
                maintenance.delete(core.log, n)
        core.purge(subject="s.x")
        core.log.flush()
        while maintenance.maintain(core.log):
            core.log.flush()
    if place == "recovered":
        house = house.restart()
        core = house.engine.accounts["$G"].streams["S"].core
    if place != "unwritten":
        assert b"very secret" in b"".join(
            p.read_bytes() for p in house.folder.rglob("*") if p.is_file()
        )
    house.ok("STREAM.MSG.DELETE.S", {"seq": 8})
    for _ in range(2):
        stored = b"".join(p.read_bytes() for p in house.folder.rglob("*") if p.is_file())
        assert b"secret" not in stored.lower()
        house = house.restart()
    assert house.error("STREAM.MSG.GET.S", {"seq": 8})[0] == 10037


def test_an_erased_message_is_gone_from_the_disk(house: House) -> None:
    house.stream()
    house.publish("S", b"very secret words")
    house.publish("S", b"other words")
    house.ok("STREAM.MSG.DELETE.S", {"seq": 1})
    house.engine.close()
    stored = b"".join(p.read_bytes() for p in house.folder.rglob("*") if p.is_file())
    assert b"very secret words" not in stored
    assert b"other words" in stored
