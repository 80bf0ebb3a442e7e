"""The store in MongoDB: its documents are the hub's, a hub's are read, and what fails is told and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bson
import pytest
from bson import Int64

from pelton.plgd import Era, aggregate_id, links_id, metadata_id, services_id
from pelton.plgd.codec import pack
from pelton.plgd.fleet import Faults, FleetConfig, FleetRun
from pelton.plgd.reasons import UndecodableEventError
from pelton.plgd.reconcile import Cause, Policy, Sightings, StoreSource, compare
from pelton.plgd.reconcile.scanning import take
from pelton.plgd.store import Aggregate, Aggregates, StoreError
from pelton.plgd.store.documents import INDEXES
from pelton.plgd.store.mongo import MongoStore
from pelton.plgd.wire import events_pb2 as events
from tests.plgd.mongods import MONGOD, OurMongod, RealMongod, running_mongod

DEVICE = "00000000-0000-4000-8000-000000000001"
SPACE = "eventStore_db.devices_events"


@pytest.fixture
def ours() -> Iterator[OurMongod]:
    with running_mongod("ours") as server:
        assert isinstance(server, OurMongod)
        yield server


@pytest.fixture(
    params=[
        "ours",
        pytest.param(
            "mongod",
            marks=pytest.mark.skipif(
                MONGOD is None, reason="no mongod is installed (PATH, or PELTON_MONGOD=file)"
            ),
        ),
    ]
)
def server(request: pytest.FixtureRequest) -> Iterator[OurMongod | RealMongod]:
    with running_mongod(request.param) as server:
        yield server


def typed(value: Any) -> Any:
    """A value with the types that BSON has for it."""
    if isinstance(value, dict):
        return {name: typed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [typed(each) for each in value]
    return type(value).__name__, value


def documents(store: MongoStore) -> list[dict[str, Any]]:
    return list(store.client["eventStore_db"]["devices_events"].find().sort("_id", 1))


def meta(version: int, time_ns: int) -> Any:
    return events.EventMetadata(version=version, timestamp=time_ns)


def light(**options: Any) -> Any:
    return events.ResourceChanged(
        resource_id=events.ResourceId(device_id=DEVICE, href="/light/1"),
        status=events.OK,
        etag=b"\1\2",
        resource_types=["core.light"],
        **options,
    )


def drained(store: MongoStore) -> None:
    store.sent([item.number for item in store.outgoing()], 0)


def test_documents_are_those_of_a_newer_hub(server: OurMongod | RealMongod) -> None:
    light_id = aggregate_id(DEVICE, "/light/1")
    with MongoStore.connect(server.url) as store:
        change = Aggregates(store, era=Era.HREF).change
        change(light_id, "a", 100, lambda _: [light()])
        change(light_id, "a", 200, lambda _: [light(), light()])
        online = events.DeviceMetadataUpdated(device_id=DEVICE)
        online.connection.service_id = "gateway-1"
        change(metadata_id(DEVICE), "a", 150, lambda _: [online])
        drained(store)
        found = {each["aggregateid"]: each for each in documents(store)}
        latest = light(event_metadata=meta(2, 200))
        state = events.ResourceStateSnapshotTaken(
            resource_id=latest.resource_id,
            latest_resource_change=latest,
            audit_context=events.AuditContext(),
            event_metadata=meta(2, 200),
            resource_types=["core.light"],
        )
        golden = {
            "_id": f"{light_id}.0",
            "groupid": DEVICE,
            "aggregateid": light_id,
            "firstversion": Int64(2),
            "latestversion": Int64(2),
            "latestsnapshotversion": Int64(2),
            "latesttimestamp": Int64(200),
            "isactive": True,
            "events": [
                {
                    "version": Int64(2),
                    "data": pack(state),
                    "eventtype": "resourcestatesnapshottaken",
                    "issnapshot": True,
                    "timestamp": Int64(200),
                }
            ],
            "latestetag": {"etag": b"\1\2", "timestamp": Int64(200)},
            "etag": b"\1\2",
            "types": ["core.light"],
        }
        assert typed(found[light_id]) == typed(golden)
        of_metadata = found[metadata_id(DEVICE)]
        assert (of_metadata["serviceid"], of_metadata["latestetag"]) == ("gateway-1", None)
        assert "types" not in of_metadata
        owners = store.client["ownersDevices_db"]["userdevices"].find()
        assert list(owners) == [{"_id": DEVICE, "owner": "a"}]
        indexes = (
            store.client["eventStore_db"]["devices_events"].index_information()
            if not (isinstance(server, OurMongod))
            else {
                str(n): {"key": list(keys.items())}
                for n, keys in enumerate(server.database.indexes[SPACE])
            }
        )
        keys = [list(each["key"]) for each in indexes.values()]
        assert all(each in keys for each in INDEXES)


def test_documents_are_those_of_an_older_hub(server: OurMongod | RealMongod) -> None:
    light_id = aggregate_id(DEVICE, "/light/1")
    with MongoStore.connect(server.url, every_event=True) as store:
        change = Aggregates(store, era=Era.RESOURCE, snapshot_every=4).change
        for now in range(1, 7):
            change(light_id, "a", now, lambda _: [light()])
        drained(store)
        [found] = documents(store)
        names = [(int(e["version"]), e["eventtype"], e["issnapshot"]) for e in found["events"]]
        assert names == [
            (5, "resourcestatesnapshottaken", True),
            (6, "resourcechanged", False),
        ]
        numbers = {n: int(found[n]) for n in found if n.endswith("version")}
        assert numbers == {"firstversion": 5, "latestversion": 6, "latestsnapshotversion": 5}
        assert found["events"][1]["data"] == pack(light(event_metadata=meta(6, 6)))
        state = store.load(light_id)
        assert state is not None
        assert state.snapshot.latest_resource_change == light(event_metadata=meta(6, 6))


def test_a_document_that_is_full_is_followed_by_another(ours: OurMongod) -> None:
    light_id = aggregate_id(DEVICE, "/light/1")
    ours.database.max_bytes = 4000
    with MongoStore.connect(ours.url, every_event=True) as store:
        change = Aggregates(store, era=Era.HREF).change
        for now in range(1, 40):
            change(
                light_id, "a", now, lambda _, n=now: [light(content=events.Content(data=b"%d" % n))]
            )
            drained(store)
        found = sorted(documents(store), key=lambda each: int(each["firstversion"]))
        assert len(found) >= 2
        assert [each["isactive"] for each in found] == [False] * (len(found) - 1) + [True]
        assert found[-1]["events"][0]["issnapshot"] is True
        [state] = store.aggregates()
        assert state == store.load(light_id)
        assert (state.version, state.snapshot.latest_resource_change.content.data) == (38, b"39")


def hubs_documents() -> list[dict[str, Any]]:
    """As a hub v2.25 writes them, with a service's heartbeat, which has no device and is never published."""
    links = events.ResourceLinksSnapshotTaken(device_id=DEVICE, event_metadata=meta(3, 3000))
    links.resources["/light/1"].href = "/light/1"
    latest = light(event_metadata=meta(4, 4000))
    state = events.ResourceStateSnapshotTaken(
        resource_id=latest.resource_id, latest_resource_change=latest, event_metadata=meta(5, 5001)
    )
    beat = events.ServiceMetadataSnapshotTaken(event_metadata=meta(9, 9000))
    rows = [
        (links_id(DEVICE), DEVICE, links, "resourcelinkssnapshottaken"),
        (aggregate_id(DEVICE, "/light/1"), DEVICE, state, "resourcestatesnapshottaken"),
        (services_id("hub"), "hub", beat, "ServiceMetadataSnapshotTaken"),
    ]
    return [
        {
            "_id": f"{aggregate}.0",
            "groupid": group,
            "aggregateid": aggregate,
            "firstversion": Int64(message.event_metadata.version),
            "latestversion": Int64(message.event_metadata.version),
            "latestsnapshotversion": Int64(message.event_metadata.version),
            "latesttimestamp": Int64(message.event_metadata.timestamp),
            "isactive": True,
            "events": [
                {
                    "version": Int64(message.event_metadata.version),
                    "data": pack(message),
                    "eventtype": name,
                    "issnapshot": True,
                    "timestamp": Int64(message.event_metadata.timestamp),
                }
            ],
            "latestetag": None,
        }
        for aggregate, group, message, name in rows
    ]


