"""Compare, publish, report: the reconciliation of a stream with a source of truth. For blocking code."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pelton.errors import PublishFailedError

from ..bus import NoEventStreamError
from ..codec import Encoded, aggregate_of, encode, encode_registration
from ..kinds import type_of
from ..subjects import Era
from ..tables.settings import REPAIR_HEADER
from .judging import NO_OWNER, SECOND_NS, Cause, Finding, Policy, forgotten, judge, name_outages
from .registrations import LostRegistration, lost_registration
from .scanning import STATE, scan

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.client.sync import Client

    from ..subjects import LeadType
    from .judging import Kept, Repair
    from .sightings import Sightings
    from .sources import Source

EVENT = "event"
CAUSE_HEADER = f"{REPAIR_HEADER}-Cause"
SOURCE_HEADER = f"{REPAIR_HEADER}-Source"
MISSING_HEADER = f"{REPAIR_HEADER}-Missing"


def nothing(what: str, done: int, total: int | None) -> None:
    """Ignore the progress."""


@dataclass
class Report:
    """The result of a run."""

    findings: list[Finding] = field(default_factory=list)
    registrations: list[LostRegistration] = field(default_factory=list)
    messages: int = 0
    dead_letters: int = 0
    devices: int = 0
    aggregates: int = 0
    published_events: int = 0
    published_states: int = 0
    published_registrations: int = 0
    owners: dict[str, str] = field(default_factory=dict)
    """The owner, or the owner id, of each device."""

    @property
    def missing(self) -> int:
        """How many versions are missing."""
        return sum(finding.count for finding in self.findings)

    @property
    def unrepaired(self) -> int:
        """How many of them stay so."""
        return sum(len(finding.unrepaired) for finding in self.findings)

    def repairs(self) -> list[tuple[Finding, Repair]]:
        """The repairs by device, aggregate and version; a state behind the events."""
        rows = [(finding, repair) for finding in self.findings for repair in finding.repairs]
        rows.sort(
            key=lambda row: (
                row[0].device_id,
                row[0].aggregate_id,
                row[1].is_state,
                int(row[1].message.event_metadata.version),
            )
        )
        return rows

    def summary(self) -> dict[str, Any]:
        """The counts, for JSON."""
        causes: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for finding in self.findings:
            causes[finding.cause.value] += finding.count
            reasons.update(finding.unrepaired.values())
        return {
            "messages": self.messages,
            "dead_letters": self.dead_letters,
            "devices": self.devices,
            "aggregates": self.aggregates,
            "gaps": len(self.findings),
            "missing": self.missing,
            "causes": dict(sorted(causes.items())),
            "repairable": self.missing - self.unrepaired,
            "unrepaired": self.unrepaired,
            "reasons": dict(sorted(reasons.items())),
            "published_events": self.published_events,
            "published_states": self.published_states,
            "registrations": len(self.registrations),
            "published_registrations": self.published_registrations,
        }


def compare(
    source: Source,
    sightings: Sightings,
    policy: Policy,
    now_ns: int,
    progress: Callable[[str, int, int | None], None] = nothing,
) -> Report:
    """The events that the source has and the sightings lack; publishes nothing."""
    report = Report(messages=sightings.messages, dead_letters=sightings.dead_letters)
    report.owners.update(sightings.owners)
    silences = sightings.silences()
    known: set[str] = set()
    for kept in source.devices({seen.device_id for seen in sightings.aggregates.values()}):
        report.devices += 1
        report.aggregates += len(kept)
        known.update(each.aggregate_id for each in kept)
        for each in kept:
            if owner := each.owner or owner_inside(each):
                report.owners[each.device_id] = owner
        report.findings += judge(kept, sightings, silences, policy, now_ns)
        owner = next((each.owner or owner_inside(each) for each in kept), "")
        young_ns = now_ns - int(policy.grace_s * SECOND_NS)
        if lost := lost_registration(kept, owner, sightings, young_ns):
            report.registrations.append(lost)
        if report.devices % 100 == 0:
            progress("comparing devices", report.devices, None)
    for seen in sightings.aggregates.values():
        if seen.aggregate_id not in known and sightings.has_times:
            report.findings += forgotten(seen, sightings)
    name_outages(report.findings, silences)
    for finding in report.findings:
        if finding.repairs and not report.owners.get(finding.device_id):
            versions = range(finding.first, finding.last + 1)
            finding.unrepaired |= dict.fromkeys(versions, NO_OWNER)
            finding.repairs.clear()
            finding.state_version = None
    return report


def encoded_repair(
    repair: Repair,
    owner: str,
    source: str,
    sightings: Sightings,
    *,
    era: Era | None = None,
    lead: LeadType | None = None,
) -> tuple[Encoded, dict[str, str]]:
    """A repair as it is published, and its headers; the subject is like those that were seen.

    Its message id is its own, so that it also comes in place of a damaged message that had the event's.
    """
    message = repair.message
    if era is None:
        era = Era.RESOURCE if sightings.by_aggregate_id else Era.HREF
    made = encode(message, owner=owner, era=era, lead=lead)
    suffix = ""
    if lead is None and hasattr(message, "resource_id"):
        aggregate = aggregate_of(type_of(message), message)
        suffix = sightings.suffix(aggregate, tuple(message.resource_types))
    headers = {
        REPAIR_HEADER: STATE if repair.is_state else EVENT,
        CAUSE_HEADER: repair.cause.value,
        SOURCE_HEADER: source,
        MISSING_HEADER: repair.missing,
    }
    message_id = f"{made.message_id}.repair.{headers[REPAIR_HEADER]}"
    return Encoded(made.subject + suffix, made.payload, message_id), headers


class Reconciler:
    """Finds the events that a stream lacks, and publishes them.

    Subjects have the form of those in the stream, otherwise the form that ``era`` and ``lead``
    give.
    """

    def __init__(
        self,
        client: Client,
        source: Source,
        *,
        stream: str = "EVENTS",
        policy: Policy | None = None,
        era: Era | None = None,
        lead: LeadType | None = None,
        clock: Callable[[], int] = time.time_ns,
        progress: Callable[[str, int, int | None], None] = nothing,
    ) -> None:
        """``progress`` gets the step, its progress, and its total if that is known."""
        self.client = client
        self.source = source
        self.stream = stream
        self.policy = policy or Policy()
        self.era = era
        self.lead = lead
        self.clock = clock
        self.progress = progress

    def run(self, sightings: Sightings | None = None, *, repair: bool = True) -> Report:
        """Compare, and publish the repairs unless ``repair`` is false; without sightings the stream is read.

        Raises StreamNotFoundError, errors of the source (StoreError, GatewayError), and errors of
        publishing. Published repairs stay, and the next run continues.
        """
        js = self.client.jetstream()
        js.stream_info(self.stream)
        now_ns = self.clock()
        if sightings is not None:
            now_ns = min(now_ns, sightings.taken_ns or now_ns)
        else:
            sightings = scan(
                js,
                self.stream,
                owner=self.source.owner,
                progress=lambda done, total: self.progress("reading the stream", done, total),
            )
        report = compare(self.source, sightings, self.policy, now_ns, self.progress)
        if repair:
            self._publish(report, sightings)
        return report

    def _publish(self, report: Report, sightings: Sightings) -> None:
        """Publish the repairs in the order of versions."""
        js = self.client.jetstream()
        rows = report.repairs()
        publisher = js.publisher()
        try:
            with publisher:
                for lost in report.registrations:
                    made = encode_registration(lost.message())
                    headers = {
                        REPAIR_HEADER: EVENT,
                        CAUSE_HEADER: Cause.LOST.value,
                        SOURCE_HEADER: self.source.name,
                    }
                    publisher.publish(
                        made.subject,
                        made.payload,
                        headers=headers,
                        msg_id=f"{made.message_id}.repair.{EVENT}",
                    )
                for done, (finding, repair) in enumerate(rows, 1):
                    made, headers = encoded_repair(
                        repair,
                        report.owners[finding.device_id],
                        self.source.name,
                        sightings,
                        era=self.era,
                        lead=self.lead,
                    )
                    publisher.publish(
                        made.subject, made.payload, headers=headers, msg_id=made.message_id
                    )
                    if done % 100 == 0:
                        self.progress("publishing repairs", done, len(rows))
        except PublishFailedError as error:
            subject = error.failures[0][0]
            if not js.stream_names(subject):
                raise NoEventStreamError(subject) from error
            raise
        report.published_registrations = len(report.registrations)
        report.published_states = sum(repair.is_state for _, repair in rows)
        report.published_events = len(rows) - report.published_states


def owner_inside(kept: Kept) -> str:
    """The owner that a state itself names, since hub v2.12; empty if it names none."""
    snapshot = kept.snapshot
    for holder in (
        snapshot,
        getattr(snapshot, "latest_resource_change", None),
        getattr(snapshot, "device_metadata_updated", None),
    ):
        audit = getattr(holder, "audit_context", None)
        if audit is not None and audit.owner:
            return str(audit.owner)
    return ""
