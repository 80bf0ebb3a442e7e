"""Limits of account and server: reserved and stored bytes, counts, and that the counts stay right
after every change.
"""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pelton.api.calls import AccountLimits
from pelton.core.base.quota import Quota
from pelton.engine.account import limits
from pelton.engine.base.settings import ServerLimits
from tests.engine.house import House

NAMES = ("A", "B", "C")


class Totals(RuleBasedStateMachine):
    """Streams of both kinds are created, updated and deleted; INFO shows the sum of their states."""

    @initialize(folder=st.just("account"))
    def start(self, folder: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="pelton-limits-")
        most = {"": AccountLimits(max_memory=3000, max_storage=4000, max_streams=2)}
        self.house = House(Path(self.folder.name) / folder, account_limits=most, max_storage=9000)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.house.engine.close()
            self.folder.cleanup()

    @rule(
        name=st.sampled_from(NAMES),
        storage=st.sampled_from(["file", "memory"]),
        most=st.sampled_from([-1, 500, 2500]),
        count=st.sampled_from([-1, 3]),
    )
    def create(self, name: str, storage: str, most: int, count: int) -> None:
        body = {
            "name": name,
            "subjects": [f"{name}.*"],
            "storage": storage,
            "max_bytes": most,
            "max_msgs": count,
        }
        self.house.api(f"STREAM.CREATE.{name}", body)

    @rule(name=st.sampled_from(NAMES), most=st.sampled_from([-1, 200, 2000]))
    def update(self, name: str, most: int) -> None:
        info = self.house.api(f"STREAM.INFO.{name}")
        if "config" in info:
            config = {**info["config"], "max_bytes": most}
            self.house.api(f"STREAM.UPDATE.{name}", config)

    @rule(name=st.sampled_from(NAMES), size=st.integers(0, 900), count=st.integers(1, 5))
    def publish(self, name: str, size: int, count: int) -> None:
        entry = self.house.engine.accounts["$G"].streams.get(name)
        for _ in range(count if entry else 0):
            assert entry is not None
            before = entry.core.log.bytes
            quota = entry.core.log.quota
            used = quota.used
            answer = self.house.publish(f"{name}.{size % 3}", bytes(size))
            extra = 16 if entry.config.storage == "memory" else 30
            refused = used + size + 3 + extra > quota.limit
            code = answer.get("error", {}).get("err_code", 0)
            assert (code == 10002) == refused, answer
            if refused:
                assert entry.core.log.bytes == before

    @rule(name=st.sampled_from(NAMES), seq=st.integers(1, 20), erase=st.booleans())
    def remove(self, name: str, seq: int, erase: bool) -> None:
        self.house.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq, "no_erase": not erase})

    @rule(name=st.sampled_from(NAMES), body=st.sampled_from([{}, {"keep": 1}, {"filter": "A.*"}]))
    def purge(self, name: str, body: dict[str, Any]) -> None:
        self.house.api(f"STREAM.PURGE.{name}", body)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.house.api(f"STREAM.DELETE.{name}")

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.house = self.house.restart() if clean else self.house.crash()

    @invariant()
    def totals_are_sums(self) -> None:
        if not hasattr(self, "house"):
            return
        info = self.house.ok("INFO")
        streams = self.house.ok("STREAM.LIST")["streams"]
        for total, reserved, storage, most in (
            ("memory", "reserved_memory", "memory", 3000),
            ("storage", "reserved_storage", "file", 4000),
        ):
            rows = [row for row in streams if row["config"]["storage"] == storage]
            assert info[total] == sum(row["state"]["bytes"] for row in rows) <= most
            asked = sum(max(row["config"]["max_bytes"], 0) for row in rows)
            assert info[reserved] == asked <= most
        assert info["streams"] == len(streams) <= 2
        account = self.house.account
        for storage in ("memory", "file"):
            for without in ("", "A"):
                assert limits.reserved(account, storage, "R1", without=without) == sum(
                    max(entry.config.max_bytes, 0)
                    for name, entry in account.streams.items()
                    if entry.config.storage == storage and name != without
                )
        whole = self.house.engine.accounts["$G"].storage.whole
        assert whole is not None
        assert whole.used == info["storage"]


TestTotals = Totals.TestCase
TestTotals.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_accounts_share_what_the_server_has() -> None:
    server = limits.server_quota(100)
    one, other = Quota(80, server), Quota(80, server)
    assert (server.limit, one.whole, other.whole) == (100, server, server)
    assert limits.server_quota(-1).limit > 1 << 60


