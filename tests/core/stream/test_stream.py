"""Publishing into a stream: PubAcks byte for byte, order of checks, limits, dedupe, durability."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.base.disk import Disk, PyDisk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.core.stream.draft import Draft
from pelton.core.stream.refusals import (
    HANDLED,
    STAGE_ARRIVED,
    STAGE_COUNT,
    STAGE_ROLLUP,
    STAGE_STORED,
)
from pelton.core.stream.stream import SYNC_ALWAYS, SYNC_INTERVAL, Stream, StreamRefused
from tests.core.streams import Site, block
from tests.core.wires import Server
from tests.ways import length


def error(code: int, err_code: int, text: str) -> bytes:
    return b'{"error":{"code":%d,"err_code":%d,"description":"%s"},"stream":"S","seq":0}' % (
        code,
        err_code,
        text.encode(),
    )


def stored(seq: int) -> bytes:
    return b'{"stream":"S","seq":%d}' % seq


def test_acks_are_byte_exact() -> None:
    site = Site()
    assert site.answer("s.a", b"x") == stored(1)
    assert site.answer("s.a", b"x", block("Nats-Msg-Id: one")) == stored(2)
    assert (
        site.answer("s.a", b"x", block("Nats-Msg-Id: one"))
        == b'{"stream":"S","seq":2,"duplicate": true}'
    )
    site.publish("s.a", b"x")
    assert site.heard() == []
    assert site.log.last_seq == 3


def test_what_a_server_adds_for_its_services_does_not_count() -> None:
    body = b"x" * 20
    site = Site(max_msg_size=len(block("A: b")) + len(body))
    assert site.answer("s.a", body, block("A: b", "Nats-Request-Info: {}")) == stored(1)
    too_large = error(400, 10054, "message size exceeds maximum allowed")
    assert site.answer("s.a", body, block("A: bc", "Nats-Request-Info: {}")) == too_large
    assert site.answer("s.a", body, block("A: bc")) == too_large
    message = site.log.get(1)
    assert message is not None
    assert (message.headers, message.payload) == (block("A: b"), body)


def test_domain_stands_before_the_sequence() -> None:
    site = Site()
    other = Stream(site.server.router, "D", open_log(None), sync=SYNC_INTERVAL, domain="hub")
    site.server.router.attach("d", other)
    assert site.answer("d") == b'{"stream":"D","domain":"hub","seq":1}'
    # a refusal has none, as with nats-server
    assert site.answer("d", b"", block("Nats-Expected-Stream: x")).endswith(
        b'},"stream":"D","seq":0}'
    )


@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        (["Nats-Expected-Stream: T"], error(400, 10060, "expected stream does not match")),
        (["Nats-Expected-Stream: S"], stored(3)),
        (["Nats-Expected-Stream: S "], error(400, 10060, "expected stream does not match")),
        (["Nats-Expected-Stream: "], stored(3)),
        (["Nats-Expected-Last-Sequence: 2"], stored(3)),
        (["Nats-Expected-Last-Sequence: 0"], error(400, 10071, "wrong last sequence: 2")),
        (["Nats-Expected-Last-Sequence: abc"], error(400, 10071, "wrong last sequence: 2")),
        (["Nats-Expected-Last-Sequence: "], stored(3)),
        (["Nats-Expected-Last-Subject-Sequence: 0"], stored(3)),
        (["Nats-Expected-Last-Subject-Sequence: 1"], error(400, 10071, "wrong last sequence: 0")),
        (
            [
                "Nats-Expected-Last-Subject-Sequence: 2",
                "Nats-Expected-Last-Subject-Sequence-Subject: s.*",
            ],
            stored(3),
        ),
        (
            [
                "Nats-Expected-Last-Subject-Sequence: 1",
                "Nats-Expected-Last-Subject-Sequence-Subject: s.a",
            ],
            stored(3),
        ),
        (
            ["Nats-Expected-Last-Subject-Sequence-Subject: s.a"],
            error(400, 10193, "missing sequence for expected last sequence per subject"),
        ),
        (["Nats-Expected-Last-Msg-Id: two"], stored(3)),
        (["Nats-Expected-Last-Msg-Id: <&>"], error(400, 10070, "wrong last msg ID: two")),
        (
            ["Nats-Msg-Id: one", "Nats-Expected-Last-Sequence: 1"],
            error(400, 10071, "wrong last sequence: 2"),
        ),
        (
            ["Nats-Msg-Id: one", "Nats-Expected-Last-Msg-Id: one"],
            b'{"stream":"S","seq":1,"duplicate": true}',
        ),
        (
            ["Nats-Expected-Stream: T", "Nats-Expected-Last-Sequence: 9"],
            error(400, 10060, "expected stream does not match"),
        ),
        (["Nats-Rollup: sub"], error(500, 10111, "rollup not permitted")),
        (["Nats-Rollup: "], stored(3)),
        (["Nats-TTL: 5s"], error(400, 10166, "per-message TTL is disabled")),
        (
            ["Nats-TTL: 5s", "Nats-Expected-Stream: T"],
            error(400, 10060, "expected stream does not match"),
        ),
        (["Nats-TTL: 0"], error(400, 10165, "invalid per-message TTL")),
        (
            ["Nats-Incr: 1", "Nats-Expected-Stream: T"],
            error(400, 10168, "message counters is disabled"),
        ),
        (["Nats-Incr: x"], error(400, 10171, "message counter increment is invalid")),
        (["Nats-Schedule: @at x"], error(400, 10188, "message schedules is disabled")),
        (["Nats-Schedule-Next: purge"], error(400, 10212, "message schedules invalid scheduler")),
        (
            ["Nats-Batch-Id: x", "Nats-Expected-Stream: T"],
            error(400, 10174, "atomic publish is disabled"),
        ),
        (["Nats-Batch-Sequence: 1"], stored(3)),
    ],
)
def test_expectations_in_their_order(headers: list[str], answer: bytes) -> None:
    site = Site()
    site.answer("s.a", b"", block("Nats-Msg-Id: one"))
    site.answer("s.b", b"", block("Nats-Msg-Id: two"))
    assert site.answer("s.c", b"", block(*headers)) == answer
    assert site.log.last_seq == (3 if answer == stored(3) else 2)


def test_fast_batch_replies_are_refused() -> None:
    site = Site()
    site.publish("s.a", b"", "in.b.10.ok.1.0.$FI")
    assert [m.payload for m in site.heard()] == [error(400, 10205, "batch publish is disabled")]


class Recorder:
    """Rules that note what they are asked, and answer by subject."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, str, bytes]] = []

    def ask(self, stage: int, draft: Draft) -> tuple[int, int, str] | bool | None:
        self.seen.append((stage, draft.subject, draft.reply, draft.payload))
        if draft.subject == "s.handled":
            return HANDLED
        if draft.subject == "s.changed" and stage == STAGE_ROLLUP:
            draft.change(subject="s.new", headers=block("X: y"), payload=b"other")
            draft.extra = b',"val":"1"'
        return (400, 10165, "no <way>") if draft.subject == "s.bad" else None


