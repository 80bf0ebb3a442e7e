"""Subject transforms of stored messages, and republish: time and headers of the messages."""

from pathlib import Path

from pelton.api.times import format_time
from tests.core.streams import block
from tests.engine.house import SECOND, House


def heard(house: House, subject: str) -> list[tuple[bytes, bytes]]:
    """Return headers and payload of the client's messages on a subject."""
    return [(event[4], event[5]) for event in house.client.events() if event[1] == subject]


def test_a_message_is_stored_under_its_new_subject(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(
        subjects=["s.>"], subject_transform={"src": "s.*", "dest": "t.$1.{{partition(1)}}"}
    )
    house.publish("s.a")
    house.publish("s.a.b")
    ack = house.publish("s.a", b"x", block("Nats-Expected-Last-Subject-Sequence: 1"))
    assert ack["seq"] == 3
    subjects = house.ok("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"]
    assert subjects == {"t.a.0": 2, "s.a.b": 1}
    base = {"name": "S", "subjects": ["s.>"]}
    house.ok("STREAM.UPDATE.S", base)
    house.publish("s.a")
    subjects = house.ok("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"]
    assert subjects == {"t.a.0": 2, "s.a.b": 1, "s.a": 1}


def test_what_is_stored_is_published_again(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], republish={"src": "s.*", "dest": "r.$1"}, no_ack=True)
    house.client.send("SUB r.> 2\r\n")
    house.send("s.a", b"one")
    house.client.send(b"PUB s.a 3\r\none\r\n")
    log = house.engine.accounts["$G"].streams["S"].core.log
    (second,) = heard(house, "r.a")
    assert second == (
        b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 2\r\n"
        b"Nats-Time-Stamp: %s\r\nNats-Last-Sequence: 1\r\n\r\n"
        % format_time(log.get(2).ts_ns).encode(),
        b"one",
    )
    headers = block("My: own")
    house.client.send(b"HPUB s.b %d %d\r\n%sx\r\n" % (len(headers), len(headers) + 1, headers))
    ((block_sent, payload),) = heard(house, "r.b")
    assert block_sent.startswith(b"NATS/1.0\r\nMy: own\r\nNats-Stream: S\r\nNats-Subject: s.b\r\n")
    assert payload == b"x"
    house.send("s.a.b")
    assert heard(house, "s.a.b") == []


def test_only_headers_when_that_is_wanted(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], republish={"dest": "r.>", "headers_only": True})
    house.client.send("SUB r.> 2\r\n")
    house.client.send(b"PUB s.a 3\r\none\r\n")
    ((headers, payload),) = heard(house, "r.s.a")
    assert headers.endswith(b"\r\nNats-Last-Sequence: 0\r\nNats-Msg-Size: 3\r\n\r\n")
    assert payload == b""


def test_markers_are_published_again_too(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(
        subjects=["s.>"],
        republish={"dest": "r.>"},
        subject_delete_marker_ttl=60 * SECOND,
        max_age=SECOND,
    )
    house.client.send("SUB r.> 2\r\nPUB s.a 3\r\none\r\n")
    house.client.events()
    house.pass_time(2 * SECOND)
    ((headers, payload),) = heard(house, "r.s.a")
    assert b"Nats-Marker-Reason: MaxAge\r\n" in headers
    assert b"Nats-Sequence: 2\r\n" in headers
    assert b"Nats-Last-Sequence: 1\r\n" in headers
    assert payload == b""


def test_nothing_goes_out_before_it_is_durable(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], republish={"dest": "r.>"})
    core = house.engine.accounts["$G"].streams["S"].core
    house.client.send("SUB r.> 2\r\n")
    house.client.events()
    core.publish("s.a", b"x")
    assert core.visible == 0
    core.log.fsync()  # the message is on the disk, but the stream does not know yet
    assert core.visible == 0
    ((headers, _),) = heard(house, "r.s.a")
    assert b"Nats-Sequence: 1\r\n" in headers
    assert core.visible == 1


def test_a_stream_hears_what_another_republishes(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], republish={"dest": "r.>"})
    house.stream("T", subjects=["r.>"])
    house.publish("s.a", b"x")
    house.server.reactor.settle()
    stored = house.engine.accounts["$G"].streams["T"].core.log.get(1)
    assert (stored.subject, stored.payload) == ("r.s.a", b"x")


def test_streams_that_republish_into_each_other_come_to_an_end(tmp_path: Path) -> None:
    """Each round adds headers to the message, and a message has at most 64 KiB of them."""
    house = House(tmp_path)
    house.stream("A", subjects=["a.>"], republish={"src": "a.>", "dest": "b.>"})
    house.stream("B", subjects=["b.>"], republish={"src": "b.>", "dest": "a.>"})
    assert house.publish("a.x")["seq"] == 1
    house.server.reactor.settle()  # it ends
    one, other = (house.ok(f"STREAM.INFO.{name}")["state"]["messages"] for name in "AB")
    assert 250 < other <= one <= other + 1 < 300  # 256 with longer times in the headers
    assert house.publish("a.y")["seq"] == one + 1
