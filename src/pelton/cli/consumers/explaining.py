"""Why a consumer does not deliver a message, from the server's information about stream and
consumer. Pure.

Each reason is one sentence with its kind. A server does not say which messages between the ack floor
and the last delivered one are acknowledged; a store folder does (``Pending``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pelton.api.times import format_duration, format_time
from pelton.core.protocol.subjects import matches

if TYPE_CHECKING:
    from pelton.api.consumers import ConsumerConfig, ConsumerInfo
    from pelton.api.streams import StreamConfig, StreamState


@dataclass(frozen=True)
class Reason:
    """``kind``: a word for programs; ``text``: the sentence; ``final``: it will never be delivered (again)."""

    kind: str
    text: str
    final: bool = False


@dataclass(frozen=True)
class Message:
    """A stored message. ``newer_before_start``: a later message that the start policy took instead of it."""

    seq: int
    ts_ns: int
    subject: str
    newer_before_start: int = 0


@dataclass(frozen=True)
class Pending:
    """The exact state of a delivered message: ``deliveries`` 0 stands for acknowledged."""

    deliveries: int = 0
    last_ns: int = 0
    spent: bool = False


@dataclass(frozen=True)
class Facts:
    """The known facts. ``message`` is None when the stream has no message ``seq``; 0: no message is asked for."""

    config: StreamConfig
    state: StreamState
    consumer: ConsumerInfo
    seq: int = 0
    message: Message | None = None
    pending: Pending | None = None
    live: bool = True  # False: out of a folder, which knows no clients


def explain(facts: Facts) -> list[Reason]:
    """The reasons, the decisive ones first; never empty."""
    if facts.seq:
        about = _message(facts)
        if any(each.final for each in about):
            return about
        waits = [] if any(each.kind == "delivered" for each in about) else _queue(facts)
        return about + waits + (_consumer(facts) or [_open()])
    nothing = []
    if not facts.consumer.num_pending:
        text = "the consumer has delivered every message that matches it"
        nothing.append(Reason("nothing_pending", text))
    return nothing + (_consumer(facts) or ([] if nothing else [_open()]))


def _open() -> Reason:
    return Reason(
        "open", "nothing holds it back: the next request of a client gets it, in its turn"
    )


# -- the message ------------------------------------------------------------------------------------


def _message(facts: Facts) -> list[Reason]:
    message = facts.message
    if message is None:
        return [_missing(facts)]
    config = _config(facts)
    for test in (_filtered, _before_start):
        found = test(config, facts.consumer, message)
        if found is not None:
            return [found]
    if message.seq > facts.consumer.delivered.stream_seq:
        return []
    return [_delivered(facts, config)]


def _config(facts: Facts) -> ConsumerConfig:
    assert facts.consumer.config is not None
    return facts.consumer.config


def _missing(facts: Facts) -> Reason:
    state, config, seq = facts.state, facts.config, facts.seq
    if seq > state.last_seq:
        text = f"message {seq} is not stored yet: the stream ends at {state.last_seq}"
        return Reason("not_stored", text)
    if config.retention != "limits" and seq <= facts.consumer.ack_floor.stream_seq:
        text = f"message {seq} was acknowledged, and {config.retention} retention then removes it"
        return Reason("acknowledged", text, final=True)
    causes = [
        text
        for given, text in (
            (config.max_age > 0, f"max_age {format_duration(config.max_age)}"),
            (config.max_msgs > 0, f"max_msgs {config.max_msgs}"),
            (config.max_bytes > 0, f"max_bytes {config.max_bytes}"),
            (config.max_msgs_per_subject > 0, f"{config.max_msgs_per_subject} per subject"),
            (config.allow_msg_ttl, "a TTL of its own"),
            (config.retention != "limits", f"{config.retention} retention"),
        )
        if given
    ]
    limits = f"; the stream removes by {', '.join(causes)}" if causes else ""
    where = "before the first message" if seq < state.first_seq else "a hole in the stream"
    text = f"message {seq} is not there: {where}, deleted, purged or expired{limits}"
    return Reason("removed", text, final=True)


def _filtered(config: ConsumerConfig, info: ConsumerInfo, message: Message) -> Reason | None:
    filters = config.filter_subjects or ([config.filter_subject] if config.filter_subject else [])
    if not filters or any(matches(message.subject, each) for each in filters):
        return None
    text = f"subject {message.subject} does not match the filter {', '.join(filters)}"
    return Reason("filter", text, final=True)


def _before_start(config: ConsumerConfig, info: ConsumerInfo, message: Message) -> Reason | None:
    policy, told = config.deliver_policy, ""
    if policy == "by_start_sequence" and message.seq < config.opt_start_seq:
        told = f"the consumer starts at sequence {config.opt_start_seq}"
    elif policy == "by_start_time" and message.ts_ns < (config.opt_start_time or 0):
        told = f"the consumer starts at {format_time(config.opt_start_time or 0)}"
    elif policy == "new" and message.ts_ns < info.created:
        told = "the consumer delivers only messages stored after it was created"
    elif policy in ("last", "last_per_subject") and message.newer_before_start:
        what = "last message" if policy == "last" else "last message of each subject"
        told = f"the consumer starts with the {what}, here {message.newer_before_start}"
    if not told:
        return None
    stored = format_time(message.ts_ns)
    text = f"{told}; message {message.seq} is older (stored {stored})"
    return Reason("start", text, final=True)


def _delivered(facts: Facts, config: ConsumerConfig) -> Reason:
    info, seq = facts.consumer, facts.seq
    if config.ack_policy == "none":
        text = f"message {seq} was delivered, and the consumer needs no acks: it comes once"
        return Reason("delivered_once", text, final=True)
    if facts.pending is not None and seq > info.ack_floor.stream_seq:
        return _pending(facts.pending, config, seq)
    if seq <= info.ack_floor.stream_seq or not info.num_ack_pending:
        text = f"message {seq} was delivered, and {_ended(config)}"
        return Reason("acknowledged", text, final=True)
    wait = config.backoff[-1] if config.backoff else config.ack_wait
    text = (
        f"message {seq} was delivered; it is {_ended(config)}, or one of the {info.num_ack_pending} that wait"
        f" for an ack, and comes again at most {format_duration(wait)} after its last delivery"
    )
    return Reason("delivered", text)


def _ended(config: ConsumerConfig) -> str:
    """How a delivered message may have ended."""
    if config.max_deliver <= 0:
        return "acknowledged or terminated"
    times = "delivery" if config.max_deliver == 1 else "deliveries"
    limit = f"{config.max_deliver} {times}"
    return f"acknowledged, terminated, or given up after {limit} (max_deliver)"


def _pending(pending: Pending, config: ConsumerConfig, seq: int) -> Reason:
    given_up = pending.spent or 0 < config.max_deliver <= pending.deliveries
    if given_up:
        text = f"message {seq} was delivered {config.max_deliver} times, which is max_deliver"
        return Reason("max_deliver", text, final=True)
    if not pending.deliveries:
        text = f"message {seq} was delivered and acknowledged or terminated"
        return Reason("acknowledged", text, final=True)
    wait = config.ack_wait
    if config.backoff:
        wait = config.backoff[min(pending.deliveries, len(config.backoff)) - 1]
    text = (
        f"message {seq} waits for an ack since {format_time(pending.last_ns)} (delivery"
        f" {pending.deliveries}); without one it comes again at {format_time(pending.last_ns + wait)}"
    )
    return Reason("delivered", text)


# -- the consumer -----------------------------------------------------------------------------------


def _queue(facts: Facts) -> list[Reason]:
    if facts.message is None:
        return []
    last = facts.consumer.delivered.stream_seq
    text = f"message {facts.seq} was not delivered yet: the last delivered one is {last}"
    return [Reason("not_delivered", text)]


def _consumer(facts: Facts) -> list[Reason]:
    info, config = facts.consumer, _config(facts)
    found = []
    if info.paused:
        rest = format_duration(info.pause_remaining)
        until = f" until {format_time(config.pause_until)}" if config.pause_until else ""
        found.append(Reason("paused", f"the consumer is paused{until}, for {rest} more"))
    if config.ack_policy != "none" and 0 < config.max_ack_pending <= info.num_ack_pending:
        text = (
            f"{info.num_ack_pending} messages wait for acks, and max_ack_pending is"
            f" {config.max_ack_pending}: nothing new is delivered before an ack"
        )
        found.append(Reason("max_ack_pending", text))
    pinned = [each for each in info.priority_groups if each.pinned_client_id]
    for each in pinned:
        text = (
            f"group {each.group} is pinned to client {each.pinned_client_id} since"
            f" {format_time(each.pinned_ts)}: other clients get nothing"
        )
        found.append(Reason("pinned", text))
    if facts.live and config.deliver_subject:
        if not info.push_bound:
            text = f"nobody subscribes to {config.deliver_subject}, the subject that it delivers to"
            found.append(Reason("no_interest", text))
    elif facts.live and not info.num_waiting:
        found.append(Reason("no_request", "no pull request waits: no client asks for messages"))
    if config.replay_policy == "original":
        text = "it replays at the original speed: a message waits as long as it did when it came"
        found.append(Reason("replay", text))
    if config.rate_limit_bps:
        found.append(
            Reason("rate_limit", f"it delivers at most {config.rate_limit_bps} bits a second")
        )
    return found
