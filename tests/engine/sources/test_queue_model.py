"""A source that reads a workqueue: each message with a PubAck arrives once, whatever happens to the
server.
"""

import json
import random
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from pelton.core.base.disk import PyDisk
from pelton.testing.simulated_disk import SimDisk
from tests.engine.house import SECOND, House
from tests.ways import length


class Queue(RuleBasedStateMachine):
    """Each message of the test has a payload of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.house = House(Path("store"), disk=PyDisk(self.disk))
        self.count = 0
        self.promised: set[bytes] = set()
        self.seen: dict[bytes, int] = {}
        self.house.stream("O", subjects=["o"], retention="workqueue")
        self.house.stream("S", sources=[{"name": "O"}])

    @rule(times=st.integers(1, 4))
    def publish(self, times: int) -> None:
        for _ in range(times):
            self.count += 1
            payload = b"%d" % self.count
            if "seq" in json.loads(self.house.request("o", payload)[0][1]):
                self.promised.add(payload)

    @rule()
    def publish_and_do_not_wait(self) -> None:
        self.count += 1
        payload = b"%d" % self.count
        self.house.client.send(b"PUB o %d\r\n%s\r\n" % (len(payload), payload))

    @rule(quarters=st.integers(1, 60))
    def wait(self, quarters: int) -> None:
        self.house.pass_time(quarters * SECOND // 4, SECOND // 4)
        self.look()

    @rule(keep=st.integers(0, 1))
    def purge(self, keep: int) -> None:
        self.house.server.reactor.settle()
        self.look()
        self.house.ok("STREAM.PURGE.S", {"keep": keep} if keep else b"")

    @rule(how=st.sampled_from(["stop", "kill", "power"]), seed=st.integers())
    def restart(self, how: str, seed: int) -> None:
        self.look()
        if how == "power":
            self.disk.crash(random.Random(seed))
        self.house = self.house.restart() if how == "stop" else self.house.crash()

    def look(self) -> None:
        core: Any = self.house.engine.accounts["$G"].streams["S"].core
        for seq in range(core.log.first_seq, core.visible + 1):
            message = core.log.get(seq)
            if message is not None:
                assert self.seen.setdefault(message.payload, seq) == seq

    def teardown(self) -> None:
        self.house.pass_time(60 * SECOND, SECOND // 4)
        self.look()
        assert not self.house.server.errors
        assert self.promised <= set(self.seen)
        assert self.house.ok("STREAM.INFO.O")["state"]["messages"] == 0
        self.house.engine.close()


Queue.TestCase.settings = settings(
    max_examples=length(20, 40), stateful_step_count=20, deadline=None
)
TestQueue = Queue.TestCase