def test_a_rule_for_rare_headers_is_asked_and_may_refuse() -> None:
    site = Site()
    site.stream.path.use_rules(rules := Recorder())
    assert site.answer("s.a", b"pay", block("Nats-Rollup: sub")) == stored(1)
    assert rules.seen == [(4, "s.a", "in.a", b"pay"), (6, "s.a", "in.a", b"pay")]
    assert site.answer("s.bad", b"", block("Nats-TTL: 1")) == error(
        400, 10165, "no \\\\u003cway\\\\u003e"
    ).replace(b"\\\\", b"\\")
    assert site.answer("s.a", b"plain", block("A: b")) == stored(2)
    assert len(rules.seen) == 3


def test_a_rule_may_change_a_message_and_its_answer() -> None:
    site = Site()
    site.stream.path.use_rules(Recorder())
    answer = site.answer("s.changed", b"pay", block("Nats-Rollup: sub"))
    assert answer == stored(1)[:-1] + b',"val":"1"}'
    found = site.log.get(1)
    assert (found.subject, found.headers, found.payload) == ("s.new", block("X: y"), b"other")


def test_a_rule_may_take_a_message_off() -> None:
    site = Site()
    site.stream.path.use_rules(Recorder())
    site.publish("s.handled", b"", "in.a", block("Nats-Rollup: sub"))
    assert (site.heard(), site.log.last_seq) == ([], 0)
    site.stream.path.announce("in.a", b"later", b"", after_seq=0)
    assert [m.payload for m in site.heard()] == [b"later"]


