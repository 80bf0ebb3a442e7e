"""A store that is opened on a disk that only reads, or that refuses one call: all streams are
served, no acknowledged message is missing, and the server continues by itself when the disk accepts
writes.

Each store has something that its opening writes. The calls of an opening that change the disk are
counted; then each of them fails, once or with all later ones.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import pickle
from base64 import b64decode
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from pelton.vault import Vault
from tests.engine.house import SECOND, House
from tests.ways import FULL, REASON, SEED, length

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.testing.inodes import File

STORE = Path("store")
S = "store/jetstream/$G/streams/S"
W = "store/jetstream/$G/streams/W"
STRIDE = 20  # of the troubles of an opening one in so many, but for the full length
STEP_NS = length(2 * SECOND, SECOND // 4)  # between two looks at the clock, as long as nobody asks


class ReadsOnly(SimDisk):
    """The changing call with that number fails, or all from that one on."""

    def __init__(self) -> None:
        super().__init__(random=Random(1))
        self.nth, self.code, self.forever = -1, 0, False
        self.changes = 0
        self.failed: list[str] = []

    def _fails(self, verb: str, path: str) -> int:
        if verb in ("read", "open"):
            return super()._fails(verb, path)
        return self._change_fails(verb, path) or super()._fails(verb, path)

    def _change_fails(self, verb: str, path: str) -> int:
        number, self.changes = self.changes, self.changes + 1
        if number != self.nth and not (self.forever and 0 <= self.nth < number):
            return 0
        self.failed.append(f"{number}: {verb} {path}")
        return self.code

    def open(self, path: str, create: bool) -> int:
        if create and not self.exists(path):
            code = self._change_fails("make", path)
            if code:
                raise OSError(code, os.strerror(code), path)
        return super().open(path, create)

    def trouble(self, nth: int, code: int, *, forever: bool) -> None:
        self.changes, self.nth, self.code, self.forever = 0, nth, code, forever

    def repair(self) -> None:
        self.nth = -1


class Case:
    """A store and its content."""

    def __init__(self, vault: Vault | None = None) -> None:
        self.vault = vault
        self.disk = ReadsOnly()
        self.acked: dict[tuple[str, int], bytes] = {}
        self.number = 0

    def copy(self) -> Case:
        other = Case(self.vault)
        other.disk = pickle.loads(pickle.dumps(self.disk))  # a third of the time of deepcopy
        other.acked = dict(self.acked)
        other.number = self.number
        return other

    def house(self, now_ns: int = 1_700_000_100_000_000_000) -> House:
        self.disk.kill()
        return House(STORE, now_ns, PyDisk(self.disk), vault=self.vault, segment_bytes=4096)

    def publish(self, house: House, subject: str, count: int = 1) -> list[str]:
        """Return the refusals."""
        refused = []
        for _ in range(count):
            self.number += 1
            payload = b"%d " % self.number + b"x" * (600 + self.number % 5)
            for _, body in house.request(subject, payload):
                answer = json.loads(body)
                if "error" in answer:
                    assert answer["error"]["code"] == 503, answer
                    assert answer["error"]["err_code"] == 10077, answer
                    refused.append(answer["error"]["description"])
                else:
                    assert (subject, answer["seq"]) not in self.acked
                    self.acked[(subject, answer["seq"])] = payload
        return refused

    def check(self, house: House) -> None:
        """All that was acknowledged is there: each message as the log has it, and the newest of each
        stream as a client gets it.
        """
        newest = dict(self.acked)
        for (name, seq), payload in self.acked.items():
            message = house.account.streams[name].core.log.get(seq)
            assert message is not None, (name, seq)
            assert message.payload == payload, (name, seq)
            newest[(name, 0)] = b"%d" % seq
        for (name, seq), payload in self.acked.items():
            if newest[(name, 0)] == b"%d" % seq:
                answer = house.api(f"STREAM.MSG.GET.{name}", {"seq": seq})
                assert b64decode(answer["message"]["data"]) == payload, answer
        for name in ("S", "W"):
            assert "error" not in house.api(f"STREAM.INFO.{name}")
        assert house.api("CONSUMER.NAMES.W")["consumers"] == ["w"]
        assert not house.server.errors

    def lose(self, name: str) -> None:
        self.acked = {key: payload for key, payload in self.acked.items() if key[0] != name}

    def file(self, folder: str, *, last: bool = True, end: str = ".seg") -> tuple[str, File]:
        names = sorted(n for n in self.disk.names if n.startswith(folder) and n.endswith(end))
        path = names[-1 if last else 0]
        return path, self.disk.file(path)


def torn(case: Case) -> None:
    _, file = case.file(S)
    file.data += b"\x01 half a record" * 9
    file.durable = bytearray(file.data)


def headless(case: Case) -> None:
    """The head of the newest segment is missing, and the segment has no index file yet."""
    _, file = case.file(S)
    if case.vault is not None:
        case.lose("S")  # the head names the key of the messages
    file.data[:6] = file.durable[:6] = b"??????"


def just_begun(case: Case) -> None:
    """The process ended while it created a segment; the file has a part of the head."""
    path, _ = case.file(S)
    last = max(seq for name, seq in case.acked if name == "S")
    handle = case.disk.open(path.rpartition("/")[0] + f"/{last + 1:020}.seg", True)
    case.disk.write_at(handle, b"PS", 0)
    case.disk.sync(handle)
    case.disk.close(handle)


def without_indexes(case: Case) -> None:
    for path in [path for path in case.disk.names if path.endswith(".idx")]:
        case.disk.unlink(path)


def copied(case: Case) -> None:
    """The bytes of one segment exist under another name too."""
    path, file = case.file(S, last=False)
    handle = case.disk.open(path.rpartition("/")[0] + f"/{3:020}.seg", True)
    case.disk.write_at(handle, bytes(file.data), 0)
    case.disk.sync(handle)
    case.disk.close(handle)


def unsure(case: Case) -> None:
    """The previous process was killed after a failed fsync."""
    path, _ = case.file(S)
    case.disk.open(path.rpartition("/")[0] + "/unsure", True)


def damaged_meta(case: Case) -> None:
    for path in (f"{S}/meta.json", f"{W}/consumers/w.json.copy"):
        file = case.disk.file(path)
        file.data[9:12] = file.durable[9:12] = b"???"
    case.disk.unlink(f"{W}/meta.json.copy")


def states_beyond(case: Case) -> None:
    """A power cut has taken the newest messages, which w had passed."""
    house = case.house()
    case.publish(house, "W", 5)
    case.disk.nth = -1
    for event in house.pull(100, "w", "W"):
        house.request(str(event[3]), b"+ACK")
    house.pass_time(SECOND)
    path, file = case.file(W)
    keep = len(file.data) - 3000
    del file.data[keep:]
    file.durable = bytearray(file.data)
    case.disk.unlink(path.replace(".seg", ".idx"))
    case.lose("W")


def damaged_states(case: Case) -> None:
    for end in ("states.0", "states.1"):
        if case.disk.exists(f"{W}/consumers/{end}"):
            file = case.disk.file(f"{W}/consumers/{end}")
            file.data[20:24] = file.durable[20:24] = b"????"


def as_it_is(case: Case) -> None:
    """A killed process, without damage."""


def log_is_gone(case: Case) -> None:
    """A stream that was created a moment ago."""
    case.disk.remove_tree(f"{S}/log")
    case.lose("S")


WISHES: list[Callable[[Case], None]] = [
    as_it_is,
    torn,
    headless,
    just_begun,
    without_indexes,
    copied,
    unsure,
    damaged_meta,
    states_beyond,
    damaged_states,
    log_is_gone,
]


def furnished(wish: Callable[[Case], None], *, encrypted: bool) -> Case:
    keys = Random(1).randbytes
    case = Case(Vault.of("key", cipher="aes", random=keys) if encrypted else None)
    house = case.house(1_700_000_000_000_000_000)
    house.stream("S", subjects=["S"])
    house.stream("W", subjects=["W"])
    house.consumer("w", "W", durable_name="w", ack_policy="explicit")
    for name, count in (("S", 17), ("W", 9)):
        assert case.publish(house, name, count) == []
    for event in house.pull(4, "w", "W"):
        house.request(str(event[3]), b"+ACK")
    house.pass_time(SECOND)
    case.disk.kill()
    wish(case)
    case.disk.kill()
    return case


def goes_on(case: Case, house: House) -> None:
    """The disk works, and no client sends a request."""
    case.disk.repair()
    house.pass_time(140 * SECOND, STEP_NS)
    assert house.account.offline == {}
    for name, entry in house.account.streams.items():
        assert entry.core.failure == "", (name, entry.core.failure)
        assert entry.core.log.deferred.first == entry.core.log.deferred.late == []
        assert entry.rewrites == {}
        assert entry.files is not None
        assert entry.files.states.error is None
        assert not case.disk.exists(f"{entry.files.log_folder}/unsure")
        assert case.publish(house, name, 8) == []
        for end in ("", ".copy"):
            assert case.disk.exists(f"{entry.files.folder}/meta.json{end}")
    case.check(house)


def opened_in_trouble(case: Case, *, forever: bool) -> None:
    house = case.house()
    assert house.account.offline == {}, house.reports
    case.check(house)
    before = len(case.acked)
    refused = case.publish(house, "S", 3) + case.publish(house, "W", 3)
    if forever:
        assert len(case.acked) == before
        case.check(house)
        refused += case.publish(house, "S")
        assert set(refused) == {os.strerror(case.disk.code)}
        again = case.copy().house(house.server.clock.now())  # killed and started again
        assert again.account.offline == {}
        case.check(again)
        house.pass_time(5 * SECOND, SECOND // 4)
        case.check(house)
        assert len(house.reports) < 20, house.reports
    goes_on(case, house)
    case.disk.crash(Random(1))
    house = case.house()
    case.check(house)
    assert case.publish(house, "S", 2) == []


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: wish.__name__)
def test_each_change_of_an_opening_may_fail(wish: Callable[[Case], None], encrypted: bool) -> None:
    whole = furnished(wish, encrypted=encrypted)
    case = whole.copy()
    case.disk.trouble(-1, 0, forever=False)
    house = case.house()
    count = case.disk.changes
    case.check(house)
    for number, (code, nth, forever) in enumerate(troubles(count)):
        if number % STRIDE and not FULL:
            continue
        case = whole.copy()
        case.disk.trouble(nth, code, forever=forever)
        try:
            opened_in_trouble(case, forever=forever)
        except BaseException:
            print(f"seed {SEED}: {errno.errorcode[code]} from {nth} of {count}, {forever=}")
            print("\n".join(case.disk.failed[:4]))
            raise


def troubles(count: int) -> list[tuple[int, int, bool]]:
    """All that an opening with so many changes may meet, in an order of the run's own: any part of it has some
    of each error, each place and each duration.
    """
    codes = (errno.ENOSPC, errno.EIO, errno.EROFS)
    them = list(itertools.product(codes, range(count), (False, True)))
    Random(SEED).shuffle(them)
    return them


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: wish.__name__)
def test_a_disk_that_takes_nothing_at_all(
    wish: Callable[[Case], None], encrypted: bool, code: int
) -> None:
    # Of the pairs of a wish and an error each comes once; which of them is encrypted differs.
    if not FULL and (WISHES.index(wish) + code) % 2 != encrypted:
        pytest.skip(REASON)
    case = furnished(wish, encrypted=encrypted)
    case.disk.trouble(0, code, forever=True)
    opened_in_trouble(case, forever=True)


@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: wish.__name__)
def test_a_disk_without_room(wish: Callable[[Case], None]) -> None:
    """Syncs, names and removals work, but writes to files fail."""
    case = furnished(wish, encrypted=False)
    case.disk.room = case.disk.used()
    house = case.house()
    assert house.account.offline == {}, house.reports
    case.check(house)
    case.publish(house, "S", 3)
    case.check(house)
    house = case.house(house.server.clock.now())
    case.check(house)
    case.disk.room = None
    goes_on(case, house)
    case.disk.crash(Random(2))
    case.check(case.house())


def _offline(house: House) -> Any:
    return house.api("STREAM.INFO.S")["error"]["err_code"]


def test_a_stream_that_could_not_be_opened_is_opened_again() -> None:
    case = furnished(as_it_is, encrypted=False)
    case.disk.fail("read", errno.EIO, f"{S}/*", times=None)
    faults = list(case.disk.faults)
    house = House(STORE, 1_700_000_100_000_000_000, PyDisk(case.disk), segment_bytes=4096)
    assert _offline(house) == 10194
    assert case.publish(house, "W") == []
    case.disk.faults = faults
    house.pass_time(20 * SECOND, SECOND // 4)
    assert _offline(house) == 10194
    assert len([line for line in house.reports if "stays offline" in line]) == 1
    case.disk.heal()
    house.pass_time(70 * SECOND, SECOND // 4)
    case.check(house)
    assert case.publish(house, "S", 3) == []
    assert any(line.startswith("stream S is online again after ") for line in house.reports)
    case.check(house.restart())


def test_one_whose_subjects_were_taken_since_stays_offline() -> None:
    case = furnished(as_it_is, encrypted=False)
    case.disk.fail("read", errno.EIO, f"{S}/*", times=None)
    house = House(STORE, 1_700_000_100_000_000_000, PyDisk(case.disk), segment_bytes=4096)
    case.disk.heal()
    house.stream("T", subjects=["S"])
    house.pass_time(5 * SECOND, SECOND // 4)
    assert _offline(house) == 10194
    assert any("subjects overlap" in line for line in house.reports), house.reports
    house.ok("STREAM.DELETE.S")
    assert house.api("STREAM.INFO.S")["error"]["err_code"] == 10059


def test_a_new_data_key_that_can_not_be_written_keeps_a_stream_offline_until_it_can() -> None:
    case = furnished(as_it_is, encrypted=False)
    case.vault = Vault.of("key", cipher="aes", random=Random(2).randbytes)
    case.disk.trouble(0, errno.ENOSPC, forever=True)
    house = case.house()
    assert _offline(house) == 10194
    house.pass_time(5 * SECOND, SECOND // 4)
    goes_on(case, house)


def test_unsure_is_written_as_soon_as_the_disk_takes_it() -> None:
    case = furnished(as_it_is, encrypted=False)
    house = case.house()
    case.disk.fail("sync", errno.EIO, f"{W}/log/*", times=None)
    case.disk.fail("open", errno.EIO, "*/unsure", times=3)
    case.disk.fail("open", errno.EIO, "*/probe.tmp", times=None)
    assert house.request("W", b"not on the disk") == []
    assert not case.disk.exists(f"{W}/log/unsure")
    house.pass_time(10 * SECOND, SECOND // 4)
    assert case.disk.exists(f"{W}/log/unsure")
    case.disk.heal()
    goes_on(case, house)
