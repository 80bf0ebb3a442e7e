"""The differences to nats-server that are left on purpose, and how a comparison knows them.

Each has a row with its reason on the page `docs/reference/differences.md`, under the same key; a
test holds that both have the same keys. What is not here is a finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SEQUENCE = 1 << 62
MAX_METADATA_BYTES = 1 << 17

Body = dict[str, Any]


@dataclass(frozen=True)
class Waiver:
    """One difference: a request that has it is not compared."""

    key: str
    asked: Callable[[Body], object]  # whether the configuration asks for it


def _far_first(config: Body) -> bool:
    return isinstance(config.get("first_seq"), int) and config["first_seq"] > MAX_SEQUENCE


def _empty_tags(config: Body) -> bool:
    return (config.get("placement") or {}).get("tags") == []


def _bad_filter(config: Body) -> bool:
    return any(
        (source or {}).get("filter_subject") == "a b" for source in config.get("sources") or []
    )


def _metadata_at_the_limit(config: Body) -> bool:
    values = (config.get("metadata") or {}).values()
    return any(len(value) == MAX_METADATA_BYTES - 1 for value in values if isinstance(value, str))


def _advisories(config: Body) -> bool:
    return any(str(subject).startswith("$JS.EVENT") for subject in config.get("subjects") or [])


STREAM_WAIVERS = (
    Waiver("highest-sequence", _far_first),
    Waiver("first-seq-one", lambda config: config.get("first_seq") == 1),
    Waiver("empty-tags", _empty_tags),
    Waiver("advisory-counts", _advisories),
    Waiver("source-filter-update", _bad_filter),
    Waiver(
        "republish-to-nothing", lambda config: (config.get("republish") or {}).get("dest") == ""
    ),
    Waiver("metadata-at-the-limit", _metadata_at_the_limit),
)
CONSUMER_WAIVERS = (
    Waiver("internal-consumers", lambda config: config.get("direct") or config.get("sourcing")),
    Waiver("negative-priority-timeout", lambda config: config.get("priority_timeout") == -1),
    Waiver("push-into-streams", lambda config: config.get("deliver_subject") == "s.1"),
)


@dataclass(frozen=True)
class PublishWaiver:
    """One difference of the publish path: what comes after such a message is not compared."""

    key: str
    sent: Callable[[list[tuple[str, str]], Body], object]  # headers, the stream's configuration


def _empty_then_full(headers: list[tuple[str, str]], _: Body) -> bool:
    return any(
        not value.strip() and any(other == name and text.strip() for other, text in headers)
        for name, value in headers
    )


PUBLISH_WAIVERS = (
    PublishWaiver("empty-header-repeated", _empty_then_full),
    PublishWaiver(
        "local-time-zone", lambda headers, _: ("Nats-Schedule-Time-Zone", "Local") in headers
    ),
)

# Known to the comparisons themselves, which make both sides equal before they compare.
NORMALISED: tuple[str, ...] = (
    "version",
    "pause-clock",
    "error-count",
    "listed-consumers",
    "empty-stream-deleted",
    "mirror-progress",
)

KEYS = {
    *(waiver.key for waiver in (*STREAM_WAIVERS, *CONSUMER_WAIVERS, *PUBLISH_WAIVERS)),
    *NORMALISED,
}


def waived(waivers: tuple[Waiver, ...], config: Body) -> bool:
    """Whether a configuration asks for something that is known to differ."""
    return any(waiver.asked(config) for waiver in waivers)
