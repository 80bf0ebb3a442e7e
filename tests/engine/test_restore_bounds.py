"""Resources of a restore in progress: their bounds, and that all of them are released."""

import gc
import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pelton.api.calls import AccountLimits
from pelton.core.log.recovery import open_log
from pelton.engine.backups.nats_files import NatsConsumerState, checksum, pack_state, unpack_state
from pelton.engine.backups.restore_staging import Staging
from pelton.engine.backups.restores import Restore
from pelton.engine.backups.snapshots import Snapshot
from pelton.engine.backups.spool import PIECE_BYTES, Spool
from tests.core.stream.test_backup import END, blocks_of, entry
from tests.engine.backups import Receiver, backup, files_of, packed, restore, tar_of
from tests.engine.bombs import CONSUMER, META, MIB, bombs, file, half_a_record, tar
from tests.engine.house import SECOND, House
from tests.engine.test_encryption import vault
from tests.engine.test_restores import fill, left

CONFIG = {"name": "S", "subjects": ["s.>"]}
ANSWER = {"config": CONFIG, "state": {}}


def begin(house: House, data: bytes, **config: Any) -> str:
    """Start a restore with so many bytes; return the subject for the next ones."""
    begun = house.ok("STREAM.RESTORE.S", {"config": {**CONFIG, **config}})
    subject: str = begun["deliver_subject"]
    for at in range(0, len(data), 65536):
        assert house.request(subject, data[at : at + 65536]) == [(b"", b"")]
    return subject


