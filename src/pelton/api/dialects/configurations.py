"""Configurations of the dialects, and the same of today's API: one function for each way.

The fields of both dialects have the same meanings; `_RENAMED` has the names that differ. Defaults
differ from today's: no storage is memory, a consumer without a start begins with new messages.
Fields that a dialect does not have are left out on the way back.
"""

from typing import Annotated, Any, Literal

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pelton.api.consumers import ConsumerConfig
from pelton.api.dialects.names import KEY, MSGSETS, STREAMS
from pelton.api.fields import OMIT, Duration, Int, Int32, Int64, Time, Uint64
from pelton.api.streams import StreamConfig


class DialectError(Exception):
    """An old request is refused; str() is the text behind `-ERR`."""


class OldStream(Struct, kw_only=True):
    """A stream's configuration of 2020."""

    type_name = "StreamConfig"
    name: str = ""
    subjects: Annotated[list[str], OMIT] = field(default_factory=list)
    retention: str = "limits"
    max_consumers: Int = 0
    max_msgs: Int64 = 0
    max_bytes: Int64 = 0
    max_age: Duration = 0
    max_msg_size: Annotated[Int32, OMIT] = 0
    storage: str = "memory"
    num_replicas: Int = 0
    no_ack: Annotated[bool, OMIT] = False
    template_owner: Annotated[str, OMIT] = ""


class MessageSet(Struct, kw_only=True):
    """A message set's configuration of 2019."""

    type_name = "MsgSetConfig"
    name: str = ""
    subjects: Annotated[list[str], OMIT] = field(default_factory=list)
    retention: str = "stream_limits"
    max_observables: Int = 0
    max_msgs: Int64 = 0
    max_bytes: Int64 = 0
    max_age: Duration = 0
    max_msg_size: Annotated[Int32, OMIT] = 0
    storage: str = "memory"
    num_replicas: Int = 0
    no_ack: Annotated[bool, OMIT] = False


class OldConsumer(Struct, kw_only=True):
    """A consumer's configuration of 2020."""

    type_name = "ConsumerConfig"
    delivery_subject: str = ""
    durable_name: Annotated[str, OMIT] = ""
    stream_seq: Annotated[Uint64, OMIT] = 0
    start_time: Time = 0
    deliver_all: Annotated[bool, OMIT] = False
    deliver_last: Annotated[bool, OMIT] = False
    ack_policy: str = "none"
    ack_wait: Annotated[Duration, OMIT] = 0
    max_deliver: Annotated[Int, OMIT] = 0
    filter_subject: Annotated[str, OMIT] = ""
    replay_policy: str = "instant"
    sample_freq: Annotated[str, OMIT] = ""


class Observable(Struct, kw_only=True):
    """An observable's configuration of 2019."""

    type_name = "ObservableConfig"
    delivery_subject: str = ""
    durable_name: Annotated[str, OMIT] = ""
    msg_set_seq: Annotated[Uint64, OMIT] = 0
    start_time: Time = 0
    deliver_all: Annotated[bool, OMIT] = False
    deliver_last: Annotated[bool, OMIT] = False
    ack_policy: str = "none"
    ack_wait: Annotated[Duration, OMIT] = 0
    max_deliver: Annotated[Int, OMIT] = 0
    subject: Annotated[str, OMIT] = ""
    replay_policy: str = "instant"
    sample_frequency: Annotated[str, OMIT] = ""


# 2019 -> 2020
_RENAMED = {
    "max_observables": "max_consumers",
    "msg_set_seq": "stream_seq",
    "subject": "filter_subject",
    "sample_frequency": "sample_freq",
}
_BACK = {new: old for old, new in _RENAMED.items()}
# every spelling of a retention, in lower case -> today's word
_RETENTIONS = {
    **dict.fromkeys(("", "limits", "stream_limits", "stream"), "limits"),
    **dict.fromkeys(("interest", "interest_based"), "interest"),
    **dict.fromkeys(("workqueue", "work_queue", "work", "workq"), "workqueue"),
}
_RETENTIONS_OF_2019 = {
    "limits": "stream_limits",
    "interest": "interest_based",
    "workqueue": "work_queue",
}
_REPLICAS_MAX = 8
_ACKS: dict[str, Literal["none", "all", "explicit"]] = {
    "none": "none",
    "all": "all",
    "explicit": "explicit",
}
_REPLAYS: dict[str, Literal["instant", "original"]] = {"instant": "instant", "original": "original"}


