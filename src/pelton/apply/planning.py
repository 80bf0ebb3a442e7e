"""The plan: the changes that make a server agree with the files.

A stream or consumer is created, updated field by field, or replaced if a server cannot change the field; a
replacement loses messages or a position. Changes that are not allowed are refused, with the reason.
Deletions need an owner: they concern streams and consumers with the owner's label that are no
longer declared.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec.structs import replace

from pelton.api import ConsumerConfig, StreamConfig, encode
from pelton.apply.crossings import crossings
from pelton.apply.defaults import settled_consumer, settled_stream
from pelton.apply.model import OWNER_KEY, Config, Declared, Entry, Place, Resource, title

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pelton.apply.inspecting import Live, LiveConsumer, LiveStream

Action: TypeAlias = Literal["create", "update", "replace", "delete", "refuse", "keep"]

_SETS = ("subjects", "filter_subjects", "sources", "priority_groups")
_ONLY_ON = {
    "sealed": "a sealed stream stays sealed",
    "deny_delete": "deny_delete cannot be taken back",
    "deny_purge": "deny_purge cannot be taken back",
    "allow_msg_ttl": "allow_msg_ttl cannot be taken back",
    "allow_msg_schedules": "allow_msg_schedules cannot be taken back",
}
_FIXED_STREAM = ("storage", "allow_msg_counter", "persist_mode", "first_seq")
_PULLS = ("push", "pull")
_FIXED_CONSUMER = (
    "durable_name",
    "deliver_policy",
    "opt_start_seq",
    "opt_start_time",
    "ack_policy",
    "replay_policy",
    "mem_storage",
    "direct",
    "sourcing",
    "idle_heartbeat",
    "flow_control",
    "max_waiting",
)


@dataclass(frozen=True)
class Difference:
    """A field that is not as declared; None is a value that is absent."""

    field: str
    now: Any
    wanted: Any


@dataclass(frozen=True)
class Change:
    """What happens to a stream, a consumer, or an entry of a bucket.

    reasons: why it is replaced or refused. loss: what a replacement or deletion loses, "" for nothing. wanted: the
    configuration to send. value: that of an entry, written if the key is at ``revision`` still (0: not there).
    """

    action: Action
    stream: str
    consumer: str = ""
    place: Place | None = None
    differences: tuple[Difference, ...] = ()
    reasons: tuple[str, ...] = ()
    loss: str = ""
    wanted: Config | None = None
    entry: str = ""
    value: bytes = b""
    revision: int = 0

    @property
    def title(self) -> str:
        """How people call what changes."""
        return title(self.stream, self.consumer, self.entry)


@dataclass
class Plan:
    """All changes in the order in which they are made; what stays as it is comes last."""

    changes: list[Change] = field(default_factory=list)

    def of(self, *actions: Action) -> list[Change]:
        """The changes of some kinds."""
        return [each for each in self.changes if each.action in actions]

    @property
    def pending(self) -> list[Change]:
        """What has to be done."""
        return self.of("create", "update", "replace", "delete")

    @property
    def refused(self) -> list[Change]:
        """The refused changes."""
        return self.of("refuse")

    @property
    def losses(self) -> list[Change]:
        """The changes that lose messages or a position."""
        return [each for each in self.pending if each.loss]


class Rules(Protocol):
    """The rules of servers, which a plan is checked against as a whole."""

    def stream(
        self,
        config: StreamConfig,
        now: StreamConfig | None,
        find: Callable[[str], StreamConfig | None],
        /,
    ) -> str:
        """Return why the server would not take a stream beside those that ``find`` returns; "" if it may.
        ``now`` is the configuration that the server has. Called once for each stream that changes.
        """

    def consumer(self, config: ConsumerConfig, stream: StreamConfig, /) -> str:
        """Return why the server would not take a consumer of a stream; "" if it may."""


def plan(
    declared: Declared,
    live: Live,
    *,
    owner: str = "",
    prune: bool = False,
    rules: Rules | None = None,
) -> Plan:
    """What has to be done. ``owner`` labels declared resources; ``prune`` deletes what else has the label.

    Changes that break ``rules`` are refused.
    """
    if prune and not owner:
        raise ValueError("to prune, an owner is needed: --owner NAME says what may be deleted")
    planner = _Planner(live, owner)
    streams = [planner.stream(each) for each in declared.resources if not each.consumer]
    streams = planner.without_crossings(streams, prune)
    planner.note(streams)
    consumers = [planner.consumer(each) for each in declared.resources if each.consumer]
    if rules is not None:
        streams = [planner.ruled(each, rules) for each in streams]
        consumers = [planner.ruled(each, rules) for each in consumers]
    entries = [planner.entry(each) for each in declared.entries]
    deleted: list[Change] = []
    if prune:
        deleted = list(planner.pruned({each.key for each in declared.resources}))
    return Plan(list(_ordered([*streams, *consumers, *entries, *deleted])))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class _Planner:
    def __init__(self, live: Live, owner: str) -> None:
        self.live, self.owner = live, owner
        self.configs = {name: each.config for name, each in live.streams.items()}
        self.replaced: set[str] = set()

    def note(self, changes: Iterable[Change]) -> None:
        """Remember the streams as they will be, for their consumers."""
        for each in changes:
            if isinstance(each.wanted, StreamConfig):
                self.configs[each.stream] = each.wanted
            if each.action == "replace":
                self.replaced.add(each.stream)

    def without_crossings(self, changes: list[Change], prune: bool) -> list[Change]:
        """The changes, and a refusal for each stream whose subjects another one has or will have."""
        asked = {each.stream for each in changes}
        there = {
            name: each.config.subjects
            for name, each in self.live.streams.items()
            if name not in asked and not (prune and self._owns(each.config))
        }
        coming: dict[str, list[str]] = {}
        for each in sorted(changes, key=lambda each: each.action != "keep"):
            if isinstance(each.wanted, StreamConfig):
                (there if each.action == "keep" else coming)[each.stream] = each.wanted.subjects
        reasons = crossings(there, coming)
        return [
            Change("refuse", each.stream, place=each.place, reasons=(reasons[each.stream],))
            if each.stream in reasons
            else each
            for each in changes
        ]

    def ruled(self, change: Change, rules: Rules) -> Change:
        """The change, or a refusal if it breaks a rule."""
        wanted = change.wanted
        reason = ""
        if change.action == "keep" or wanted is None:
            return change
        if isinstance(wanted, StreamConfig):
            live = self.live.streams.get(change.stream)
            reason = rules.stream(wanted, live.config if live else None, self.configs.get)
        elif change.stream in self.configs:
            reason = rules.consumer(wanted, self.configs[change.stream])
        if not reason:
            return change
        return Change("refuse", change.stream, change.consumer, change.place, reasons=(reason,))

    def _owns(self, config: Config) -> bool:
        return config.metadata.get(OWNER_KEY) == self.owner

    def stream(self, resource: Resource) -> Change:
        assert isinstance(resource.config, StreamConfig)
        name, live = resource.stream, self.live.streams.get(resource.stream)
        if name in self.live.unavailable:
            reason = self.live.unavailable[name] or "no server that holds it answers"
            return self.refuse(resource, f"the server cannot read it: {reason}")
        wanted, doubt = self.labelled(resource.config, live.config if live else None)
        if doubt:
            return self.refuse(resource, doubt)
        wanted = settled_stream(wanted)
        if live is None:
            if wanted.sealed:
                return self.refuse(resource, "a new stream cannot be sealed")
            return self.create(resource, wanted, StreamConfig(name=name))
        now = settled_stream(live.config)
        found = differences(now, wanted)
        reasons = tuple(_fixed_stream(now, wanted))
        if reasons and wanted.sealed:
            return self.refuse(resource, "a new stream cannot be sealed", *reasons)
        return self.change(resource, wanted, found, reasons, self.stream_loss(name, live))

    def stream_loss(self, name: str, live: LiveStream) -> str:
        """What goes with a stream; its consumers that are declared are made again."""
        parts = [_count(live.messages, "message")] if live.messages else []
        moved = [key for key in self.live.consumers_of(name) if self.live.consumers[key].delivered]
        if moved:
            parts.append(f"positions of {_count(len(moved), 'consumer')}")
        return " and ".join(parts)

    def consumer(self, resource: Resource) -> Change:
        assert isinstance(resource.config, ConsumerConfig)
        stream, live = self.configs.get(resource.stream), self.live.consumers.get(resource.key)
        if stream is None:
            text = f"there is no stream {resource.stream}, and none is declared"
            return self.refuse(resource, text)
        wanted, doubt = self.labelled(resource.config, live.config if live else None)
        if doubt:
            return self.refuse(resource, doubt)
        if live is not None and wanted.pause_until is None:
            wanted.pause_until = live.config.pause_until
        wanted = settled_consumer(wanted, stream)
        if live is None:
            return self.create(resource, wanted, ConsumerConfig(ack_policy="none"))
        now = settled_consumer(live.config, None)
        found = differences(now, wanted)
        reasons = tuple(_fixed_consumer(now, wanted))
        if resource.stream in self.replaced:
            reasons = (f"stream {resource.stream} is replaced", *reasons)
        return self.change(resource, wanted, found, reasons, _position(live))

    def entry(self, declared: Entry) -> Change:
        """An entry is written if its key has another value; the history of its bucket keeps that."""
        stream, live = declared.stream, self.live.entries.get(declared.key)
        reasons: tuple[str, ...] = ()
        if stream in self.live.unavailable:
            reasons = (f"the server cannot read bucket {declared.bucket}",)
        elif stream not in self.configs:
            reasons = (f"there is no bucket {declared.bucket}, and none is declared",)
        if stream in self.replaced:
            live = None
        now = None if live is None else live.value
        action: Action = "refuse" if reasons else "create" if now is None else "update"
        found = () if reasons else (Difference("value", readable(now), readable(declared.value)),)
        if now == declared.value and not reasons:
            action, found = "keep", ()
        return Change(
            action,
            stream,
            place=declared.place,
            differences=found,
            reasons=reasons,
            entry=declared.name,
            value=declared.value,
            revision=0 if live is None else live.revision,
        )

    def labelled(self, config: Any, live: Any) -> tuple[Any, str]:
        """The configuration with the owner's label, and why it must not have it."""
        said = config.metadata.get(OWNER_KEY, "")
        there = live.metadata.get(OWNER_KEY, "") if live is not None else ""
        metadata = dict(config.metadata)
        if self.owner:
            if said not in ("", self.owner):
                return config, f'it says {OWNER_KEY} "{said}", and --owner is "{self.owner}"'
            if there not in ("", self.owner):
                return config, f'"{there}" manages it, and --owner is "{self.owner}"'
            metadata[OWNER_KEY] = self.owner
        elif there and not said:
            metadata[OWNER_KEY] = there
        return replace(config, metadata=metadata), ""

    def refuse(self, resource: Resource, *reasons: str) -> Change:
        return Change("refuse", resource.stream, resource.consumer, resource.place, reasons=reasons)

    def create(self, resource: Resource, wanted: Config, nothing: Config) -> Change:
        found = differences(nothing, wanted)
        return Change(
            "create", resource.stream, resource.consumer, resource.place, found, wanted=wanted
        )

    def change(
        self,
        resource: Resource,
        wanted: Config,
        found: tuple[Difference, ...],
        reasons: tuple[str, ...],
        loss: str,
    ) -> Change:
        action: Action = "replace" if reasons else "update" if found else "keep"
        if action != "keep" and resource.prevent_update:
            return self.refuse(resource, "its declaration forbids updates", *reasons)
        if action == "replace" and resource.prevent_delete:
            return self.refuse(resource, "its declaration forbids a replacement", *reasons)
        return Change(
            action,
            resource.stream,
            resource.consumer,
            resource.place,
            found,
            reasons,
            loss if action == "replace" else "",
            wanted,
        )

    def pruned(self, declared: set[tuple[str, str]]) -> Iterator[Change]:
        """The resources with the owner's label that are not declared."""
        gone = set()
        for name, live in sorted(self.live.streams.items()):
            if self._owns(live.config) and (name, "") not in declared:
                gone.add(name)
                yield Change("delete", name, loss=self.stream_loss(name, live))
        for key, each in sorted(self.live.consumers.items()):
            if (
                self._owns(each.config)
                and key not in declared
                and key[0] not in gone | self.replaced
            ):
                yield Change("delete", *key, loss=_position(each))


