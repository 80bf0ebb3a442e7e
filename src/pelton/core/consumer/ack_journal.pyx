"""The ack journal of one stream: an append-only file with its consumers' states and the acks that ask for a confirmation.

    <folder>/states.0, .1   bases: the states of all consumers, as the engine packs them (engine/files/consumer_states); each new base replaces
                            the older one as a whole
    <folder>/acks.<number>  records since the older base, in the order of the numbers

A journal file:

    +0   "PSACKS1\\n"
    +8   u32   salt
    +12  u32   CRC32C of the 12 bytes before
    +16        records

    record:  +0   u32   its length, all of it
             +4   u32   CRC32C of what follows, started with the salt
             +8   u16   kind: 1 state, 2 acks         +10  u16  length of the consumer's name
             +12  u32   0                             +16  u64  when the consumer was created, ns
             +24        its name; then
             state:     the consumer's whole state (core/consumer/snapshot)
             acks:      u64 consumer sequence of the last delivery that the record before this one knew of,
                        u64 x 7 as at the head of a state (core/consumer/snapshot), u32 count of new messages, u32 count of acks,
                        messages delivered since and still pending (u64 stream sequence, u64 consumer sequence, u64 time),
                        acknowledged sequences (u64)

The journal of an encrypted stream (core/log/encryption) begins with "PSACKSE\\n", and its head continues with u32 number of the data key, 24
random bytes, u32 CRC32C of these 28. In a record, u32 counter, ciphertext and a tag of 16 bytes follow the name.

So a confirmed ack costs some 150 bytes, however many messages its consumer has pending. A record is applied to states that are older than it;
one that knows of fewer deliveries than the state was written after a reset. All acks of a turn that ask for an answer share one write, and one
fsync in the sync threads when the stream promises syncs; the answers are sent when the fsync has ended. A torn record ends its file; its acks
were not answered.

When the journal is long, the engine passes the states of all consumers as a new base. When the new base and its name are synced, the journal
files that the other base does not need are deleted: a damaged base loses nothing as long as the other one is good. After a failed write or
fsync nothing is confirmed until a new base is synced, which contains all states.

Knows nothing of the meaning of states, nor of retention.
"""
from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport Out, crc32c, out_free, out_reserve
from pelton.core.base.disk cimport Disk
from pelton.core.base.open_files cimport OpenFile
from pelton.core.broker.reactor cimport Reactor
from pelton.core.consumer.consumer cimport Consumer
from pelton.core.consumer.consumer_task cimport ConsumerTask
from pelton.core.consumer.delivery cimport POLICY_ALL, AckConfirmer, Delivery
from pelton.core.consumer.pending cimport GONE, Pending, PendingMessages
from pelton.core.log.encryption cimport seal_part
from pelton.core.log.record cimport FRESH_BYTES, TAG_BYTES

cdef enum:
    FILE_HEAD = 16
    SEALED_FILE_HEAD = 48
    COUNTER_BYTES = 4
    RECORD_HEAD = 24
    STATE = 1
    ACKS = 2
    ACKS_HEAD = 72                 # eight numbers, two counts

cdef enum BaseStage:
    NONE = 0
    DATA = 1                       # the new base file
    NAME = 2                       # the folder that names it

cdef enum:
    SYNC_RECORDS = 0               # the kind of a sync, as its `upto`
    SYNC_BASE = 1

_MAGIC = b"PSACKS1\n"
_SEALED_MAGIC = b"PSACKSE\n"


cdef inline void put32(char* p, uint32_t value) noexcept:
    memcpy(p, &value, 4)


cdef inline char* put64(char* p, uint64_t value) noexcept:
    memcpy(p, &value, 8)
    return p + 8


cdef class Mark:
    """The journal's state of one consumer."""


