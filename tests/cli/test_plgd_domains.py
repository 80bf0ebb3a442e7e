"""`pelton --domain hub plgd ...`: everything is in the JetStream of the hub, on the other side of a leaf node."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton.cli.plgd.alerting import back_to, watch_of
from pelton.cli.session import Session
from pelton.client.base.models import StreamConfig
from pelton.plgd.spark.lake import Lake
from pelton.plgd.spark.live import changed_twins, key_of
from pelton.plgd.tables.conditions import Bounds
from tests.client.test_keyvalue_domains import leaf, wait_for_hub
from tests.plgd.spark.test_live import SETTINGS, take
from tests.plgd.test_tables_truth import FAULTS, run_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

__all__ = ["leaf"]
FLEET = ["--devices", 6, "--for", "5m", "--seed", 3, "--fault", "drop=0.1"]


def asked(url: str, **changes: Any) -> Session:
    """The options of a command."""
    empty: dict[str, Any] = {"str": "", "bool": False, "int": 30 * 10**9}
    named = {each.name: empty[each.type] for each in fields(Session) if each.type in empty}
    return Session(**named | {"server": url} | changes)


def test_domain_and_prefix_of_a_command_are_those_of_its_client() -> None:
    url = "nats://127.0.0.1:1"
    assert asked(url, domain="hub").options().jetstream_domain == "hub"
    options = asked(url, api_prefix="$JS.hub.API").options()
    assert (options.jetstream_domain, options.jetstream_prefix) == ("", "$JS.hub.API")


def test_what_a_stream_lacks_is_found_and_published_in_its_domain(
    leaf: ServerProcess,
    cli: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    with asked(leaf.url).connect() as client:
        wait_for_hub(client.jetstream(domain="hub"))
    there = ["--server", leaf.url, "--domain", "hub"]
    assert cli("plgd", "fleet", *FLEET, "-o", "e.jsonl", "--store", "s.db").status == 0
    made = cli(*there, "plgd", "publish", "e.jsonl", "--create", "--json")
    assert made.status == 0, made.err
    found = cli(*there, "--json", "plgd", "reconcile", "--store", "s.db", "--commands").json
    assert found["summary"]["published_events"] == found["summary"]["missing"] > 0
    again = cli(*there, "--json", "plgd", "reconcile", "--store", "s.db", "--check")
    assert (again.status, again.json["summary"]["missing"]) == (0, 0)
    assert cli("--server", leaf.url, "--json", "stream", "ls").json == []


def test_twins_and_alerts_go_to_the_domain(leaf: ServerProcess, tmp_path: Path) -> None:
    short: dict[str, Any] = {"devices": 4, "duration_s": 600.0, "command_interval_s": 20.0}
    _, messages = run_of(seed=2, faults=FAULTS, **short)
    lake = Lake(tmp_path / "tables", SETTINGS)
    lake.create()
    with asked(leaf.url, domain="hub").connect(lasting=True) as client:
        hub, here = client.jetstream(domain="hub"), client.jetstream(domain="leaf")
        wait_for_hub(hub)
        hub.create_stream(StreamConfig(name="EVENTS", subjects=["plgd.>"]))
        bounds = vars(Bounds())
        watch = watch_of(client, lake, tmp_path, "ALERTS", stream="EVENTS", bounds=bounds)
        put = back_to(client, lake, "twins", watch)
        assert put is not None
        put(take(lake, 0, messages))
        twins = hub.key_value("twins")
        assert sorted(twins.keys()) == sorted(map(key_of, changed_twins(lake, 0)))
        assert hub.stream_info("ALERTS").state.messages > 0
        assert here.stream_names() == []