def _position(live: LiveConsumer) -> str:
    if not live.delivered:
        return ""
    text = f"its position at sequence {live.delivered:,}"
    return f"{text} with {_count(live.pending, 'pending ack')}" if live.pending else text


def readable(value: bytes | None) -> str | None:
    """A value of an entry as text; bytes that are no UTF-8 as Base64 with a mark."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"base64:{b64encode(value).decode()}"


def as_data(config: Config) -> dict[str, Any]:
    """A configuration as JSON, sets of subjects and origins in order."""
    data: dict[str, Any] = json.loads(encode(config))
    for name in _SETS:
        if name in data:
            data[name] = sorted(data[name], key=json.dumps)
    tags = data.get("placement", {}).get("tags")
    if tags:
        data["placement"]["tags"] = sorted(tags)
    return data


def differences(now: Config, wanted: Config) -> tuple[Difference, ...]:
    """The fields that differ, in the API's order."""
    one, other = as_data(now), as_data(wanted)
    return tuple(
        Difference(name, one.get(name), other.get(name))
        for name in type(wanted).__struct_fields__
        if one.get(name) != other.get(name)
    )


def _fixed_stream(now: StreamConfig, wanted: StreamConfig) -> Iterator[str]:
    """Why a server would refuse an update of a stream."""
    for name in _FIXED_STREAM:
        if getattr(now, name) != getattr(wanted, name):
            yield f"{name} cannot change"
    kinds = (now.retention, wanted.retention)
    if kinds[0] != kinds[1] and "workqueue" in kinds:
        yield "retention cannot change from or to workqueue"
    if wanted.mirror is not None and wanted.mirror != now.mirror:
        yield "a mirror cannot change, only end"
    for name, reason in _ONLY_ON.items():
        if getattr(now, name) and not getattr(wanted, name):
            yield reason


