"""The options that say how a stream is configured, and the configuration that they make. No I/O.

``add`` begins with the defaults, ``edit`` and ``copy`` with an existing configuration; an option that is
not given changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from pelton.api.streams import SERVERS_OWN
from pelton.cli.values import (
    DURATION,
    LIFETIME,
    SIZE,
    SIZE_32,
    STORAGE,
    UINT64_MOST,
    WHOLE,
    Whole,
    Word,
    pairs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pelton.client.base.models import StreamConfig, StreamSource

F = TypeVar("F", bound="Callable[..., object]")

RETENTION = {"work": "workqueue", "workq": "workqueue"}


def _flag(name: str, text: str) -> Callable[[F], F]:
    return click.option(f"--{name}/--no-{name}", default=None, help=text)


OPTIONS = [
    click.option(
        "--subjects",
        multiple=True,
        help="Subjects to store, also with commas; by default the name of the stream.",
    ),
    click.option("--description", default=None, help="The stream's description."),
    click.option(
        "--storage",
        type=STORAGE,
        help="Where messages are kept: file (the default) or memory.",
    ),
    click.option(
        "--compression",
        type=Word(["none", "s2"]),
        help="Compress blocks on the disk; none by default.",
    ),
    click.option(
        "--replicas",
        type=Whole(1),
        default=None,
        help="Copies in a cluster; 1 by default.",
    ),
    click.option(
        "--tag",
        "--tags",
        "tags",
        multiple=True,
        help="Place it on servers with this tag; repeatable.",
    ),
    click.option("--cluster", default=None, help="Place it in this cluster."),
    _flag("ack", "Acknowledge publishes; the default."),
    click.option(
        "--retention",
        type=Word(["limits", "interest", "workqueue", "work", "workq"]),
        default=None,
        help="When messages are removed: at limits (the default), when all consumers, or one, have acked.",
    ),
    click.option(
        "--discard",
        type=Word(["old", "new"]),
        default=None,
        help="What a full stream does: drop old messages (the default), or refuse new ones.",
    ),
    _flag(
        "discard-per-subject", "With --discard new: refuse messages of a subject that is full, too."
    ),
    click.option(
        "--first-sequence",
        type=Whole(0, UINT64_MOST),
        help="Sequence of the first message; 1 by default.",
    ),
    click.option(
        "--max-age",
        type=LIFETIME,
        default=None,
        help="How long to keep messages, such as 12h, 30d, 1y; -1: for ever.",
    ),
    click.option(
        "--max-bytes",
        type=SIZE,
        default=None,
        help="Most bytes to keep, such as 10GB (powers of 1024); -1: no limit.",
    ),
    click.option("--max-consumers", type=WHOLE, default=None, help="Most consumers; -1: no limit."),
    click.option(
        "--max-msg-size",
        type=SIZE_32,
        default=None,
        help="Largest message with its headers, such as 1MB; -1: no limit.",
    ),
    click.option(
        "--max-msgs", type=WHOLE, default=None, help="Most messages to keep; -1: no limit."
    ),
    click.option(
        "--max-msgs-per-subject",
        type=WHOLE,
        default=None,
        help="Most messages to keep of each subject; -1: no limit.",
    ),
    click.option(
        "--dupe-window",
        type=DURATION,
        default=None,
        help="How long message ids are remembered to drop duplicates; 2m by default.",
    ),
    click.option("--mirror", default=None, help="Copy this stream, with the same sequences."),
    click.option("--no-mirror", is_flag=True, help="Make the mirror an independent stream."),
    click.option(
        "--source",
        "sources",
        multiple=True,
        help="Also store what this stream stores: a name, or JSON; repeatable.",
    ),
    _flag("allow-batch", "Allow atomic batches."),
    _flag("allow-fast", "Allow fast-ingest batches."),
    _flag("allow-counter", "Let the subjects be counters."),
    _flag("allow-rollup", "Allow messages that replace all earlier ones (Nats-Rollup)."),
    _flag("deny-delete", "Refuse to delete single messages, for ever."),
    _flag("deny-purge", "Refuse to purge, for ever."),
    _flag("allow-direct", "Let clients read messages without the leader; add does by default."),
    _flag("allow-mirror-direct", "Let a mirror answer direct gets of its origin."),
    _flag("allow-msg-ttl", "Allow messages with their own lifetime (Nats-TTL)."),
    _flag("allow-schedules", "Allow messages that are published later."),
    click.option(
        "--subject-del-markers-ttl",
        type=DURATION,
        default=None,
        help="Leave a marker for this long when the last message of a subject expires.",
    ),
    click.option("--transform-source", default=None, help="Store messages of this subject ..."),
    click.option("--transform-destination", default=None, help="... with this one."),
    click.option("--no-transform", is_flag=True, help="Do not transform subjects any more."),
    click.option(
        "--metadata",
        multiple=True,
        metavar="NAME=VALUE",
        help="A name and a value for the metadata; repeatable.",
    ),
    click.option("--republish-source", default=None, help="Publish stored messages of this ..."),
    click.option("--republish-destination", default=None, help="... again on this subject."),
    click.option("--republish-headers", is_flag=True, help="Only their headers."),
    click.option("--no-republish", is_flag=True, help="Do not republish any more."),
    click.option(
        "--limit-consumer-inactive",
        type=LIFETIME,
        default=None,
        help="How long a consumer may be unused at most.",
    ),
    click.option(
        "--limit-consumer-max-pending",
        type=WHOLE,
        default=None,
        help="How many unacknowledged messages a consumer may have at most.",
    ),
    click.option(
        "--persist-mode",
        type=Word(["default", "async"]),
        help="With async, acks do not wait for the disk.",
    ),
]
_PLAIN = {
    "description": "description",
    "compression": "compression",
    "replicas": "num_replicas",
    "discard": "discard",
    "discard_per_subject": "discard_new_per_subject",
    "first_sequence": "first_seq",
    "max_bytes": "max_bytes",
    "max_consumers": "max_consumers",
    "max_msg_size": "max_msg_size",
    "max_msgs": "max_msgs",
    "max_msgs_per_subject": "max_msgs_per_subject",
    "allow_batch": "allow_atomic",
    "allow_fast": "allow_batched",
    "allow_counter": "allow_msg_counter",
    "allow_rollup": "allow_rollup_hdrs",
    "deny_delete": "deny_delete",
    "deny_purge": "deny_purge",
    "allow_direct": "allow_direct",
    "allow_mirror_direct": "mirror_direct",
    "allow_msg_ttl": "allow_msg_ttl",
    "allow_schedules": "allow_msg_schedules",
    "persist_mode": "persist_mode",
}
_SPANS = {
    "max_age": "max_age",
    "dupe_window": "duplicate_window",
    "subject_del_markers_ttl": "subject_delete_marker_ttl",
}


def configured(function: F) -> F:
    """The options of a stream's configuration."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def split_subjects(given: Sequence[str]) -> list[str]:
    """The subjects of options, each of which may have several with commas or blanks."""
    return [part for each in given for part in each.replace(",", " ").split()]