cdef class AckJournal(AckConfirmer):
    """The ack journal of one stream. The engine makes it; see ack_journal.pyi."""

    def __cinit__(self):
        memset(&self.out, 0, sizeof(Out))
        memset(&self.sealed, 0, sizeof(Out))
        self.folder_handle = self.base_handle = -1

    def __init__(self, Reactor reactor, Disk disk, str folder, *, bint durable, object cipher = None) -> None:
        self.reactor = reactor
        self.disk = disk
        self.folder = folder
        self.durable = durable
        self.cipher = cipher
        self.keep_bytes = 1048576
        self.marks = {}
        self.touched = []
        self.waiting = deque()

    def __dealloc__(self):
        out_free(&self.out)
        out_free(&self.sealed)

    def begin(self, *, oldest: int, number: int, size_bytes: int, base_bytes: int, base_slot: int, base_upto: int) -> None:
        """Continue after the files that recovery has read."""
        self.oldest = oldest
        self.number = number
        self.since_bytes = size_bytes
        self.base_bytes = base_bytes
        self.base_slot = base_slot
        self.kept_upto = base_upto

    def watch(self, Consumer consumer, created_ns: int) -> None:
        """Confirm the acks of a consumer from now on, and keep its state."""
        cdef Mark mark = Mark.__new__(Mark)
        mark.consumer = consumer
        mark.name = consumer.name.encode("utf-8", "surrogateescape")
        mark.created_ns = created_ns
        mark.cseq = consumer.delivery.delivered
        mark.acked = []
        mark.replies = []
        self.marks[consumer] = mark
        consumer.delivery.confirm_acks_with(self)

    def forget(self, Consumer consumer) -> None:
        """The consumer is removed: its waiting acks get no answer."""
        cdef Mark mark = self.marks.pop(consumer, None)
        consumer.delivery.confirm_acks_with(None)
        if mark is not None and mark.listed:
            self.touched.remove(mark)

    cdef Mark mark_of(self, ConsumerTask consumer):
        return <Mark>self.marks[consumer]

    # --- confirming ----------------------------------------------------------------------------------------------------
    cdef int confirm(self, ConsumerTask consumer, uint64_t seq, const char* reply, size_t n) except -1:
        cdef Mark mark = self.mark_of(consumer)
        mark.replies.append(PyBytes_FromStringAndSize(reply, n))
        if mark.consumer.delivery.pending.find(seq) == NULL:
            mark.acked.append(seq)
        if not mark.listed:
            mark.listed = True
            self.touched.append(mark)
        if not self.queued:
            self.reactor.enlist_commit(self)
        return 0

    cdef int was_reset(self, ConsumerTask consumer) except -1:
        self.mark_of(consumer).cseq = 18446744073709551615u
        return 0

    cdef int run(self) except -1:
        cdef Mark mark
        cdef bytes reply
        if not self.touched or self.broken or self.ended:
            return 0
        try:
            for mark in self.touched:
                self.put_acks(mark)
            self.write()
        except OSError as error:
            return self.failed(error)
        done, self.touched = self.touched, []
        for mark in done:
            mark.cseq = mark.next_cseq
            mark.listed = False
            for reply in mark.replies:
                self.waiting.append((self.write_mark, mark.consumer, reply))
            mark.acked = []
            mark.replies = []
        if not self.durable:
            self.synced_mark = self.write_mark
            return self.release()
        return self.begin_sync()

    cdef int release(self) except -1:
        """Answer the acks that are as durable as promised."""
        cdef Consumer consumer
        cdef bytes reply
        while self.waiting and self.waiting[0][0] <= self.synced_mark:
            _, consumer, reply = self.waiting.popleft()
            consumer.delivery.answer(PyBytes_AS_STRING(reply), PyBytes_GET_SIZE(reply))
        return 0

    cdef int failed(self, object error) except -1:
        """The waiting confirmations wait for a base that includes everything written so far."""
        self.out.off = self.out.len = 0
        self.broken = True
        self.doubt_mark = self.write_mark
        if self.on_failure is not None:
            self.on_failure(error)
        return 0

    # --- records -------------------------------------------------------------------------------------------------------
    cdef char* begin_record(self, Mark mark, int kind, size_t n) except NULL:
        """Reserve a record with n bytes behind the name and fill in its head; returns the address of these bytes."""
        cdef size_t name_len = PyBytes_GET_SIZE(mark.name)
        cdef char* p = out_reserve(&self.out, RECORD_HEAD + name_len + n)
        cdef uint16_t half = <uint16_t>kind
        put32(p, <uint32_t>(RECORD_HEAD + name_len + n))
        memcpy(p + 8, &half, 2)
        half = <uint16_t>name_len
        memcpy(p + 10, &half, 2)
        put32(p + 12, 0)
        put64(p + 16, mark.created_ns)
        memcpy(p + RECORD_HEAD, PyBytes_AS_STRING(mark.name), name_len)
        return p + RECORD_HEAD + name_len

    cdef int end_record(self, size_t n) except -1:
        """The record is complete; write() adds its checksum, which depends on the file."""
        self.out.len += n
        return 0

    cdef bytes put_state(self, Mark mark):
        cdef bytes state = mark.consumer.snapshot()
        cdef size_t n = PyBytes_GET_SIZE(state)
        cdef char* p = self.begin_record(mark, STATE, n)
        memcpy(p, PyBytes_AS_STRING(state), n)
        mark.next_cseq = mark.consumer.delivery.delivered
        self.end_record(RECORD_HEAD + PyBytes_GET_SIZE(mark.name) + n)
        return state

    cdef int put_acks(self, Mark mark) except -1:
        cdef Delivery c = mark.consumer.delivery
        cdef PendingMessages pending = c.pending
        cdef size_t i = pending.len, fresh = 0, acked, size
        cdef Pending* e
        cdef char* p
        if c.spent is not None or c.cursor.starts_at < c.cursor.starts_len or c.delivered < mark.cseq:
            self.put_state(mark)               # an acks record can't express the change
            return 0
        # Entries ascend: the messages first delivered since then are at the end.
        while i > pending.off and pending.data[i - 1].cseq > mark.cseq:
            i -= 1
            fresh += pending.data[i].state != GONE
        acked = 0 if c.ack_policy == POLICY_ALL else len(mark.acked)       # the ack floor covers them
        size = ACKS_HEAD + 24 * fresh + 8 * acked
        p = self.begin_record(mark, ACKS, size)
        for number in (mark.cseq, c.delivered, c.cursor.passed, c.cursor.next_seq, c.delivered_ns, pending.floor_cseq,
                       pending.floor_seq, c.acked_ns):
            p = put64(p, number)
        put32(p, <uint32_t>fresh)
        put32(p + 4, <uint32_t>acked)
        p += 8
        for i in range(i, pending.len):
            e = pending.data + i
            if e.state != GONE:
                p = put64(put64(put64(p, e.seq), e.cseq), e.since_ns)
        if acked:
            for seq in mark.acked:
                p = put64(p, seq)
        mark.next_cseq = c.delivered
        return self.end_record(RECORD_HEAD + PyBytes_GET_SIZE(mark.name) + size)

    # --- the file ------------------------------------------------------------------------------------------------------
    cdef int write(self) except -1:
        """Write the records to the file."""
        cdef size_t at = 0
        cdef uint32_t length
        cdef char* p
        cdef Out* written = &self.out
        if self.out.len == 0:
            return 0
        if self.file is None:
            self.start_file()
        if self.aead is not None:
            self.seal()
            written = &self.sealed
        while at < written.len:
            p = written.data + at
            memcpy(&length, p, 4)
            put32(p + 4, crc32c(p + 8, length - 8, self.salt))
            at += length
        if self.torn:                        # bytes of a failed write behind these records would count as newer
            self.disk.truncate(self.handle(), self.size)
        self.torn = True
        self.disk.write_at(self.handle(), written.data, written.len, self.size)
        self.torn = False
        self.size += written.len
        self.since_bytes += written.len
        self.out.len = 0
        self.write_mark += 1
        return 0

    cdef int seal(self) except -1:
        """Encrypt the records. The nonce is a counter that no record of the file has used, even after a failed write."""
        cdef size_t at = 0, body, named
        cdef uint32_t length
        cdef uint16_t name_len
        cdef const char* p
        cdef char* to
        cdef bytes ciphertext
        self.sealed.len = 0
        while at < self.out.len:
            p = self.out.data + at
            memcpy(&length, p, 4)
            memcpy(&name_len, p + 10, 2)
            named = RECORD_HEAD + name_len
            body = length - named
            to = out_reserve(&self.sealed, length + COUNTER_BYTES + TAG_BYTES)
            memcpy(to, p, named)
            put32(to, length + COUNTER_BYTES + TAG_BYTES)
            self.counter += 1
            put32(to + named, self.counter)
            ciphertext = seal_part(self.aead, self.counter, p + named, body, to[:4] + to[8:named])
            memcpy(to + named + COUNTER_BYTES, PyBytes_AS_STRING(ciphertext), body + TAG_BYTES)
            self.sealed.len += length + COUNTER_BYTES + TAG_BYTES
            at += length
        return 0

    cdef int start_file(self) except -1:
        cdef char head[SEALED_FILE_HEAD]
        cdef size_t n = FILE_HEAD
        cdef bytes fresh
        cdef uint64_t number = self.number + 1
        cdef int handle = self.disk.open(f"{self.folder}/acks.{number}", True)
        self.salt = <uint32_t>(self.reactor.random() >> 16)
        memcpy(head, PyBytes_AS_STRING(_MAGIC), 8)
        put32(head + 8, self.salt)
        self.aead = None
        if self.cipher is not None and self.cipher.number:
            fresh = self.cipher.fresh()
            memcpy(head, PyBytes_AS_STRING(_SEALED_MAGIC), 8)
            put32(head + FILE_HEAD, self.cipher.number)
            memcpy(head + FILE_HEAD + 4, PyBytes_AS_STRING(fresh), FRESH_BYTES)
            put32(head + SEALED_FILE_HEAD - 4, crc32c(head + FILE_HEAD, 4 + FRESH_BYTES, 0))
            self.aead = self.cipher.aead(self.cipher.number, b"journal " + head[8:12] + head[FILE_HEAD:SEALED_FILE_HEAD - 4])
            self.counter = 0
            n = SEALED_FILE_HEAD
        put32(head + 12, crc32c(head, 12, 0))
        try:
            self.disk.truncate(handle, 0)
            self.disk.write_at(handle, head, n, 0)
        except OSError:
            self.disk.close(handle)
            raise
        self.file = OpenFile()
        self.disk.keep_open(self.file, handle)
        self.number = number
        self.torn = False
        if self.oldest == 0:
            self.oldest = number
        self.size = n
        self.since_bytes += n
        self.named = False
        return 0

    cdef int handle(self) except -1:
        if self.file.handle < 0:
            return self.disk.open_again(self.file, f"{self.folder}/acks.{self.number}")
        self.disk.open_files.touch(self.file)
        return self.file.handle

    cdef int close_folder(self) except -1:
        """Close the folder when no sync uses it: other streams need the descriptor."""
        cdef int handle = self.folder_handle
        if handle >= 0 and not self.outstanding and self.base_stage == NONE:
            self.folder_handle = -1
            self.disk.close(handle)
        return 0

    cdef int sync_folder(self) except -1:
        """The folder's handle, for syncing names."""
        if self.folder_handle < 0:
            self.folder_handle = self.disk.open_folder(self.folder)
        return self.folder_handle

    cdef int begin_sync(self) except -1:
        cdef int folder = -1, handle
        if self.outstanding or self.broken or self.file is None or self.write_mark == self.synced_mark:
            return 0
        try:
            if not self.disk.in_background():
                self.disk.sync(self.handle())
                if not self.named:
                    self.disk.sync_dir(self.folder)
                self.named = True
                self.synced_mark = self.write_mark
                return self.release()
            if not self.named:
                folder = self.sync_folder()
            handle = self.handle()
        except OSError as error:
            return self.failed(error)
        self.file.hold(True)
        self.target = self.write_mark
        self.outstanding = 1 if folder < 0 else 2
        self.reactor.submit_sync(self, handle, SYNC_RECORDS)
        if folder >= 0:
            self.reactor.submit_sync(self, folder, SYNC_RECORDS)
        return 0

    cdef int synced(self, uint64_t upto, int error) except -1:
        cdef bint left = self.left_file is not None    # the records go on in another file than the synced one
        if upto == SYNC_BASE:
            return self.base_synced(error)
        if error:
            self.error = error
        self.outstanding -= 1
        if self.outstanding:
            return 0
        if left:
            self.left_file.hold(False)
            self.disk.close_file(self.left_file)
            self.left_file = None
        else:
            self.file.hold(False)
        self.close_folder()
        if self.ended:
            return self.close_files()
        if self.error:
            code, self.error = self.error, 0
            return self.failed(OSError(code, "the sync failed"))
        if not left:
            self.named = True
        self.synced_mark = max(self.synced_mark, self.target)
        self.release()
        return self.begin_sync()

    # --- the base ------------------------------------------------------------------------------------------------------
    def save(self, list consumers) -> list:
        """Write the present states of these consumers, and return them. Does not wait for the sync. Raises OSError when the write fails."""
        cdef Consumer consumer
        cdef Mark mark
        cdef list states = []
        try:
            for consumer in consumers:
                states.append(self.put_state(self.mark_of(consumer)))
            self.write()
        except OSError:
            self.out.len = 0
            raise
        for consumer in consumers:
            mark = self.mark_of(consumer)
            mark.cseq = mark.next_cseq
        return states

    def wants_base(self) -> bool:
        """Whether to call rebase(): the journal is long, or a failure made it doubtful."""
        return self.base_stage == NONE and not self.outstanding and (
            self.broken or self.since_bytes > max(self.keep_bytes, 2 * self.base_bytes))

    def rebase(self, bytes data, *, bint now = False) -> None:
        """Replace the base by the present states of all consumers. `now`: return after the base is synced.

        Raises OSError when that fails; the former base and the journal stay. Without `now`, does nothing while a sync runs.
        """
        cdef str path = self.base_path()
        cdef int handle
        if (self.base_stage != NONE or self.outstanding) and not now:
            return
        if now or not self.durable or not self.disk.in_background():
            self.disk.write_file_atomic(path, data, self.durable or now)
            self.base_bytes = len(data)
            self.base_outdated = self.base_stage != NONE
            self.base_mark = self.write_mark
            self.base_upto = self.number
            self.base_done()
            return
        self.base_mark = self.write_mark
        self.base_upto = self.number
        handle = self.disk.open(path + ".tmp", True)
        try:
            self.disk.truncate(handle, 0)
            self.disk.write_at(handle, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0)
            self.sync_folder()
        except OSError:
            self.disk.close(handle)
            raise
        self.base_bytes = PyBytes_GET_SIZE(data)
        self.leave_file()
        self.base_handle = handle
        self.base_stage = DATA
        self.reactor.submit_sync(self, handle, SYNC_BASE)

    def base_path(self) -> str:
        """The path of the next base."""
        return f"{self.folder}/states.{1 - self.base_slot}"

    def leave_file(self) -> None:
        """End the file, and close it when no sync uses it; the next record begins a new one."""
        if self.file is None:
            return
        if self.outstanding and self.left_file is None:
            self.left_file = self.file
        else:
            self.disk.close_file(self.file)
        self.file = None

    cdef int base_synced(self, int code) except -1:
        """One part of the new base is synced; `code`: the errno of the sync."""
        cdef bint outdated = self.base_outdated
        try:
            if self.base_stage == DATA:
                self.disk.close(self.base_handle)
                self.base_handle = -1
                if not code and not self.ended and not outdated:
                    self.disk.rename(self.base_path() + ".tmp", self.base_path())
                    self.base_stage = NAME
                    return self.reactor.submit_sync(self, self.sync_folder(), SYNC_BASE)
            self.base_stage = NONE
            self.close_folder()
            self.base_outdated = False
            if self.ended:
                return self.close_files()
            if outdated:
                return 0                     # rebase(now=True) has written a newer base meanwhile
            if code:
                raise OSError(code, "the sync failed")
            return self.base_done()
        except OSError as error:
            self.base_stage = NONE
            self.close_folder()
            return self.failed(error)

    cdef int base_done(self) except -1:
        """The new base is synced: answer the acks that it includes, and delete the journal files that are not needed."""
        cdef uint64_t number
        cdef Mark mark
        cdef bytes reply
        if self.base_upto == self.number:
            self.leave_file()
        for number in range(self.oldest or 1, self.kept_upto + 1):
            self.disk.unlink(f"{self.folder}/acks.{number}")
        self.oldest = self.kept_upto + 1
        self.kept_upto = self.base_upto
        self.base_slot = 1 - self.base_slot
        self.since_bytes = self.size if self.file is not None else 0
        if self.base_mark > self.synced_mark:
            self.synced_mark = self.base_mark
        if self.base_mark >= self.doubt_mark:
            self.broken = False
        if self.touched and not self.queued:
            self.reactor.enlist_commit(self)       # confirm the acks that could not be written before
        self.release()
        return self.begin_sync()

    # --- the end -------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Write nothing more, and close the files when no sync uses them."""
        self.ended = True
        if not self.outstanding and self.base_stage == NONE:
            self.close_files()

    def close_files(self) -> int:
        """Close the handles when no sync uses them."""
        if self.outstanding or self.base_stage != NONE:
            return 0
        self.leave_file()
        self.close_folder()
        return 0