def newer(consumers: int, described: int = 60_000) -> bytes:
    """The newer archive: consumers that hardly compress, and three messages."""
    source = Random(consumers)
    data = b"NATSARC1" + entry(
        b"state.json", 1, 0, b"", b'{"first_seq":1,"last_seq":3,"consumer_count":%d}' % consumers
    )
    for n in range(consumers):
        config = {"durable_name": f"c{n}", "ack_policy": "explicit", "filter_subject": "s.secret"}
        config["metadata"] = {"noise": source.randbytes(described // 2).hex()}
        state = {"delivered": {"consumer_seq": 1, "stream_seq": 1}, "pending": {"1": {}}}
        whole = json.dumps({"config": config, "state": state}).encode()
        data += entry(b"consumers/c%d" % n, 1, 0, b"", whole)
    for seq in (1, 2, 3):
        data += entry(b"s.secret", 1, seq, b"", b"payload")
    return packed(data + END)


# -- bytes on the disk
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("key", ["", "k"])
def test_what_waits_for_the_end_is_on_the_disk(tmp_path: Path, storage: str, key: str) -> None:
    house = House(tmp_path, vault=vault(key) if key else None)
    subject = begin(house, newer(20), storage=storage)
    [spooled] = tmp_path.rglob("restoring/*/spool.0")
    assert (b"s.secret" in spooled.read_bytes()) == (not key)
    [(_, said)] = house.request(subject)
    while not said:
        said = house.client.events()[0][5]
    assert json.loads(said)["state"]["consumer_count"] == 20
    assert not list(tmp_path.rglob("*spool*"))
    assert not list(tmp_path.rglob("restoring/*"))
    for n in (0, 10, 19):
        info = house.ok(f"CONSUMER.INFO.S.c{n}")
        assert (info["num_ack_pending"], len(info["config"]["metadata"]["noise"])) == (1, 60_000)
    if storage == "file":
        assert house.restart().ok("STREAM.INFO.S")["state"]["consumer_count"] == 20


def test_bytes_on_their_way_are_the_accounts(tmp_path: Path) -> None:
    house = House(tmp_path)
    quota = house.account.storage
    subject = begin(house, newer(10))
    assert quota.used > 400_000
    house.request(subject, b"not of this archive")
    assert quota.used == 0
    begin(house, newer(10))
    house.pass_time(6 * SECOND)  # the restore stalls
    assert quota.used == 0
    subject = begin(house, newer(2))
    house.request(subject)
    state = house.ok("STREAM.INFO.S")["state"]
    assert quota.used == state["bytes"] == house.account.storage.whole.used


def archive_of(size: int) -> bytes:
    source = Random(1)
    log = open_log(None)
    for _ in range(size // 1000):
        log.add(1, "s.x", source.randbytes(1000))
    return tar_of(
        {
            "meta.inf": META,
            **{f"msgs/{n}.blk": data for n, data in enumerate(blocks_of(log, 1 << 20), 1)},
        }
    )


def test_restores_at_once_share_the_accounts_limit(tmp_path: Path) -> None:
    most = {"": AccountLimits(max_memory=0, max_storage=150_000)}
    house = House(tmp_path, account_limits=most)
    data = archive_of(100_000)
    subject = begin(house, data)
    again = restore(house, ANSWER, data)
    assert again["error"]["err_code"] == 10047
    [(_, said)] = house.request(subject)
    assert json.loads(said)["state"]["messages"] == 100
    assert house.account.storage.used == json.loads(said)["state"]["bytes"]


def test_zeros_that_are_messages_are_bounded_by_the_limits(tmp_path: Path) -> None:
    house = House(tmp_path, account_limits={"": AccountLimits(max_storage=1_000_000)})
    log = open_log(None)
    for _ in range(40):
        log.add(1, "s.x", bytes(100_000))
    data = tar_of({"meta.inf": META, "msgs/1.blk": blocks_of(log, 1 << 30)[0]})
    assert restore(house, ANSWER, data)["error"]["err_code"] == 10047
    assert house.account.storage.used == 0
    assert not left(tmp_path)


# -- released resources
# -----------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[None]:
    """Switch the garbage collector off."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("what", ["refused", "stalled", "closed", "removed", "good", "no reply"])
def test_nothing_is_held_when_it_is_over(tmp_path: Path, what: str) -> None:
    house = House(tmp_path)
    subject = begin(house, newer(20))
    [transfer] = house.account.transfers
    assert isinstance(transfer, Restore)
    held = weakref.ref(transfer._unpacker)  # type: ignore[arg-type] # there is one
    if what == "refused":
        house.request(subject, b"not of this archive")
    elif what == "stalled":
        house.pass_time(6 * SECOND)
    elif what == "closed":
        house.engine.close()
    elif what == "removed":
        house.engine.remove("$G")
    elif what == "good":
        house.request(subject)
    else:
        house.send(subject, b"x")
    house.server.reactor.settle()
    assert held() is None
    assert transfer._staging.spool.size == 0
    assert not house.account.transfers
    assert len(left(tmp_path)) == (what == "good")
    assert (house.account.storage.used > 0) == (what == "good")


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("ending", ["good", "gone", "closed"])
def test_nothing_of_a_backup_is_held_when_it_is_over(house: House, ending: str) -> None:
    fill(house, 1)
    receiver = Receiver(house, acks=0)
    receiver.ask(chunk_size=1024, window_size=1024)
    [transfer] = house.account.transfers
    assert isinstance(transfer, Snapshot)
    held = weakref.ref(transfer._pieces)
    if ending == "good":
        receiver.acks = 1 << 30
        receiver.take()
        receiver.acknowledge(1)
        receiver.take()
        assert receiver.end is not None
    elif ending == "gone":
        receiver.client.send("UNSUB 7\r\n")
        house.pass_time(SECOND)
    else:
        house.engine.close()
    assert held() is None
    assert len(transfer._frames) < 100
    assert not house.account.transfers


def test_a_fault_of_ours_ends_it_too(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle(*_: object) -> None:
        raise KeyError("a fault")

    subject = begin(house, newer(3))
    monkeypatch.setattr(Staging, "settle", settle)
    [(_, said)] = house.request(subject)
    assert json.loads(said)["error"]["err_code"] == 10062
    assert len(house.server.errors) == 1
    house.server.errors.clear()
    assert not left(tmp_path)
    assert not house.account.transfers


# -- content of an archive
# --------------------------------------------------------------------------


@pytest.mark.parametrize("what", bombs())
def test_bombs_are_refused_and_leave_nothing(tmp_path: Path, what: str) -> None:
    house = House(tmp_path)
    answer = restore(house, ANSWER, bombs()[what])
    assert answer["error"]["err_code"] == 10062
    assert house.account.storage.used == 0
    assert not left(tmp_path)


def test_a_state_may_name_every_message_and_removed_ones(house: House, tmp_path: Path) -> None:
    house.stream(subjects=["s.>"])
    house.consumer("c", durable_name="c", ack_policy="explicit", max_ack_pending=-1)
    for _ in range(300):
        house.publish("s.x")
    assert len(house.pull(300)) == 300
    for seq in range(1, 250):
        house.ok("STREAM.MSG.DELETE.S", {"seq": seq})
    answer, data = backup(house)
    other = House(tmp_path / "other", house.server.clock.now())
    assert "error" not in restore(other, answer, data)
    before = house.ok("CONSUMER.INFO.S.c")["num_ack_pending"]
    assert other.ok("CONSUMER.INFO.S.c")["num_ack_pending"] == before
    data = files_of(data)["obs/c/o.dat"]
    assert len(unpack_state(data, before).pending) == before
    with pytest.raises(ValueError, match=f"{before} messages, {before - 1} are possible"):
        unpack_state(data, before - 1)


def test_a_large_message_is_no_bomb(tmp_path: Path) -> None:
    house = House(tmp_path)
    log = open_log(None)
    log.add(1, "s.x", Random(1).randbytes(12 << 20))
    data = tar_of({"meta.inf": META, "msgs/1.blk": blocks_of(log, 1 << 30)[0]})
    assert restore(house, ANSWER, data)["state"]["bytes"] > 12 << 20
    # content that compresses well may be as large as a client's message
    other = House(tmp_path / "other")
    other.server.reactor.max_payload = 12 << 20
    log = open_log(None)
    log.add(1, "s.x", bytes(12 << 20))
    data = tar_of({"meta.inf": META, "msgs/1.blk": blocks_of(log, 1 << 30)[0]})
    assert "error" not in restore(other, ANSWER, data)


def consumers_tar(*names: str) -> bytes:
    files = {"meta.inf": META}
    for name in names:
        meta = CONSUMER.replace(b"c0", name.encode())
        files[f"obs/{name}/meta.inf"] = meta
        files[f"obs/{name}/meta.sum"] = checksum(f"S/{name}", meta)
        files[f"obs/{name}/o.dat"] = pack_state(NatsConsumerState())
    return tar_of(files)


def test_no_more_consumers_than_a_stream_may_have(tmp_path: Path) -> None:
    house = House(tmp_path, account_limits={"": AccountLimits(max_consumers=3)})
    data = consumers_tar("a", "b", "c")
    two = {"config": {**CONFIG, "max_consumers": 2}, "state": {}}
    assert restore(house, two, data)["error"] == {
        "code": 500,
        "err_code": 10062,
        "description": 'restore failed: error restoring consumer ["c"]: '
        "maximum consumers limit reached (10026)",
    }
    assert not left(tmp_path)
    assert restore(house, ANSWER, data)["state"]["consumer_count"] == 3


def test_a_consumer_that_is_there_twice(house: House, tmp_path: Path) -> None:
    whole = b'{"config":{"durable_name":"c","ack_policy":"explicit"},"state":{}}'
    state = b'{"first_seq":1,"last_seq":0,"consumer_count":2}'
    data = b"NATSARC1" + entry(b"state.json", 1, 0, b"", state)
    data += 2 * entry(b"consumers/c", 1, 0, b"", whole)
    error = restore(house, ANSWER, packed(data + END))["error"]
    assert error["description"] == (
        'restore failed: error restoring consumer ["c"]: the archive has the consumer twice'
    )


def test_the_end_is_done_in_steps(house: House) -> None:
    data = consumers_tar(*(f"c{n}" for n in range(50)))
    turns = house.server.reactor.turns
    assert restore(house, ANSWER, data)["state"]["consumer_count"] == 50
    assert house.server.reactor.turns - turns > 50


# -- many at once -----------------------------------------------------------------------------------


def test_restores_at_once_share_a_bound_of_memory(tmp_path: Path) -> None:
    house = House(tmp_path)
    transit = house.account.transit
    refused = 0
    for n in range(200):
        begun = house.ok(f"STREAM.RESTORE.S{n}", {"config": {"name": f"S{n}"}})
        data = half_a_record(f"S{n}", MIB)
        assert len(data) < 5000
        [(_, said)] = house.request(begun["deliver_subject"], data)
        refused += bool(said) and b"all restores together hold" in said
        assert transit.held_bytes <= 65 * MIB
    assert transit.count + refused == 200
    assert 120 < refused < 180
    # a small restore succeeds nevertheless
    assert "error" not in restore(house, ANSWER, newer(2))
    house.pass_time(6 * SECOND, SECOND)
    assert (transit.count, transit.held_bytes, transit.working) == (0, 0, None)


def test_so_many_restores_may_be_on_their_way(tmp_path: Path) -> None:
    house = House(tmp_path)
    for n in range(256):
        house.ok(f"STREAM.RESTORE.S{n}", {"config": {"name": f"S{n}"}})
    assert house.error("STREAM.RESTORE.S", {"config": CONFIG}) == (
        10062,
        "restore failed: 256 other restores are in progress",
    )
    house.pass_time(6 * SECOND, SECOND)
    assert "error" not in restore(house, ANSWER, newer(1))


def test_restores_take_turns_with_their_blocks(tmp_path: Path) -> None:
    house = House(tmp_path)
    senders = []
    for n in range(8):
        begun = house.ok(f"STREAM.RESTORE.S{n}", {"config": {"name": f"S{n}"}})
        senders.append((begun["deliver_subject"], house.server.client()))
    data = tar(file("msgs/index.db", 3 * MIB))
    for subject, client in senders:
        client.send("SUB r 1\r\n")
        client.send(b"PUB %s r %d\r\n%s\r\n" % (subject.encode(), len(data), data))
    house.server.reactor.settle()
    assert all(client.events() for _, client in senders)
    assert house.account.transit.working is None


# -- the spool --------------------------------------------------------------------------------------


def test_a_spool_gives_back_what_it_got(tmp_path: Path) -> None:
    house = House(tmp_path)
    files = house.account.files.restoring("x")
    files.create()
    source = Random(3)
    spool = Spool(lambda: files.small, house.account.storage)
    whole = b""
    for _ in range(40):
        part = source.randbytes(source.randrange(200_000))
        spool.put(part)
        whole += part
    assert spool.size == len(whole) == house.account.storage.used
    assert len(list(tmp_path.rglob("spool.*"))) == len(whole) // PIECE_BYTES > 2
    for _ in range(50):
        start = source.randrange(len(whole))
        size = source.randrange(len(whole) - start)
        assert spool.read(start, size) == whole[start : start + size]
    with pytest.raises(ValueError, match="missing in the store"):
        spool.read(len(whole) - 1, 2)
    spool.close()
    spool.close()
    assert (spool.size, house.account.storage.used) == (0, 0)
    assert not list(tmp_path.rglob("spool.*"))