def changes_anything(given: dict[str, Any]) -> bool:
    """Whether any option of the configuration is given."""
    return any(value not in (None, (), False) or value is False for value in _said(given).values())


def _said(given: dict[str, Any]) -> dict[str, Any]:
    switches = ("no_mirror", "no_transform", "republish_headers", "no_republish")
    return {
        name: value
        for name, value in given.items()
        if value is not None and value != () and not (name in switches and not value)
    }


def with_options(base: StreamConfig, given: dict[str, Any]) -> StreamConfig:
    """The configuration with the values of the options; UsageError for options that do not go together."""
    from pelton.client.base.durations import Nanoseconds

    said = _said(given)
    fields: dict[str, Any] = {
        field: said[option] for option, field in _PLAIN.items() if option in said
    }
    fields |= {field: Nanoseconds(said[name]) for name, field in _SPANS.items() if name in said}
    if "subjects" in said:
        fields["subjects"] = split_subjects(said["subjects"])
    if "storage" in said:
        fields["storage"] = said["storage"]
    if "retention" in said:
        fields["retention"] = RETENTION.get(said["retention"], said["retention"])
    if "ack" in said:
        fields["no_ack"] = not said["ack"]
    if said.get("discard_per_subject"):
        fields.setdefault("discard", "new")
    if "metadata" in said:
        kept = {
            name: value for name, value in base.metadata.items() if name.startswith(SERVERS_OWN)
        }
        fields["metadata"] = kept | pairs(said["metadata"], "--metadata")
    fields |= _origins(said) | _placement(base, said) | _rewriting(said) | _limits(base, said)
    return replace(base, **fields)