def stream_of(old: OldStream | MessageSet) -> StreamConfig:
    """Today's configuration of a stream or message set. DialectError: it is not valid."""
    dialect = MSGSETS if isinstance(old, MessageSet) else STREAMS
    fields = _renamed(asdict(old), _RENAMED)
    owner = fields.pop("template_owner", "")
    if fields["retention"].lower() not in _RETENTIONS:
        raise DialectError("bad request")
    if fields["storage"].lower() not in ("", "memory", "file"):
        raise DialectError("bad request")
    fields["retention"] = _RETENTIONS[fields["retention"].lower()]
    fields["storage"] = fields["storage"].lower() or "memory"
    for name in ("max_consumers", "max_msgs", "max_bytes", "max_msg_size"):
        fields[name] = fields[name] or -1
    fields["max_age"] = max(fields["max_age"], 0)
    if fields["num_replicas"] > (_REPLICAS_MAX if dialect == MSGSETS else 1):
        raise DialectError(f"maximum replicas is {_REPLICAS_MAX if dialect == MSGSETS else 1}")
    fields["num_replicas"] = 1  # 2019 promised replicas that no server made
    fields["subjects"] = fields["subjects"] or [old.name]
    metadata = {KEY: dialect} | ({"_js.template": owner} if owner else {})
    return StreamConfig(**fields, metadata=metadata)


def old_stream(config: StreamConfig) -> OldStream:
    """The configuration of 2020 that says most of a stream's."""
    names = OldStream.__struct_fields__
    fields = {name: each for name, each in asdict(config).items() if name in names}
    return OldStream(**fields, template_owner=config.metadata.get("_js.template", ""))


def message_set(config: StreamConfig) -> MessageSet:
    """The configuration of 2019 that says most of a stream's."""
    fields = _renamed(asdict(old_stream(config)), _BACK)
    del fields["template_owner"]
    return MessageSet(**fields | {"retention": _RETENTIONS_OF_2019[config.retention]})


def updated(present: StreamConfig, old: OldStream) -> StreamConfig:
    """A stream's configuration after an update of 2020, which keeps what that year did not have."""
    wanted = stream_of(old)
    names = set(OldStream.__struct_fields__) - {"template_owner"}
    return replace(present, **{name: getattr(wanted, name) for name in names})


def consumer_of(old: OldConsumer | Observable) -> ConsumerConfig:
    """Today's configuration of a consumer or observable. DialectError: it is not valid."""
    dialect = MSGSETS if isinstance(old, Observable) else STREAMS
    noun = "observable" if dialect == MSGSETS else "consumer"
    given = OldConsumer(**_renamed(asdict(old), _RENAMED))
    starts = (given.stream_seq, given.start_time, given.deliver_all, given.deliver_last)
    if sum(map(bool, starts)) > 1:
        raise DialectError(f"{noun} starting position conflict")
    if not given.delivery_subject and given.ack_policy != "explicit":
        raise DialectError(f"{noun} in pull mode requires explicit ack policy")
    if not given.delivery_subject and not given.durable_name and dialect == STREAMS:
        raise DialectError("consumer in pull mode requires a durable name")
    ack, replay = _ACKS.get(given.ack_policy), _REPLAYS.get(given.replay_policy)
    if ack is None or replay is None:
        raise DialectError("bad request")
    config = ConsumerConfig(
        ack_policy=ack,
        replay_policy=replay,
        durable_name=given.durable_name,
        deliver_subject=given.delivery_subject,
        ack_wait=given.ack_wait,
        max_deliver=given.max_deliver or -1,
        max_ack_pending=0 if given.ack_policy == "none" else -1,
        filter_subject=given.filter_subject,
        sample_freq=given.sample_freq,
        opt_start_seq=given.stream_seq,
        opt_start_time=given.start_time or None,
        metadata={KEY: dialect},
    )
    config.deliver_policy = (
        "all"
        if given.deliver_all
        else "last"
        if given.deliver_last
        else "by_start_sequence"
        if given.stream_seq
        else "by_start_time"
        if given.start_time
        else "new"
    )
    return config


def old_consumer(config: ConsumerConfig) -> OldConsumer:
    """The configuration of 2020 that says most of a consumer's."""
    filters = [config.filter_subject] if config.filter_subject else config.filter_subjects
    return OldConsumer(
        delivery_subject=config.deliver_subject,
        durable_name=config.durable_name,
        stream_seq=config.opt_start_seq,
        start_time=config.opt_start_time or 0,
        deliver_all=config.deliver_policy == "all",
        deliver_last=config.deliver_policy in ("last", "last_per_subject"),
        ack_policy=config.ack_policy if config.ack_policy in ("none", "all") else "explicit",
        ack_wait=config.ack_wait,
        max_deliver=config.max_deliver,
        filter_subject=filters[0] if len(filters) == 1 else "",
        replay_policy=config.replay_policy,
        sample_freq=config.sample_freq,
    )


def observable(config: ConsumerConfig) -> Observable:
    """The configuration of 2019 that says most of a consumer's."""
    return Observable(**_renamed(asdict(old_consumer(config)), _BACK))


def _renamed(fields: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(name, name): each for name, each in fields.items()}
