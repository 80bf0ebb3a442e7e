"""An event store in MongoDB, in the hub's own layout: a hub's database can be read, and its services can read ours.

Events and their outbox are in one document, so one update writes both or neither, and no transactions are needed. The
owner of a device is in the hub's other database. Imported by its name; needs the extra ``mongo``.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from pelton.errors import not_installed

try:
    from bson import Int64
    from pymongo import MongoClient, ReturnDocument
    from pymongo.errors import (
        AutoReconnect,
        CursorNotFound,
        DocumentTooLarge,
        DuplicateKeyError,
        PyMongoError,
        WriteError,
    )
except ModuleNotFoundError as problem:
    raise not_installed(problem, "plgd,mongo") from None

from .documents import (
    DATABASE,
    EVENTS,
    INDEXES,
    OUTBOX,
    OWNERS,
    USER_DEVICES,
    changes,
    document,
    event_document,
    kept_events,
    messages_of,
    newest,
    state_of,
)
from .model import Aggregate, Outgoing, StoreError, VersionConflictError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..codec import Encoded

SELECTION_TIMEOUT_MS = 10_000
DOCUMENTS_AT_ONCE = 200
TOO_LARGE = {10334, 17419}
PENDING = "pelton_outbox"
POSITION = "pelton_position"


class MongoError(StoreError):
    """MongoDB cannot be reached, or refuses; the next call tries again."""

    def __init__(self, text: str, *, may_pass: bool = False) -> None:
        """``may_pass``: it is away, or has lost a cursor at a restart."""
        super().__init__(text)
        self.may_pass = may_pass


@contextmanager
def telling() -> Iterator[None]:
    """Raise the errors of MongoDB's driver as MongoError."""
    try:
        yield
    except PyMongoError as error:
        said = str(error).partition(" (configured timeouts")[0]  # settings and topology follow
        away = isinstance(error, AutoReconnect | CursorNotFound)
        raise MongoError(f"MongoDB: {said}", may_pass=away) from error