def test_a_hubs_database_is_read_and_reconciled_without_a_write(
    server: OurMongod | RealMongod,
) -> None:
    with MongoStore.connect(f"{server.url}eventStore_db") as store:
        store.client["eventStore_db"]["devices_events"].insert_many(hubs_documents())
        store.client["ownersDevices_db"]["userdevices"].insert_one({"_id": DEVICE, "owner": "a"})
        names = (
            sorted(store.client["eventStore_db"].list_collection_names())
            if isinstance(server, RealMongod)
            else sorted(
                n.partition(".")[2]
                for n in server.database.collections
                if n.startswith("eventStore")
            )
        )
        assert [s.version for s in store.aggregates(owner="a")] == [3, 5] or (
            [s.version for s in store.aggregates(owner="a")] == [5, 3]
        )
        assert list(store.aggregates(owner="b")) == []
        assert [s.version for s in store.aggregates(after_ns=8999)] == [9]
        report = compare(StoreSource(store), Sightings(), Policy(), 1 << 61)
        found = {(f.kind, f.first, f.last, f.repaired, f.state_version) for f in report.findings}
        assert found == {("resource-links", 0, 3, 0, 3), ("resources", 0, 5, 1, 5)}
        assert {f.cause for f in report.findings} == {Cause.TAIL}
        assert store.outgoing() == []
        assert "devices_events" in names
        if isinstance(server, OurMongod):
            assert SPACE not in server.database.indexes


