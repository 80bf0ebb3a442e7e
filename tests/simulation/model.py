"""The promises of the server: a simple model of streams and consumers, made from requests and
answers.

For each published message the model knows whether it was acknowledged, and whether anything may
have removed it since: a limit, an ack, a purge, a rollup, its expiry. An unanswered request may
have had an effect or none. So `may_be_gone` is true too often rather than too rarely: it counts
everything that the configurations could ever have removed.

The model knows nothing of the disk or of the inside of a server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pelton.core.protocol.subjects import matches

SECOND = 1_000_000_000
SLACK_NS = 50_000_000
NEVER = 1 << 60  # a number that no message has


@dataclass
class Publish:
    """One message as it was sent."""

    subject: str
    payload: bytes
    sent_ns: int
    msg_id: str = ""
    ttl_ns: int = 0
    rollup: str = ""
    batch: str = ""  # atomic batch: all of its messages are stored or none
    seq: int = 0  # the sequence of the PubAck; 0: not known
    acked: bool = False
    durable: bool = False  # whether the PubAck promised the disk, or a later sync has covered it
    number: int = 0  # its place in the order of all messages that were sent to the stream
    # messages with this number or a higher one were sent after its answer: it is stored before them
    answered: int = NEVER
    tries: int = 0  # how often it was sent
    refused: bool = False  # its only try was answered with an error
    passed_ns: int = 0  # when it was first sent, by a clock that never goes back
    expects: str = ""  # "stream" or "subject", whose last message it expects to be `expected`
    expected: int = 0
    plan: bool = False  # a schedule, which its last message removes
    # the stream's last sequence at each time when the message was sent again with its id and was not
    # stored any more: the ids of removed messages are known to one server only
    forgotten: list[int] = field(default_factory=list)


@dataclass
class Removal:
    """A purge or delete that was sent, and the messages that it may have removed."""

    subject: str = ">"
    below: int = 0  # only sequences below; 0: all
    seq: int = 0  # only this sequence; 0: all
    keep: int = 0
    # messages with this number or a higher one were sent after its answer
    answered: int = NEVER


@dataclass
class Consumer:
    name: str
    config: dict[str, Any]
    created: int  # how many messages were sent to the stream before its creation
    number: int = 0  # its place in the order of all consumers that ever existed
    there: str = "maybe"  # yes, no, maybe
    # sequences with an ack or a term, whether the server received it or not
    acks: set[int] = field(default_factory=set)
    acked_upto: int = 0  # ack policy all: the highest sequence with an ack
    confirmed: set[int] = field(default_factory=set)
    confirmed_upto: int = 0
    delivered: dict[int, int] = field(default_factory=dict)  # seq -> number of deliveries
    drained: set[int] = field(default_factory=set)
    pauses: int = 0  # how many requests to pause or to resume were sent
    pausing: int = 0  # how many of them are unanswered
    paused: tuple[int, int] = (0, 0)  # from this turn on, until this time
    pin: str = ""  # what a group's pinned client shows
    unclear: bool = False  # whether an update is in flight
    maybe_configs: list[dict[str, Any]] = field(default_factory=list)  # of unanswered updates
    # every configuration that the consumer ever had
    configs: list[dict[str, Any]] = field(default_factory=list)
    resets: int = 0  # how many requests to begin again were sent
    resetting: int = 0  # how many of them are unanswered
    reset_turn: int = 0  # the turn of the last answer
    synced: bool = False  # whether a sync has covered its create
    skipped_below: int = 0  # messages below may have been skipped by a reset

    def __post_init__(self) -> None:
        self.configs.append(self.config)

    def reset_from(self, seq: int) -> None:
        """A reset was sent: from this sequence on (0: above the ack floor, which clients do not
        know), messages with confirmed acks may be delivered again.
        """
        self.resets += 1
        self.resetting += 1
        self.skipped_below = max(self.skipped_below, seq)
        self.confirmed = {each for each in self.confirmed if each < seq}
        self.confirmed_upto = min(self.confirmed_upto, max(seq - 1, 0))

    def ever(self, name: str) -> bool:
        """Whether any of its configurations has this set."""
        return any(config.get(name) for config in self.configs)

    @property
    def policy(self) -> str:
        return str(self.config.get("ack_policy", "none"))

    def takes(self, subject: str) -> bool:
        """Whether each of its configurations takes the subject."""
        for config in self.configs:
            filters = config.get("filter_subjects") or []
            if filters and not any(matches(subject, each) for each in filters):
                return False
        return True

    def may_take(self, subject: str) -> bool:
        """Whether one of its configurations takes the subject."""
        some = [config.get("filter_subjects") or [">"] for config in self.configs]
        return any(matches(subject, each) for filters in some for each in filters)

    @property
    def owes_all(self) -> bool:
        """Whether the consumer delivers every message that matches its filters."""
        return self.policy != "none" and self.config.get("deliver_policy", "all") == "all"

    def done_with(self, seq: int) -> bool:
        """Return whether an ack was sent that settles this message."""
        if not self.owes_all:
            return True
        if seq < self.skipped_below:
            return True
        if seq in self.acks or (self.policy == "all" and seq <= self.acked_upto):
            return True
        delivered = self.delivered.get(seq, 0)
        return any(0 < config.get("max_deliver", -1) <= delivered for config in self.configs)

    def confirmed_ack(self, seq: int) -> bool:
        return seq in self.confirmed or (self.policy == "all" and seq <= self.confirmed_upto)


@dataclass
class Stream:
    name: str
    config: dict[str, Any]
    there: str = "maybe"  # yes, no, maybe
    told: bool = False  # whether the create was answered
    synced: bool = False  # whether a sync has covered the create
    # configurations of unanswered updates
    maybe_configs: list[dict[str, Any]] = field(default_factory=list)
    sent: dict[bytes, Publish] = field(default_factory=dict)
    order: list[Publish] = field(default_factory=list)
    # subject -> how many messages were sent
    by_subject: dict[str, int] = field(default_factory=dict)
    removals: list[Removal] = field(default_factory=list)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    all_consumers: list[Consumer] = field(default_factory=list)  # also deleted consumers
    ever_last: int = 0
    acked_last: int = 0  # may be greater: clients hear of it first
    gone: set[int] = field(default_factory=set)  # missing after an opening, for good
    missing: set[int] = field(default_factory=set)  # missing after the last opening
    removed: set[int] = field(default_factory=set)  # removed by an answered removal
    acked_seqs: dict[int, Publish] = field(default_factory=dict)
    # every configuration that the stream ever had
    limits: list[dict[str, Any]] = field(default_factory=list)
    unclear: bool = False  # whether an admin call is in flight
    # the streams that it copied first under these names
    origins: dict[str, Stream] = field(default_factory=dict)
    durable_last: int = 0
    # whether another stream reads it through a consumer that clients do not see
    copied: bool = False
    # flipped bits in its segments: each may cost a message, which the server reports
    flips: int = 0
    lost: set[int] = field(default_factory=set)  # reported as lost since
    # of each message that was copied from another stream: its sequence here
    copies: dict[tuple[bytes, str, int], int] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)  # some server had no message of this sequence
    held: set[bytes] = field(default_factory=set)  # payloads seen after the last restart
    opened_last: int = (
        # last sequence after the last restart; a power cut may have taken the sequences up to
        # ever_last, which are then used again
        0
    )

    def __post_init__(self) -> None:
        self.limits.append(self.config)

    def add(self, publish: Publish) -> Publish:
        publish.number = len(self.order)
        self.sent[publish.payload] = publish
        self.order.append(publish)
        self.by_subject[publish.subject] = self.by_subject.get(publish.subject, 0) + 1
        return publish

    def acknowledged(self, publish: Publish, seq: int) -> str:
        """Record the sequence of a PubAck; return the error in words, or ""."""
        there = self.acked_seqs.get(seq)
        if there is not None and there is not publish:
            return f"sequence {seq} of {self.name} is {there.payload!r} and {publish.payload!r}"
        if publish.seq and publish.seq != seq:
            return f"{publish.payload!r} is {publish.seq} and {seq} of {self.name}"
        publish.acked = True
        publish.seq = seq
        publish.answered = min(publish.answered, len(self.order))
        self.acked_seqs[seq] = publish
        self.acked_last = max(self.acked_last, seq)
        return ""

    def server_ended(self) -> None:
        """Whatever has no answer gets none: messages that are sent from now on come after it."""
        for each in (*self.order, *self.removals):
            each.answered = min(each.answered, len(self.order))

    def forget_above(self, last: int) -> None:
        """Drop PubAcks above a sequence after a power cut, when they did not promise the disk."""
        for seq in [seq for seq in self.acked_seqs if seq > last]:
            publish = self.acked_seqs.pop(seq)
            publish.acked = False
            publish.seq = 0
        self.acked_last = min(self.acked_last, last)

    @property
    def retention(self) -> str:
        return str(self.config.get("retention", "limits"))

    def ever(self, name: str) -> bool:
        """Whether any of its configurations has this set."""
        return any(config.get(name) for config in self.limits)

    @property
    def by_interest(self) -> bool:
        """Whether messages without a consumer that needs them may have been removed."""
        return any(config.get("retention", "limits") != "limits" for config in self.limits)

    # --- messages that may be missing ------------------------------------------------------------

    def may_be_gone(self, publish: Publish, now_ns: int) -> bool:
        """Return whether anything may have removed this message, which has a sequence."""
        seq = publish.seq
        if seq in self.gone or publish.plan or seq in self.lost:
            return True
        if publish.ttl_ns and now_ns >= publish.sent_ns + publish.ttl_ns - SLACK_NS:
            return True
        return (
            self._limited(publish, now_ns)
            or self._removed(publish)
            or (self.by_interest and not self._needed(publish))
        )

    def _limited(self, publish: Publish, now_ns: int) -> bool:
        later = max(self.ever_last, self.acked_last) - publish.seq
        for config in self.limits:
            if 0 < config.get("max_msgs", 0) <= later:
                return True
            if config.get("max_bytes", 0) > 0 and later * 1200 >= config["max_bytes"] - 1200:
                return True
            age_ns = config.get("max_age", 0)
            if age_ns and now_ns >= publish.sent_ns + age_ns - SLACK_NS:
                return True
            each = config.get("max_msgs_per_subject", 0)
            if each and self._later_on(publish) >= each:
                return True
        return False

    def _later_on(self, publish: Publish) -> int:
        return sum(other.subject == publish.subject for other in self._after(publish)) + sum(
            other.plan for other in self.order
        )

    def _after(self, publish: Publish) -> list[Publish]:
        """Return the messages that may have been stored after this one: those that were sent later,
        and those that another client sent before, since that client may have waited for a request.
        """
        waited = [
            other
            for other in self.order[: publish.number]
            if other.answered > publish.number and (other.seq == 0 or other.seq > publish.seq)
        ]
        return waited + self.order[publish.number + 1 :]

    def _removed(self, publish: Publish) -> bool:
        for removal in self.removals:
            if removal.seq == publish.seq:
                return True
            if removal.seq or publish.number >= removal.answered:
                continue
            if matches(publish.subject, removal.subject) and (
                not removal.below or publish.seq < removal.below
            ):
                return True
        if self.ever("sources") and self.ever("allow_rollup_hdrs"):
            return True  # by a rollup that was copied
        for other in self._after(publish):
            if other.rollup == "all" or (
                other.rollup == "sub" and other.subject == publish.subject
            ):
                return True
        return False

    def _needed(self, publish: Publish) -> bool:
        """For interest and workqueue retention: return whether a consumer certainly needs the
        message.
        """
        if self.copied:
            return False
        if self.retention == "workqueue":
            return not any(
                c.may_take(publish.subject) and c.done_with(publish.seq) for c in self.all_consumers
            )
        return any(
            c.there == "yes"
            and c.created <= publish.number
            and c.takes(publish.subject)
            and not c.done_with(publish.seq)
            for c in self.consumers.values()
        )

    # --- messages that must be missing -----------------------------------------------------------

    def meant(self, removal: Removal) -> set[int]:
        """Return the sequences that a removal certainly removes, if it is sent now and answered."""
        if removal.seq:
            return {removal.seq}
        if removal.keep or (removal.subject != ">" and "subject_transform" in self.config):
            return set()
        return {
            seq
            for seq, publish in self.acked_seqs.items()
            if matches(publish.subject, removal.subject)
            and (not removal.below or seq < removal.below)
        }
