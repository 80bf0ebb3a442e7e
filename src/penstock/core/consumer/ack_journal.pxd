"""The journal of one stream's consumers: their states, and the acks that were to be confirmed, appended to a file."""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.base.disk cimport Disk
from penstock.core.broker.reactor cimport Reactor
from penstock.core.consumer.consumer cimport Consumer
from penstock.core.consumer.consumer_task cimport ConsumerTask
from penstock.core.consumer.delivery cimport AckConfirmer


cdef class Mark:
    """What the journal knows of one consumer."""
    cdef Consumer consumer
    cdef bytes name
    cdef uint64_t created_ns
    cdef uint64_t cseq                 # its last delivery that the journal knows of
    cdef uint64_t next_cseq            # ... when what is being written is written
    cdef list acked                    # sequences to be confirmed with the next write
    cdef list replies                  # ... and who waits for it
    cdef bint listed                   # in `touched`


cdef class AckJournal(AckConfirmer):
    cdef Reactor reactor
    cdef Disk disk
    cdef str folder
    cdef object cipher                 # data keys of the stream; None: it has none
    cdef object aead                   # that of the file; None: it is not encrypted
    cdef uint32_t counter              # records sealed with it
    cdef Out sealed                    # records as they go to the file
    cdef bint durable                  # a confirmation promises the disk
    cdef public uint64_t keep_bytes    # a journal below this is not worth a new base
    cdef public object on_failure      # called with an OSError; or None
    cdef dict marks                    # Consumer -> Mark
    cdef list touched                  # Marks with something to confirm
    cdef object waiting                # deque of (write mark, Consumer, reply): written, to be answered when it is synced
    cdef Out out                       # records on their way to the file
    cdef uint64_t write_mark, synced_mark, target
    # the file
    cdef int handle                    # -1: the next record begins a new file
    cdef readonly uint64_t number      # of the file
    cdef uint64_t oldest               # the first file that is still there
    cdef uint64_t size
    cdef bint torn                     # behind `size` stands what a write that failed has left
    cdef uint32_t salt
    cdef bint named                    # its name is on the disk
    cdef int folder_handle             # for syncing names; -1: not open
    cdef readonly uint64_t since_bytes # in the files since the base
    cdef uint64_t base_bytes           # of the base file
    cdef int base_slot                 # where it is: 0 or 1
    cdef uint64_t kept_upto            # the file that it includes
    cdef int outstanding               # fsyncs of records that run
    cdef int base_stage                # of a new base: what is being synced (BaseStage)
    cdef int base_handle
    cdef uint64_t base_mark, base_upto
    cdef int error
    cdef readonly bint broken          # something may not be on the disk: only a new base helps
    cdef bint ended

    cdef Mark mark_of(self, ConsumerTask consumer)
    cdef bytes put_state(self, Mark mark)
    cdef int put_acks(self, Mark mark) except -1
    cdef char* begin_record(self, Mark mark, int kind, size_t n) except NULL
    cdef int end_record(self, size_t n) except -1
    cdef int write(self) except -1
    cdef int seal(self) except -1
    cdef int start_file(self) except -1
    cdef int begin_sync(self) except -1
    cdef int sync_folder(self) except -1
    cdef int release(self) except -1
    cdef int failed(self, object error) except -1
    cdef int base_synced(self) except -1
    cdef int base_done(self) except -1
