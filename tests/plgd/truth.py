"""What a fleet's tables must hold, worked out one event at a time from what its hub stored and its bus lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pelton.plgd.fleet import FleetConfig, FleetRun
from pelton.plgd.fleet.delivery import Delivery
from pelton.plgd.kinds import Kind, type_of
from pelton.plgd.tables.commands import CONFIRMED, PENDING, SUCCESS

DAMAGES = {"corrupt", "wrong_envelope", "unknown_type"}
Key = tuple[str, int, int]  # aggregate, version, time
Version = tuple[str, int, int]  # aggregate, incarnation, version


class Told(FleetRun):
    """A run that keeps what its hub stored."""

    def __init__(self, config: FleetConfig) -> None:
        super().__init__(config)
        self.stored: list[Any] = []

    def of_event(self, event: Any) -> Iterable[Delivery]:
        copy = type(event.message)()
        copy.CopyFrom(event.message)
        self.stored.append(event._replace(message=copy) if hasattr(event, "_replace") else event)
        return super().of_event(event)


def key_of(event: Any) -> Key:
    return event.aggregate_id, event.version, event.message.event_metadata.timestamp


class Expected:
    """The account of a run whose deliveries are at their end."""

    def __init__(self, run: Told) -> None:
        gone = {(x["aggregate_id"], x["incarnation"], x["version"]) for x in run.truth.losses}
        self.of_devices = [e for e in run.stored if e.aggregate_id is not None]
        self.lost = [e for e in self.of_devices if self.id_of(e) in gone]
        self.seen = [e for e in self.of_devices if self.id_of(e) not in gone]
        self.losses = {self.id_of(e): x for e, x in self.lost_with(run)}

    @staticmethod
    def id_of(event: Any) -> tuple[str, int, int]:
        return event.aggregate_id, event.incarnation, event.version

    def lost_with(self, run: Told) -> Iterable[tuple[Any, dict[str, Any]]]:
        by_id = {(x["aggregate_id"], x["incarnation"], x["version"]): x for x in run.truth.losses}
        return [(e, by_id[self.id_of(e)]) for e in self.lost]

    def events(self) -> set[Key]:
        return {key_of(event) for event in self.seen}

    def gaps(self) -> tuple[set[Version], set[Version]]:
        """Versions that must show as missing, and those that may.

        They show when a later one of their incarnation was seen, or came damaged. In an incarnation that began
        behind another one, nothing says where it began, so what was lost before its first event may stay unknown; and
        what was lost at the end of one shows if the hub goes back to just there.
        """
        came = {self.id_of(e) for e in self.seen}
        shown = came | {k for k, loss in self.losses.items() if loss["loss"] in DAMAGES}
        first: dict[tuple[str, int], int] = {}
        top: dict[tuple[str, int], int] = {}
        for aggregate, incarnation, version in shown:
            place = (aggregate, incarnation)
            top[place] = max(top.get(place, -1), version)
        for aggregate, incarnation, version in came:
            place = (aggregate, incarnation)
            first[place] = min(first.get(place, version), version)
        lost = {self.id_of(e) for e in self.lost}
        shows = {key for key in lost if key[2] <= top.get(key[:2], -1)}
        began: dict[str, int] = {}
        for aggregate, incarnation in first:
            began[aggregate] = min(began.get(aggregate, incarnation), incarnation)
        must = {
            key
            for key in shows
            if key[1] == began.get(key[0], key[1]) or key[2] > first.get(key[:2], key[2])
        }
        return must, lost

    def twins(self) -> dict[tuple[str, str], tuple[int, int, bytes]]:
        """The last change of each resource that was seen: its version, time and body."""
        found: dict[tuple[str, str], Any] = {}
        for event in self.seen:
            if type_of(event.message).name != "resourcechanged":
                continue
            place = (event.device_id, event.message.resource_id.href)
            old = found.get(place)
            if old is None or (event.incarnation, event.version) > (old.incarnation, old.version):
                found[place] = event
        return {
            place: (
                e.version,
                e.message.event_metadata.timestamp,
                e.message.content.data,
            )
            for place, e in found.items()
        }

    def commands(self, now_ns: int) -> dict[tuple[str, str], tuple[Any, ...]]:
        """Outcome, issue and end of each command, by aggregate and correlation id."""
        halves: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
        dropped: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for event in self.seen:
            name = type_of(event.message).name
            if name not in PENDING and name not in CONFIRMED:
                continue
            correlation = event.message.audit_context.correlation_id
            if not correlation:
                continue
            half = "sent" if name in PENDING else "ended"
            halves[event.aggregate_id, correlation][half] = event
            if name == "resourcedeleted" and event.message.status in {1, 8}:
                place = (event.aggregate_id, event.incarnation)
                dropped[place].append((event.version, event.message.event_metadata.timestamp))
        return {
            place: self.command(halves_of, dropped, now_ns) for place, halves_of in halves.items()
        }

    def command(
        self,
        halves: dict[str, Any],
        dropped: dict[tuple[str, int], list[tuple[int, int]]],
        now_ns: int,
    ) -> tuple[Any, ...]:
        sent, ended = halves.get("sent"), halves.get("ended")
        at = [None if e is None else e.message.event_metadata.timestamp for e in (sent, ended)]
        if ended is not None:
            if type_of(ended.message).kind is Kind.METADATA:
                outcome = "canceled" if ended.message.canceled else "success"
            else:
                status = ended.message.DESCRIPTOR.fields_by_name["status"].enum_type
                name = status.values_by_number[ended.message.status].name
                outcome = "success" if name in SUCCESS else "failed"
                outcome = "canceled" if name == "CANCELED" else outcome
            return outcome, *at
        assert sent is not None
        place = (sent.aggregate_id, sent.incarnation)
        until = sent.message.valid_until
        for version, time_ns in dropped.get(place, ()):
            if sent.version < version and (not until or time_ns // 1000 <= until // 1000):
                return "dropped", *at
        return "expired" if until and until // 1000 < now_ns // 1000 else "pending", *at

    def sessions(self) -> dict[tuple[str, int, str], bool]:
        """Whether the connection is still online, by device, time of connection and address."""
        last: dict[tuple[str, int, str], Any] = {}
        for event in self.seen:
            if type_of(event.message).name != "devicemetadataupdated":
                continue
            one = event.message.connection
            place = (event.device_id, one.connected_at // 1000, one.id)
            old = last.get(place)
            if old is None or (event.incarnation, event.version) > (old.incarnation, old.version):
                last[place] = event
        newest: dict[str, tuple[str, int, str]] = {}
        for place in sorted(last, key=lambda p: p[1]):
            newest[place[0]] = place
        return {
            place: e.message.connection.status == 1 and newest[place[0]] == place
            for place, e in last.items()
        }
