"""A stream: accepted messages become durable, are acknowledged and become visible to consumers. core/stream/publish accepts them.

A publish is accepted at once: the message has its sequence and is in the log. Its PubAck waits in a queue, and consumers can't see it,
until the commit phase of the turn has made it as durable as the stream promises:

    SYNC_INTERVAL   when the log's write() has returned (memory streams too)
    SYNC_ALWAYS     when an fsync that covers it has ended: one runs at a time, and the next one covers all messages accepted meanwhile

A publish pays only for consumers that take the message: consumers without filters that have seen everything wait in one list, which runs
when more messages become visible; filters are matched once per subject, and the result is kept by subject id.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp
from penstock.core.broker.reactor cimport Connection, Synced, Task
from penstock.core.broker.router cimport Message, Router
from penstock.core.log.disk_condition cimport TAKES
from penstock.core.log.log cimport Log, Record
from penstock.core.log.segment cimport Segment
from penstock.core.log.subject_table cimport SubjectState
from penstock.core.protocol.subjects cimport Route, SubjectTrie
from penstock.core.stream.puback_queue cimport ACK_DUPLICATE, ACK_STORED
from penstock.core.stream.publish cimport ANSWERED, DUPLICATE, HANDLED, REFUSED, STORED, PublishPath

from penstock.core.log import disk_recovery, maintenance, queries
from penstock.core.stream.dedupe_recovery import recalling
from penstock.core.stream.publish import FastBatchHandler, AtomicBatchHandler, StreamRefused

SYNC_ALWAYS = 1
SYNC_INTERVAL = 0

cdef enum:
    SYNC_HANDLES = 64
    UNSYNCED_MAX = 32              # sealed segments that wait for their fsync: above this a sync starts before the interval is over
    AGE_STEP_NS = 250000000        # expiry runs at most this often
    SCRUB_STEP = 4096              # old routes that one change of filters drops


cdef class Listener(Task):
    """A consumer as the stream sees it."""

    cdef int signalled(self, uint64_t seq) except -1:
        return 0

    cdef int wants(self, uint32_t subject_id) except -1:
        return 0

    cdef int forgets(self, uint32_t subject_id) except -1:
        return 0

    cdef int removed(self, uint64_t seq) except -1:
        return 0

    cdef int expire_below(self, uint64_t seq) except -1:
        return 0

    cdef int purged(self) except -1:
        return 0

    cdef int needs(self, uint64_t seq) except -1:
        return 0


cdef class Retention(Task):
    """Decides which messages a stream with interest or workqueue retention keeps."""

    cdef int settled(self, uint64_t seq) except -1:
        return 0

    cdef int sweep(self, uint64_t start, bint orphans) except -1:
        return 0


cdef class Committer(Synced):
    """The stream's task in the commit phase: write, sync when that is promised, then release."""

    def __init__(self, Stream stream) -> None:
        self.stream = stream

    cdef int run(self) except -1:
        cdef Stream s = self.stream
        if s.log.dirty():
            try:
                s.log.write()
            except OSError as error:
                return s.write_failed(error)
            if s.failure and s.log.state.condition == TAKES:
                s.failure = ""
        if s.sync == 0 or s.log.memory:
            s.syncing = len(s.removing)
            s.reveal(s.log.last_seq)
            if self.outstanding == 0 and len(s.log.unsynced) > UNSYNCED_MAX:
                self.begin()
            return 0
        if self.outstanding == 0:
            self.begin()
        return s.acks.release(s.router, s.visible)

    cdef int begin(self) except -1:
        """Start a sync of everything written."""
        cdef Stream s = self.stream
        cdef int handles[SYNC_HANDLES]
        cdef int n, i
        if s.removing and not s.log.dirty():
            s.syncing = len(s.removing)
        try:
            n = s.log.sync_begin(handles, SYNC_HANDLES, &self.upto)
        except OSError as error:
            return s.write_failed(error)
        if n == 0:
            return s.reveal(s.log.marks.synced_seq)
        self.error = 0
        self.outstanding = n
        for i in range(n):
            s.reactor.submit_sync(self, handles[i], self.upto)
        return 0

    cdef int synced(self, uint64_t upto, int error) except -1:
        if error and not self.error:
            self.error = error
        self.outstanding -= 1
        return 0 if self.outstanding else self.ended()

    cdef int ended(self) except -1:
        cdef Stream s = self.stream
        try:
            s.log.sync_end(self.upto, self.error)
        except OSError as error:
            return s.write_failed(error)
        s.reveal(s.log.marks.synced_seq)
        if s.sync != 0 and (s.log.marks.synced_seq < s.log.marks.written_seq or s.removing):
            self.begin()
        return 0


