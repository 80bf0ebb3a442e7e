"""An origin that ends before the last copy of its messages: a power cut took messages of it that its
follower had synced. The origin gives their sequences again, and the follower says so.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.house import SECOND, House

if TYPE_CHECKING:
    from pathlib import Path

FOLLOWERS: dict[str, dict[str, Any]] = {
    "mirror": {"mirror": {"name": "O"}},
    "source": {"sources": [{"name": "O"}]},
}


def follower(house: House) -> Any:
    info = house.ok("STREAM.INFO.F")
    return info.get("mirror") or info["sources"][0]


def payloads(house: House) -> list[bytes]:
    log = house.account.streams["F"].core.log
    return [log.get(seq).payload for seq in range(1, log.last_seq + 1)]


@pytest.mark.parametrize("retention", ["limits", "interest"])
@pytest.mark.parametrize("way", FOLLOWERS)
def test_sequences_that_the_origin_gives_again(tmp_path: Path, way: str, retention: str) -> None:
    house = House(tmp_path / "store")
    house.stream("O", subjects=["o"], retention=retention)
    house.consumer("needs", "O", durable_name="needs", ack_policy="explicit")
    house.stream("F", **FOLLOWERS[way])
    house.pass_time(SECOND)
    house.publish("o", b"1")
    house.pass_time(SECOND)
    house.engine.close()
    origin = next((tmp_path / "store").rglob("streams")) / "O"
    shutil.copytree(origin, tmp_path / "earlier")
    house = house.crash()
    house.publish("o", b"2")
    house.publish("o", b"3")
    house.pass_time(SECOND)
    assert payloads(house) == [b"1", b"2", b"3"]
    assert "error" not in follower(house)
    house.engine.close()
    shutil.rmtree(origin)
    shutil.copytree(tmp_path / "earlier", origin)

    house = house.crash()
    told = [line for line in house.reports if "its origin O ends at sequence 1" in line]
    assert len(told) == 1
    assert "the copies of O go up to 3" in told[0]
    house.publish("o", b"new 2")
    house.pass_time(SECOND)
    assert payloads(house) == [b"1", b"2", b"3"]
    assert "its origin O ends at sequence 1" in follower(house)["error"]["description"]
    house.publish("o", b"new 3")
    house.publish("o", b"4")
    house.pass_time(SECOND)
    assert payloads(house) == [b"1", b"2", b"3", b"4"]
    assert "error" not in follower(house)
    assert [line for line in house.reports if "ends at sequence" in line] == told