def test_a_stream_can_ask_for_each_message() -> None:
    site = Site()
    site.stream.path.use_rules(rules := Recorder(), every=True)
    assert site.answer("s.a", b"pay") == stored(1)
    assert [stage for stage, *_ in rules.seen] == [STAGE_ARRIVED, STAGE_COUNT, STAGE_STORED]


def test_messages_of_the_server_itself_are_stored_as_they_are() -> None:
    site = Site(max_msgs=2)
    assert site.stream.path.store("s.a", b"one", block("Nats-Msg-Id: m", "Nats-TTL: 5")) == 1
    assert site.stream.path.store("s.b", b"two") == 2
    assert (
        site.answer("s.c", b"", block("Nats-Msg-Id: m")) == stored(1)[:-1] + b',"duplicate": true}'
    )
    assert site.stream.path.store("s.c", b"three") == 3
    assert (site.log.first_seq, site.log.msgs) == (2, 2)


def test_sizes() -> None:
    site = Site(max_msg_size=5)
    assert site.answer("s.a", b"12345") == stored(1)
    refused = error(400, 10054, "message size exceeds maximum allowed")
    assert site.answer("s.a", b"123456") == refused
    assert site.answer("s.a", b"", block("A: b")) == refused
    site.stream.configure()
    site.reactor.max_payload = 200_000
    assert site.answer("s.a", b"", block("A: " + "b" * 70_000)) == error(
        400, 10097, "header size exceeds maximum allowed of 64k"
    )


def test_sealed_and_silent_streams() -> None:
    site = Site(sealed=True)
    assert site.answer("s.a", b"", block("Nats-Expected-Stream: T")) == error(
        400, 10109, "invalid operation on sealed stream"
    )
    site.stream.configure(no_ack=True, max_msg_size=1)
    site.publish("s.a", b"x", "in.a")
    site.publish("s.a", b"too long", "in.a")
    assert site.heard() == []
    assert site.log.last_seq == 1


def test_headers_are_stored_clean() -> None:
    site = Site()
    site.answer(
        "s.a", b"body", b"NATS/1.0 503 x\r\nNats-Request-Info: {}\r\nNats-Msg-Id: m\r\n\r\n"
    )
    message = site.log.get(1)
    assert message is not None
    assert (message.headers, message.payload) == (block("Nats-Msg-Id: m"), b"body")
    assert site.answer("s.a", b"", block("Nats-Msg-Id: m")).endswith(b'"duplicate": true}')


def test_from_inside_a_refusal_is_an_exception() -> None:
    site = Site(max_msg_size=1)
    assert site.stream.publish("s.x", b"1") == 1
    with pytest.raises(StreamRefused) as caught:
        site.stream.publish("s.x", b"12")
    assert (caught.value.code, caught.value.err_code) == (400, 10054)


# --- duplicate window ----------------------------------------------------------------------------


def test_ids_are_forgotten_after_the_window_and_read_back_from_the_log(tmp_path: Path) -> None:
    site = Site(folder=str(tmp_path / "S"), duplicate_window_ns=10_000)
    for n in range(4):
        site.answer("s.a", b"", block(f"Nats-Msg-Id: {n}"))
        site.after(3_000)
    assert site.answer("s.a", b"", block("Nats-Msg-Id: 0")) == stored(5)
    assert b"duplicate" in site.answer("s.a", b"", block("Nats-Msg-Id: 1"))
    maintenance.close(site.log)
    again = Site(log=open_log(str(tmp_path / "S")), duplicate_window_ns=10_000)
    again.clock.advance(12_000)
    again.reactor.settle()
    assert again.stream.rebuild_dedupe() == 4
    assert b'"seq":2,"duplicate"' in again.answer("s.a", b"", block("Nats-Msg-Id: 1"))
    assert again.answer("s.a", b"", block("Nats-Expected-Last-Msg-Id: 0")) == stored(6)