cdef class Routes(SubjectWatcher):
    """Drops the state of a subject that a stream and its consumers keep by subject id."""

    cdef int gone(self, uint32_t id) except -1:
        cdef Stream s = self.stream
        cdef SubjectState* subject = &s.log.subjects_table.table[id].state
        cdef Route route = None
        cdef int i
        if s.filters.count == 0:
            return 0
        if <Py_ssize_t>id < PyList_GET_SIZE(s.interested):
            route = s.interested[id]
            s.interested[id] = None
        if route is None or route.generation != s.epoch:
            route = s.filters.match(subject.name, subject.name_len)
        for i in range(route.n):
            (<Listener>route.items[i]).forgets(id)
        return 0


cdef class Stream(PublishPath):
    """One stream. The engine makes it and attaches it to its subjects with ``router.attach``."""

    def __init__(self, Router router, str name, Log log, *, int sync = 1, str domain = "") -> None:
        PublishPath.__init__(self, router, name, log, domain)
        self.sync = sync
        self.failure = self.unread = ""
        self.committer = Committer(self)
        self.listeners, self.unfiltered, self.waiting, self.holders, self.removing = {}, [], [], [], []
        self.filters = SubjectTrie()
        self.filters_changed()
        self.routes = Routes()
        self.routes.stream = self
        log.subjects_table.watchers.append(self.routes)
        log.marks.use_sync(True)  # the stream will sync: a segment that the opening replaced is not deleted before that
        self.visible = log.last_seq if sync == 0 or log.memory else log.marks.synced_seq
        self.configure()
        if log.state.condition != TAKES and not log.memory:
            self.failure = os.strerror(log.state.failure)          # the opening met a disk that refused a write
        if self.visible < log.last_seq:
            self.reactor.enlist_commit(self.committer)

    def owe(self, error: OSError, call: object) -> None:
        """For the engine, at an opening: take no message before `call` has done a write that the disk has refused. `call` raises OSError."""
        self.log.owe(error, call)
        self.failure = os.strerror(self.log.state.failure)

    def configure(
        self, *, max_msgs: int = -1, max_bytes: int = -1, max_age_ns: int = 0, max_msgs_per_subject: int = -1,
        max_msg_size: int = -1, discard_new: bool = False, discard_new_per_subject: bool = False,
        duplicate_window_ns: int = 120_000_000_000, no_ack: bool = False, sealed: bool = False, retention=None, selective: bool = False,
    ) -> None:
        """Set or change the configuration; limits that became lower are enforced at once. Called at create, recovery and update."""
        cdef uint32_t i
        cdef bint obeyed = 0 < self.max_msgs_per_subject <= max_msgs_per_subject
        self.max_msgs = max_msgs
        self.max_bytes = max_bytes
        self.max_age_ns = max_age_ns
        self.max_msgs_per_subject = max_msgs_per_subject
        self.max_msg_size = max_msg_size
        self.discard_new = discard_new
        self.discard_new_per_subject = discard_new_per_subject
        self.duplicate_window_ns = duplicate_window_ns
        self.no_ack = no_ack
        self.sealed = sealed
        if self.max_msgs_per_subject > 0 and not obeyed:
            for i in range(self.log.subject_ids):
                if self.log.subjects_table.table[i].state.msgs > <uint64_t>self.max_msgs_per_subject:
                    self.trim_subject(i)
        self.trim()
        self.retain(retention, selective)
        self.settle()

    def retain(self, retention, bint selective) -> None:
        """Keep messages by limits alone, or as long as consumers need them. Existing messages stay: review() looks at them."""
        self.selective = selective
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
        if orphans and self.selective and not self.listeners:
            if maintenance.purge(self.log):
                self.told()
        elif self.listeners:
            self.retention.sweep(max(start, self.log.first_seq), orphans and self.selective)

    def settle(self) -> None:
        """Commit removals that were made outside of a publish, at the end of the turn."""
        if self.log.dirty():
            self.reactor.enlist_commit(self.committer)

    # --- publishing ----------------------------------------------------------------------------------------------------
    cdef int take(self, Connection source, Message* m) except -1:
        cdef uint64_t seq = 0
        cdef int outcome
        if self.closed:
            return 0
        if self.batched is not None and m.reply_len > 4 and memcmp(m.reply + m.reply_len - 4, b".$FI", 4) == 0:
            self.batched.take(m)
            return self.commit() + 1
        outcome = self.accept(m, &seq)
        if m.reply_len and not self.no_ack:
            if outcome == STORED:
                self.acks.push(m.reply, m.reply_len, seq, seq, ACK_STORED)
            elif outcome == DUPLICATE:
                self.acks.push(m.reply, m.reply_len, seq, seq, ACK_DUPLICATE)
            elif outcome == ANSWERED:
                self.acks.push_text(m.reply, m.reply_len, seq, self.answer_text)
            elif outcome == HANDLED:
                pass
            elif self.failure:
                self.acks.say(self.router, m.reply, m.reply_len, self.refusal_text)        # not behind acks that may never be sent
            else:
                self.acks.push_text(m.reply, m.reply_len, 0, self.refusal_text)
        if not self.committer.queued:
            self.reactor.enlist_commit(self.committer)
        return 1

    cdef bint in_doubt(self, uint64_t seq) except -1:
        """Whether a duplicate must be refused while the disk fails: its original is above the visible watermark, or in a segment that
        the previous process could not sync, and so may be lost.
        """
        cdef Segment s
        if not self.failure:
            return False
        if seq <= self.visible:
            s = self.log.segments.find(seq) if self.sync else None
            if s is None or s.synced_size:
                return False
        self.refuse(503, 10077, self.failure)
        return True

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
        if self.accept(&m, &seq) == REFUSED:
            raise StreamRefused(*self.refusal)
        self.reactor.enlist_commit(self.committer)
        return seq

    cdef int commit(self) except -1:
        if not self.committer.queued:
            self.reactor.enlist_commit(self.committer)
        return 0

    cdef int evict(self, uint64_t seq) except -1:
        """Remove one message and tell the consumers that hold it. 1: removed."""
        cdef bint oldest = seq == self.log.first_seq
        cdef Py_ssize_t i
        cdef Listener listener
        if not self.log.remove(seq):
            return 0
        if not oldest:
            self.removals += 1
        i = PyList_GET_SIZE(self.holders)
        while i:
            i -= 1
            listener = <Listener>PyList_GET_ITEM(self.holders, i)
            if not listener.removed(seq):
                listener.holding = False
                del self.holders[i]
        return 1

    # --- release -------------------------------------------------------------------------------------------------------
    def sync_soon(self) -> None:
        """For SYNC_INTERVAL: start an fsync of everything accepted, unless one is running. No ack waits for it."""
        if self.sync == 0 and not self.log.memory and not self.closed and (<Committer>self.committer).outstanding == 0:
            if self.log.dirty():
                self.committer.run()
            (<Committer>self.committer).begin()

    cdef int reveal(self, uint64_t upto) except -1:
        """Messages up to a sequence are as durable as promised: send their acks, run the consumers that wait for them."""
        cdef Listener listener
        if upto > self.log.marks.written_seq and not self.log.memory:
            raise AssertionError(f"release of {upto} before its write ({self.log.marks.written_seq})")
        if upto > self.visible:
            self.visible = upto
            if self.waiting:
                waiting, self.waiting = self.waiting, []
                for listener in waiting:
                    listener.awaiting = False
                    self.reactor.enlist_delivery(listener)
        while self.syncing and self.log.state.condition == TAKES:
            self.syncing -= 1
            self.removing.pop(0)()
        return self.acks.release(self.router, self.visible)

    cdef int write_failed(self, object error) except -1:
        """The log could not write or sync.

        Accepted messages stay in memory, their acks wait until they are as durable as promised, and further publishes are refused: the
        engine calls mend() at intervals.
        """
        self.failure = error.strerror or str(error)
        if self.sync == 0:
            self.reveal(self.log.marks.written_seq)
        return self.acks.release(self.router, self.visible)

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
        cdef Py_ssize_t known = len(self.log.lost)
        if self.closed or (<Committer>self.committer).outstanding:
            return None
        try:
            whole = disk_recovery.mend(self.log)
        except OSError as error:
            self.failure = error.strerror or str(error)
            whole = None
        if len(self.log.lost) > known:
            self.acks.refuse(self.log.lost[known:], self.acks.error(503, 10077, "message lost: " + self.failure))
            self.told()
        if not whole:
            return whole
        self.failure = ""
        if self.sync == 0:
            self.reveal(self.log.marks.written_seq)
        else:
            self.reveal(self.log.marks.synced_seq)
        self.reactor.enlist_commit(self.committer)
        return True

    # --- consumers -----------------------------------------------------------------------------------------------------
    cdef int stored(self, uint32_t subject_id, Message* m, uint64_t seq) except -1:
        """Tell the consumers whose filters the message passes."""
        cdef Route route
        cdef int i
        if self.filters.count == 0:
            return 0
        route = self.route_for(subject_id, m.subject, m.subject_len)
        for i in range(route.n):
            (<Listener>route.items[i]).signalled(seq)
        return 0

    cdef bint anyone(self, Message* m) except -1:
        """Whether a consumer takes messages of this subject."""
        if PyList_GET_SIZE(self.unfiltered):
            return True
        return self.filters.count > 0 and self.filters.route(m.subject, m.subject_len).n > 0

    cdef Route route_for(self, uint32_t subject_id, const char* subject, size_t n):
        cdef Py_ssize_t known = PyList_GET_SIZE(self.interested)
        cdef Route route
        cdef int i
        if <Py_ssize_t>subject_id >= known:
            self.interested.extend([None] * (max(<Py_ssize_t>subject_id + 1, <Py_ssize_t>self.log.subject_ids) - known))
        elif <object>PyList_GET_ITEM(self.interested, subject_id) is not None:
            route = <Route>PyList_GET_ITEM(self.interested, subject_id)
            if route.generation == self.epoch:
                return route
        route = self.filters.match(subject, n)
        if route.n == 0:
            route = self.nobody
        route.generation = self.epoch
        self.interested[subject_id] = route
        for i in range(route.n):
            (<Listener>route.items[i]).wants(subject_id)
        return route

    cdef int filters_changed(self) except -1:
        """Every route must be looked up again. Old routes are dropped bit by bit, so that they do not keep consumers alive for long."""
        cdef Py_ssize_t i, end
        self.epoch += 1
        self.nobody = Route.__new__(Route)
        self.nobody.held = ()
        self.nobody.generation = self.epoch
        if self.filters.count == 0:
            self.interested = []
            return 0
        if self.scrubbed >= PyList_GET_SIZE(self.interested):
            self.scrubbed = 0
        end = min(self.scrubbed + SCRUB_STEP, PyList_GET_SIZE(self.interested))
        for i in range(self.scrubbed, end):
            self.interested[i] = None
        self.scrubbed = end
        return 0

    cdef int add_listener(self, Listener listener, tuple filters) except -1:
        """Add a consumer, or add one again whose filters have changed, after drop_listener() with the old ones."""
        cdef bytes pattern
        self.listeners[listener] = None
        if not filters:
            return self.unfiltered.append(listener) or 0
        for pattern in filters:
            self.filters.insert(PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern), listener)
        return self.filters_changed()

    cdef int drop_listener(self, Listener listener, tuple filters) except -1:
        cdef bytes pattern
        if listener not in self.listeners:
            return 0
        del self.listeners[listener]
        if listener.awaiting:
            self.waiting.remove(listener)
        if listener.holding:
            self.holders.remove(listener)
        listener.awaiting = listener.holding = False
        if not filters:
            return self.unfiltered.remove(listener) or 0
        for pattern in filters:
            self.filters.discard(PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern), listener)
        return self.filters_changed()

    def takers(self, str subject) -> list:
        """The consumers that take messages of a literal subject."""
        cdef bytes name = subject.encode("utf-8", "surrogateescape")
        return self.unfiltered + list(self.filters.match(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)).held)

    cdef int await_more(self, Listener listener) except -1:
        """Run the listener when more messages become visible."""
        if not listener.awaiting:
            listener.awaiting = True
            self.waiting.append(listener)
        return 0

    cdef int hold(self, Listener listener) except -1:
        """The listener has unacknowledged messages: tell it of removals."""
        if not listener.holding:
            listener.holding = True
            self.holders.append(listener)
        return 0

    def consumers(self) -> list:
        """The stream's consumers, oldest first."""
        return list(self.listeners)

    # --- administration ------------------------------------------------------------------------------------------------
    def rebuild_dedupe(self) -> int:
        """After the log is opened: rebuild the message ids inside the duplicate window, and the id of the last message; returns how many."""
        list(self.rebuilding())
        return self.ids.count

    def rebuilding(self):
        """As rebuild_dedupe, in steps: an iterator. Reads the messages with headers inside the window."""
        return recalling(self)

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
        cdef Listener listener
        self.removals += 1
        self.purges += 1
        self.purged_first = self.log.first_seq
        for listener in list(self.holders):
            listener.purged()
        self.reactor.enlist_commit(self.committer)

    def delete_message(self, seq: int, bint erase) -> bool:
        """Remove one message; with `erase`, overwrite its bytes on the disk. False when there is no such message."""
        cdef Listener listener
        if not maintenance.delete(self.log, seq, erase):
            return False
        self.removals += 1
        for listener in list(self.holders):
            listener.removed(seq)
        self.reactor.enlist_commit(self.committer)
        return True

    def when_removed(self, then: object) -> None:
        """Call then() when all removals so far are as durable as the stream promises for messages."""
        if self.log.memory:
            return then()
        self.removing.append(then)
        self.reactor.enlist_commit(self.committer)

    def expire(self) -> int:
        """Remove the messages older than max_age at the reactor's time, forget old message ids; when to call again (ns, 0 = not needed)."""
        cdef uint64_t now = self.reactor.now_ns, due = 0, oldest, cut
        cdef Record r
        if self.max_age_ns and not self.sealed and self.log.msgs:
            cut = self.log.seq_at(now - self.max_age_ns + 1) if now >= self.max_age_ns else 0
            if cut > self.log.first_seq:
                for listener in list(self.holders):
                    (<Listener>listener).expire_below(cut)
                maintenance.purge(self.log, cut)
                self.told()
            if self.log.msgs and self.log.read(self.log.first_seq, &r):
                due = max(r.ts_ns + self.max_age_ns, now + AGE_STEP_NS)
        if self.duplicate_window_ns:
            if now >= self.duplicate_window_ns:
                self.ids.forget_until(now - self.duplicate_window_ns)
            oldest = self.ids.oldest_ns()
            if oldest:
                oldest = max(oldest + self.duplicate_window_ns, now + AGE_STEP_NS)
                due = min(due, oldest) if due else oldest
        return due

    def close(self) -> None:
        """Stop taking messages; accepted messages are committed at the end of the turn. The engine closes the consumers first."""
        if not self.closed:
            self.log.subjects_table.watchers.remove(self.routes)
        self.closed = True
        self.settle()
        self.syncing = 0
        while self.removing and self.log.state.condition == TAKES:     # closing the log syncs it
            self.removing.pop(0)()
