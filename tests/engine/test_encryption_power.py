"""Changes of keys with a power cut at every call to the disk, and the content of a torn store."""

import errno
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.core.log import disk_recovery, maintenance
from pelton.core.log.log import Log
from pelton.core.log.recovery import LogOpening
from pelton.testing.simulated_disk import PowerCut, SimDisk
from pelton.vault import Vault
from tests.engine.house import SECOND, House
from tests.engine.test_encryption import MARKS, busy, facts
from tests.ways import length

STORE = Path("store")
CHANGES = [
    (("", ""), ("a", "")),
    (("a", ""), ("b", "a")),
    (("a", ""), ("", "a")),
    (("a", "", "chacha"), ("a", "", "aes")),
]


def keys(spec: tuple[str, ...], seed: int = 0) -> Vault | None:
    key, previous, cipher = (*spec, "aes")[:3]
    return Vault.of(key, previous, cipher, random=random.Random(f"{spec}{seed}").randbytes)


def begun(disk: SimDisk, spec: tuple[str, ...], seed: int = 0, **fields: Any) -> House:
    return House(STORE, disk=PyDisk(disk), vault=keys(spec, seed), **fields)


def shown(disk: SimDisk) -> list[tuple[str, bytes]]:
    return [
        (path, mark)
        for path, node in disk.names.items()
        for mark in MARKS
        if mark in bytes(node.data)
    ]


@pytest.mark.parametrize("compression", ["none", "s2"])
@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_change_of_keys_may_be_cut_short_at_every_call(
    old: tuple[str, ...], new: tuple[str, ...], compression: str
) -> None:
    disk = SimDisk()
    house = begun(disk, old)
    busy(house, compression=compression)
    before = facts(house)
    house.engine.close()
    start = pickle.dumps(disk)
    cut, ends = 0, 0
    while True:
        disk = pickle.loads(start)
        disk.cut_after(cut)
        try:
            house = begun(disk, new, cut)
            house.pass_time(4 * SECOND)
            ended = True
        except PowerCut:
            ended = False
        disk.crash(random.Random(cut))
        again = begun(disk, new, cut + 1)
        assert facts(again) == before, cut
        assert again.reports == [] or not ended, again.reports
        if ended:
            ends += 1
        if ended and ends == 2:
            break
        again.pass_time(6 * SECOND)
        again.engine.close()
        if new[0]:
            assert not [name for name, _ in shown(disk) if ".tmp" not in name], cut
            last = begun(disk, (new[0], "", *new[2:]), cut + 2)
        else:
            last = begun(disk, ("", ""), cut + 2)
        assert facts(last) == before, cut
        cut += length(3, 1) if cut < 40 else length(17, 7)
    assert cut > 20


@pytest.mark.parametrize("seed", range(length(5, 12)))
def test_whatever_power_leaves_of_an_encrypted_store_shows_nothing_and_loses_nothing(
    seed: int,
) -> None:
    rng = random.Random(seed)
    disk = SimDisk(random=rng)
    house = begun(disk, ("a", ""), seed)
    house.stream("S", subjects=["marksubject.>"], compression=rng.choice(["none", "s2"]))
    house.consumer("c", ack_policy="explicit", description="markdescription")
    acked: dict[int, bytes] = {}
    for turn in range(25):
        disk.cut_after(rng.randint(1, 120))
        try:
            for i in range(rng.randint(1, 40)):
                body = b"markpayload %d %d" % (turn, i) + b"." * rng.randint(0, 4000)
                acked[house.publish(f"marksubject.{i % 3}", body)["seq"]] = body
            house.pass_time(rng.randint(0, 2) * SECOND)
        except PowerCut:
            pass
        disk.crash(rng)
        assert shown(disk) == []
        house = begun(disk, ("a", ""), seed * 100 + turn)
        assert shown(disk) == []
        for seq, body in acked.items():
            assert "S" in house.account.streams, house.reports
            found = house.account.streams["S"].core.log.get(seq)
            assert found is not None
            assert found.payload == body
    assert len(acked) > 50


@pytest.mark.parametrize("seed", range(8))
def test_keys_stay_until_removed_segments_have_left_the_disk(seed: int) -> None:
    """A segment whose messages were removed is unlinked later, the disk may refuse that, and a power
    cut may bring its file back.
    """
    rng = random.Random(seed)
    disk = SimDisk(random=rng)
    house = begun(disk, ("a", ""), segment_bytes=4096)
    house.stream("S", subjects=["s"])
    for _ in range(60):
        house.publish("s", b"." * 200)
    house.engine.close()
    house = begun(disk, ("", "a"), 1, segment_bytes=4096)
    if seed % 2:
        disk.fail("unlink", errno.EIO, "*/log/*.seg", times=None)
    house.ok("STREAM.PURGE.S", {"seq": 50})
    house.pass_time(20 * SECOND)
    disk.heal()
    if seed < 4:
        disk.kill()
    else:
        disk.crash(rng)
    house = begun(disk, ("", "a"), 2, segment_bytes=4096)
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 11
    house.pass_time(20 * SECOND)
    assert house.reports[-1:] == ["stream S is no longer encrypted"] * (seed % 2)
    disk.crash(rng)
    house = begun(disk, ("", ""), 3, segment_bytes=4096)
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 11


def test_a_file_that_is_being_synced_is_not_made_anew() -> None:
    vault = keys(("a", ""))
    assert vault is not None
    disk, cipher = SimDisk(), vault.new()

    def opened() -> Log:
        drive = PyDisk(disk, background=True)
        opening = LogOpening("log", drive, segment_bytes=4096, cipher=cipher)
        while opening.step():
            pass
        return opening.log

    log = opened()
    log.add(1, "a", b"1")
    log.add(2, "a", b"2")
    log.skip(10_000_000)  # the newest segment has no messages
    log.fsync()
    disk.kill()
    disk.room = disk.used() + 90  # room for a removal, not for a file with another key
    log = opened()
    assert log.condition
    maintenance.delete(log, 1)
    log.flush()
    (handle,), upto = log.sync_start()
    disk.room = None
    with pytest.raises(OSError, match="is being synced"):
        log.add(3, "a", b"3")
    assert handle in disk.handles
    log.sync_done(upto)
    assert disk_recovery.mend(log)
    assert log.add(3, "a", b"3") == 10_000_000
