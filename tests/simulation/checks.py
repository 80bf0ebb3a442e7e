"""The checks after each restart and at the end: the server compared with the model.

No acknowledged message is missing unless something may have removed it; each message is as it was
sent; no sequence is used twice; answered removals hold; an atomic batch is stored as a whole; a
message id is stored once; streams and consumers have the configuration of their last answers;
counters equal a recount.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pelton.core.log import queries
from pelton.core.protocol.publish_headers import value
from pelton.core.protocol.subjects import matches

from .expecting import Expecting
from .world import SECOND

if TYPE_CHECKING:
    from .clients import Clients
    from .model import Consumer, Publish, Stream
    from .world import World

LOST = re.compile(
    r"stream (?P<name>\S+): messages? (?P<first>\d+)( to (?P<last>\d+))? (is|are) lost: "
)
LOST_RECORD = "stream {}: a record between the messages "
RECORD_BYTES = 30  # bytes of a record besides subject, headers and payload
TAKES = 0  # the condition of a log that accepts messages
# what updates of consumers change
UPDATED = ("description", "ack_wait", "filter_subjects", "max_ack_pending", "max_deliver")
UNCHECKED = ("metadata",)  # the server adds some


def own_subjects(message: Any, stream: Stream) -> bool:
    return str(message.subject).startswith(f"{stream.name}.")


def way_of(message: Any, stream: Stream) -> tuple[str, int]:
    """Return the stream that a message was copied from and its sequence there; "" for a message
    that was not copied.
    """
    if "mirror" in stream.config:
        return stream.config["mirror"]["name"], message.seq
    for line in message.headers.split(b"\r\n"):
        if line.startswith(b"Nats-Stream-Source: "):
            name, seq = line.decode().split(" ")[1:3]
            return name, int(seq)
    return "", message.seq


def rightly_twice(publish: Publish, one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Return whether a stream may hold two copies of a message that came on these two ways.

    The ways may be two streams, of which one copies the other. Or one origin has had the message
    twice: the client sent it again with its id, after the first copy was removed and another server
    was started.
    """
    if "" in (one[0], other[0]) or one == other:
        return False
    if one[0] != other[0] or not publish.subject.startswith(f"{one[0]}."):
        return True
    return any(one[1] <= upto < other[1] for upto in publish.forgotten)