def test_a_create_does_not_look_at_all_streams(tmp_path: Path) -> None:
    class Unlisted(dict[str, Any]):
        """Streams that are found by name only."""

        def values(self) -> Any:
            raise AssertionError("all streams were listed")

        items = __iter__ = values

    most = {"": AccountLimits(max_storage=5000, max_streams=4)}
    house = House(tmp_path, account_limits=most, max_storage=9000)
    house.stream("A", max_bytes=1000)
    streams, house.account.streams = house.account.streams, Unlisted(house.account.streams)
    house.stream("B", max_bytes=3000)
    assert house.error("STREAM.CREATE.C", {"name": "C", "max_bytes": 1001})[0] == 10047
    house.ok("STREAM.UPDATE.A", {"name": "A", "subjects": ["A"], "max_bytes": 500})
    house.stream("C", max_bytes=1500)
    streams.update({name: house.account.streams[name] for name in "ABC"})
    house.account.streams = streams


def test_tiers(tmp_path: Path) -> None:
    tiers = {
        "R1": AccountLimits(max_storage=1000, max_streams=1),
        "R3": AccountLimits(max_memory=7),
    }
    house = House(tmp_path, account_limits=tiers)
    house.stream(max_bytes=600)
    house.consumer()
    house.publish("S", b"four")
    assert house.error("STREAM.CREATE.T", {"name": "T"})[0] == 10027
    assert house.error("STREAM.UPDATE.S", {"name": "S", "max_bytes": 1001})[0] == 10047
    info = house.ok("INFO")
    assert info["storage"] == 22 + 1 + 4 + 8
    assert info["limits"]["max_storage"] == 0
    assert set(info["tiers"]) == {"R1", "R3"}
    tier = info["tiers"]["R1"]
    assert (tier["streams"], tier["consumers"], tier["reserved_storage"]) == (1, 1, 600)
    assert (tier["storage"], tier["limits"]["max_storage"]) == (info["storage"], 1000)
    assert info["tiers"]["R3"]["limits"]["max_memory"] == 7


def test_no_tier_is_no_limits(tmp_path: Path) -> None:
    house = House(tmp_path, account_limits={"R3": AccountLimits()})
    code, text = house.error("STREAM.CREATE.S", {"name": "S"})
    assert (code, text) == (10120, "no JetStream default or applicable tiered limit present")


def test_consumers_are_counted_for_each_stream(tmp_path: Path) -> None:
    most = {"": AccountLimits(max_consumers=2, max_ack_pending=10)}
    house = House(tmp_path, account_limits=most)
    house.stream()
    house.stream("T", max_consumers=1)
    for name in ("a", "b"):
        house.consumer(name, durable_name=name, ack_policy="explicit")
    body = {"stream_name": "S", "config": {"name": "c"}}
    assert house.error("CONSUMER.CREATE.S.c", body)[0] == 10026
    assert house.consumer("a", durable_name="a", ack_policy="explicit")["name"] == "a"
    assert house.ok("CONSUMER.INFO.S.a")["config"]["max_ack_pending"] == 10
    config = {"name": "a", "max_ack_pending": 11, "ack_policy": "explicit"}
    code, text = house.error("CONSUMER.CREATE.T.a", {"stream_name": "T", "config": config})
    assert (code, text) == (10121, "consumer max ack pending exceeds system limit of 10")
    house.consumer("a", stream="T")
    body = {"stream_name": "T", "config": {"name": "b"}}
    assert house.error("CONSUMER.CREATE.T.b", body)[0] == 10026


def test_what_a_stream_must_and_must_not_ask_for(tmp_path: Path) -> None:
    most = AccountLimits(
        max_bytes_required=True, memory_max_stream_bytes=10, storage_max_stream_bytes=20
    )
    server = ServerLimits(duplicate_window_ns=10**9, max_request_batch=4)
    house = House(tmp_path, account_limits={"": most}, limits=server)
    assert house.error("STREAM.CREATE.S", {"name": "S"})[0] == 10113
    assert house.error("STREAM.CREATE.S", {"name": "S", "max_bytes": 21})[0] == 10122
    body = {"name": "S", "max_bytes": 11, "storage": "memory"}
    assert house.error("STREAM.CREATE.S", body)[0] == 10122
    body = {"name": "S", "max_bytes": 20, "duplicate_window": 2 * 10**9}
    text = "duplicates window can not be larger then server limit of 1s"
    assert house.error("STREAM.CREATE.S", body) == (10052, text)
    assert house.stream(max_bytes=20)["config"]["duplicate_window"] == 10**9
    config = {"name": "c", "max_batch": 5}
    text = "consumer max request batch exceeds server limit of 4"
    body = {"stream_name": "S", "config": config}
    assert house.error("CONSUMER.CREATE.S.c", body) == (10125, text)
    assert house.consumer()["config"]["max_batch"] == 4