def _origins(said: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "mirror" in said and "no_mirror" in said:
        raise click.UsageError("--mirror and --no-mirror exclude each other")
    if "mirror" in said:
        fields["mirror"] = origin(said["mirror"], "--mirror")
    if "no_mirror" in said:
        fields["mirror"] = None
    if "sources" in said:
        fields["sources"] = [origin(each, "--source") for each in said["sources"]]
    return fields


def origin(text: str, option: str) -> StreamSource:
    """The name of a stream, or a JSON object as in a stream's configuration; BadParameter."""
    from pelton.api.codec import JsonError, decode_request
    from pelton.client.base.models import StreamSource

    if not text.startswith("{"):
        return StreamSource(name=text)
    try:
        return decode_request(StreamSource, text.encode(), strict=True)
    except JsonError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _placement(base: StreamConfig, said: dict[str, Any]) -> dict[str, Any]:
    from pelton.client.base.models import Placement

    if "tags" not in said and "cluster" not in said:
        return {}
    now = base.placement or Placement()
    return {
        "placement": replace(
            now,
            tags=list(said.get("tags", now.tags)),
            cluster=said.get("cluster", now.cluster),
        )
    }


def _rewriting(said: dict[str, Any]) -> dict[str, Any]:
    """Subject transform and republish."""
    from pelton.client.base.models import Republish, SubjectTransform

    fields: dict[str, Any] = {}
    if ("transform_source" in said) != ("transform_destination" in said):
        raise click.UsageError("--transform-source and --transform-destination go together")
    if "transform_source" in said:
        fields["subject_transform"] = SubjectTransform(
            src=said["transform_source"], dest=said["transform_destination"]
        )
    if "no_transform" in said:
        fields["subject_transform"] = None
    if "republish_destination" in said:
        fields["republish"] = Republish(
            src=said.get("republish_source", ">"),
            dest=said["republish_destination"],
            headers_only="republish_headers" in said,
        )
    elif "republish_source" in said or "republish_headers" in said:
        raise click.UsageError("--republish-destination is missing")
    if "no_republish" in said:
        fields["republish"] = None
    return fields


def _limits(base: StreamConfig, said: dict[str, Any]) -> dict[str, Any]:
    from pelton.client.base.durations import Nanoseconds

    fields: dict[str, Any] = {}
    if "limit_consumer_inactive" in said:
        fields["inactive_threshold"] = Nanoseconds(said["limit_consumer_inactive"])
    if "limit_consumer_max_pending" in said:
        fields["max_ack_pending"] = said["limit_consumer_max_pending"]
    return {"consumer_limits": replace(base.consumer_limits, **fields)} if fields else {}


def read_config(text: bytes, place: str) -> StreamConfig:
    """The configuration in a text, alone or in the output of ``stream info --json``; Mistakes."""
    from pelton.api import StreamConfig as Wire
    from pelton.api.codec import decode_response
    from pelton.cli.changes import read_fields
    from pelton.client.base.models import StreamConfig

    return decode_response(StreamConfig, read_fields(text, place, Wire))