def _fixed_consumer(now: ConsumerConfig, wanted: ConsumerConfig) -> Iterator[str]:
    """Why a server would refuse an update of a consumer."""
    pulls = (not now.deliver_subject, not wanted.deliver_subject)
    if pulls[0] != pulls[1]:
        yield f"a {_PULLS[pulls[0]]} consumer cannot become a {_PULLS[pulls[1]]} consumer"
    for name in _FIXED_CONSUMER:
        if name == "max_waiting" and pulls[0] != pulls[1]:
            continue
        if getattr(now, name) != getattr(wanted, name):
            yield f"{name} cannot change"


def _ordered(changes: list[Change]) -> Iterator[Change]:
    """Deletions, then streams that give up subjects, others, origins first, then consumers, then entries."""
    streams = [each for each in changes if not each.consumer and not each.entry]
    consumers = [each for each in changes if each.consumer]
    entries = [each for each in changes if each.entry]
    yield from (each for each in consumers if each.action == "delete")
    yield from (each for each in streams if each.action == "delete")
    yield from sorted(
        (each for each in streams if each.action in ("update", "replace")), key=_growth
    )
    yield from _origins_first([each for each in streams if each.action == "create"])
    yield from (each for each in consumers if each.action in ("create", "update", "replace"))
    yield from (each for each in entries if each.action in ("create", "update"))
    yield from (each for each in changes if each.action == "refuse")
    yield from (each for each in changes if each.action == "keep")


def _growth(change: Change) -> int:
    """How many subjects a stream takes that it did not have."""
    for each in change.differences:
        if each.field == "subjects":
            return len(set(each.wanted or []) - set(each.now or []))
    return 0


def _origins_first(changes: list[Change]) -> list[Change]:
    """New streams, each behind those that it copies."""
    waiting, found = {each.stream: each for each in changes}, []

    def take(name: str) -> None:
        change = waiting.pop(name, None)
        if change is None:
            return
        assert isinstance(change.wanted, StreamConfig)
        mirror = [change.wanted.mirror] if change.wanted.mirror else []
        for origin in [*mirror, *change.wanted.sources]:
            take(origin.name)
        found.append(change)

    for each in changes:
        take(each.stream)
    return found
