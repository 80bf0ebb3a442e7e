"""The content of the disk is recovered: after a clean stop, after a kill, and beside damage."""

import base64
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.engine.house import SECOND, House


def configs(house: House) -> dict[str, Any]:
    """Return the state that must survive a clean restart, as the API shows it."""
    seen: dict[str, Any] = {}
    for name in house.ok("STREAM.NAMES")["streams"] or []:
        info = house.ok(f"STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
        seen[name] = {key: info[key] for key in ("config", "created", "state")}
        for each in house.ok(f"CONSUMER.LIST.{name}")["consumers"]:
            del each["ts"]
            seen[f"{name} > {each['name']}"] = each
    return seen


def furnish(house: House) -> None:
    house.stream("S", subjects=["s.*"], max_msgs=50, metadata={"a": "b"}, description="d<>")
    house.stream("T", subjects=["t"], max_age=3600 * SECOND, first_seq=10)
    for n in range(60):
        house.publish(f"s.{n % 5}", b"m%d" % n)
    house.publish("t")
    house.ok("STREAM.MSG.DELETE.S", {"seq": 33})
    house.consumer("c", durable_name="c", ack_policy="explicit", filter_subject="s.1")
    house.consumer("all", durable_name="all", ack_policy="all", deliver_policy="new")
    house.consumer("last", deliver_policy="last_per_subject", filter_subject=">")
    house.consumer("push", durable_name="push", deliver_subject="d", ack_policy="explicit")
    for event in house.pull(3):
        house.send(event[3], b"+ACK")
    house.pull(2)
    house.pull(2, "last")


def test_a_clean_restart_changes_nothing(tmp_path: Path) -> None:
    house = House(tmp_path)
    furnish(house)
    before = configs(house)
    house = house.restart()
    assert configs(house) == before
    assert not house.reports
    house = house.restart()
    assert configs(house) == before


def test_a_kill_loses_at_most_the_last_moments_of_a_consumer(tmp_path: Path) -> None:
    house = House(tmp_path)
    furnish(house)
    house.pass_time(SECOND)
    before = configs(house)
    after = house.crash()
    assert configs(after) == before
    assert not after.reports
    # without that second: configurations and messages as before, and perhaps fewer acks
    for event in after.pull(2):
        after.send(event[3], b"+ACK")
    again = after.crash()
    for key, value in configs(again).items():
        assert value["config"] == before[key]["config"]
        assert value["created"] == before[key]["created"]
    assert configs(again)["S"] == before["S"]


def test_creates_and_deletes_survive_a_kill_at_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream("A", subjects=["a"])
    house.stream("B", subjects=["b"])
    house.consumer("x", "A", durable_name="x")
    house.consumer("y", "A", durable_name="y")
    house.ok("CONSUMER.DELETE.A.y")
    house.ok("STREAM.DELETE.B")
    house.ok("STREAM.UPDATE.A", {"name": "A", "subjects": ["a", "c"], "max_msgs": 7})
    house.consumer("x", "A", durable_name="x", description="changed")
    house = house.crash()
    assert house.ok("STREAM.NAMES")["streams"] == ["A"]
    assert house.ok("CONSUMER.NAMES.A")["consumers"] == ["x"]
    assert house.ok("STREAM.INFO.A")["config"]["max_msgs"] == 7
    assert house.ok("CONSUMER.INFO.A.x")["config"]["description"] == "changed"
    assert house.publish("c")["seq"] == 1


def test_memory_is_forgotten(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream("M", subjects=["m"], storage="memory")
    house.stream("S", subjects=["s"])
    house.consumer("kept", durable_name="kept")
    house.consumer("lost", durable_name="lost", mem_storage=True)
    house.publish("m")
    house = house.restart()
    assert house.ok("STREAM.NAMES")["streams"] == ["S"]
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["kept"]
    house.stream("M", subjects=["m"], storage="memory")


def test_message_ids_are_remembered(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    header = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    assert house.publish("S", b"x", header)["seq"] == 1
    house = house.restart()
    assert house.publish("S", b"x", header) == {"stream": "S", "seq": 1, "duplicate": True}
    house.pass_time(200 * SECOND)
    assert house.publish("S", b"x", header)["seq"] == 2


def test_ids_of_removed_messages_are_known_until_the_server_ends(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(retention="workqueue")
    house.consumer(durable_name="c", ack_policy="explicit")
    headers = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    assert house.publish("S", b"x", headers)["seq"] == 1
    assert house.request(house.pull(1)[0][3], b"+ACK")
    assert house.publish("S", b"x", headers) == {"stream": "S", "seq": 1, "duplicate": True}
    house = house.restart()
    assert house.publish("S", b"x", headers) == {"stream": "S", "seq": 2}


def test_delivery_goes_on_where_it_was(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit", ack_wait=10 * SECOND)
    for n in range(4):
        house.publish("S", b"%d" % n)
    first, second = house.pull(2)
    house.send(second[3], b"+ACK")
    house = house.restart()
    assert [event[5] for event in house.pull(9)] == [b"2", b"3"]
    house.pass_time(11 * SECOND)
    again = house.pull(9)
    assert [event[5] for event in again] == [b"0", b"2", b"3"]
    assert again[0][3].split(".")[4] == "2"
    assert first[5] == b"0"


def stream_folder(house: House, name: str = "S") -> Path:
    [meta] = house.folder.rglob(f"{name}/meta.json")
    return meta.parent


FORMAT_OF_LATER = b'{"format":99,"config":{"name":"S"}}'


@pytest.mark.parametrize("damage", [b"", b"{", FORMAT_OF_LATER, b"\xff" * 50, None])
def test_a_stream_that_can_not_be_opened_is_offline_and_says_why(
    tmp_path: Path, damage: bytes | None
) -> None:
    house = House(tmp_path)
    house.stream("GOOD", subjects=["good"])
    house.stream("S")
    house.publish("S")
    meta = stream_folder(house) / "meta.json"
    both = [meta, meta.with_name("meta.json.copy")]
    kept = meta.read_bytes()
    house.engine.close()
    for path in both:
        path.unlink() if damage is None else path.write_bytes(damage)
    for _ in range(2):
        house = house.crash()
        assert len(house.reports) == 1
        assert "meta.json" in house.reports[0]
        assert house.ok("STREAM.NAMES")["streams"] == ["GOOD", "S"]
        listed = house.ok("STREAM.LIST")
        assert [each["config"]["name"] for each in listed["streams"]] == ["GOOD"]
        assert (listed["total"], listed["missing"], list(listed["offline"])) == (2, ["S"], ["S"])
        for call, body in (
            ("STREAM.INFO.S", b""),
            ("STREAM.CREATE.S", {"name": "S"}),
            ("STREAM.UPDATE.S", {"name": "S"}),
            ("STREAM.PURGE.S", b""),
            ("STREAM.MSG.GET.S", {"seq": 1}),
            ("CONSUMER.NAMES.S", b""),
            ("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c"}}),
        ):
            code, text = house.error(call, body)
            assert code == 10194, call
            assert text.startswith("stream is offline: ")
        house.engine.close()
    for path in both:
        path.write_bytes(kept)
    house = house.crash()
    assert not house.reports
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 1


def test_an_offline_stream_is_deleted_when_somebody_says_so(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    folder = stream_folder(house)
    house.engine.close()
    for path in folder.glob("meta.json*"):
        path.write_bytes(b"{")
    house = house.crash()
    house.ok("STREAM.DELETE.S")
    assert not folder.exists()
    house.stream()
    assert not house.crash().reports


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff" * 50, None])
@pytest.mark.parametrize("which", ["meta.json", "meta.json.copy", "c.json", "c.json.copy"])
def test_one_of_two_configuration_files_costs_nothing(
    tmp_path: Path, which: str, damage: bytes | None
) -> None:
    house = House(tmp_path)
    house.stream(max_msgs=7)
    house.consumer(durable_name="c", ack_policy="explicit", description="d")
    house.publish("S")
    before = configs(house)
    house.engine.close()
    (path,) = tmp_path.rglob(which)
    whole = path.read_bytes()
    path.unlink() if damage is None else path.write_bytes(damage)
    house = house.crash()
    assert configs(house) == before
    assert len(house.reports) == (0 if damage is None and which.endswith("copy") else 1)
    assert path.read_bytes() == whole
    kept = [bad.read_bytes() for bad in tmp_path.rglob("*.bad-*")]
    assert kept == ([] if damage is None else [damage])
    house = house.crash()
    assert configs(house) == before
    assert not house.reports


def test_a_damaged_consumer_is_left_aside(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    for name in ("bad", "good"):
        house.consumer(name, durable_name=name, ack_policy="explicit")
    house.publish("S")
    house.pull(1, "good")
    house.engine.close()
    for path in stream_folder(house).glob("consumers/bad.json*"):
        path.write_bytes(b"{")
    house = house.crash()
    assert len(house.reports) == 1
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["bad", "good"]
    listed = house.ok("CONSUMER.LIST.S")
    assert [each["name"] for each in listed["consumers"]] == ["good"]
    assert (listed["total"], listed["missing"], list(listed["offline"])) == (2, ["bad"], ["bad"])
    for call, body in (
        ("CONSUMER.INFO.S.bad", b""),
        ("CONSUMER.CREATE.S.bad", {"stream_name": "S", "config": {"name": "bad"}}),
    ):
        code, text = house.error(call, body)
        assert (code, text[:21]) == (10195, "consumer is offline: ")
    assert house.ok("CONSUMER.INFO.S.good")["num_ack_pending"] == 1
    house.ok("CONSUMER.DELETE.S.bad")  # a client may delete the damaged consumer
    assert "missing" not in house.ok("CONSUMER.LIST.S")
    house.consumer("bad", durable_name="bad", ack_policy="explicit")
    house = house.crash()
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["bad", "good"]
    assert not house.reports


def test_a_stream_of_interest_with_a_consumer_offline_keeps_its_messages(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(retention="interest")
    for name in ("bad", "good"):
        house.consumer(name, durable_name=name, ack_policy="explicit")
    house.publish("S")
    house.engine.close()
    kept = {path: path.read_bytes() for path in stream_folder(house).glob("consumers/bad.json*")}
    for path in kept:
        path.write_bytes(b"{")
    house = house.crash()
    code, text = house.error("STREAM.INFO.S")
    assert (code, text) == (10194, 'stream is offline: stopped - damaged consumer "bad"')
    house.engine.close()
    for path, data in kept.items():
        path.write_bytes(data)
    house = house.crash()
    assert len(house.pull(1, "bad")) == 1


@pytest.mark.parametrize("damage", [b"", b"garbage", b"PSSTATE1\0\0\0\0x", None])
def test_damaged_states_cost_nothing_while_one_base_is_good(
    tmp_path: Path, damage: bytes | None
) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit")
    for _ in range(4):
        house.publish("S")
    for _ in range(3):
        house.send(house.pull(1)[0][3], b"+ACK")
        house = house.restart()
    files = sorted(
        stream_folder(house).glob("consumers/states.*"),
        key=lambda path: msgspec.msgpack.decode(path.read_bytes()[12:])[0],
    )
    assert len(files) == 2
    text = bytearray(files[-1].read_bytes())
    text[-1] ^= 1
    files[-1].write_bytes(bytes(text) if damage is None else damage)
    house = house.crash()
    assert len(house.reports) == 1
    assert house.ok("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 3
    for file in (*files, *stream_folder(house).glob("consumers/acks.*")):
        file.write_bytes(b"garbage that is long enough to be looked at")
    house = house.crash()
    assert len(house.reports) >= 3
    assert house.ok("CONSUMER.INFO.S.c")["num_pending"] == 4


def test_a_namesake_starts_anew(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit")
    house.publish("S")
    house.send(house.pull(1)[0][3], b"+ACK")
    house.pass_time(SECOND)
    house.ok("CONSUMER.DELETE.S.c")
    house.consumer(durable_name="c", ack_policy="explicit")
    house = house.crash()
    assert house.ok("CONSUMER.INFO.S.c")["num_pending"] == 1


@pytest.mark.parametrize("killed", [False, True])
def test_a_namesake_of_the_same_moment_starts_anew(tmp_path: Path, *, killed: bool) -> None:
    house = House(tmp_path)
    house.stream()
    house.publish("S")
    house.consumer(durable_name="c", ack_policy="explicit")
    assert house.request(house.pull(1)[0][3], b"+ACK")  # confirmed: the ack is in the journal
    house.ok("CONSUMER.DELETE.S.c")
    if killed:
        house = House(tmp_path, now_ns=house.server.clock.now())
    house.consumer(durable_name="c", ack_policy="explicit")
    house = House(tmp_path, now_ns=house.server.clock.now())
    assert house.ok("CONSUMER.INFO.S.c")["num_pending"] == 1


def test_a_create_that_was_cut_short_leaves_the_name_free(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    folder = stream_folder(house)
    house.engine.close()
    (folder.parent / "HALF" / "consumers").mkdir(parents=True)
    house = house.crash()
    assert house.ok("STREAM.NAMES")["streams"] == ["S"]
    house.stream("HALF", subjects=["half"])


def test_a_delete_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    folder = stream_folder(house)
    house.engine.close()
    deleted = folder.parent.parent / "deleted" / "xyz.S"
    folder.rename(deleted)
    house = house.crash()
    assert house.ok("STREAM.NAMES")["streams"] is None
    assert not deleted.exists()


def test_streams_of_a_later_server_are_left_aside(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    meta = stream_folder(house) / "meta.json"
    house.engine.close()
    text = meta.read_bytes().replace(b'"allow_msg_ttl":false', b'"allow_msg_ttl":true')
    meta.write_bytes(text.splitlines()[0])  # as if edited by hand
    house.settings["api_level"] = 0
    house = house.crash()
    assert "required API level: 1, current API level: 0" in house.reports[0]


@pytest.mark.parametrize("seed", range(5))
def test_acked_messages_survive_any_number_of_kills(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    house = House(tmp_path, sync_interval_ns=rng.choice([0, SECOND]))
    house.stream(subjects=["s.>"])
    house.consumer(durable_name="c", ack_policy="explicit", ack_wait=SECOND)
    stored: dict[int, bytes] = {}
    acked: set[int] = set()
    for step in range(80):
        match rng.randrange(8):
            case 0 | 1 | 2:
                payload = b"%d" % step
                stored[house.publish(f"s.{step % 4}", payload)["seq"]] = payload
            case 3 | 4:
                for event in house.pull(rng.randint(1, 4)):
                    seq = int(event[3].split(".")[5])
                    assert event[5] == stored[seq]
                    if rng.random() < 0.7:
                        house.send(event[3], b"+ACK")
                        acked.add(seq)
            case 5:
                house.pass_time(rng.randrange(2 * SECOND))
            case 6:
                house = house.crash()
            case _:
                house = house.restart()
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == len(stored)
    for seq, payload in stored.items():
        message = house.ok("STREAM.MSG.GET.S", {"seq": seq})["message"]
        assert base64.b64decode(message["data"]) == payload
    left: set[int] = set()
    for _ in range(100):
        events = house.pull(50)
        left |= {int(event[3].split(".")[5]) for event in events}
        for event in events:
            house.send(event[3], b"+ACK")
        house.pass_time(SECOND + SECOND // 10)
        if not events and house.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == 0:
            break
    assert set(stored) - acked <= left
    assert house.ok("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == max(stored)


def test_a_confirmed_ack_survives_a_kill_at_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit", ack_wait=10 * SECOND)
    for n in range(4):
        house.publish("S", b"%d" % n)
    first, second, third = house.pull(3)
    assert house.request(first[3], b"+ACK") == [(b"", b"")]
    assert house.request(second[3], b"+TERM") == [(b"", b"")]
    assert house.request(first[3], b"+ACK") == [(b"", b"")]
    house = house.crash()
    info = house.ok("CONSUMER.INFO.S.c")
    assert info["ack_floor"]["stream_seq"] == 2
    assert info["num_ack_pending"] == 1
    house.pass_time(11 * SECOND)
    assert [event[5] for event in house.pull(9)] == [third[5], b"3"]


def test_a_confirmation_waits_for_a_disk_that_refuses(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit")
    house.publish("S")
    (event,) = house.pull(1)
    (place,) = tmp_path.rglob("consumers")
    place.rename(place.with_name("away"))
    assert house.request(event[3], b"+ACK") == []
    assert len(house.reports) == 1
    house.pass_time(SECOND)
    assert len(house.reports) == 1
    assert house.client.events() == []
    place.with_name("away").rename(place)
    house.pass_time(SECOND)
    assert len(house.client.events()) == 1
    assert house.crash().ok("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 1


def test_a_consumer_does_not_inherit_a_state_that_a_kill_left_behind(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    house.consumer(durable_name="c", ack_policy="explicit")
    for n in range(3):
        house.publish("S", b"%d" % n)
    for event in house.pull(3):
        house.request(event[3], b"+ACK")
    house = house.crash()
    for config in tmp_path.rglob("c.json*"):
        config.unlink()  # the first half of a removal
    house = house.crash()
    house.consumer(durable_name="c", ack_policy="explicit")
    house = house.crash()
    assert len(house.pull(9)) == 3


@pytest.mark.parametrize("name", ["meta.json", "c.json"])
def test_a_flipped_bit_in_a_configuration_is_told_and_costs_nothing(
    tmp_path: Path, name: str
) -> None:
    house = House(tmp_path)
    for stream in ("S", "T"):
        house.stream(stream)
        house.consumer("c", stream, durable_name="c", ack_policy="explicit")
        house.publish(stream)
    house.engine.close()
    path = next(path for path in tmp_path.rglob(name) if "/S/" in str(path))
    whole = path.read_bytes()
    rng = random.Random(7)
    for bit in [rng.randrange(len(whole) * 8) for _ in range(40)]:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        house = house.crash()
        assert len(house.reports) == 1, (bit, house.reports)
        assert house.ok("STREAM.INFO.S")["state"]["messages"] == 1
        for stream in ("S", "T"):
            assert house.ok(f"CONSUMER.NAMES.{stream}")["consumers"] == ["c"]
        assert path.read_bytes() == whole
        house.engine.close()
        # the other file alone, and then both of them
        path.with_name(f"{name}.copy").write_bytes(bytes(damaged))
        if bit % 2:
            path.write_bytes(bytes(damaged))
        house = house.crash()
        assert len(house.reports) == 1 + bit % 2
        assert house.ok("CONSUMER.NAMES.S")["consumers"] == ["c"]
        house.engine.close()


def test_a_folder_without_configuration_is_told(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream("S")
    house.stream("T")
    house.publish("S")
    for path in tmp_path.rglob("meta.json*"):
        if "/S/" in str(path):
            path.unlink()
    house = house.crash()
    assert house.error("STREAM.INFO.S")[0] == 10194
    assert len(house.reports) == 1
    assert "no meta.json" in house.reports[0]
    assert list(tmp_path.rglob("S/log/*.seg"))


def test_a_purge_gives_its_room_back(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream()
    for n in range(40):
        house.publish("S", b"%d" % n * 20_000)
    log = stream_folder(house) / "log"
    assert sum(path.stat().st_size for path in log.iterdir()) > 1_000_000
    house.ok("STREAM.PURGE.S")
    house.pass_time(3 * SECOND)
    assert sum(path.stat().st_size for path in log.iterdir()) < 10_000
    house = house.crash()
    assert house.publish("S")["seq"] == 41
