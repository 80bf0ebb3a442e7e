"""An upstream over the JetStream API: it creates a push consumer on the origin and reads the
consumer.

    waiting --(time)--> asking --(created)--> following --(silence, gap, refusal, link down)--> waiting

The consumer is ephemeral, without acks, with flow control and a heartbeat each second. On an origin
with interest or workqueue retention it is durable, and the answers to its flow control are its
acks. Messages carry their sequences in the origin and in the consumer. A gap in the consumer's
sequences means that messages were lost on the way; then the upstream creates another consumer at
the follower's position, so that the follower stores all messages in order. A consumer that the
configuration names (`consumer`) is reset instead. Flow control that counts as acks is answered when
the earlier messages are as durable as the follower promises.

The upstream has no sockets, and no timer but `tick`.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from pelton.api import ApiError
from pelton.api import errors_generated as errors
from pelton.api.calls import ConsumerInfoResponse
from pelton.api.codec import JsonError, decode_response
from pelton.api.errors import error_from
from pelton.api.streams import StreamSource, StreamSourceInfo
from pelton.api.subjects import API_PREFIX
from pelton.api.times import format_instant
from pelton.core.protocol.publish_headers import value
from pelton.core.stream.direct_get import Answers
from pelton.core.stream.source_copy import SourceWriter
from pelton.engine.base.hashes import short_hash
from pelton.engine.base.settings import SECOND
from pelton.engine.sources import identity
from pelton.engine.sources.links import Link, Subscribed, inbox
from pelton.engine.sources.local import Upstream, position, refusal_body, source_info

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount

HEARTBEAT_NS = SECOND
STALLED_NS = 10 * SECOND
"""Silence after which the upstream gives the consumer up, and after which the origin deletes it."""
ANSWER_NS = 30 * SECOND
"""The wait for the answer to a request."""
RESET_ANSWER_NS = 5 * SECOND
"""The wait for the answer to a reset, which a consumer that does not exist never sends."""
GAP_NS = 2 * SECOND
"""The least time between two requests."""
DURABLE_NS = SECOND // 4
"""The wait for the follower's disk."""
BACKOFF_NS = 10 * SECOND
BACKOFF_MAX_NS = 120 * SECOND
_ACK_WAIT_NS = 22 * 3600 * SECOND
_SHORT_ACK_TOKENS = 9
_OLDER = frozenset({10012, 10013, 10025, 10148, 10185})
"""Error codes of a server that does not know `sourcing`: such a server creates an ordinary
consumer, and the previous one with the same name still exists.
"""


