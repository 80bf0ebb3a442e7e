"""After any events in an origin, its followers and the server: a mirror has the origin's messages
under their sequences, and a source has each message once.
"""

import random
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House
from tests.ways import length

SUBJECTS = ("o.a", "o.b", "p.a")
FOLLOWERS: dict[str, dict[str, Any]] = {
    "M": {"mirror": {"name": "O"}},
    "F": {"mirror": {"name": "O", "filter_subject": "*.a"}},
    "S": {"sources": [{"name": "O"}], "max_msgs_per_subject": 2},
    "T": {
        "sources": [
            {"name": "O", "filter_subject": "o.b"},
            {"name": "O", "subject_transforms": [{"src": "*.a", "dest": "t.$1"}]},
        ],
        "subjects": ["t.>"],
        "max_msgs": 3,
    },
}


def wanted(follower: str, subject: str) -> bool:
    """Return whether a follower takes messages of a subject."""
    if follower == "F":
        return subject.endswith(".a")
    return follower != "T" or subject == "o.b" or subject.endswith(".a")


class Following(RuleBasedStateMachine):
    """Each message of the test has a payload of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.house = House(Path("store"), disk=PyDisk(self.disk))
        self.count = 0
        self.made = 0
        # messages that a limit may have removed between two looks of the follower
        self.excused: set[bytes] = set()
        self.seen: dict[str, dict[bytes, int]] = {name: {} for name in FOLLOWERS}
        # of a mirror: the sequence that it waits for
        self.above: dict[str, int] = dict.fromkeys(FOLLOWERS, 0)
        self.house.stream("O", subjects=["o.>", "p.>"])
        for name, fields in FOLLOWERS.items():
            self.house.stream(name, **fields)

    def log(self, name: str) -> Any:
        return self.house.engine.accounts["$G"].streams[name].core.log

    def messages(self, name: str) -> dict[int, Any]:
        log = self.log(name)
        found = {seq: log.get(seq) for seq in range(log.first_seq, log.last_seq + 1)}
        return {seq: message for seq, message in found.items() if message is not None}

    @rule(subjects=st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=8))
    def publish(self, subjects: list[str]) -> None:
        for subject in subjects:
            self.count += 1
            payload = b"%d" % self.count
            self.house.client.send(
                b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(payload), payload)
            )

    @rule()
    def turn(self) -> None:
        self.house.client.events()

    @rule(name=st.sampled_from(["O", *FOLLOWERS]), which=st.integers(0, 20))
    def delete(self, name: str, which: int) -> None:
        there = sorted(self.messages(name))
        if there:
            seq = there[-1 - which % len(there)]
            self.house.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq, "no_erase": which % 2 == 0})

    @rule(name=st.sampled_from(["O", *FOLLOWERS]), keep=st.integers(0, 2))
    def purge(self, name: str, keep: int) -> None:
        self.house.ok(f"STREAM.PURGE.{name}", {"keep": keep} if keep else b"")

    @rule(gap=st.integers(1, 5))
    def jump(self, gap: int) -> None:
        self.house.ok("STREAM.PURGE.O", {"seq": self.log("O").last_seq + 1 + gap})

    @rule()
    def publish_into_a_source(self) -> None:
        self.house.publish("t.own", b"own")

    @rule(seconds=st.integers(1, 7))
    def wait(self, seconds: int) -> None:
        self.house.pass_time(seconds * SECOND, SECOND // 4)

    @rule(how=st.sampled_from(["stop", "kill", "power"]), settled=st.booleans(), seed=st.integers())
    def restart(self, how: str, settled: bool, seed: int) -> None:
        if settled:
            self.house.server.reactor.settle()
            self.look()
        if how == "power":
            self.disk.crash(random.Random(seed))
        self.house = self.house.restart() if how == "stop" else self.house.crash()

    @precondition(lambda self: self.made < 3)
    @rule()
    def recreate(self) -> None:
        self.house.server.reactor.settle()
        self.look()
        self.made += 1
        self.house.ok("STREAM.DELETE.O")
        self.house.pass_time(SECOND, SECOND)
        self.house.stream("O", subjects=["o.>", "p.>"])
        for name in ("M", "F"):
            self.above[name] = self.log(name).last_seq

    @rule()
    def update(self) -> None:
        """Remove a source from the configuration, and add it again."""
        self.house.server.reactor.settle()
        config = {"name": "T", **FOLLOWERS["T"]}
        self.house.ok("STREAM.UPDATE.T", {**config, "sources": config["sources"][:1]})
        self.house.ok("STREAM.UPDATE.T", config)

    def look(self) -> None:
        """Each message has one sequence in a follower, for ever."""
        for name in FOLLOWERS:
            visible = self.house.engine.accounts["$G"].streams[name].core.visible
            for seq, message in self.messages(name).items():
                if message.payload != b"own" and seq <= visible:
                    assert self.seen[name].setdefault(message.payload, seq) == seq, name

    @invariant()
    def followers_have_what_the_origin_has(self) -> None:
        before = self.house.engine.accounts["$G"].streams["O"].core.visible
        origin = self.messages("O")
        self.look()
        if before < self.log("O").last_seq:
            return
        self.house.server.reactor.settle()
        self.look()
        assert not self.house.server.errors
        for name in FOLLOWERS:
            mirror = "mirror" in FOLLOWERS[name]
            there = self.messages(name)
            for seq, message in origin.items():
                if not wanted(name, message.subject) or (mirror and seq <= self.above[name]):
                    continue
                if not mirror and message.payload not in self.seen[name]:
                    same = [m for m in there.values() if m.subject == message.subject]
                    if len(there) == 3 if name == "T" else len(same) == 2:
                        self.excused.add(message.payload)
                    assert message.payload in self.excused, (name, message)
                elif mirror:
                    assert message.payload in self.seen[name], (name, message)
                if mirror and seq in there:
                    assert there[seq] == message
            if mirror and not self.made:
                assert set(there) <= set(range(1, self.log("O").last_seq + 1))

    def teardown(self) -> None:
        self.house.engine.close()


Following.TestCase.settings = settings(
    max_examples=length(25, 60), stateful_step_count=40, deadline=None
)
TestFollowing = Following.TestCase
