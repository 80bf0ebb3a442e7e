"""The checks that streams and consumers ask for in their metadata, with ``io.nats.monitor.enabled``.

They are those of ``pelton server check stream`` and ``consumer``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pelton.cli.audit.archive import STREAM_KIND, Reader
from pelton.cli.audit.check import Check, Findings, Thresholds
from pelton.cli.server import check_rules
from pelton.cli.server.check_report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STREAM = (
    "lag-critical",
    "seen-critical",
    "min-sources",
    "max-sources",
    "peer-expect",
    "peer-lag-critical",
    "peer-seen-critical",
    "msgs-warn",
    "msgs-critical",
    "subjects-warn",
    "subjects-critical",
)
_CONSUMER = (
    "outstanding-ack-critical",
    "waiting-critical",
    "unprocessed-critical",
    "redelivery-critical",
    "last-delivery-critical",
    "last-ack-critical",
)
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def _leading(archive: Reader) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """(account, stream, server, detail) of the copy of each stream that leads."""
    for tags, detail in archive.pages(artifact_type=STREAM_KIND):
        if _leads(detail, tags["server"]):
            yield tags["account"], tags["stream"], tags["server"], detail


def _leads(found: Mapping[str, Any], server: str) -> bool:
    leader = (found.get("cluster") or {}).get("leader")
    return not leader or leader == server


def _metadata(found: Mapping[str, Any]) -> dict[str, str]:
    """The metadata if the check is enabled; empty if not."""
    metadata: dict[str, str] = (found.get("config") or {}).get("metadata") or {}
    return metadata if metadata.get(check_rules.METADATA + "enabled") in _TRUE else {}


def _streams(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    from pelton.api.codec import decode_response
    from pelton.client.base.models import StreamInfo

    for account, stream, _, detail in _leading(archive):
        metadata = _metadata(detail)
        if not metadata:
            continue
        found.seen += 1
        report = Report("stream", stream)
        try:
            limits = check_rules.with_metadata(dict.fromkeys(_STREAM), metadata)
            info = decode_response(StreamInfo, json.dumps(detail).encode())
            check_rules.stream(report, info, limits)
        except ValueError as error:
            report.critical.append(str(error))
        _note(found, report, f"stream {stream} of {account}")


def _consumers(archive: Reader, thresholds: Thresholds, found: Findings) -> None:
    from pelton.api.codec import decode_response
    from pelton.api.times import parse_time
    from pelton.client.base.models import ConsumerInfo

    now_ns = parse_time(archive.metadata().get("capture_timestamp") or "1970-01-01T00:00:00Z")
    for account, stream, server, detail in _leading(archive):
        for each in detail.get("consumer_detail") or ():
            metadata = _metadata(each)
            if not metadata or not _leads(each, server):
                continue
            found.seen += 1
            report = Report("consumer", str(each.get("name", "")))
            try:
                limits = check_rules.with_metadata(dict.fromkeys(_CONSUMER), metadata)
                info = decode_response(ConsumerInfo, json.dumps(each).encode())
                check_rules.consumer(report, info, limits, now_ns)
                if metadata.get(check_rules.METADATA + "pinned") in _TRUE:
                    check_rules.pinned(report, info)
            except ValueError as error:
                report.critical.append(str(error))
            _note(found, report, f"consumer {report.name} of stream {stream} of {account}")


def _note(found: Findings, report: Report, what: str) -> None:
    found.critical += [f"{what}: {each}" for each in report.critical]
    found.warning += [f"{what}: {each}" for each in report.warning]


CHECKS = (
    Check(
        "JETSTREAM_004",
        "jetstream",
        "Monitored streams",
        "Streams are as their metadata wants them",
        _streams,
    ),
    Check(
        "JETSTREAM_005",
        "jetstream",
        "Monitored consumers",
        "Consumers are as their metadata wants them",
        _consumers,
    ),
)