@pytest.mark.parametrize(("hub", "every"), [("v2.25", False), ("v2.15", True)])
def test_a_fleet_is_reconciled_as_with_any_store(ours: OurMongod, hub: str, every: bool) -> None:
    faults = Faults(drop=0.02, tail_drop=0.2)
    run = FleetRun(
        FleetConfig(
            devices=5, duration_s=900, seed=5, hub=hub, faults=faults, delete_interval_s=1e12
        ),
        keep_events=True,
    )
    rows = [(n, d.time_ns, d.subject, b"", d.payload) for n, d in enumerate(run.deliveries(), 1)]
    sightings = Sightings()
    take(sightings, rows)
    with MongoStore.connect(ours.url, every_event=every) as store:
        assert store.fill(run.aggregates()) == len(run.simulation.hub.states)
        report = compare(StoreSource(store), sightings, Policy(commands=True), 1 << 61)
    lost = {(r["aggregate_id"], r["version"]) for r in run.truth.losses if r["aggregate_id"]}
    found = {
        (f.aggregate_id, version) for f in report.findings for version in range(f.first, f.last + 1)
    }
    assert found == lost
    assert 0 < report.summary()["repairable"] < len(lost)
    assert all(f.repairs or f.unrepaired for f in report.findings)


def test_what_waits_outlives_the_deletion_of_its_device(server: OurMongod | RealMongod) -> None:
    light_id = aggregate_id(DEVICE, "/light/1")
    with MongoStore.connect(server.url) as store:
        change = Aggregates(store, era=Era.HREF).change
        change(light_id, "a", 1, lambda _: [light(), light()])
        before = store.outgoing()
        assert store.delete_device(DEVICE) == 1
        assert store.outgoing() == before
        [again] = change(light_id, "a", 2, lambda _: [light()])
        assert again.event_metadata.version == 0
        assert [item.message_id for item in store.outgoing()] == [
            f"{light_id}.0.1",
            f"{light_id}.1.1",
            f"{light_id}.0.2",
        ]
        store.sent([before[0].number], 7)
        assert len(store.outgoing()) == 2
        assert (len(store.outgoing(1)), store.last_seq()) == (1, 7)


def test_a_server_that_is_down_is_told_and_the_store_goes_on_when_it_is_back(
    ours: OurMongod,
) -> None:
    devices = [f"00000000-0000-4000-8000-{number:012}" for number in range(450)]
    with MongoStore.connect(ours.url, socketTimeoutMS=5000) as store:
        rows = []
        for device in devices:
            message = light(event_metadata=meta(0, 1))
            message.resource_id.device_id = device
            state = events.ResourceStateSnapshotTaken(
                resource_id=message.resource_id,
                latest_resource_change=message,
                event_metadata=meta(0, 1),
            )
            rows.append((Aggregate(aggregate_id(device, "/light/1"), device, "a", 0, 1, state), []))
        store.fill(rows)
        whole = list(store.aggregates())
        assert len(whole) == len(devices)
        states = store.aggregates()
        next(states)
        ours.database.replies_until_it_fails = 0  # in the middle of a batch
        with pytest.raises(StoreError, match="MongoDB"):
            list(states)
        ours.database.replies_until_it_fails = None
        assert list(store.aggregates()) == whole
        ours.stop()
        ours.database.replies_until_it_fails = 0
        store.client._topology_settings._server_selection_timeout = 1
        with pytest.raises(StoreError, match="MongoDB"):
            store.load(whole[0].aggregate_id)
        ours.start()
        assert store.load(whole[0].aggregate_id) == whole[0]
    with pytest.raises(StoreError, match="MongoDB"):
        MongoStore.connect("mongodb://127.0.0.1:1/", directConnection=True, connectTimeoutMS=100)


def test_damaged_documents_are_told(ours: OurMongod) -> None:
    with MongoStore.connect(ours.url) as store:
        light_id = aggregate_id(DEVICE, "/light/1")
        Aggregates(store, era=Era.HREF).change(light_id, "a", 1, lambda _: [light()])
        [whole] = documents(store)
        for change, text in [
            ({"events": []}, "has no events"),
            ({"events": [whole["events"][0] | {"eventtype": "resourcemoved"}]}, "no event type"),
            ({"events": [whole["events"][0] | {"data": b"\xff"}]}, "snappy"),
        ]:
            ours.database.of(SPACE)[whole["_id"]] = bson.encode(whole | change)
            with pytest.raises(UndecodableEventError, match=text):
                store.load(light_id)