def test_no_window_no_duplicates() -> None:
    site = Site(duplicate_window_ns=0)
    assert [site.answer("s.a", b"", block("Nats-Msg-Id: x")) for _ in range(2)] == [
        stored(1),
        stored(2),
    ]


# --- limits --------------------------------------------------------------------------------------

SUBJECTS = ["s.a", "s.b", "s.c"]
RULES = st.fixed_dictionaries(
    {},
    optional={
        "max_msgs": st.integers(1, 6),
        "max_bytes": st.integers(1, 200),
        "max_msgs_per_subject": st.integers(1, 3),
        "discard_new": st.booleans(),
        "discard_new_per_subject": st.booleans(),
    },
)


class Shelf:
    """What a stream in memory keeps, as a list of (seq, subject, payload length)."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, str, int]] = []
        self.last = 0
        self.rules: dict[str, int] = {}

    def size(self, message: tuple[int, str, int]) -> int:
        return len(message[1]) + message[2] + 16

    def rule(self, name: str) -> int:
        return self.rules.get(name, -1)

    def configure(self, rules: dict[str, int]) -> None:
        """The limits of the stream apply before those of the subjects."""
        self.rules = rules
        self.trim()
        self.trim_subjects()

    def trim_subjects(self) -> None:
        per_subject = self.rule("max_msgs_per_subject")
        for subject in SUBJECTS:
            mine = [m for m in self.kept if m[1] == subject]
            for m in mine[: max(len(mine) - per_subject, 0)] if per_subject > 0 else []:
                self.kept.remove(m)

    def trim(self) -> None:
        if self.rules.get("discard_new"):
            return
        while self.rule("max_msgs") > 0 and len(self.kept) > self.rule("max_msgs"):
            self.kept.pop(0)
        while (
            self.rule("max_bytes") > 0
            and self.kept
            and sum(map(self.size, self.kept)) > self.rule("max_bytes")
        ):
            self.kept.pop(0)

    def add(self, subject: str, length: int) -> str:
        message = (self.last + 1, subject, length)
        mine = [m for m in self.kept if m[1] == subject]
        full = 0 < self.rule("max_msgs_per_subject") <= len(mine)
        if self.rules.get("discard_new"):
            if full and self.rules.get("discard_new_per_subject"):
                return "maximum messages per subject exceeded"
            if 0 < self.rule("max_msgs") <= len(self.kept) and not full:
                return "maximum messages exceeded"
            over = sum(map(self.size, [*self.kept, message])) > self.rule("max_bytes") > 0
            if over and not (full and self.size(mine[0]) >= self.size(message)):
                return "maximum bytes exceeded"
        self.last += 1
        self.kept.append(message)
        self.trim_subjects()
        self.trim()
        return ""


@given(st.lists(st.tuples(st.sampled_from(SUBJECTS), st.integers(0, 40)) | RULES, max_size=50))
@settings(max_examples=length(40, 300), deadline=None)
def test_limits_keep_what_a_list_would(steps: list[tuple[str, int] | dict[str, Any]]) -> None:
    site, shelf = Site(), Shelf()
    for step in steps:
        if isinstance(step, dict):
            site.stream.configure(**step)
            shelf.configure(step)
        else:
            refusal = shelf.add(*step)
            assert site.answer(step[0], b"x" * step[1]) == (
                error(503, 10077, refusal) if refusal else stored(shelf.last)
            )
        kept = [m for seq in range(1, shelf.last + 1) if (m := site.log.get(seq)) is not None]
        assert [(m.seq, m.subject, len(m.payload)) for m in kept] == shelf.kept
        assert (site.log.msgs, site.log.bytes) == (
            len(shelf.kept),
            sum(map(shelf.size, shelf.kept)),
        )


def test_age() -> None:
    site = Site(max_age_ns=1_000_000_000)
    for _ in range(5):
        site.answer("s.a")
        site.after(300_000_000)
    assert (site.log.first_seq, site.log.last_seq) == (3, 5)
    due = site.stream.expire()
    assert due > site.reactor.now_ns
    site.after(5_000_000_000)
    assert site.log.msgs == 0
    assert site.log.first_seq == 6
    site.stream.configure(max_age_ns=1, sealed=True)
    assert site.stream.expire() == 0


def test_purge_and_delete() -> None:
    site = Site()
    for n in range(10):
        site.answer(f"s.{n % 2}")
    assert site.stream.purge(subject="s.0", keep=1) == 4
    assert site.stream.purge(below=5) == 2
    assert site.log.first_seq == 6
    assert site.stream.delete_message(8, False)
    assert not site.stream.delete_message(8, False)
    assert site.stream.purge() == 3
    assert (site.log.first_seq, site.log.last_seq) == (11, 10)


# --- durability ----------------------------------------------------------------------------------


class Order:
    """A disk that writes down what is asked of it and can be told to fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[str] = []
        self.fail: Callable[[str], int] = lambda verb: 0
        self.real = Disk()
        self.files: dict[int, int] = {}

    def done(self, verb: str) -> None:
        code = self.fail(verb)
        if code:
            raise OSError(code, os.strerror(code))
        self.calls.append(verb)

    def open(self, path: str, create: bool) -> int:
        return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0))

    def close(self, handle: int) -> None:
        os.close(handle)

    def write_at(self, handle: int, data: bytes, offset: int) -> None:
        self.done("write")
        os.pwrite(handle, data, offset)

    def read_at(self, handle: int, count: int, offset: int) -> bytes:
        return os.pread(handle, count, offset)

    def sync(self, handle: int) -> None:
        self.done("sync")

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def __getattr__(self, verb: str) -> object:
        return getattr(self.real, verb)


