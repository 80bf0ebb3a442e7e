"""Restores: a backup is restored completely, or not at all."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.base.disk import PyDisk
from pelton.core.base.s2 import compress
from pelton.engine.backups import restores
from pelton.engine.backups.nats_files import checksum
from pelton.testing.simulated_disk import SimDisk
from tests.core.stream.test_backup import END, entry
from tests.engine.backups import (
    backup,
    files_of,
    packed,
    restore,
    stream_view,
    tar_of,
    unpacked,
)
from tests.engine.house import SECOND, House
from tests.ways import length


def fill(house: House, seed: int, count: int = 60, storage: str = "file") -> None:
    """A stream with messages, gaps everywhere, and consumers in every state."""
    source = Random(seed)
    house.stream(subjects=["s.>"], storage=storage)
    for n in range(count):
        headers = b"NATS/1.0\r\nN: %d\r\n\r\n" % n if source.random() < 0.3 else b""
        house.publish(f"s.{source.randrange(5)}", source.randbytes(source.randrange(300)), headers)
        house.server.clock.advance(source.randrange(SECOND))
        house.server.reactor.turn()
    house.consumer("pull", durable_name="pull", ack_policy="explicit", max_deliver=5)
    house.consumer("all", ack_policy="all", filter_subject="s.1", inactive_threshold=3600 * SECOND)
    house.consumer("new", ack_policy="explicit", deliver_policy="new")
    for event in house.pull(count // 3, "pull"):
        word = source.choice([b"+ACK", b"+ACK", b"-NAK", b'-NAK {"delay":5000000000}', b""])
        if word:
            house.send(event[3], word)
    house.pull(5, "pull")
    house.send(house.pull(3, "all")[0][3])
    for seq in source.sample(range(1, count + 1), count // 4):
        house.ok("STREAM.MSG.DELETE.S", {"seq": seq})
    for seq in (1, 2, count):
        house.api("STREAM.MSG.DELETE.S", {"seq": seq})
    house.pass_time(SECOND // 4)


@pytest.mark.parametrize("storage", ["file", "memory"])
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_what_was_backed_up_comes_back(tmp_path_factory: Any, seed: int, storage: str) -> None:
    one = House(tmp_path_factory.mktemp("one"))
    other = House(tmp_path_factory.mktemp("other"))
    fill(one, seed, storage=storage)
    answer, data = backup(one, chunk_size=1024)
    info = restore(other, answer, data, chunk_bytes=777)
    assert "error" not in info, info
    assert info["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    del info["state"]["last_ts"]
    theirs, ours = stream_view(one), stream_view(other)
    for view in (theirs, ours):
        del view[2]["last_ts"]  # the last message is removed, and its time is not stored
        for consumer in view[4].values() if storage == "memory" else ():
            del consumer["created"]  # not in the archive of a stream in memory
    assert ours == theirs
    if storage == "file":
        ours = stream_view(other.restart())
        del ours[2]["last_ts"]
        assert ours == theirs
    assert not [line for line in other.reports if line], other.reports


@pytest.mark.parametrize("mem_storage", [False, True])
def test_consumers_go_on_where_they_were(
    house: House, tmp_path: Path, *, mem_storage: bool
) -> None:
    house.stream(subjects=["s"])
    house.consumer("c", ack_policy="explicit", ack_wait=30 * SECOND, mem_storage=mem_storage)
    for n in range(6):
        house.publish("s", b"%d" % n)
    first = house.pull(4)
    house.send(first[0][3], b"+ACK")
    house.send(first[2][3], b"+ACK")
    answer, data = backup(house)
    other = House(tmp_path / "other", house.server.clock.now())
    assert answer["state"]["consumer_count"] == 1
    assert restore(other, answer, data)["state"]["consumer_count"] == 1
    config = other.ok("CONSUMER.INFO.S.c")["config"]
    assert config.get("mem_storage", False) == mem_storage
    assert [event[5] for event in other.pull(9)] == [b"4", b"5"]
    other.pass_time(31 * SECOND)
    assert [event[5] for event in other.pull(9)] == [b"1", b"3", b"4", b"5"]
    assert other.publish("s")["seq"] == 7


def test_empty_streams_and_purged_ones(house: House, tmp_path: Path) -> None:
    house.stream("E", subjects=["e"])
    house.stream("F", subjects=["f"], first_seq=100)
    house.stream("P", subjects=["p"])
    for _ in range(5):
        house.publish("p")
    house.ok("STREAM.PURGE.P")
    other = House(tmp_path / "other")
    house.stream("M", subjects=["m"], storage="memory")
    house.stream("Q", subjects=["q"], storage="memory", first_seq=100)
    for name, last in (("E", 0), ("F", 99), ("P", 5), ("M", 0), ("Q", 99)):
        answer, data = backup(house, name)
        info = restore(other, answer, data)
        states = [dict(each["state"]) for each in (info, house.ok(f"STREAM.INFO.{name}"))]
        for state in states:
            state.pop("last_ts")
        assert states[0] == states[1]
        assert other.publish(name.lower())["seq"] == last + 1


def test_a_configuration_of_its_own(house: House, tmp_path: Path) -> None:
    fill(house, 1)
    answer, data = backup(house)
    other = House(tmp_path / "other")
    info = restore(other, answer, data, subjects=["t"], max_msgs=10, description="copy")
    assert info["config"]["subjects"] == ["t"]
    assert info["state"]["messages"] == 10
    assert other.publish("t")["seq"] == 61
    memory = House(tmp_path / "memory")
    info = restore(memory, answer, data, storage="memory")
    assert info["state"]["messages"] == answer["state"]["messages"]
    assert info["state"]["consumer_count"] == 3


def test_refusals_before_anything_is_sent(house: House) -> None:
    house.stream("S", subjects=["s"])
    config = {"name": "T", "subjects": ["t"]}

    def refused(stream: str, **changes: Any) -> tuple[int, str]:
        return house.error(f"STREAM.RESTORE.{stream}", {"config": {**config, **changes}})

    assert house.api("STREAM.RESTORE.T") == {
        "type": "io.nats.jetstream.api.v1.stream_restore_response",
        "error": {"code": 400, "err_code": 10003, "description": "bad request"},
        "deliver_subject": "",
    }
    assert refused("X")[0] == 10056
    assert refused("S", name="S")[0] == 10130
    assert refused("T", subjects=["a b"])[0] == 10052
    assert not house.engine.accounts["$G"].transfers


def test_replicas_are_refused_when_all_is_sent(house: House, tmp_path: Path) -> None:
    fill(house, 1)
    answer, data = backup(house)
    other = House(tmp_path / "other")
    refused = restore(other, answer, data, num_replicas=3)["error"]
    assert (refused["code"], refused["err_code"]) == (500, 10062)
    assert refused["description"].startswith(
        "restore failed: error adding stream: replicas > 1 not supported"
    )
    assert not other.engine.accounts["$G"].transfers
    assert other.ok("STREAM.NAMES")["total"] == 0
    assert restore(other, answer, data)["state"]["messages"] == answer["state"]["messages"]


def test_advisories(house: House, tmp_path: Path) -> None:
    fill(house, 2)
    answer, data = backup(house)
    other = House(tmp_path / "other")
    client = other.server.client()
    client.send("SUB $JS.EVENT.ADVISORY.STREAM.> 1\r\n")
    restore(other, answer, data)
    told = [json.loads(event[5]) for event in client.events()]
    kinds = [event["type"].rpartition(".")[2] for event in told]
    assert kinds == ["restore_create", "stream_action", "restore_complete"]
    assert told[-1]["bytes"] == len(data)


def left(folder: Path) -> list[str]:
    """Return the content of the folders for restores and for streams."""
    root = folder / "jetstream/$G"
    return [str(path) for part in ("streams", "restoring") for path in (root / part).glob("*")]


def hostile(house: House, outside: Path) -> dict[str, bytes]:
    """Archives that must be refused, all for a stream S."""
    fill(house, 3, count=20)
    _, data = backup(house)
    files, raw = files_of(data), unpacked(data)
    meta, block = files["meta.inf"], files["msgs/1.blk"]
    other_name = meta.replace(b'"name":"S"', b'"name":"T"')
    state = files["obs/pull/o.dat"]
    newer = b"NATSARC1" + entry(b"state.json", 1, 0, b"", b'{"first_seq":1,"last_seq":2}')
    messages = entry(b"s.1", 1, 1, b"", b"x") + entry(b"s.1", 1, 2, b"", b"y")

    def tar(**changes: bytes | None) -> bytes:
        named = {**files, **{k.replace("__", "/"): v for k, v in changes.items()}}
        return tar_of({k: v for k, v in named.items() if v is not None})

    return {
        "garbage": b"garbage garbage garbage",
        "nothing": b"\xff\x06\x00\x00S2sTwO",
        "cut": data[: len(data) // 2],
        "tar cut": packed(raw[: len(raw) // 2]),
        "bomb": b"\xff\x06\x00\x00S2sTwO" + b"\0\x08\0\0" + bytes(4) + compress(b"")[:4].ljust(4),
        "no meta": tar_of({k: v for k, v in files.items() if k != "meta.inf"}),
        "meta is none": tar(**{"meta.inf": b"{"}),
        "sum is wrong": tar(**{"meta.sum": b"0" * 16}),
        "another's name": tar(**{"meta.inf": other_name, "meta.sum": checksum("S", other_name)}),
        "a block damaged": tar(**{"msgs/1.blk": block[:30] + b"\xff" + block[31:]}),
        "a block cut": tar(**{"msgs/1.blk": block[:-5]}),
        "a block of another number": tar_of(
            {k.replace("/1.blk", "/7.blk"): v for k, v in files.items()}
        ),
        "climbing": tar_of({**files, "../../../x": b"x"}),
        "climbing inside": tar_of({**files, "msgs/../../x": b"x"}),
        "absolute": tar_of({**files, str(outside): b"x"}),
        "a link": tar_of(files, kind=b"2"),
        "a consumer's state": tar(**{"obs/pull/o.dat": state[:-2] + b"\xff"}),
        "a consumer's sum": tar(**{"obs/pull/meta.sum": b"x"}),
        "a consumer without sum": tar(**{"obs/pull/meta.sum": None}),
        "a consumer's name": tar_of({k.replace("/pull/", "/a b/"): v for k, v in files.items()}),
        "huge": packed(tar_head("meta.inf", 1 << 40)),
        "newer, no end": packed(newer + messages),
        "newer, first": packed(b"NATSARC1" + messages + END),
        "newer, order": packed(newer + messages + messages + END),
        "newer, more": packed(newer + messages + END + b"x"),
        "newer, file": packed(newer + entry(b"x", 1, 0, b"", b"") + END),
        "newer, consumer": packed(newer + entry(b"consumers/c", 1, 0, b"", b"{}") + END),
    }


def tar_head(name: str, size: int) -> bytes:
    from pelton.engine.backups import archive

    return archive.head(name, size, 0) + bytes(2048)


def test_hostile_archives_are_refused_and_leave_nothing(house: House, tmp_path: Path) -> None:
    config = {"name": "S", "subjects": ["s.>"]}
    target = House(tmp_path / "target")
    before = sorted(str(path) for path in tmp_path.rglob("*") if "target" not in path.parts)
    for what, data in hostile(house, tmp_path / "outside").items():
        answer = restore(target, {"config": config, "state": {}}, data, chunk_bytes=5000)
        assert answer.get("error", {}).get("err_code") == 10062, (what, answer)
        assert answer["error"]["description"].startswith("restore failed: "), what
        assert target.error("STREAM.INFO.S")[0] == 10059
        assert not left(tmp_path / "target"), what
        assert not target.engine.accounts["$G"].transfers
    after = sorted(str(path) for path in tmp_path.rglob("*") if "target" not in path.parts)
    assert set(after) >= set(before)
    assert not [path for path in after if path.endswith("/x")]
    assert not (tmp_path / "outside").exists()


@settings(max_examples=length(25, 60))
@given(st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=3))
def test_damaged_archives_never_give_another_stream(
    tmp_path_factory: Any, flips: list[tuple[int, int]]
) -> None:
    answer, data, view = damaged_source(tmp_path_factory)
    raw = bytearray(unpacked(data))
    for at, value in flips:
        raw[at % len(raw)] = value
    target = House(tmp_path_factory.mktemp("target"))
    got = restore(target, answer, packed(bytes(raw)))
    if "error" in got:
        assert got["error"]["err_code"] == 10062
        assert not left(target.folder)
        return
    # bytes without a checksum: times and owners of files, names of optional files
    _, _, _, messages, _ = stream_view(target)
    assert all(messages[seq] in (None, view[3][seq]) for seq in messages)


_source: list[Any] = []


def damaged_source(tmp_path_factory: Any) -> Any:
    if not _source:
        house = House(tmp_path_factory.mktemp("source"))
        fill(house, 5, count=30)
        _source.extend([*backup(house), stream_view(house)])
    return _source


def test_the_newer_archive(house: House) -> None:
    config = {"name": "S", "subjects": ["s.>"]}
    state = {"first_seq": 5, "last_seq": 12, "messages": 3, "consumer_count": 1}
    consumer = {
        "config": {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 30 * SECOND},
        "state": {
            "delivered": {"consumer_seq": 2, "stream_seq": 7},
            "ack_floor": {"consumer_seq": 1, "stream_seq": 5},
            "pending": {"7": {"Sequence": 2, "Timestamp": house.server.clock.now()}},
            "redelivered": {"7": 3},
        },
    }
    headers = b"NATS/1.0\r\nK: v\r\n\r\n"
    data = b"NATSARC1" + entry(b"state.json", 1, 0, b"", json.dumps(state).encode())
    data += entry(b"consumers/c", 1, 0, b"", json.dumps(consumer).encode())
    for seq in (5, 7, 9):
        data += entry(b"s.%d" % seq, seq * SECOND, seq, headers, b"p%d" % seq)
    info = restore(house, {"config": config, "state": {}}, packed(data + END), chunk_bytes=50)
    assert "error" not in info, info
    state = info["state"]
    assert (state["first_seq"], state["last_seq"], state["messages"]) == (5, 12, 3)
    assert house.ok("STREAM.MSG.GET.S", {"seq": 7})["message"]["time"] == "1970-01-01T00:00:07Z"
    house.pass_time(31 * SECOND)
    events = house.pull(9)
    assert [event[5] for event in events] == [b"p7", b"p9"]
    assert events[0][3].split(".")[4:7] == ["5", "7", "3"]


def test_a_chunk_without_a_reply_ends_it(house: House, tmp_path: Path) -> None:
    subject = house.ok("STREAM.RESTORE.S", {"config": {"name": "S"}})["deliver_subject"]
    assert house.request(subject, b"\xff\x06\x00\x00S2sTwO") == [(b"", b"")]
    house.send(subject, b"x")
    [(headers, _)] = house.request(subject, b"x")
    assert headers.startswith(b"NATS/1.0 503")
    assert not house.engine.accounts["$G"].transfers
    assert not left(tmp_path)


def test_a_sender_that_falls_silent(house: House, tmp_path: Path) -> None:
    fill(house, 7)
    answer, data = backup(house)
    target = House(tmp_path / "target")
    subject = target.ok("STREAM.RESTORE.S", {"config": answer["config"]})["deliver_subject"]
    target.request(subject, packed(unpacked(data), 2000)[:-100])
    target.pass_time(4 * SECOND)
    assert left(tmp_path / "target")
    target.pass_time(2 * SECOND)
    assert not left(tmp_path / "target")
    assert "is stalled" in target.reports[-1]
    [(headers, _)] = target.request(subject, b"x")
    assert headers.startswith(b"NATS/1.0 503")


def test_a_stream_of_the_name_that_comes_meanwhile(house: House, tmp_path: Path) -> None:
    fill(house, 8)
    answer, data = backup(house)
    target = House(tmp_path / "target")
    subject = target.ok("STREAM.RESTORE.S", {"config": answer["config"]})["deliver_subject"]
    target.request(subject, data)
    target.stream("S", subjects=["other"])
    [(_, said)] = target.request(subject)
    assert json.loads(said)["error"]["err_code"] == 10130
    assert target.ok("STREAM.INFO.S")["config"]["subjects"] == ["other"]
    assert len(left(tmp_path / "target")) == 1


def test_a_crash_leaves_nothing_behind(house: House, tmp_path: Path) -> None:
    fill(house, 9)
    answer, data = backup(house)
    target = House(tmp_path / "target")
    subject = target.ok("STREAM.RESTORE.S", {"config": answer["config"]})["deliver_subject"]
    target.request(subject, packed(unpacked(data), 2000)[:-100])
    assert left(tmp_path / "target")
    target = target.crash()
    assert not left(tmp_path / "target")
    assert "error" not in restore(target, answer, data)


def test_a_stop_of_the_server_ends_it(house: House, tmp_path: Path) -> None:
    fill(house, 10)
    answer, data = backup(house)
    target = House(tmp_path / "target")
    subject = target.ok("STREAM.RESTORE.S", {"config": answer["config"]})["deliver_subject"]
    target.request(subject, data)
    target = target.restart()
    assert not left(tmp_path / "target")


def test_a_full_disk(house: House, tmp_path: Path) -> None:
    house.stream(subjects=["s"])
    for n in range(50):
        house.publish("s", Random(n).randbytes(4000))
    answer, data = backup(house)
    target = House(tmp_path / "target", disk=PyDisk(SimDisk(room=60_000)))
    got = restore(target, answer, data, chunk_bytes=5000)
    assert got["error"]["err_code"] == 10047
    assert target.disk.list_dir(f"{tmp_path}/target/jetstream/$G/restoring") == []
    assert target.disk.list_dir(f"{tmp_path}/target/jetstream/$G/streams") == []


def test_subjects_that_another_stream_has(house: House, tmp_path: Path) -> None:
    fill(house, 11)
    answer, data = backup(house)
    target = House(tmp_path / "target")
    target.stream("T", subjects=["s.1"])
    assert restore(target, answer, data)["error"]["err_code"] == 10065
    assert len(left(tmp_path / "target")) == 1


def test_power_goes_at_any_step_of_a_restore(house: House, seed: int) -> None:
    fill(house, 12, count=30)
    answer, data = backup(house)
    view = stream_view(house)
    outcomes = set()
    for steps in range(seed % 4, 90, 4):
        disk = SimDisk()
        target = House(Path("store"), disk=PyDisk(disk))
        disk.fail_after = steps
        got = restore(target, answer, data)
        disk.fail_after = None
        disk.crash(Random(seed + steps))
        target = House(Path("store"), target.server.clock.now(), PyDisk(disk))
        present = bool(target.ok("STREAM.NAMES")["streams"])
        outcomes.add(present)
        assert present or "error" in got
        if present:
            config, created, state, messages, consumers = stream_view(target)
            del state["last_ts"]
            assert (config, created, messages) == (view[0], view[1], view[3])
            assert consumers == view[4]
        assert not [name for name in disk.names if "/restoring/" in name]
    assert outcomes == {True, False}


def test_times_to_live_go_on(house: House, tmp_path: Path) -> None:
    house.stream(subjects=["s"], allow_msg_ttl=True)
    for ttl in (b"5s", b"60s"):
        house.publish("s", ttl, b"NATS/1.0\r\nNats-TTL: %s\r\n\r\n" % ttl)
    house.publish("s", b"kept")
    answer, data = backup(house)
    other = House(tmp_path / "other", house.server.clock.now())
    assert restore(other, answer, data)["state"]["messages"] == 3
    other.pass_time(6 * SECOND)
    assert other.ok("STREAM.INFO.S")["state"]["messages"] == 2
    other.pass_time(56 * SECOND, SECOND)
    assert other.ok("STREAM.INFO.S")["state"]["messages"] == 1


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
@pytest.mark.parametrize("mem_storage", [False, True])
def test_messages_that_consumers_need_stay(
    house: House, tmp_path: Path, retention: str, *, mem_storage: bool
) -> None:
    house.stream(subjects=["s"], retention=retention)
    house.consumer("c", durable_name="c", ack_policy="explicit", mem_storage=mem_storage)
    for n in range(6):
        house.publish("s", b"%d" % n)
    events = house.pull(4)
    house.send(events[0][3], b"+ACK")
    house.send(events[2][3], b"+ACK")
    answer, data = backup(house)
    other = House(tmp_path / "other", house.server.clock.now())
    info = restore(other, answer, data)
    assert "error" not in info, info
    assert info["state"]["messages"] == answer["state"]["messages"] == 4
    other.pass_time(31 * SECOND)
    again = other.pull(9)
    assert [event[5] for event in again] == [b"1", b"3", b"4", b"5"]
    for event in again:
        other.send(event[3], b"+ACK")
    assert other.ok("STREAM.INFO.S")["state"]["messages"] == 0
    assert other.ok("STREAM.INFO.S")["state"]["last_seq"] == 6


def test_a_mirror_goes_on_from_its_backup(house: House, tmp_path: Path) -> None:
    house.stream("O", subjects=["o"])
    house.stream("M", mirror={"name": "O"})
    for n in range(5):
        house.publish("o", b"%d" % n)
    house.pass_time(SECOND)
    answer, data = backup(house, "M")
    assert answer["state"]["messages"] == 5
    house.ok("STREAM.DELETE.M")
    house.publish("o", b"later")
    assert "error" not in restore(house, answer, data)
    house.pass_time(2 * SECOND)
    assert house.ok("STREAM.INFO.M")["state"]["messages"] == 6


def test_a_compressed_stream(house: House, tmp_path: Path) -> None:
    house.stream(subjects=["s"], compression="s2")
    for n in range(30):
        house.publish("s", b"again and again " * 40 + b"%d" % n)
    answer, data = backup(house)
    other = House(tmp_path / "other")
    info = restore(other, answer, data)
    assert info["config"]["compression"] == "s2"
    view = stream_view(house)
    assert stream_view(other)[3] == view[3]


def test_a_sender_that_does_not_wait(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(house, 13)
    answer, data = backup(house)
    data = packed(unpacked(data), 2000)
    for most, good in ((len(data), True), (len(data) // 2, False)):
        monkeypatch.setattr(restores, "_WAITING_MAX_BYTES", most)
        target = House(tmp_path / str(most))
        subject = target.ok("STREAM.RESTORE.S", {"config": answer["config"]})["deliver_subject"]
        for n, at in enumerate(range(0, len(data), 500)):
            part = data[at : at + 500]
            head = f"PUB {subject} _I.many{n} {len(part)}\r\n".encode()
            target.server.sessions.feed(target.client.connection, head + part + b"\r\n")
        said = [event[5] for event in target.client.events()]
        if good:
            assert set(said) == {b""}
            assert "error" not in json.loads(target.request(subject)[0][1])
        else:
            [error] = [json.loads(each) for each in said if each]
            assert error["error"]["err_code"] == 10062
            assert not left(tmp_path / str(most))
