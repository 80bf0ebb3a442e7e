"""STREAM.SNAPSHOT: the archive of a stream (engine/backups/snapshot_contents), compressed, sent to a subject
in chunks.

Each turn makes and sends a slice of the archive, never faster than the receiver acknowledges: a
chunk takes a slot of the window, and the ack of the chunk frees the slot. A message that is removed
before the archive reaches it, or published after the start, is not in the backup.

The first chunk waits until a subscription names the deliver subject. Clients subscribe before the
request, or after its answer. A wildcard that matches the subject is no sign of a receiver, since
every client has one for answers. Without a subscription to the subject itself, the server sends one
chunk to the wildcard, and the rest after the ack of that chunk. The end is sent when every chunk
with a reply is acknowledged, so that a receiver that lost one gets an error; a receiver that never
acknowledges gets the end a little later.

    chunk           full: reply $JS.SNAPSHOT.ACK.<stream>.<id>.<length>.<index>; the last, shorter chunk: no reply
    end             an empty message: without headers when no chunk was full, else with the status 204;
                    408 No Interest, 408 No Flow Response, 500 <why>: the backup failed
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pelton.api import errors_generated as errors
from pelton.api.calls import StreamSnapshotRequest, StreamSnapshotResponse
from pelton.api.errors import ApiError
from pelton.core.base.s2 import FrameWriter
from pelton.core.broker.job import Job
from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import CallbackSink
from pelton.core.stream.backup import BlockWriter
from pelton.engine.account.catalog import StreamEntry, stream_state
from pelton.engine.backups import snapshot_contents
from pelton.engine.backups.snapshot_contents import BLOCK_BYTES, SLICE_BYTES
from pelton.engine.base.settings import SECOND
from pelton.engine.base.subject_checks import is_literal, is_valid

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount

Answer = Callable[[StreamSnapshotResponse], None]

_CHUNK_BYTES = 128 * 1024
_CHUNK_RANGE = (1024, 1024 * 1024)
_WINDOW_BYTES = 8 * 1024 * 1024
_WINDOW_RANGE = (1024, 32 * 1024 * 1024)
_LISTENER_WAIT_NS = 2 * SECOND
"""The wait for a subscription to the deliver subject; after it, a wildcard that matches is enough.
"""
_SILENCE_NS = 2 * SECOND
"""The wait for the first ack after the last chunk; after it, the receiver counts as one without
acks.
"""
_ACK_WAIT_NS = 5 * SECOND
"""The wait for a required ack, and for a first subscriber."""


def start(
    account: "JetStreamAccount", request: StreamSnapshotRequest, answer: Answer, name: str
) -> StreamSnapshotResponse | None:
    """Start a backup; return the first answer, or None when it comes after a check of all messages."""
    entry = account.stream(name)
    subject = request.deliver_subject
    if not is_valid(subject) or not is_literal(subject):
        raise errors.SnapshotDeliverSubjectInvalidError()
    if any(isinstance(each, Snapshot) and each.entry is entry for each in account.transfers):
        raise errors.StreamSnapshotError("snapshot in progress")
    snapshot = Snapshot(account, entry, request, answer)
    if request.jsck:
        snapshot.check()
        return None
    return snapshot.begin()


class Snapshot:
    """One backup in progress."""

    def __init__(
        self,
        account: "JetStreamAccount",
        entry: StreamEntry,
        request: StreamSnapshotRequest,
        answer: Answer,
    ) -> None:
        """Send nothing before `check` or `begin`."""
        self.entry = entry
        self._account = account
        self._request = request
        self._answer = answer
        self._client = account.client_info()
        self._subject = request.deliver_subject
        low, high = _CHUNK_RANGE
        self._chunk_bytes = min(max(request.chunk_size or _CHUNK_BYTES, low), high)
        low, high = _WINDOW_RANGE
        window = min(max(request.window_size or _WINDOW_BYTES, low), high)
        self._window = max(window, self._chunk_bytes) // self._chunk_bytes
        self._slots = 0  # how many chunks may be sent now
        self._ack_subject = f"$JS.SNAPSHOT.ACK.{entry.config.name}.{account.ids.next()}"
        self._acks = CallbackSink(self._acked)
        self._stop = 0  # the last sequence of the backup
        self._index = 0  # index of the last full chunk
        self._unacked: set[int] = set()  # indexes of full chunks without an ack
        self._begun = False  # whether chunks may be sent, and acks and subscriptions are watched
        self._waiting = False  # whether the first chunk waits for a subscriber
        self._listened = False  # whether a subscription named the deliver subject
        self._acks_come = False  # whether an ack has come
        self._all_sent = False  # whether all chunks are sent; the end message may be missing
        self._start_ns = self._active_ns = account.now_ns
        self._frames = FrameWriter()
        self._pieces: Iterator[bytes] = iter(())
        self._job = Job(account.reactor, self._scan, self._interested)
        self._seq = 0
        self._bad = 0

    # -- before the first chunk

    def check(self) -> None:
        """Read every message; then `begin` follows when all are good."""
        self._account.transfers.append(self)
        log = self.entry.core.log
        self._seq, self._stop = log.first_seq, log.last_seq
        self._bad = -len(log.lost)
        self._job.soon()

    def _scan(self) -> bool:
        log = self.entry.core.log
        try:
            if self._gone():
                raise errors.StreamSnapshotError("stream closed")
            reader = BlockWriter(self.entry.config.name)
            reader.start(0)
            # the block is dropped: making it verifies the checksum of each record
            self._seq = reader.fill(log, self._seq, self._stop, SLICE_BYTES, BLOCK_BYTES)
            if self._seq <= self._stop:
                return True
            self._account.transfers.remove(self)
            bad = self._bad + len(log.lost)
            if bad > 0:
                what = f"snapshot check detected {bad} bad messages"
                raise errors.StreamSnapshotError(what)
        except ApiError as error:
            self._end()
            self._answer(StreamSnapshotResponse(error=error.body()))
            return False
        self._job.end()
        self._answer(self.begin())
        return False

    def begin(self) -> StreamSnapshotResponse:
        """Start to send chunks."""
        account, entry = self._account, self.entry
        now_ns = account.now_ns
        account.transfers.append(self)
        self._stop = entry.core.visible
        self._pieces = snapshot_contents.contents(
            entry, self._stop, now_ns, consumers=not self._request.no_consumers
        )
        self._active_ns = now_ns
        self._begun = self._waiting = True
        account.router.attach(f"{self._ack_subject}.>", self._acks)
        self._job = Job(account.reactor, self._step, self._interested)
        account.router.watch(self._subject, self._job)
        self._interested()
        state = stream_state(entry)
        account.advisories.snapshot_create(entry.config.name, state, self._client, now_ns)
        return StreamSnapshotResponse(config=entry.config, state=state)

    # -- sending

    def _step(self) -> bool:
        """Make and send one slice; return whether more is to do without a wait for the receiver."""
        if self._gone():
            return self._fail("500 stream closed", "stream closed")
        if self._waiting:
            return False
        try:
            return self._go_on()
        except (OSError, ValueError) as error:
            return self._fail(f"500 {error}", str(error))

    def _go_on(self) -> bool:
        made = 0
        while made < SLICE_BYTES:
            while len(self._frames) >= self._chunk_bytes:
                if not self._slots:
                    return False
                self._send_chunk()
            piece = next(self._pieces, None)
            if piece is None:
                return self._finish()
            self._frames.put(piece)
            made += len(piece) or SLICE_BYTES
        return True

    def _finish(self) -> bool:
        self._frames.finish()
        while len(self._frames) >= self._chunk_bytes:
            if not self._slots:
                return False  # the next ack continues here
            self._send_chunk()
        if len(self._frames):
            self._account.router.publish_message(
                self._subject, self._frames.take(self._chunk_bytes)
            )
        self._all_sent = True
        if not self._unacked:
            self._say_end()
        return False

    def _say_end(self) -> None:
        marker = b"NATS/1.0 204\r\n\r\n" if self._index else b""
        self._account.router.publish_message(self._subject, b"", headers=marker)
        self._complete("")

    def _send_chunk(self) -> None:
        self._slots -= 1
        self._index += 1
        self._unacked.add(self._index)
        self._active_ns = self._account.now_ns
        data = self._frames.take(self._chunk_bytes)
        reply = f"{self._ack_subject}.{len(data)}.{self._index}"
        self._account.router.publish_message(self._subject, data, reply)

    def _acked(self, _c: Connection | None, subject: str, _r: str, _h: bytes, _p: bytes) -> bool:
        text = subject.rpartition(".")[2]
        index = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
        if index in self._unacked:
            self._unacked.remove(index)
            self._slots += 1 if self._acks_come or self._listened else self._window
            self._acks_come = True
            self._active_ns = self._account.now_ns
            self._job.soon()
        return True

    def _interested(self) -> None:
        """Called when a subscription has come or gone."""
        if self._waiting and self._account.router.has_listener(self._subject):
            self._listened = True
            self._send_from_now(self._window)

    def _send_from_now(self, slots: int) -> None:
        self._waiting = False
        self._slots = slots
        self._active_ns = self._account.now_ns
        self._job.soon()

    def tick(self, now_ns: int) -> None:
        """Called from time to time: check for subscribers and acks."""
        if self._gone():
            self._job.soon()  # the job ends the backup
            return
        if not self._begun:
            return
        router, idle_ns = self._account.router, now_ns - self._active_ns
        wanted = router.has_listener if self._listened else router.has_interest
        if not wanted(self._subject):
            if not self._waiting or idle_ns >= _ACK_WAIT_NS:
                self._fail("408 No Interest", "no interest")
        elif self._waiting:
            if idle_ns >= _LISTENER_WAIT_NS:
                self._send_from_now(1)  # the ack of this chunk shows that chunks arrive
        elif not self._acks_come and self._listened and self._all_sent:
            if idle_ns >= _SILENCE_NS:
                self._say_end()
        elif idle_ns >= _ACK_WAIT_NS and (self._all_sent or not self._slots):
            self._fail("408 No Flow Response", "no flow response")

    def _gone(self) -> bool:
        return self._account.streams.get(self.entry.config.name) is not self.entry

    # -- the end

    def _fail(self, status: str, why: str) -> bool:
        headers = f"NATS/1.0 {status}\r\n\r\n".encode("utf-8", "replace")
        self._account.router.publish_message(self._subject, b"", headers=headers)
        self._account.report(f"snapshot of stream {self.entry.config.name} failed: {why}")
        self._complete(why)
        return False

    def _complete(self, why: str) -> None:
        self._end()
        self._account.advisories.snapshot_complete(
            self.entry.config.name, self._start_ns, self._client, self._account.now_ns, why
        )

    def close(self) -> None:
        """Give the backup up."""
        self._end()

    def _end(self) -> None:
        account = self._account
        self._pieces, self._frames = iter(()), FrameWriter()
        self._job.end()
        if self in account.transfers:
            account.transfers.remove(self)
        if self._begun:
            account.router.unwatch(self._subject, self._job)
            account.router.detach(f"{self._ack_subject}.>", self._acks)
