"""A stream: its parts, and its methods for the engine.

    Stream ──┬── PublishPath    checks a publish and stores it           (core/stream/publish)
             ├── Committer      makes it durable, then visible           (core/stream/committer)
             └── Listeners      the consumers that take it               (core/stream/listeners)

The parts know those below them in this list, and none knows the stream. A publish enters the path, the path puts the committer on the
commit phase's list, and the committer wakes the listeners. Knows nothing of JSON requests, configuration rules or the kinds of consumers.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.broker.reactor cimport Connection, Task, Trace
from pelton.core.broker.router cimport Message, Router, Sink
from pelton.core.log.log cimport Log, Record
from pelton.core.stream.committer cimport Committer
from pelton.core.stream.listeners cimport Listeners
from pelton.core.stream.publish cimport REFUSED, PublishPath
from pelton.core.stream.puback_queue cimport PubAckQueue

from pelton.core.log import maintenance, queries
from pelton.core.stream.dedupe_recovery import recalling
from pelton.core.stream.publish import StreamRefused

SYNC_ALWAYS = 1
SYNC_INTERVAL = 0

cdef enum:
    AGE_STEP_NS = 250000000        # expiry runs at most this often


cdef class Retention(Task):
    """Decides which messages a stream with interest or workqueue retention keeps."""

    cdef int settled(self, uint64_t seq) except -1:
        return 0

    cdef int sweep(self, uint64_t start, bint orphans) except -1:
        return 0


cdef class Stream(Sink):
    """One stream. The engine makes it and attaches it to its subjects with ``router.attach``."""

    def __init__(self, Router router, str name, Log log, *, int sync = 1, str domain = "") -> None:
        cdef PubAckQueue acks = PubAckQueue(name, domain)
        self.router = router
        self.reactor = router.reactor
        self.name = name
        self.log = log
        self.listeners = Listeners(self.reactor, log)
        self.committer = Committer(router, log, acks, self.listeners, sync)
        self.path = PublishPath(router, name, log, acks, self.listeners, self.committer)
        self.unread = ""
        log.subjects_table.watchers.append(self.listeners)
        self.configure()
        if self.committer.visible < log.span.last_seq:
            self.committer.enlist()

    @property
    def sync(self) -> int:
        return self.committer.sync

    @property
    def visible(self) -> int:
        return self.committer.visible

    @property
    def all_durable(self) -> bool:
        return self.committer.visible >= self.log.span.last_seq and not self.committer.in_doubt()

    @property
    def failure(self) -> str:
        return self.committer.failure

    def defer(self, error: OSError, call: object) -> None:
        """For the engine, at an opening: take no message before `call` has done a write that the disk has refused. `call` raises OSError."""
        self.committer.defer(error, call)

    def configure(
        self, *, max_msgs: int = -1, max_bytes: int = -1, max_age_ns: int = 0, max_msgs_per_subject: int = -1,
        max_msg_size: int = -1, discard_new: bool = False, discard_new_per_subject: bool = False,
        duplicate_window_ns: int = 120_000_000_000, no_ack: bool = False, sealed: bool = False, retention=None, selective: bool = False,
        str dialect = "",
    ) -> None:
        """Set or change the configuration; limits that became lower are enforced at once. Called at create, recovery and update."""
        self.path.configure(
            max_msgs=max_msgs, max_bytes=max_bytes, max_age_ns=max_age_ns, max_msgs_per_subject=max_msgs_per_subject,
            max_msg_size=max_msg_size, discard_new=discard_new, discard_new_per_subject=discard_new_per_subject,
            duplicate_window_ns=duplicate_window_ns, no_ack=no_ack, sealed=sealed, dialect=dialect)
        self.retain(retention, selective)
        self.settle()

    def retain(self, retention, bint selective) -> None:
        """Keep messages by limits alone, or as long as consumers need them. Existing messages stay: review() looks at them."""
        self.path.select(selective)
        if retention is None:
            self.retention = None
        elif self.retention is None:
            self.retention = retention(self)

    def review(self, start: int = 0, bint orphans = False) -> None:
        """Remove the messages from a sequence on that no consumer needs any more; `orphans`: also those that no consumer's filters match.

        The engine calls it when a consumer is removed or its filters have changed, and when all consumers are recovered. Does nothing under
        limits retention. In a large stream the work continues in the next turns.
        """
        if self.retention is None:
            return
        if orphans and self.path.selective and not self.listeners.all:
            if maintenance.purge(self.log):
                self.told()
        elif self.listeners.all:
            self.retention.sweep(max(start, self.log.span.first_seq), orphans and self.path.selective)

    def settle(self) -> None:
        """Commit removals that were made outside of a publish, at the end of the turn."""
        if self.log.files.dirty():
            self.committer.enlist()

    # --- publishing ----------------------------------------------------------------------------------------------------
    cdef int take(self, Connection source, Message* m) except -1:
        if self.closed:
            return 0
        self.path.take(m)
        if not self.committer.queued:
            self.committer.enlist()
        return 1

    cdef int traced(self, Connection source, Message* m) except -1:
        """As take(); the trace gets the stream, whether a consumer takes the message, and the reason of a refusal."""
        cdef Trace trace = self.reactor.trace
        cdef bint unwanted = self.path.unwanted(m)
        subject = PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape")
        cdef int took = 1
        self.path.clear_refusal()
        if trace.only:
            self.path.check_only(m)
        else:
            took = Sink.traced(self, source, m)
        refusal = self.path.refusal
        trace.events.append(("js", self.name, subject, unwanted, "" if refusal is None else refusal[2]))
        return took

    def publish(self, str subject, bytes payload, bytes headers = b"") -> int:
        """Publish a message of the server; returns its sequence (of the original, for a duplicate). Raises StreamRefused as the PubAck would."""
        cdef Message m
        cdef uint64_t seq = 0
        cdef bytes s = subject.encode("utf-8", "surrogateescape"), body = headers + payload
        m.subject = PyBytes_AS_STRING(s)
        m.subject_len = <uint32_t>PyBytes_GET_SIZE(s)
        m.reply = NULL
        m.reply_len = 0
        m.body = PyBytes_AS_STRING(body)
        m.hlen = <uint32_t>PyBytes_GET_SIZE(headers)
        m.body_len = <uint32_t>PyBytes_GET_SIZE(body)
        if self.closed:
            raise StreamRefused(503, 10077, "stream closed")
        if self.path.accept(&m, &seq) == REFUSED:
            raise StreamRefused(*self.path.refusal)
        self.committer.enlist()
        return seq

    def sync_soon(self) -> None:
        """For SYNC_INTERVAL: start an fsync of everything accepted, unless one is running. No ack waits for it."""
        if not self.closed:
            self.committer.sync_soon()

    # --- a disk that fails ---------------------------------------------------------------------------------------------
    cdef int read_failed(self, object error) except -1:
        self.unread = error.strerror or str(error)
        return 0

    def read_again(self) -> None:
        """For the engine, some time after `unread` was set: let the readers try again."""
        self.unread = ""
        if self.retention is not None:
            self.reactor.enlist_commit(self.retention)

    def mend(self) -> bool | None:
        """Try to take messages again after a failure, one piece per call. To be called while `failure` is set.

        True: the stream takes messages again; False: there is more to do; None: the disk fails still. After that, waiting PubAcks are
        sent; the publisher of a lost message gets an error.
        """
        return None if self.closed else self.committer.mend()

    # --- consumers -----------------------------------------------------------------------------------------------------
    def takers(self, str subject) -> list:
        """The consumers that take messages of a literal subject."""
        return self.listeners.takers(subject)

    def consumers(self) -> list:
        """The stream's consumers, oldest first."""
        return list(self.listeners.all)

    # --- administration ------------------------------------------------------------------------------------------------
    def rebuild_dedupe(self) -> int:
        """After the log is opened: rebuild the message ids inside the duplicate window, and the id of the last message; returns how many."""
        list(self.rebuilding())
        return self.path.ids.count

    def rebuilding(self):
        """As rebuild_dedupe, in steps: an iterator. Reads the messages with headers inside the window."""
        return recalling(self.path)

    def purge(self, *, str subject = "", below: int = 0, keep: int = 0) -> int:
        """Remove messages and move the consumers along; returns how many were removed.

        Removes those that match `subject` ("" = any) and are below a sequence (0 = any), but not the newest `keep` of them.
        """
        subjects = keep or subject not in ("", ">")
        if subjects:
            n = queries.purge_subjects(self.log, subject or ">", below or None, keep)
        else:
            n = maintenance.purge(self.log, below or None)
        if n:
            self.told()
        return n

    def told(self) -> None:
        """Many messages are removed: let the consumers look at the log again; this turn writes the removals.

        Consumers with unacknowledged messages look now, the others when they have something to do.
        """
        self.listeners.purged()
        self.committer.enlist()

    def delete_message(self, seq: int, bint erase) -> bool:
        """Remove one message; with `erase`, overwrite its bytes on the disk. False when there is no such message."""
        if not maintenance.delete(self.log, seq, erase):
            return False
        self.listeners.removed(seq, False)
        self.committer.enlist()
        return True

    def when_removed(self, then: object) -> None:
        """Call then() when all removals so far are as durable as the stream promises for messages."""
        if self.log.memory:
            return then()
        self.committer.when_removed(then)

    def expire(self) -> int:
        """Remove the messages older than max_age at the reactor's time, forget old message ids; when to call again (ns, 0 = not needed)."""
        cdef PublishPath path = self.path
        cdef uint64_t now = self.reactor.now_ns, due = 0, ids_due, cut
        cdef Record r
        if path.max_age_ns and not path.sealed and self.log.msgs:
            cut = self.log.seq_at(now - path.max_age_ns + 1) if now >= path.max_age_ns else 0
            if cut > self.log.span.first_seq:
                self.listeners.expire_below(cut)
                maintenance.purge(self.log, cut)
                self.told()
            if self.log.msgs and self.log.read(self.log.span.first_seq, &r):
                due = max(r.ts_ns + path.max_age_ns, now + AGE_STEP_NS)
        ids_due = path.forget_old_ids()
        if ids_due:
            ids_due = max(ids_due, now + AGE_STEP_NS)
            due = min(due, ids_due) if due else ids_due
        return due

    def close(self) -> None:
        """Stop taking messages; accepted messages are committed at the end of the turn. The engine closes the consumers first."""
        if not self.closed:
            self.log.subjects_table.watchers.remove(self.listeners)
        self.closed = True
        self.settle()
        self.committer.close()
