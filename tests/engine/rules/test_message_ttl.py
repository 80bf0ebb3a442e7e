"""Messages that expire, compared with a model of TTLs, max_age, markers, rollups and restarts."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.base.disk import PyDisk
from pelton.core.base.durations import format_duration
from pelton.core.log import queries
from pelton.core.protocol.publish_headers import value
from pelton.core.stream.refusals import parse_ttl
from pelton.engine.rules import saved_deadlines
from pelton.testing.simulated_disk import SimDisk
from tests.core.streams import block
from tests.engine.house import SECOND, House
from tests.engine.test_power import STORE
from tests.ways import length

SUBJECTS = ["s.a", "s.b", "s.c"]


def stored(house: House, stream: str = "S") -> list[Any]:
    log = house.engine.accounts["$G"].streams[stream].core.log
    found = []
    seq = 1
    while (message := queries.next_of(log, ">", seq)) is not None:
        found.append(message)
        seq = message.seq + 1
    return found


class Model:
    """The content of a stream: sequence -> (subject, time, TTL in seconds, whether it is a marker
    or a purge).
    """

    def __init__(self, max_age_s: int, marker_s: int, per_subject: int) -> None:
        self.max_age_s, self.marker_s, self.per_subject = max_age_s, marker_s, per_subject
        self.messages: dict[int, tuple[str, int, int, bool]] = {}
        self.last = 0

    def put(self, subject: str, at: int, ttl: int, final: bool = False, how: str = "") -> None:
        self.last += 1
        if how == "all":
            self.messages.clear()
        elif how == "sub":
            for seq in self.on(subject):
                del self.messages[seq]
        if 0 < ttl < self.marker_s and self.per_subject != 1:
            ttl = self.marker_s
        self.messages[self.last] = (subject, at, ttl, final)
        if self.per_subject > 0:
            for seq in self.on(subject)[: -self.per_subject]:
                del self.messages[seq]

    def on(self, subject: str) -> list[int]:
        return sorted(seq for seq, kept in self.messages.items() if kept[0] == subject)

    def pass_second(self, now: int) -> None:
        aged = [
            seq
            for seq, (_, at, ttl, _) in sorted(self.messages.items())
            if self.max_age_s and at + self.max_age_s <= now and ttl >= 0
        ]
        due = [
            seq
            for seq, (_, at, ttl, _) in sorted(self.messages.items())
            if ttl > 0 and at + ttl <= now and seq not in aged
        ]
        for batch in (aged, due):
            left = []
            for seq in batch:
                if seq not in self.messages:
                    continue
                if self.marker_s and len(self.on(self.messages[seq][0])) == 1:
                    left.append(seq)
                else:
                    del self.messages[seq]
            for seq in left:
                subject, _, _, final = self.messages.pop(seq)
                if not final:
                    self.put(subject, now, self.marker_s, final=True)


def agree(house: House, model: Model) -> None:
    found = stored(house)
    assert [(m.seq, m.subject) for m in found] == [
        (seq, kept[0]) for seq, kept in sorted(model.messages.items())
    ]
    for message in found:
        ttl = parse_ttl((value(message.headers, b"Nats-TTL") or b"00").decode())
        assert ttl == model.messages[message.seq][2]
    assert house.engine.accounts["$G"].streams["S"].core.log.last_seq == model.last


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "ttl", "ttl", "never", "purge", "sub", "all"])
        | st.sampled_from(["second", "second", "seconds", "restart", "crash"]),
        st.integers(0, 2),
        st.integers(1, 4),
    ),
    max_size=40,
)


@given(
    steps=STEPS,
    storage=st.sampled_from(["file", "file", "memory"]),
    max_age=st.sampled_from([0, 0, 3, 6]),
    marker=st.sampled_from([0, 1, 2, 5]),
    per_subject=st.sampled_from([-1, -1, 1, 2]),
)
@settings(max_examples=length(30, 150), deadline=None)
def test_a_stream_with_ends_holds_what_a_dict_holds(
    steps: list[tuple[str, int, int]],
    storage: str,
    max_age: int,
    marker: int,
    per_subject: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    house = House(tmp_path_factory.mktemp("house"))
    house.stream(
        subjects=["s.>"],
        storage=storage,
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        max_age=max_age * SECOND,
        subject_delete_marker_ttl=marker * SECOND,
        max_msgs_per_subject=per_subject,
    )
    model = Model(max_age, marker, per_subject)
    now = 0
    for step, which, number in steps:
        subject = SUBJECTS[which]
        if step in ("second", "seconds", "restart", "crash"):
            if step in ("restart", "crash"):
                if storage == "memory":
                    continue
                house = house.restart() if step == "restart" else house.crash()
                seconds = 1
            else:
                seconds = 1 if step == "second" else number
                house.pass_time(seconds * SECOND, SECOND // 4)
            for _ in range(seconds):
                now += 1
                if step in ("second", "seconds"):
                    model.pass_second(now)
            if step in ("restart", "crash"):
                house.engine.tick(house.server.clock.now())
                house.server.reactor.settle()
                model.pass_second(now)
        elif step == "put":
            house.publish(subject)
            model.put(subject, now, 0)
        elif step == "ttl":
            house.publish(subject, b"x", block(f"Nats-TTL: {number}"))
            model.put(subject, now, number)
        elif step == "never":
            house.publish(subject, b"x", block("Nats-TTL: Never"))
            model.put(subject, now, -1)
        elif step == "purge":
            house.publish(subject, b"", block("KV-Operation: PURGE", "Nats-Rollup: sub"))
            model.put(subject, now, 0, final=True, how="sub")
        else:
            house.publish(subject, b"x", block(f"Nats-Rollup: {step}"))
            model.put(subject, now, 0, how=step)
        agree(house, model)


def test_a_marker_has_these_headers_and_nothing_else(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], subject_delete_marker_ttl=90 * SECOND, max_age=2 * SECOND)
    house.publish("s.a", b"body", block("Some: header"))
    house.pass_time(3 * SECOND)
    (marker,) = stored(house)
    assert marker[0] == 2
    assert marker[2:] == (
        "s.a",
        b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1m30s\r\nNats-Rollup: sub\r\n\r\n",
        b"",
    )


TTLS = [("0", 10165), ("00", 0), ("1", 0), ("-1", 10165), ("500ms", 10165), ("1.5s", 0)]
TTLS += [("never", 0), ("NEVER", 0), ("x", 10165), ("1h", 0), ("99999999999999999", 0)]


@pytest.mark.parametrize(("text", "code"), TTLS)
def test_a_ttl_is_judged(text: str, code: int, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], allow_msg_ttl=True)
    house.stream("T", subjects=["t.>"])
    ack = house.publish("s.a", b"x", block(f"Nats-TTL: {text}"))
    assert ack.get("error", {}).get("err_code", 0) == code
    refused = house.publish("t.a", b"x", block(f"Nats-TTL: {text}")).get("error", {})
    assert refused.get("err_code", 0) == (code or (0 if text == "00" else 10166))
    house.pass_time(2 * SECOND)


def test_ttls_of_before_count_when_an_update_allows_them(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"])
    core = house.engine.accounts["$G"].streams["S"].core
    core.path.store("s.a", b"x", block("Nats-TTL: 2"))
    house.pass_time(3 * SECOND)
    assert len(stored(house)) == 1
    house.ok("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "allow_msg_ttl": True})
    house.pass_time(SECOND)
    assert stored(house) == []


def test_many_ends_take_several_turns_and_memory_that_is_known(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], allow_msg_ttl=True, storage="memory")
    core = house.engine.accounts["$G"].streams["S"].core
    for n in range(50_000):
        core.publish(f"s.{n % 7}", b"x", block("Nats-TTL: 5"))
    core.publish("s.9", b"x")
    house.server.reactor.settle()
    house.pass_time(4 * SECOND)
    assert core.log.msgs == 50_001
    house.pass_time(2 * SECOND)
    assert [m.subject for m in stored(house)] == ["s.9"]


@pytest.mark.parametrize("feature", ["allow_msg_ttl", "allow_msg_schedules"])
@pytest.mark.parametrize("messages", [0, 3])
def test_a_deleted_stream_saves_no_deadlines(feature: str, messages: int, tmp_path: Path) -> None:
    """Its folder is gone, and a warning about that would alarm somebody."""
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk))
    for _ in range(2):
        house.stream(subjects=["s.>"], **{feature: True})
        for _ in range(messages):
            house.publish("s.a")
        written = disk.counts.copy(), disk.syncs
        house.ok("STREAM.DELETE.S")
        house.server.reactor.settle()
        assert house.reports == []
        assert disk.counts == written[0]
        assert disk.syncs == written[1]
        assert not [path for path in disk.names if "/S/" in path]
    house.stream(subjects=["s.>"], **{feature: True})
    house.restart()
    assert [path for path in disk.names if path.endswith(("/agenda", "/schedules"))]


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_the_deadlines_on_disk_may_be_gone_or_damaged(damage: bytes | None, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], allow_msg_ttl=True)
    for ttl in (2, 60, 5):
        house.publish("s.a", b"x", block(f"Nats-TTL: {ttl}"))
    house.engine.close()
    (path,) = tmp_path.rglob("agenda")
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + damage)
    house = house.crash()
    assert bool(house.reports) == (damage is not None)
    house.pass_time(10 * SECOND)
    assert [m.seq for m in stored(house)] == [2]


@pytest.mark.parametrize("seed", range(12))
def test_after_power_loss_each_message_ends_by_its_own_header(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost sequences are used again: the deadlines of the lost messages do not apply to the new
    ones.
    """
    monkeypatch.setattr(saved_deadlines, "SAVE_AFTER", 2)
    rng = random.Random(seed)
    disk = SimDisk()
    house = House(STORE, disk=PyDisk(disk), sync_interval_ns=rng.choice([0, 2, 60]) * SECOND)
    house.stream(subjects=["s.>"], allow_msg_ttl=True)
    for _ in range(6):
        for _ in range(rng.randint(1, 12)):
            ttl = rng.choice(["", "1", "3", "8", "never"])
            house.publish(rng.choice(SUBJECTS), b"x", block(f"Nats-TTL: {ttl}"))
            house.pass_time(rng.randrange(SECOND), SECOND // 4)
        house.server.reactor.settle()
        disk.crash(rng)
        house = house.crash()
        held = stored(house)
        seconds = rng.randint(1, 5)
        house.pass_time(seconds * SECOND, SECOND // 4)
        now_ns = house.server.clock.now()
        left = []
        for message in held:
            text = (value(message.headers, b"Nats-TTL") or b"00").decode()
            ttl_s = parse_ttl(text) or 0
            if ttl_s <= 0 or message.ts_ns + ttl_s * SECOND > now_ns - SECOND // 2:
                left.append(message.seq)
        found = [message.seq for message in stored(house)]
        assert set(found) <= set(left)
        late = [m.seq for m in held if m.seq in left and m.seq not in found]
        for message in held:
            if message.seq in late:
                end_ns = message.ts_ns + int(value(message.headers, b"Nats-TTL") or 0) * SECOND
                assert now_ns - end_ns >= 0
        assert not house.alarms()


def test_durations_are_written_as_the_protocol_has_them() -> None:
    assert [format_duration(s * SECOND) for s in (1, 60, 5400)] == ["1s", "1m0s", "1h30m0s"]
