"""The ack journal of one stream: an append-only file with its consumers' states and the acks that ask for a confirmation."""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.base.disk cimport Disk
from pelton.core.base.open_files cimport OpenFile
from pelton.core.broker.reactor cimport Reactor
from pelton.core.consumer.consumer cimport Consumer
from pelton.core.consumer.consumer_task cimport ConsumerTask
from pelton.core.consumer.delivery cimport AckConfirmer


cdef class Mark:
    """The journal's state of one consumer."""
    cdef Consumer consumer
    cdef bytes name
    cdef uint64_t created_ns
    cdef uint64_t cseq                 # consumer sequence of the last delivery that the journal has
    cdef uint64_t next_cseq            # ... that the journal has after the running write
    cdef list acked                    # sequences that the next write confirms
    cdef list replies                  # ... and the subjects of the answers
    cdef bint listed                   # in `touched`


cdef class AckJournal(AckConfirmer):
    cdef Reactor reactor
    cdef Disk disk
    cdef str folder
    cdef object cipher                 # data keys of the stream; None: the stream is not encrypted
    cdef object aead                   # cipher of the journal file; None: it is not encrypted
    cdef uint32_t counter              # number of encrypted records in the file
    cdef Out sealed                    # the encrypted records for the next write
    cdef bint durable                  # a confirmation waits for the fsync
    cdef public uint64_t keep_bytes    # a journal below this size gets no new base
    cdef public object on_failure      # called with an OSError; or None
    cdef dict marks                    # Consumer -> Mark
    cdef list touched                  # Marks with acks to confirm
    cdef object waiting                # deque of (write mark, Consumer, reply): written; the answer waits for the sync
    cdef Out out                       # the records of the next write
    cdef uint64_t write_mark, synced_mark, target
    cdef uint64_t doubt_mark           # of the last failure: a base that began before it does not end `broken`
    # the file
    cdef OpenFile file                 # None: the next record begins a new file
    cdef OpenFile left_file            # takes no more records and is being synced; or None
    cdef readonly uint64_t number      # of the file
    cdef uint64_t oldest               # number of the oldest file in the folder
    cdef uint64_t size
    cdef bint torn                     # a failed write may have left bytes behind `size`
    cdef uint32_t salt
    cdef bint named                    # the folder was synced since the file was created
    cdef int folder_handle             # of the folder, while its names are being synced; else -1
    cdef readonly uint64_t since_bytes # bytes of the records since the base
    cdef uint64_t base_bytes           # of the base file
    cdef int base_slot                 # which base file is the current one: 0 or 1
    cdef uint64_t kept_upto            # the newest journal file that the current base includes
    cdef int outstanding               # running fsyncs of records
    cdef int base_stage                # of a new base: the part that is being synced (BaseStage)
    cdef int base_handle
    cdef bint base_outdated            # the base that is being synced is older than the current one: its end changes nothing
    cdef uint64_t base_mark, base_upto
    cdef int error                     # of the running syncs of records
    cdef readonly bint broken          # records may be missing on the disk: nothing is confirmed before the next base
    cdef bint ended

    cdef Mark mark_of(self, ConsumerTask consumer)
    cdef bytes put_state(self, Mark mark)
    cdef int put_acks(self, Mark mark) except -1
    cdef char* begin_record(self, Mark mark, int kind, size_t n) except NULL
    cdef int end_record(self, size_t n) except -1
    cdef int write(self) except -1
    cdef int seal(self) except -1
    cdef int start_file(self) except -1
    cdef int handle(self) except -1    # of the file, opened if needed; for use before the next call
    cdef int begin_sync(self) except -1
    cdef int sync_folder(self) except -1
    cdef int close_folder(self) except -1
    cdef int release(self) except -1
    cdef int failed(self, object error) except -1
    cdef int base_synced(self, int code) except -1
    cdef int base_done(self) except -1