class MongoStore:
    """An event store in a MongoDB server.

    With ``every_event`` it keeps events between snapshots, as hubs before v2.16 do; otherwise the newest state of each
    aggregate alone. Nothing is written, and no index is made, before the first change.
    """

    at_once = 500

    def __init__(
        self,
        client: MongoClient[dict[str, Any]],
        *,
        database: str = DATABASE,
        owners: str = OWNERS,
        every_event: bool = False,
    ) -> None:
        """``database`` and ``owners`` are the names in the hub's configuration, to which it adds ``_db``."""
        self.client = client
        self.every_event = every_event
        store = client[f"{database}_db"]
        self._events = store[EVENTS]
        self._pending = store[PENDING]
        self._position = store[POSITION]
        self._owners = client[f"{owners}_db"][USER_DEVICES]
        self._ready = False

    @classmethod
    def connect(cls, url: str, *, every_event: bool = False, **options: Any) -> MongoStore:
        """A store at ``mongodb://host/database``; without a database, the hub's default. Raises MongoError."""
        if "serverselectiontimeoutms" not in url.lower():
            options.setdefault("serverSelectionTimeoutMS", SELECTION_TIMEOUT_MS)
        with telling():
            client: MongoClient[dict[str, Any]] = MongoClient(url, **options)
            name = client.get_default_database(f"{DATABASE}_db").name
            store = cls(client, database=name.removesuffix("_db"), every_event=every_event)
            client.admin.command("ping")
        return store

    def __enter__(self) -> MongoStore:
        """The store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def _prepare(self) -> None:
        """Make the hub's indexes, before the first change."""
        if not self._ready:
            for keys in INDEXES:
                self._events.create_index(keys)
            self._events.create_index([(f"{OUTBOX}.number", 1)], sparse=True)
            self._ready = True

    # -- reading ---------------------------------------------------------------------------------------

    def load(self, aggregate_id: str) -> Aggregate | None:
        """The state of an aggregate; None if there is none."""
        with telling():
            found = self._events.find_one(
                {"aggregateid": aggregate_id}, sort=[("latestversion", -1)]
            )
            if found is None:
                return None
            owner = self._owners.find_one({"_id": found["groupid"]})
        return state_of(found, "" if owner is None else owner["owner"])

    def aggregates(
        self,
        *,
        owner: str | None = None,
        device_ids: Iterable[str] = (),
        after_ns: int | None = None,
        after_device: str = "",
    ) -> Iterator[Aggregate]:
        """States that fit every filter that is given, by device and aggregate."""
        wanted = set(device_ids)
        with telling():
            if owner is not None:
                own = {row["_id"] for row in self._owners.find({"owner": owner}, {"_id": 1})}
                wanted = wanted & own if wanted else own
                if not wanted:
                    return
            query: dict[str, Any] = {"isactive": True}
            groups: dict[str, Any] = {"$in": sorted(wanted)} if wanted else {}
            if after_device:
                groups["$gt"] = after_device
            if groups:
                query["groupid"] = groups
            if after_ns is not None:
                query["latesttimestamp"] = {"$gt": Int64(after_ns)}
            order = [("groupid", 1), ("aggregateid", 1), ("latestversion", 1)]
            found = newest(self._events.find(query, batch_size=DOCUMENTS_AT_ONCE).sort(order))
            while some := list(islice(found, DOCUMENTS_AT_ONCE)):
                owners = self._owners_of({each["groupid"] for each in some})
                for each in some:
                    yield state_of(each, owners.get(each["groupid"], ""))

    def _owners_of(self, devices: set[str]) -> dict[str, str]:
        """The owners of devices."""
        rows = self._owners.find({"_id": {"$in": sorted(devices)}})
        return {row["_id"]: row["owner"] for row in rows}

    def events(self, aggregate_id: str, *, after: int = -1) -> Iterator[Any]:
        """The stored events of an aggregate with versions above ``after``, including snapshots."""
        with telling():
            rows = list(self._events.find({"aggregateid": aggregate_id}).sort("firstversion", 1))
        for row in rows:
            for message in messages_of(row):
                if message.event_metadata.version > after:
                    yield message

    def events_of(self, aggregate_ids: Sequence[str]) -> dict[str, list[Any]]:
        """The stored events of many aggregates, including snapshots."""
        found: dict[str, list[Any]] = {}
        order = [("aggregateid", 1), ("firstversion", 1)]
        with telling():
            query = {"aggregateid": {"$in": list(aggregate_ids)}}
            for row in self._events.find(query, batch_size=DOCUMENTS_AT_ONCE).sort(order):
                found.setdefault(row["aggregateid"], []).extend(messages_of(row))
        return found

    # -- changing --------------------------------------------------------------------------------------

    def append(
        self, state: Aggregate, events: Sequence[Any], published: Iterable[Encoded], *, after: int
    ) -> None:
        """Store events and their outbox in one update; VersionConflictError if the version is not ``after``."""
        with telling():
            self._prepare()
            kept = kept_events(state, events, every_event=self.every_event)
            waiting = self._numbered(published)
            if after < 0:
                self._begin(state, kept, waiting)
                if state.owner:
                    self._owners.update_one(
                        {"_id": state.device_id}, {"$set": {"owner": state.owner}}, upsert=True
                    )
            else:
                self._go_on(state, kept, waiting, after)
            self._prune(state.aggregate_id, kept)

    def _begin(self, state: Aggregate, kept: list[Any], waiting: list[dict[str, Any]]) -> None:
        """The first document of an aggregate, or of the part that no longer fits into the one before."""
        made = document(state.aggregate_id, state.device_id, kept)
        if waiting:
            made[OUTBOX] = waiting
        try:
            self._events.insert_one(made)
        except DuplicateKeyError as error:
            raise VersionConflictError(f"aggregate {state.aggregate_id} exists already") from error

    def _go_on(
        self, state: Aggregate, kept: list[Any], waiting: list[dict[str, Any]], after: int
    ) -> None:
        """Put events into the document that has the version before them."""
        pushed: dict[str, Any] = {"events": {"$each": [event_document(each) for each in kept]}}
        if waiting:
            pushed[OUTBOX] = {"$each": waiting}
        place = {"aggregateid": state.aggregate_id, "latestversion": Int64(after)}
        try:
            result = self._events.update_one(
                place, {"$set": changes(kept), "$push": pushed}, hint=INDEXES[0]
            )
        except (WriteError, DocumentTooLarge) as error:
            if not isinstance(error, DocumentTooLarge) and error.code not in TOO_LARGE:
                raise
            self._begin(state, [state.snapshot], waiting)
            self._events.update_one(place, {"$set": {"isactive": False}})
            return
        if not result.modified_count:
            raise VersionConflictError(f"aggregate {state.aggregate_id} has not version {after}")

    def _prune(self, aggregate_id: str, kept: list[Any]) -> None:
        """Remove events below the newest snapshot, except those that wait for the bus."""
        snapshots = [m.event_metadata.version for m in kept if type_is_snapshot(m)]
        if not snapshots:
            return
        version = Int64(snapshots[-1])
        older = {"aggregateid": aggregate_id, "latestversion": {"$lt": version}}
        self._rescue(older)
        self._events.delete_many(older)
        self._events.update_many(
            {"aggregateid": aggregate_id, "firstversion": {"$lt": version}},
            {
                "$set": {"firstversion": version},
                "$pull": {"events": {"version": {"$lt": version}}},
            },
        )

    def _rescue(self, query: dict[str, Any]) -> None:
        """Copy events of the outbox from documents before they are deleted; a copy and its original count as one."""
        for row in self._events.find({**query, f"{OUTBOX}.number": {"$exists": True}}, {OUTBOX: 1}):
            for each in row[OUTBOX]:
                self._pending.replace_one({"_id": each["number"]}, each, upsert=True)

    def fill(self, aggregates: Iterable[tuple[Aggregate, Sequence[Any]]]) -> int:
        """Replace whole aggregates; if one fails, those before it stay replaced."""
        count = 0
        with telling():
            self._prepare()
            for state, events in aggregates:
                kept = list(events) if self.every_event and events else [state.snapshot]
                if self.every_event:
                    last = max((n for n, m in enumerate(kept) if type_is_snapshot(m)), default=0)
                    kept = kept[last:]
                self._rescue({"aggregateid": state.aggregate_id})
                self._events.delete_many({"aggregateid": state.aggregate_id})
                self._events.insert_one(document(state.aggregate_id, state.device_id, kept))
                if state.owner:
                    self._owners.update_one(
                        {"_id": state.device_id}, {"$set": {"owner": state.owner}}, upsert=True
                    )
                count += 1
        return count

    def delete_device(self, device_id: str, published: Iterable[Encoded] = ()) -> int:
        """Forget a device; how many aggregates it had.

        Its events of leaving are put out first: if this fails in between, call it again.
        """
        with telling():
            self._prepare()
            for each in self._numbered(published):
                self._pending.replace_one({"_id": each["number"]}, each, upsert=True)
            self._rescue({"groupid": device_id})
            count = len(self._events.distinct("aggregateid", {"groupid": device_id}))
            self._events.delete_many({"groupid": device_id})
            self._owners.delete_one({"_id": device_id})
        return count

    # -- the outbox ------------------------------------------------------------------------------------

    def _numbered(self, published: Iterable[Encoded]) -> list[dict[str, Any]]:
        """Events for the outbox, with their places in it."""
        items = list(published)
        if not items:
            return []
        found = self._position.find_one_and_update(
            {"_id": "number"},
            {"$inc": {"last": Int64(len(items))}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        assert found is not None, "an upsert finds what it made"
        first = int(found["last"]) - len(items) + 1
        return [
            {
                "number": Int64(first + place),
                "subject": item.subject,
                "payload": item.payload,
                "messageid": item.message_id,
            }
            for place, item in enumerate(items)
        ]

    def outgoing(self, limit: int = 1000) -> list[Outgoing]:
        """The events that wait for the bus, oldest first."""
        some = min(limit, 2**31 - 1)
        number = f"{OUTBOX}.number"
        with telling():
            rows = self._events.find({number: {"$exists": True}}, {OUTBOX: 1}).sort(number, 1)
            found = {int(each["number"]): each for row in rows.limit(some) for each in row[OUTBOX]}
            for each in self._pending.find().sort("_id", 1).limit(some):
                found[int(each["number"])] = each
        return [
            Outgoing(each, item["subject"], bytes(item["payload"]), item["messageid"])
            for each, item in sorted(found.items())[:limit]
        ]

    def sent(self, numbers: Iterable[int], last_seq: int) -> None:
        """Remove events that the stream has from the outbox, and then note the position in the stream."""
        wanted = [Int64(number) for number in numbers]
        with telling():
            if wanted:
                self._events.update_many(
                    {f"{OUTBOX}.number": {"$in": wanted}},
                    {"$pull": {OUTBOX: {"number": {"$in": wanted}}}},
                )
                self._events.update_many({OUTBOX: {"$size": 0}}, {"$unset": {OUTBOX: ""}})
                self._pending.delete_many({"_id": {"$in": wanted}})
            self._position.update_one(
                {"_id": "position"}, {"$set": {"lastseq": Int64(last_seq)}}, upsert=True
            )

    def last_seq(self) -> int:
        """The position in the stream."""
        with telling():
            found = self._position.find_one({"_id": "position"})
        return 0 if found is None else int(found["lastseq"])


def type_is_snapshot(message: Any) -> bool:
    """Whether a message is a snapshot."""
    return str(message.DESCRIPTOR.name).endswith("SnapshotTaken")