def ordered_site(tmp_path: Path, sync: int) -> tuple[Site, Order]:
    order = Order(tmp_path)
    site = Site(log=open_log(str(tmp_path / "S"), PyDisk(order)), sync=sync)
    site.heard()
    order.calls.clear()
    return site, order


@pytest.mark.parametrize(
    ("sync", "calls"), [(SYNC_INTERVAL, ["write"]), (SYNC_ALWAYS, ["write", "sync"])]
)
def test_a_turn_is_one_write_and_acks_come_after_it(
    tmp_path: Path, sync: int, calls: list[str]
) -> None:
    site, order = ordered_site(tmp_path, sync)
    for _ in range(5):
        site.publish("s.a", b"x", "in.a")
    assert order.calls == []
    assert site.client.connection.pending_bytes() == 0
    assert [m.payload for m in site.heard()] == [stored(n) for n in range(1, 6)]
    assert order.calls == calls
    assert site.stream.visible == 5


def test_a_full_disk_refuses_keeps_and_resumes(tmp_path: Path) -> None:
    site, order = ordered_site(tmp_path, SYNC_INTERVAL)
    site.answer("s.a", b"1")
    order.fail = lambda verb: 28 if verb == "write" else 0
    site.publish("s.a", b"2", "in.a")
    assert site.heard() == []  # accepted, not written: no word yet
    assert site.stream.visible == 1
    assert site.answer("s.a", b"3") == error(503, 10077, "No space left on device")
    order.fail = lambda verb: 0
    assert site.stream.mend() is True
    assert [m.payload for m in site.heard()] == [stored(2)]
    assert site.answer("s.a", b"4") == stored(3)
    assert site.stream.failure == ""