class Checks:
    def __init__(self, world: World, clients: Clients) -> None:
        self.world = world
        self.clients = clients
        self.expecting = Expecting(clients)
        # payload -> message, of all streams that ever existed
        self.known: dict[bytes, Publish] = {}

    # --- before the server ends ------------------------------------------------------------------

    def note_progress(self) -> None:
        """Record how far the server's sequences went, and which of them it has reported as synced."""
        for name, stream in self.clients.streams.items():
            entry = self.world.account.streams.get(name)
            if entry is not None:
                log = entry.core.log
                stream.ever_last = max(stream.ever_last, log.last_seq)
                # otherwise the synced sequence may include messages in doubt
                if log.condition == TAKES:
                    stream.durable_last = log.synced_seq
                self.note_gone(stream, log)
                self.note_synced(stream, entry)

    def note_synced(self, stream: Stream, entry: Any) -> None:
        """Record the creates that a sync has covered: a power cut may take others back on a server
        with a sync_interval.
        """
        waiting = self.world.account.waiting_files
        if entry.files is None or entry.files.unsynced or entry.rewrites:
            return
        if waiting.waits(entry.files):
            return
        stream.synced = True
        for name, consumer in stream.consumers.items():
            there = entry.consumers.get(name)
            if there is not None and not waiting.waits(there):
                consumer.synced = True

    def relaxed(self, stream: Stream) -> bool:
        """Return whether PubAcks are sent before the fsync."""
        return any(self.world.intervals) or stream.config.get("persist_mode") == "async"

    def power_was_cut(self) -> None:
        for stream in self.clients.streams.values():
            if not self.relaxed(stream):
                continue
            # only removals that a restart has seen are on the disk for certain
            stream.removed.clear()
        self.doubt_acks()

    def doubt_acks(self) -> None:
        """Forget confirmations that did not promise the disk: a power cut may take such acks back, or
        the next server finds them and the disk is too full to write them once more.
        """
        for stream in self.clients.streams.values():
            if self.relaxed(stream):
                for consumer in stream.all_consumers:
                    consumer.confirmed.clear()
                    consumer.confirmed_upto = 0

    # --- after a restart -------------------------------------------------------------------------

    def note_missing(self) -> None:
        """Record the messages that an opening does not find, or has removed.

        Called before time passes: a limit may remove messages later without an fsync. So nothing is
        known when time has passed during the opening.
        """
        for name, stream in self.clients.streams.items():
            entry = self.world.account.streams.get(name)
            stream.missing = set()
            if entry is not None and not self.world.opened_gradually:
                log = entry.core.log
                stream.missing = {
                    seq
                    for seq in range(1, log.last_seq + 1)
                    if queries.next_seq(log, ">", seq) != seq
                }

    def all(self, *, power: bool = False) -> None:
        for stream in self.clients.ever:
            for payload, publish in stream.sent.items():
                self.known[payload] = publish
        account = self.world.account
        for name, stream in self.clients.streams.items():
            entry = account.streams.get(name)
            if power and any(self.world.intervals):
                self.lost_creates(stream, entry)
            if stream.there == "yes" and entry is None:
                self.world.fail(f"stream {name} is missing:", self.world.reports)
            if stream.there == "no" and entry is not None:
                self.world.fail(f"stream {name} was deleted, and is there")
            stream.there = "yes" if entry is not None else "no"
            stream.unclear = False
            if entry is not None:
                self.configuration(stream, entry)
                found = self.messages(stream, entry, power=power)
                self.consumers(stream, entry, found)
        self.world.intervals = {self.world.changes.sync_interval_ns}
        for name in account.streams:
            if name not in self.clients.streams:
                self.world.fail(f"stream {name} was never made")

    def lost_creates(self, stream: Stream, entry: Any) -> None:
        """Record the creates that a power cut took back as a whole: no sync had covered them."""
        offline = self.world.account.offline.get(stream.name)
        if offline is not None and offline.retry is None:
            self.world.fail(f"a power cut damaged stream {stream.name}: {offline}")
        if entry is None:
            if stream.there == "yes" and not stream.synced:
                self.world.counts["streams lost that were never synced"] += 1
                stream.there = "no"
            return
        if entry.offline:
            self.world.fail(f"a power cut damaged consumers of {stream.name}: {entry.offline}")
        for name, consumer in stream.consumers.items():
            if consumer.there == "yes" and not consumer.synced and name not in entry.consumers:
                self.world.counts["consumers lost that were never synced"] += 1
                consumer.there = "no"

    def configuration(self, stream: Stream, entry: Any) -> None:
        for config in [stream.config, *stream.maybe_configs]:
            if all(self.same(entry.config, key, value) for key, value in config.items()):
                stream.config = config
                stream.maybe_configs.clear()
                return
        self.world.fail(
            f"stream {stream.name} has another configuration:", entry.config, stream.config
        )

    @staticmethod
    def same(config: Any, key: str, value: Any) -> bool:
        if key in UNCHECKED or key in ("mirror", "sources", "republish", "subject_transform"):
            return True
        return bool(getattr(config, key) == value)

    def messages(self, stream: Stream, entry: Any, *, power: bool) -> dict[int, Any]:
        """Check the messages of a stream, and return them by their sequences."""
        log = entry.core.log
        found: dict[int, Any] = {}
        message = queries.next_of(log, ">", 1)
        while message is not None:
            found[message.seq] = message
            message = queries.next_of(log, ">", message.seq + 1)
        self.recount(stream, log, found)
        stream.ever_last = max(stream.ever_last, log.last_seq)
        stream.held = {message.payload for message in found.values()}
        stream.opened_last = log.last_seq
        lost = {s for first, count, _ in log.lost for s in range(first, first + min(count, 10_000))}
        stream.lost |= lost | self.told_lost(stream) if stream.flips else set()
        self.lost_removals(stream)
        if power and self.relaxed(stream):
            self.take_back(stream, found, log)
        if stream.config.get("allow_msg_counter"):
            self.sums(stream, found)
        else:
            self.contents(stream, found)
        self.presence(stream, found, log)
        self.expiry(stream, entry.config, found)
        self.copied_once(stream, log, found)
        self.note_gone(stream, log)
        return found

    def told_lost(self, stream: Stream) -> set[int]:
        """Return the sequences that this server has reported as lost. A removal of the messages
        around them drops them from the log's own list.
        """
        told: set[int] = set()
        for line in self.world.reports:
            found = LOST.match(line)
            if found is not None and found["name"] == stream.name:
                first = int(found["first"])
                told.update(range(first, int(found["last"] or first) + 1))
        return told

    def lost_removals(self, stream: Stream) -> None:
        """Expect no removal to last when the server has reported the loss of a record without a
        message, perhaps that of a removal. One flipped bit costs no such record: recovery corrects it.
        """
        told = LOST_RECORD.format(stream.name)
        if stream.flips > 1 and any(line.startswith(told) for line in self.world.reports):
            self.world.counts["removals that flipped bits may have undone"] += 1
            stream.gone.clear()
            stream.removed.clear()

    @staticmethod
    def note_gone(stream: Stream, log: Any) -> None:
        """Record missing messages as gone for good when the stream accepts messages. Before that,
        the log has deferred writes, and a power cut may bring the messages back.
        """
        if log.condition == TAKES:
            stream.gone |= stream.missing
            stream.missing = set()

    def take_back(self, stream: Stream, found: dict[int, Any], log: Any) -> None:
        """Drop PubAcks that were sent before the fsync, for messages that no fsync has covered."""
        for seq, publish in list(stream.acked_seqs.items()):
            there = found.get(seq)
            if seq > stream.durable_last and (there is None or there.payload != publish.payload):
                self.world.counts["messages lost that were never synced"] += 1
                del stream.acked_seqs[seq]
                publish.acked, publish.seq = False, 0
        for consumer in stream.all_consumers:  # these sequences will be used again
            consumer.acks = {seq for seq in consumer.acks if seq <= log.last_seq}
            consumer.acked_upto = min(consumer.acked_upto, log.last_seq)
            for seq in [s for s in consumer.delivered if s > log.last_seq]:
                del consumer.delivered[seq]

    def copied_once(self, stream: Stream, log: Any, found: dict[int, Any]) -> None:
        """Check that no message of an origin was copied again after its copy was removed. Only what a
        sync may not cover can be lost and come once more.
        """
        if self.world.relaxed_once or stream.ever("persist_mode") or stream.flips:
            return
        for seq, message in found.items():
            name, there = way_of(message, stream)
            if name and log.condition == TAKES:
                before = stream.copies.setdefault((message.payload, name, there), seq)
                if before != seq:
                    self.world.fail(f"{stream.name}: {there} of {name} is {before} and {seq}")
        self.world.counts["copies that were seen"] += len(stream.copies)

    def expiry(self, stream: Stream, config: Any, found: dict[int, Any]) -> None:
        """Check that what had expired when the server started is not there. A message whose marker
        found no room stays.
        """
        if config.subject_delete_marker_ttl or config.sealed:
            return
        for seq, message in found.items():
            text = value(message.headers, b"Nats-TTL") if config.allow_msg_ttl else b""
            # a copied marker has its unit
            life_ns = int(text.removesuffix(b"s")) * SECOND if text else config.max_age
            if life_ns and message.ts_ns + life_ns <= self.world.started_ns:
                self.world.fail(f"{stream.name} {seq} has expired, and is there: {message}")
            self.world.counts["messages that may expire"] += bool(life_ns)

    def recount(self, stream: Stream, log: Any, found: dict[int, Any]) -> None:
        size = sum(
            RECORD_BYTES
            + len(m.subject)
            + len(m.payload)
            + (4 + len(m.headers) if m.headers else 0)
            for m in found.values()
        )
        counted = (len(found), size, len({m.subject for m in found.values()}))
        if counted != (log.msgs, log.bytes, log.subject_count):
            self.world.fail(
                f"{stream.name} counts {(log.msgs, log.bytes, log.subject_count)}, has {counted}"
            )
        first = min(found, default=log.last_seq + 1)
        if first != log.first_seq or max(found, default=0) > log.last_seq:
            self.world.fail(
                f"{stream.name}: first {log.first_seq}, found {first}; last {log.last_seq}"
            )

    def contents(self, stream: Stream, found: dict[int, Any]) -> None:
        """Check that each stored message was sent, has the sent content, and is stored once."""
        seen: dict[bytes, int] = {}
        ways: dict[bytes, list[tuple[str, int]]] = {}
        for seq, message in found.items():
            publish = self.known.get(message.payload)
            if publish is None and b"Nats-Marker-Reason" in message.headers:
                continue
            if (
                publish is None
                and message.payload.startswith(b'{"val"')
                and not own_subjects(message, stream)
            ):
                continue  # a counter of another stream that this stream sums up
            if publish is None:
                self.world.fail(f"{stream.name} {seq}: nobody sent {message.payload!r}")
                return
            if message.subject.endswith(".out"):  # a message of a schedule
                continue
            own = message.payload in stream.sent
            if (
                "subject_transform" not in stream.config
                and message.subject != publish.subject
                and own
            ):
                self.world.fail(
                    f"{stream.name} {seq}: {message.subject}, sent to {publish.subject}"
                )
            way = way_of(message, stream)
            before = ways.setdefault(message.payload, [])
            if not all(rightly_twice(publish, each, way) for each in before):
                self.world.fail(
                    f"{stream.name}: {message.payload!r} is {seen[message.payload]} and {seq}"
                )
            before.append(way)
            seen[message.payload] = seq
            there = stream.acked_seqs.get(seq)
            if there is not None and there is not publish:
                self.world.fail(
                    f"{stream.name} {seq}: {message.payload!r}, acked was {there.payload!r}"
                )
            if own and publish.refused:
                self.world.fail(f"{stream.name} {seq}: {message.payload!r} was refused")
            if own and publish.expects:
                self.expecting.met(stream, replace(publish, seq=seq))
            if own and publish.seq and publish.seq != seq:
                self.world.fail(
                    f"{stream.name}: {message.payload!r} is {seq}, acked as {publish.seq}"
                )
        for seq in (stream.gone | stream.missing) & found.keys():
            if seq not in stream.lost:
                self.world.fail(
                    f"{stream.name} {seq} was gone, and is there: {found[seq].payload!r}"
                )
        for seq in stream.removed & found.keys():
            self.world.fail(
                f"{stream.name} {seq} was removed, and is there: {found[seq].payload!r}"
            )
        self.batches(stream, seen)

    def sums(self, stream: Stream, found: dict[int, Any]) -> None:
        """Check that each message of a counter adds its increment to the message before it."""
        if stream.ever("sources") or stream.config.get("subject_transform"):
            return
        before: dict[str, tuple[int, int]] = {}  # subject -> (seq, sum)
        gap = 0  # the highest sequence without a message: it may have been of any subject
        for seq in range(1, max(found, default=0) + 1):
            message = found.get(seq)
            if message is None:
                gap = seq
                continue
            total = int(json.loads(message.payload)["val"])
            (added,) = [
                int(line.removeprefix(b"Nats-Incr: "))
                for line in message.headers.split(b"\r\n")
                if line.startswith(b"Nats-Incr: ")
            ]
            at, last = before.get(message.subject, (0, 0))
            if gap <= at and self.stays(stream, at):
                self.world.counts["sums compared"] += 1
                if total != last + added:
                    self.world.fail(f"{stream.name} {seq}: {last} and {added} are {total}")
            before[message.subject] = seq, total

    def stays(self, stream: Stream, seq: int) -> bool:
        """Whether a message of a counter was never removed, not even by a removal that a power cut
        has taken back. 0: no message.
        """
        publish = stream.acked_seqs.get(seq)
        return not seq or (
            publish is not None and not stream.may_be_gone(publish, self.world.latest_ns)
        )

    def batches(self, stream: Stream, seen: dict[bytes, int]) -> None:
        groups: dict[str, list[Publish]] = {}
        for publish in stream.order:
            if publish.batch:
                groups.setdefault(publish.batch, []).append(publish)
        for name, group in groups.items():
            there = [publish for publish in group if publish.payload in seen]
            if not there or len(there) == len(group):
                continue
            last = seen[there[-1].payload] + len(group) - 1 - group.index(there[-1])
            missing = [
                publish
                for back, publish in enumerate(reversed(group))
                if publish not in there
                and not stream.may_be_gone(
                    publish if publish.seq else replace(publish, seq=last - back),
                    self.world.latest_ns,
                )
            ]
            if missing:
                self.world.fail(f"{stream.name}: of batch {name} only {len(there)} of {len(group)}")

    def presence(self, stream: Stream, found: dict[int, Any], log: Any) -> None:
        """Check that acknowledged messages are stored, unless something may have removed them."""
        hit = []
        for seq, publish in stream.acked_seqs.items():
            if seq > log.last_seq:
                self.world.fail(f"{stream.name}: {seq} was acked, the last is {log.last_seq}")
            if seq in found:
                if found[seq].payload != publish.payload:
                    self.world.fail(
                        f"{stream.name} {seq}: {found[seq].payload!r}, not {publish.payload!r}"
                    )
            elif seq in stream.lost and seq not in stream.gone:
                hit.append(seq)
            elif not stream.may_be_gone(publish, self.world.latest_ns):
                self.world.fail(
                    f"{stream.name}: acked message {seq} is missing: {publish}",
                    f"of {log.first_seq} to {log.last_seq}; lost {log.lost}; {self.world.reports}",
                )
        packed = any(config.get("compression") == "s2" for config in stream.limits)
        # Two flips in one record of an atomic batch cost the batch: nothing tells it from one that
        # never reached the disk as a whole.
        of = Counter(stream.acked_seqs[seq].batch for seq in hit)
        alone = of.pop("", 0)
        cost = alone + sum(min(count, 2) if stream.flips > 1 else count for count in of.values())
        if cost > stream.flips * (200 if packed else 1):
            self.world.fail(f"{stream.name}: {stream.flips} flipped bits cost messages {hit}")
        self.world.counts["messages lost to flipped bits, and told"] += len(hit)
        config = stream.config
        # of an update that was not answered only the server knows whether it came into effect
        new = any(each.get("discard") == "new" for each in stream.limits)
        if 0 < config.get("max_msgs", 0) < len(found) and not new:
            self.world.fail(f"{stream.name}: {len(found)} messages, {config['max_msgs']} may be")

    # --- consumers -------------------------------------------------------------------------------

    def consumers(self, stream: Stream, entry: Any, found: dict[int, Any]) -> None:
        for name, consumer in stream.consumers.items():
            there = entry.consumers.get(name)
            forever = "inactive_threshold" not in consumer.config
            if consumer.there == "yes" and there is None and forever:
                self.world.fail(f"consumer {name} of {stream.name} is missing")
            if consumer.there == "no" and there is not None:
                self.world.fail(f"consumer {name} of {stream.name} was deleted, and is there")
            if there is not None and consumer.there == "maybe":
                consumer.created = min(consumer.created, len(stream.order))
            consumer.there = "yes" if there is not None else "no"
            consumer.resetting = consumer.pausing = 0
            if there is None:
                continue
            self.consumer_configuration(stream, consumer, there.config)
            state = there.core.state()
            if state.floor_stream_seq < consumer.confirmed_upto and consumer.policy == "all":
                self.world.fail(f"{stream.name} {name}: the floor went back", state)
            if consumer.config.get("deliver_policy"):
                continue
            first = state.delivered_stream_seq + 1
            filters = there.config.filter_subjects or [there.config.filter_subject or ">"]
            waiting = sum(
                message.seq >= first and any(matches(message.subject, each) for each in filters)
                for message in found.values()
            )
            if state.num_pending != waiting:
                self.world.fail(
                    f"{stream.name} {name}: {state.num_pending} pending, {waiting} counted"
                )

    def consumer_configuration(self, stream: Stream, consumer: Consumer, config: Any) -> None:
        for one in [consumer.config, *consumer.maybe_configs]:
            if all(getattr(config, key) == one[key] for key in UPDATED if key in one):
                consumer.config = one
                consumer.maybe_configs.clear()
                consumer.unclear = False
                break
        else:
            self.world.fail(
                f"{stream.name} {consumer.name} has another configuration:", config, consumer.config
            )

    # --- the end ---------------------------------------------------------------------------------

    def drained(self) -> None:
        """Check that each consumer has delivered all of its messages."""
        for stream in self.clients.streams.values():
            entry = self.world.account.streams.get(stream.name)
            if entry is None or stream.there != "yes":
                continue
            for consumer in stream.consumers.values():
                there = entry.consumers.get(consumer.name)
                if there is None or consumer.policy == "none":
                    continue
                state = there.core.state()
                if state.num_pending or (
                    state.num_ack_pending and not consumer.ever("max_deliver")
                ):
                    self.world.fail(f"{stream.name} {consumer.name} is not drained:", state)
                if consumer.config.get("deliver_policy"):
                    continue
                log = entry.core.log
                message = queries.next_of(log, ">", 1)
                while message is not None:
                    if consumer.takes(message.subject) and self.owed(stream, consumer, message):
                        self.world.fail(
                            f"{stream.name} {consumer.name}: {message.seq} was never delivered"
                        )
                    message = queries.next_of(log, ">", message.seq + 1)

    def owed(self, stream: Stream, consumer: Consumer, message: Any) -> bool:
        """Return whether a consumer has to deliver a stored message."""
        if consumer.done_with(message.seq):
            return False
        publish = self.known.get(message.payload)
        if publish is None or message.payload not in stream.sent:
            return False
        if stream.by_interest and publish.number < consumer.created:
            return False
        # the consumer may have passed the message after a removal that was lost later
        return not stream.may_be_gone(replace(publish, seq=message.seq), self.world.latest_ns)
