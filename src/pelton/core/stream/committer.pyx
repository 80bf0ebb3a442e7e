"""The commits of a stream: accepted messages become as durable as the stream promises, and then visible.

    visible  <=  log.written_seq  <=  log.last_seq

A publish is accepted at once: the message has its sequence and is in the log. Its PubAck waits in a queue, and consumers can't see it,
until the commit phase of the turn has made it as durable as the stream promises:

    SYNC_INTERVAL   when the log's write() has returned (memory streams too)
    SYNC_ALWAYS     when an fsync that covers it has ended: one runs at a time, and the next one covers all messages accepted meanwhile

Knows nothing of how a message is accepted: it moves `visible`, sends the PubAcks in the queue, and wakes the consumers that wait.
"""
import os

cimport cython
from libc.stdint cimport uint64_t
from pelton.core.broker.reactor cimport Reactor, Synced
from pelton.core.broker.router cimport Router
from pelton.core.log.disk_condition cimport FULL, TAKES
from pelton.core.log.log cimport Log
from pelton.core.log.segment cimport Segment
from pelton.core.stream.listeners cimport Listeners
from pelton.core.stream.puback_queue cimport PubAckQueue

from pelton.core.log import disk_recovery

cdef enum:
    SYNC_HANDLES = 64
    UNSYNCED_MAX = 32              # sealed segments that wait for their fsync: above this a sync starts before the interval is over


@cython.final
cdef inline bint records_removals(Log log):
    """Whether the log works, at least in the reserve of a full disk."""
    return log.state.condition == TAKES or (log.state.condition == FULL and log.disk.spent and not log.deferred.first)


cdef class Committer(Synced):
    """The stream's task in the commit phase: write, sync when that is promised, then release."""

    def __init__(self, Router router, Log log, PubAckQueue acks, Listeners listeners, int sync) -> None:
        self.router = router
        self.reactor = router.reactor
        self.log = log
        self.acks = acks
        self.listeners = listeners
        self.sync = sync
        self.removing = []
        self.failure = ""
        log.marks.use_sync(True)  # the stream will sync: a segment that the opening replaced is not deleted before that
        self.visible = log.span.last_seq if sync == 0 or log.memory or not log.marks.known else log.marks.synced_seq
        if log.state.condition != TAKES and not log.memory:
            self.failure = os.strerror(log.state.failure)          # the opening met a disk that refused a write

    cdef int enlist(self) except -1:
        if not self.queued:
            self.reactor.enlist_commit(self)
        return 0

    # --- the commit phase ----------------------------------------------------------------------------------------------
    cdef int run(self) except -1:
        if self.log.files.dirty():
            try:
                self.log.files.write()
            except OSError as error:
                return self.write_failed(error)
            if self.log.state.condition == TAKES:
                self.failure = ""
            elif not self.failure:           # the write has used the reserve of the disk
                self.failure = os.strerror(self.log.state.failure)
        if self.sync == 0 or self.log.memory:
            self.syncing = len(self.removing)
            self.reveal(self.log.span.last_seq)
            if self.outstanding == 0 and len(self.log.files.unsynced.sealed) > UNSYNCED_MAX:
                self.begin()
            return 0
        if self.outstanding == 0:
            self.begin()
        return self.acks.release(self.router, self.visible)

    cdef int begin(self) except -1:
        """Start a sync of everything written."""
        cdef int handles[SYNC_HANDLES]
        cdef int n, i
        if self.removing and not self.log.files.dirty():
            self.syncing = len(self.removing)
        try:
            n = self.log.files.sync_begin(handles, SYNC_HANDLES, &self.upto)
        except OSError as error:
            return self.write_failed(error)
        if n == 0:
            return self.reveal(self.log.marks.synced_seq)
        self.error = 0
        self.outstanding = n
        for i in range(n):
            self.reactor.submit_sync(self, handles[i], self.upto)
        return 0

    cdef int synced(self, uint64_t upto, int error) except -1:
        if error and not self.error:
            self.error = error
        self.outstanding -= 1
        return 0 if self.outstanding else self.ended()

    cdef int ended(self) except -1:
        try:
            self.log.files.sync_end(self.upto, self.error)
        except OSError as error:
            return self.write_failed(error)
        self.reveal(self.log.marks.synced_seq)
        if self.sync != 0 and (self.log.marks.synced_seq < self.log.marks.written_seq or self.removing):
            self.begin()
        return 0

    cdef int sync_soon(self) except -1:
        """For SYNC_INTERVAL: start an fsync of everything accepted, unless one is running."""
        if self.sync != 0 or self.log.memory or self.outstanding:
            return 0
        if self.log.files.dirty():
            self.run()
        return self.begin()

    # --- release -------------------------------------------------------------------------------------------------------
    cdef int reveal(self, uint64_t upto) except -1:
        """Messages up to a sequence are as durable as promised: send their acks, run the consumers that wait for them."""
        if upto > self.log.marks.written_seq and not self.log.memory:
            raise AssertionError(f"release of {upto} before its write ({self.log.marks.written_seq})")
        if upto > self.visible:
            self.visible = upto
            self.listeners.wake()
        while self.syncing and records_removals(self.log):
            self.syncing -= 1
            self.removing.pop(0)()
        return self.acks.release(self.router, self.visible)

    cdef int when_removed(self, object then) except -1:
        self.removing.append(then)
        return self.enlist()

    cdef int close(self) except -1:
        """The engine closes the log next, and that syncs it: call all that wait for removals."""
        self.syncing = 0
        while self.removing and records_removals(self.log):
            self.removing.pop(0)()
        return 0

    # --- a disk that fails ---------------------------------------------------------------------------------------------
    cdef int write_failed(self, object error) except -1:
        """The log could not write or sync.

        Accepted messages stay in memory, their acks wait until they are as durable as promised, and further publishes are refused: the
        engine calls mend() at intervals.
        """
        self.failure = error.strerror or str(error)
        if self.sync == 0:
            self.reveal(self.log.marks.written_seq)
        return self.acks.release(self.router, self.visible)

    cdef bint may_lose(self, uint64_t seq) except -1:
        """Whether the disk fails and a stored message may be lost: it is above the visible watermark, or in a segment that the previous
        process could not sync.
        """
        cdef Segment s
        if not self.failure:
            return False
        if seq > self.visible:
            return True
        s = self.log.segments.find(seq) if self.sync else None
        return s is not None and s.synced_size == 0

    cdef bint in_doubt(self) noexcept:
        return self.sync != 0 and not self.log.memory and self.visible > self.log.marks.synced_seq

    cdef int defer(self, object error, object call) except -1:
        self.log.defer(error, call)
        self.failure = os.strerror(self.log.state.failure)
        return 0

    cdef object mend(self):
        """As Stream.mend."""
        cdef Py_ssize_t known = len(self.log.lost)
        if self.outstanding:
            return None
        try:
            whole = disk_recovery.mend(self.log)
        except OSError as error:
            self.failure = error.strerror or str(error)
            whole = None
        if len(self.log.lost) > known:
            self.acks.refuse(self.log.lost[known:], self.acks.error(503, 10077, "message lost: " + self.failure))
            self.listeners.purged()
            self.enlist()
        if not whole:
            return whole
        self.failure = ""
        if self.sync == 0:
            self.reveal(self.log.marks.written_seq)
        else:
            self.reveal(self.log.marks.synced_seq)
        self.enlist()
        return True