@pytest.mark.parametrize("verb", ["write", "sync"])
def test_what_waits_when_a_write_or_sync_fails_is_acked_when_it_is_in_a_new_file(
    tmp_path: Path, verb: str
) -> None:
    site, order = ordered_site(tmp_path, SYNC_ALWAYS)
    site.answer("s.a", b"1")
    order.fail = lambda what: 5 if what == verb else 0
    site.publish("s.a", b"2", "in.a", block("Nats-Msg-Id: two"))
    assert site.heard() == []
    refused = error(503, 10077, "Input/output error")
    assert site.answer("s.a", b"3") == refused
    assert site.answer("s.a", b"2", block("Nats-Msg-Id: two")) == refused  # nobody knows yet
    assert site.stream.mend() is None
    order.fail = lambda what: 0
    assert site.answer("s.a", b"3") == refused  # the disk works, what it holds is not sure
    assert site.stream.visible == 1
    assert site.stream.failure == "Input/output error"
    order.calls.clear()
    assert site.stream.mend() is True
    assert [m.payload for m in site.heard()] == [stored(2)]
    unsure = ["write"] if verb == "write" else []  # the disk has refused it before
    assert order.calls == [*unsure, "write", "sync", "write", "sync"]  # the probe, the new file
    assert site.stream.failure == ""
    assert site.answer("s.a", b"3") == stored(3)


@given(
    st.lists(st.sampled_from(["publish", "turn", "duplicate", "refused"]), max_size=40),
    st.sampled_from([SYNC_ALWAYS, SYNC_INTERVAL]),
)
@settings(max_examples=length(25, 60), deadline=None)
def test_answers_come_in_the_order_of_publishing(steps: list[str], sync: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        site, expected, seq, first_duplicate = (
            Site(folder=folder + "/S", sync=sync),
            list[bytes](),
            0,
            0,
        )
        for step in steps:
            if step == "turn":
                site.reactor.turn()
            elif step == "refused":
                site.publish("s.a", b"", "in.a", block("Nats-Expected-Stream: T"))
                expected.append(error(400, 10060, "expected stream does not match"))
            elif step == "duplicate" and first_duplicate:
                site.publish("s.a", b"", "in.a", block("Nats-Msg-Id: d"))
                expected.append(stored(first_duplicate)[:-1] + b',"duplicate": true}')
            else:
                seq += 1
                site.publish(
                    "s.a", b"", "in.a", block("Nats-Msg-Id: d") if step == "duplicate" else b""
                )
                first_duplicate = seq if step == "duplicate" else first_duplicate
                expected.append(stored(seq))
        assert [m.payload for m in site.heard()] == expected
        maintenance.close(site.log)


def test_index_files_follow_the_syncs_that_nobody_waits_for(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "S"), segment_bytes=4096)
    site = Site(log=log)
    for _ in range(200):
        site.publish("s.a", b"x" * 100)
    site.reactor.settle()
    assert site.stream.visible == 200
    segments = sorted(path.stem for path in (tmp_path / "S").glob("*.seg"))
    assert len(segments) > 3
    assert not list((tmp_path / "S").glob("*.idx"))
    site.stream.sync_soon()
    site.reactor.settle()
    assert sorted(path.stem for path in (tmp_path / "S").glob("*.idx")) == segments[:-1]


def test_index_files_that_were_never_made_are_made_at_the_opening(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "S"), segment_bytes=4096)
    site = Site(log=log)
    for _ in range(200):
        site.publish("s.a", b"x" * 100)
    site.reactor.settle()
    segments = sorted(path.stem for path in (tmp_path / "S").glob("*.seg"))
    again = open_log(str(tmp_path / "S"), segment_bytes=4096)
    assert (again.msgs, again.lost) == (200, [])
    assert sorted(path.stem for path in (tmp_path / "S").glob("*.idx")) == segments[:-1]


def test_an_interval_stream_is_synced_when_asked_and_publishes_do_not_wait(tmp_path: Path) -> None:
    server = Server()
    log = open_log(str(tmp_path), Disk())
    stream = Stream(server.router, "S", log, sync=SYNC_INTERVAL)
    server.router.attach("s.>", stream)
    client = server.client().send("SUB inbox 1\r\nPUB s.a inbox 2\r\nhi\r\n")
    assert b'{"stream":"S","seq":1}' in client.raw()
    assert (log.written_seq, log.synced_seq) == (1, 0)
    stream.sync_soon()
    server.reactor.settle()
    assert (log.written_seq, log.synced_seq, stream.visible) == (1, 1, 1)