class LinkedUpstream:
    """An upstream that reads its origin over the JetStream API; see Upstream."""

    def __init__(
        self,
        account: "JetStreamAccount",
        source: StreamSource,
        name: str,
        writer: SourceWriter,
        link: Link,
        *,
        owner: str,
        wake: Callable[[], None],
        met: Callable[[Upstream, bool], None] = lambda upstream, again: None,
    ) -> None:
        """`name` is the index name of the source. `owner` is a unique name of the follower, never
        used again. `wake` is called when `tick` has to run earlier than it returned. `met`: as for
        LocalUpstream.
        """
        self.source = source
        self.name = name
        self.writer = writer
        self.caught_up = False
        self._account = account
        self._link = link
        self._owner = owner
        self._wake = wake
        self._met = met
        self.origin = ""
        # whether requests have `sourcing`, which servers before 2.14 do not know
        self._sourcing = True
        self._acking = False  # whether answers to flow control are acks
        self._answers = Answers(writer.target)
        self._unwatch = link.watch(self._link_changed)
        self._error: ApiError | None = None
        self._fails = 0
        self._lag = 0
        self._heard_ns = 0
        self._asked_ns = 0
        self._ask_at_ns = 0  # in waiting: the time of the next request
        self._consumer = ""  # in following: the name of the consumer
        self._delivered = 0  # in following: the consumer's sequence of the last message
        self._answer: Subscribed | None = None  # in asking: the subscription for the answer
        # in asking and following: the subscription for messages
        self._messages: Subscribed | None = None
        self._closed = False

    def start(self) -> None:
        """See Upstream."""
        self._ask_at_ns = self._account.now_ns
        if self._link.up:
            self._ask()

    def tick(self, now_ns: int) -> int:
        """See Upstream."""
        if self._closed:
            return 0
        if self._messages is None:
            if self._link.up and now_ns >= self._ask_at_ns:
                self._ask()
                return now_ns + (SECOND if self._messages is not None else DURABLE_NS)
            return max(self._ask_at_ns, now_ns + 1) if self._link.up else 0
        if self._answer is not None:
            patience_ns = ANSWER_NS if self.source.consumer is None else RESET_ANSWER_NS
            if now_ns - self._asked_ns > patience_ns:
                self._give_up(failed=True)
        elif now_ns - self._heard_ns > STALLED_NS:
            self._give_up(failed=False)
        return now_ns + SECOND

    def info(self, now_ns: int) -> StreamSourceInfo:
        """See Upstream."""
        info = source_info(self.source, position(self.writer))
        info.lag = self._lag
        info.active = now_ns - self._heard_ns if self._heard_ns else -1
        info.error = refusal_body(self.writer.refusal)
        if self._error is not None:
            info.error = self._error.body()
        return info

    def close(self, *, for_good: bool) -> None:
        """See Upstream."""
        if not self._closed:
            self._closed = True
            self._unwatch()
            self._leave(for_good=for_good)

    # -- creating a consumer

    def _ask(self) -> None:
        """Ask the origin for a consumer that begins at the follower's position, when all copies so far
        are as durable as the follower promises: the consumer may hold that position from then on.
        """
        self._leave()
        now_ns = self._account.now_ns
        if not self.writer.target.all_durable:
            self._ask_at_ns = now_ns + DURABLE_NS
            self._wake()
            return
        self._asked_ns = now_ns
        self._error = None
        given = self.source.consumer
        kind = "M" if self.writer.mirror else "S"
        if given is not None:
            deliver = given.deliver_subject
        else:
            deliver = inbox(self._account.ids, kind)
            external = self.source.external
            if external is not None and external.deliver:
                deliver = f"{external.deliver}.{kind}.{self._account.ids.next()}"
        self._messages = self._link.subscribe(deliver, self._receive)
        reply = inbox(self._account.ids, "R")
        self._answer = self._link.subscribe(reply, self._answered)
        if given is not None:
            subject = f"{API_PREFIX}.CONSUMER.RESET.{self.source.name}.{given.name}"
            known = f"NATS/1.0\r\nNats-Stream-Identity: {self.origin}\r\n\r\n"
            self._link.publish(subject, reply, known.encode("utf-8", "surrogateescape"), b"")
            return
        subject, body = self._request(deliver)
        level = b"NATS/1.0\r\nNats-Required-Api-Level: 4\r\n\r\n" if self._sourcing else b""
        self._link.publish(subject, reply, level, body)

    def _request(self, deliver: str) -> tuple[str, bytes]:
        """Return subject and body of the request for an ephemeral consumer."""
        stream = self.source.name
        letters = "MIRROR" if self.writer.mirror else "SRC"
        name = f"JS_{letters}_{short_hash(f'{self._owner} {self.name}')}"
        if not self._sourcing:
            name += f"_{self._account.ids.next()}"
        config: dict[str, object] = {
            "name": name,
            "deliver_subject": deliver,
            "deliver_policy": "all",
            "ack_policy": "none",
            "ack_wait": _ACK_WAIT_NS,
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": HEARTBEAT_NS,
            "direct": True,
            "num_replicas": 0,
            "inactive_threshold": STALLED_NS,
        }
        if self._sourcing:
            config["sourcing"] = True
        config.update(self._start())
        subject = f"{API_PREFIX}.CONSUMER.CREATE.{stream}"
        filters = identity.filters(self.source)
        if len(filters) == 1:
            config["filter_subject"] = filters[0]
            subject += f".{name}.{filters[0]}"
        elif filters:
            config["filter_subjects"] = list(filters)
            subject += f".{name}"
        else:
            subject += f".{name}"
        body = json.dumps({"stream_name": stream, "config": config, "action": ""})
        return subject, body.encode("utf-8", "surrogateescape")

    def _start(self) -> dict[str, object]:
        mirror = self.writer.mirror
        taken = self.writer.target.log.last_seq if mirror else self.writer.position
        if taken:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": taken + 1}
        if self.source.opt_start_seq:
            start = self.source.opt_start_seq
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
        if self.source.opt_start_time is not None:
            start_time = format_instant(self.source.opt_start_time)
            return {"deliver_policy": "by_start_time", "opt_start_time": start_time}
        return {}

    def _answered(self, subject: str, reply: str, headers: bytes, payload: bytes) -> None:
        if self._answer is None:
            return
        self._answer.close()
        self._answer = None
        setup_failed = (
            errors.MirrorConsumerSetupFailedError
            if self.writer.mirror
            else errors.SourceConsumerSetupFailedError
        )
        if headers and not payload:  # no responders: the API is not served there now
            self._fail(setup_failed("no responders"))
            return
        try:
            response = decode_response(ConsumerInfoResponse, payload)
        except JsonError as error:
            self._fail(setup_failed(error))
            return
        if response.error is not None and response.error.err_code in _OLDER and self._sourcing:
            self._sourcing = False
            self._ask()
            return
        if response.error is not None:
            self._fail(error_from(response.error))
            return
        info = response.info
        if info is None or info.config is None:
            self._fail(setup_failed("invalid consumer create response"))
            return
        if self.source.consumer is not None and info.config.ack_policy != "flow_control":
            self._fail(
                errors.MirrorConsumerRequiresAckFCError()
                if self.writer.mirror
                else errors.SourceConsumerRequiresAckFCError()
            )
            return
        self._acking = info.config.ack_policy == "flow_control"
        self._consumer = info.name
        try:
            another = self._is_another(headers)
        except OSError as error:
            self._fail(errors.SourceConsumerSetupFailedError(error))
            return
        if another:
            self._ask()
            return
        self._fails = 0
        self._heard_ns = self._account.now_ns
        if not self._delivered:  # messages that came before this answer have a newer count
            self._lag = info.num_pending
        self.caught_up = self.caught_up or not info.num_pending
        if self.writer.mirror:
            self._skip(info.delivered.stream_seq)
        self._wake()

    def _is_another(self, headers: bytes) -> bool:
        """Return whether another origin has taken the name, so that all of it is copied from the
        beginning. Servers from 2.15 on name the identity of the stream. OSError when the disk
        refuses to note that.
        """
        origin = (value(headers, b"Nats-Stream-Identity") or b"").decode("utf-8", "replace")
        if not origin or origin == self.origin:
            return False
        before, again = self.origin, bool(self.origin) and not self.writer.mirror
        self.origin = origin
        if again:
            self.writer.restart()
        try:
            self._met(self, again)
        except OSError:
            self.origin = before
            raise
        self.writer.identify(origin)
        return again

    def _skip(self, upto: int) -> None:
        try:
            self.writer.skip(upto)
        except OSError as error:
            self._fail(errors.MirrorConsumerSetupFailedError(error))

    def _fail(self, error: ApiError) -> None:
        self._give_up(failed=True)
        self._error = error

    def _give_up(self, *, failed: bool) -> None:
        """Drop the consumer, and create another one later."""
        self._leave()
        if failed:
            self._fails += 1
            pause_ns = min(self._fails * BACKOFF_NS, BACKOFF_MAX_NS)
        else:
            pause_ns = GAP_NS
        self._ask_at_ns = max(self._asked_ns + GAP_NS, self._account.now_ns + pause_ns - GAP_NS)
        self._wake()

    def _leave(self, *, for_good: bool = False) -> None:
        """Drop the consumer. A consumer with acks, which holds the position, is deleted only for
        good.
        """
        for subscribed in (self._answer, self._messages):
            if subscribed is not None:
                subscribed.close()
        self._answer = self._messages = None
        ours = self.source.consumer is None and (for_good or not self._acking)
        if self._consumer and ours and self._link.up:
            subject = f"{API_PREFIX}.CONSUMER.DELETE.{self.source.name}.{self._consumer}"
            self._link.publish(subject, "", b"", b"")
        self._consumer = ""
        self._delivered = 0

    def _link_changed(self) -> None:
        if self._closed:
            return
        self._consumer = ""
        self._leave()
        self._fails = 0
        self._ask_at_ns = self._account.now_ns
        if self._link.up:
            self._ask()
        self._wake()

    # -- following

    def _receive(self, subject: str, reply: str, headers: bytes, payload: bytes) -> None:
        if self._messages is None:
            return
        self._heard_ns = self._account.now_ns
        if headers.startswith(b"NATS/1.0 100"):
            self._control(reply, headers)
            return
        place = ack_place(reply)
        if place is None:
            return
        consumer, deliveries, seq, delivered, ts_ns, pending = place
        if deliveries > 1 or (self._consumer and consumer != self._consumer):
            return
        if delivered != self._delivered + 1:
            if delivered > self._delivered:
                self._give_up(failed=False)
            return
        if self.writer.mirror and seq - 1 > self.writer.target.log.last_seq:
            self._skip(seq - 1)
            if self._messages is None:
                return
        if not self.writer.write(seq, ts_ns, subject, headers, payload):
            self._give_up(failed=False)
            return
        self._delivered = delivered
        self._lag = max(pending - 1, 0)
        self.caught_up = self.caught_up or not pending

    def _control(self, reply: str, headers: bytes) -> None:
        """Handle a heartbeat or a flow control message."""
        if reply:
            # without acks, answer at once: a lost message is read again
            upto = self.writer.target.log.last_seq if self._acking else 0
            place = self._delivered, self.writer.position
            messages = self._messages
            self._answers.when_visible(upto, lambda: self._go_on(messages, reply, *place))
            return
        last = value(headers, b"Nats-Last-Consumer") or b""
        if last.isdigit() and int(last) and int(last) != self._delivered and self._consumer:
            self._give_up(failed=False)
            return
        stalled = value(headers, b"Nats-Consumer-Stalled")
        if stalled:
            self._link.publish(stalled.decode("utf-8", "surrogateescape"), "", b"", b"")

    def _go_on(
        self, messages: Subscribed | None, reply: str, delivered: int, position: int
    ) -> None:
        """Answer flow control: everything up to this position was stored. Do nothing when there is
        another consumer by now.
        """
        if messages is not None and messages is self._messages:
            headers = (
                f"NATS/1.0\r\nNats-Last-Consumer: {delivered}\r\n"
                f"Nats-Last-Stream: {position}\r\n\r\n"
            )
            self._link.publish(reply, "", headers.encode(), b"")


def ack_place(reply: str) -> tuple[str, int, int, int, int, int] | None:
    """Parse an ack subject: consumer, deliveries, sequence in the stream, sequence in the consumer,
    time stored (ns), messages to come with this one. None: it is no ack subject.
    """
    tokens = reply.split(".")
    if len(tokens) < _SHORT_ACK_TOKENS or tokens[:2] != ["$JS", "ACK"]:
        return None
    consumer, *numbers = tokens[3:9] if len(tokens) == _SHORT_ACK_TOKENS else tokens[5:11]
    try:
        deliveries, seq, delivered, ts_ns, pending = map(int, numbers)
    except ValueError:
        return None
    return consumer, deliveries, seq, delivered, ts_ns, pending
