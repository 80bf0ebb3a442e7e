"""Interest and workqueue retention, compared with a model after each step and after restarts."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pelton.core.protocol.subjects import matches
from tests.engine.house import House
from tests.ways import length

SUBJECTS = ["s.a", "s.b", "s.c.d"]
FILTERS: list[list[str]] = [
    [],
    ["s.a"],
    ["s.b"],
    ["s.*"],
    ["s.a", "s.c.>"],
    ["s.>"],
    [">"],
    ["s.z"],
]
NAMES = ["c0", "c1", "c2", "c3"]


@dataclass
class Reader:
    """The model's state of a consumer."""

    filters: list[str]
    policy: str
    once: bool  # whether max_deliver is 1
    passed: int
    pending: dict[int, str] = field(default_factory=dict)  # seq -> ack subject
    spent: dict[int, str] = field(default_factory=dict)  # messages that have reached max_deliver

    def takes(self, subject: str) -> bool:
        return not self.filters or any(matches(subject, one) for one in self.filters)

    def needs(self, seq: int, subject: str) -> bool:
        if not self.takes(subject):
            return False
        return seq > self.passed or seq in self.pending or seq in self.spent


class Retention(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.house = House(Path(self.folder.name))
        self.readers: dict[str, Reader] = {}
        self.live: dict[int, str] = {}
        self.last = 0

    def teardown(self) -> None:
        self.house.engine.close()
        self.folder.cleanup()

    @initialize(kind=st.sampled_from(["interest", "workqueue"]), limit=st.sampled_from([-1, 6]))
    def begin(self, kind: str, limit: int) -> None:
        self.kind = kind
        self.limit = limit
        self.config = {"subjects": ["s.>"], "retention": kind, "max_msgs": limit}
        self.house.stream(**self.config)

    # --- the model ---------------------------------------------------------------------------------

    def gone(self, seq: int) -> None:
        """Remove a message, and tell the consumers that have it pending."""
        self.live.pop(seq, None)
        for reader in self.readers.values():
            reader.pending.pop(seq, None)
            reader.spent.pop(seq, None)

    def settle(self, seq: int) -> None:
        if seq in self.live and not any(
            reader.needs(seq, self.live[seq]) for reader in self.readers.values()
        ):
            del self.live[seq]

    def floor(self, name: str) -> int:
        floor: int = self.house.ok(f"CONSUMER.INFO.S.{name}")["ack_floor"]["stream_seq"]
        return floor

    def review(self, *, orphans: bool, above: int = 0) -> None:
        for seq, subject in list(self.live.items()):
            if seq <= above:
                continue
            taken = any(reader.takes(subject) for reader in self.readers.values())
            if taken or orphans:
                self.settle(seq)

    # --- steps
    # -------------------------------------------------------------------------------------

    @rule(subject=st.sampled_from(SUBJECTS))
    def publish(self, subject: str) -> None:
        self.last += 1
        assert self.house.publish(subject) == {"stream": "S", "seq": self.last}
        taken = any(reader.takes(subject) for reader in self.readers.values())
        if self.kind == "workqueue" or taken:
            self.live[self.last] = subject
            while self.limit > 0 and len(self.live) > self.limit:
                self.gone(min(self.live))

    @rule(
        name=st.sampled_from(NAMES),
        filters=st.sampled_from(FILTERS),
        policy=st.sampled_from(["explicit", "explicit", "all", "none"]),
        new=st.booleans(),
        once=st.booleans(),
    )
    def create(self, name: str, filters: list[str], policy: str, new: bool, once: bool) -> None:
        if name in self.readers:
            return
        if self.kind == "workqueue":
            policy, new = "explicit", False
        config = {
            "durable_name": name,
            "filter_subjects": filters,
            "ack_policy": policy,
            "deliver_policy": "new" if new else "all",
            "max_deliver": 1 if once else -1,
            "ack_wait": 30_000_000_000,
        }
        answer = self.house.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        if "error" in answer:
            assert self.kind == "workqueue"
            assert answer["error"]["err_code"] in (10099, 10100)
            return
        first = min(self.live, default=self.last + 1)
        passed = self.last if new else first - 1
        self.readers[name] = Reader(filters, policy, once, passed)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if name in self.readers:
            floor = self.floor(name)
            self.house.ok(f"CONSUMER.DELETE.S.{name}")
            del self.readers[name]
            if self.kind == "interest":
                self.review(orphans=True, above=floor if self.readers else 0)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def pull(self, name: str, count: int) -> None:
        reader = self.readers.get(name)
        if reader is None:
            return
        for event in self.house.pull(count, name):
            seq = int(event[3].split(".")[5])
            assert self.live.get(seq) == event[1]
            assert reader.takes(event[1]) or seq in reader.pending
            if seq <= reader.passed:
                assert seq in reader.pending, "it came again after it was acknowledged"
            if reader.policy == "none":
                reader.passed = seq
                self.settle(seq)
            else:
                reader.passed = max(reader.passed, seq)
                reader.pending[seq] = event[3]

    @rule(
        name=st.sampled_from(NAMES),
        which=st.integers(0, 4),
        word=st.sampled_from([b"+ACK", b"", b"+TERM", b"+NXT", b"-NAK", b"+WPI"]),
        confirmed=st.booleans(),
    )
    def answer(self, name: str, which: int, word: bytes, confirmed: bool) -> None:
        reader = self.readers.get(name)
        if reader is None or not reader.pending:
            return
        pending = sorted(reader.pending)
        seq = pending[which % len(pending)]
        subject = reader.pending[seq]
        if confirmed:
            self.house.request(subject, word)
        else:
            self.house.send(subject, word)
        if word == b"-NAK" and reader.once:
            self.wait_too_long(name)
        if word in (b"-NAK", b"+WPI"):
            return
        done = [one for one in pending if one <= seq] if reader.policy == "all" else [seq]
        if reader.policy == "all":
            done += [one for one in reader.spent if one <= seq]
        for one in done:
            reader.pending.pop(one, None)
            reader.spent.pop(one, None)
        for one in done:
            self.settle(one)

    @rule(name=st.sampled_from(NAMES))
    def wait_too_long(self, name: str) -> None:
        """A message that has reached max_deliver is no longer pending, and stays in the stream."""
        self.house.pass_time(61_000_000_000, 1_000_000_000)
        for reader in self.readers.values():
            if reader.once:
                reader.spent.update(reader.pending)
                reader.pending.clear()

    @rule(name=st.sampled_from(NAMES), which=st.integers(0, 4))
    def answer_late(self, name: str, which: int) -> None:
        reader = self.readers.get(name)
        if reader is None or not reader.spent or reader.policy == "none":
            return
        seq = sorted(reader.spent)[which % len(reader.spent)]
        self.house.send(reader.spent[seq], b"+ACK")
        done = [seq]
        if reader.policy == "all":
            done = [one for one in (*reader.pending, *reader.spent) if one <= seq]
        for one in done:
            reader.pending.pop(one, None)
            reader.spent.pop(one, None)
        for one in done:
            self.settle(one)

    @rule(name=st.sampled_from(NAMES), filters=st.sampled_from(FILTERS))
    def refilter(self, name: str, filters: list[str]) -> None:
        reader = self.readers.get(name)
        if reader is None:
            return
        config = self.house.ok(f"CONSUMER.INFO.S.{name}")["config"]
        config.pop("filter_subject", None)
        floor = self.floor(name)
        config["filter_subjects"] = filters
        answer = self.house.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        if "error" in answer:
            assert self.kind == "workqueue"
            assert answer["error"]["err_code"] == 10100
            return
        changed = reader.filters != filters
        reader.filters = filters
        if changed:
            self.review(orphans=self.kind == "interest", above=floor)

    @rule(which=st.integers(0, 9))
    def remove(self, which: int) -> None:
        if self.live:
            seq = sorted(self.live)[which % len(self.live)]
            self.house.ok("STREAM.MSG.DELETE.S", {"seq": seq})
            self.gone(seq)

    @rule()
    def switch(self) -> None:
        if self.kind == "workqueue":
            return
        self.house.ok("STREAM.UPDATE.S", {"name": "S", **self.config, "retention": "limits"})
        self.publish_kept("s.b")
        self.house.ok("STREAM.UPDATE.S", {"name": "S", **self.config})
        self.review(orphans=not self.readers)

    def publish_kept(self, subject: str) -> None:
        kind, self.kind = self.kind, "workqueue"
        self.publish(subject)
        self.kind = kind

    @rule()
    def restart(self) -> None:
        self.house = self.house.restart()
        if self.readers:
            self.review(orphans=False)

    @rule()
    def crash_when_quiet(self) -> None:
        self.house.pass_time(1_000_000_000)
        self.house = self.house.crash()
        if self.readers:
            self.review(orphans=False)

    # --- checks
    # ------------------------------------------------------------------------------------

    @invariant()
    def what_is_held_is_what_is_needed(self) -> None:
        state = self.house.ok("STREAM.INFO.S", {"deleted_details": True})["state"]
        gaps = set(state.get("deleted") or ())
        held = {
            seq
            for seq in range(state["first_seq"], state["last_seq"] + 1)
            if seq not in gaps and state["messages"]
        }
        assert held == set(self.live), json.dumps([state, sorted(self.live)])
        assert state["last_seq"] == self.last
        assert state["messages"] == len(self.live)
        for name, reader in self.readers.items():
            info: Any = self.house.ok(f"CONSUMER.INFO.S.{name}")
            # a consumer with changed filters may keep a removed message until it looks for it
            held = [seq for seq in reader.pending if seq in self.live]
            assert len(held) <= info["num_ack_pending"] <= len(reader.pending), name


TestRetention = Retention.TestCase
TestRetention.settings = settings(
    max_examples=length(25, 120), stateful_step_count=30, deadline=None
)
