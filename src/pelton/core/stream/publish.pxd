"""The publish path of a stream: headers, expectations, duplicates, limits, append."""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.broker.reactor cimport Reactor
from pelton.core.broker.router cimport Message, Router
from pelton.core.log.log cimport Log
from pelton.core.protocol.publish_headers cimport PublishHeaders, Text
from pelton.core.stream.committer cimport Committer
from pelton.core.stream.dedupe cimport MessageIds
from pelton.core.stream.draft cimport Draft
from pelton.core.stream.listeners cimport Listeners
from pelton.core.stream.puback_queue cimport PubAckQueue


cdef enum Outcome:
    STORED = 0
    DUPLICATE = 1              # the sequence is that of the original
    REFUSED = 2                # PublishPath.refusal has the reason
    HANDLED = 3                # a rule or a batch has taken the message
    ANSWERED = 4               # stored; PublishPath.answer_text has its PubAck


cdef enum Stage:
    # the points at which rules are asked; refusals.STAGE_*
    BATCH = 0
    COUNTER = 1
    TTL = 2
    SCHEDULE = 3
    ROLLUP = 4
    TTL_VALUE = 5
    AFTER = 6
    FAST_BATCH = 7
    ARRIVED = 8
    COUNT = 9


cdef class FastBatchHandler:
    # Takes publishes whose reply subject ends in .$FI, and answers them (core/stream/fast_batch).
    cdef int take(self, Message* m) except -1


cdef class AtomicBatchHandler:
    # Takes the messages of atomic batches, and answers them (core/stream/open_batches).
    cdef int take(self, Message* m, Draft draft) except -1             # REFUSED or HANDLED


@cython.final
cdef class PublishPath:
    cdef Router router
    cdef Reactor reactor
    cdef readonly str name
    cdef bytes name_bytes
    cdef readonly Log log
    cdef Listeners listeners                 # who takes the messages
    cdef Committer committer                 # makes them durable and visible
    cdef PubAckQueue acks
    # configuration
    cdef int64_t max_msgs, max_bytes, max_msgs_per_subject, max_msg_size
    cdef uint64_t max_age_ns, duplicate_window_ns
    cdef bint discard_new, discard_new_per_subject, no_ack, sealed
    cdef bint selective                      # a message that no consumer takes gets a sequence and is not stored
    cdef object rules                        # the stream's rules; see publish.pyi
    cdef bint every                          # rules are asked about each message, not only those with headers for rules
    cdef FastBatchHandler fast_batches       # None: fast-ingest batches are refused
    cdef AtomicBatchHandler atomic_batches   # None: atomic batches are refused
    # state
    cdef bint batching                       # the message being accepted is of a fast-ingest batch
    cdef MessageIds ids
    cdef Out last_id                         # message id of the last stored message
    cdef tuple refusal                       # (code, err_code, description) of the last REFUSED
    cdef bytes refusal_text                  # the PubAck of the last REFUSED
    cdef bytes answer_text                   # the PubAck of the last ANSWERED
    cdef dict refusal_texts                  # PubAcks of earlier refusals
    cdef Out scratch                         # a message with tidied headers
    cdef Out last_subject                    # subject of the last message, whose id is last_subject_id
    cdef uint32_t last_subject_id

    cdef int take(self, Message* m) except -1                          # accept a publish and answer it; the stream commits at the end of the turn
    cdef int accept(self, Message* m, uint64_t* seq) except -1         # an Outcome
    cdef int accept_in_batch(self, Message* m, uint64_t* seq) except -1  # as accept(); headers of atomic batches have no effect
    cdef bint unwanted(self, Message* m) except -1                     # the message gets a sequence and is not stored
    cdef int store_checked(self, Message* m, PublishHeaders* h, uint64_t* seq, Draft draft) except -1
    cdef int after_append(self, Message* m, PublishHeaders* h, uint64_t seq, Draft draft) except -1
    cdef int check_only(self, Message* m) except -1                    # the checks without rules and message ids; stores nothing
    cdef bint joins_batch(self, PublishHeaders* h) noexcept            # the message is of an atomic batch
    cdef bint in_doubt(self, uint64_t seq) except -1                   # the disk fails, and the message may be lost: its publish is refused
    # Checks, for all ways to publish: REFUSED, with the reason in `refusal`; 0: the message passes.
    cdef int check_sealed(self) except -1
    cdef int check_record_size(self, Message* m) except -1
    cdef int check_payload_size(self, Message* m) except -1
    cdef int check_header_size(self, Message* m) except -1
    cdef int check_size(self, Message* m) except -1
    cdef int check_tidied_size(self, Message* m) except -1
    cdef int check_usage(self, Message* m) except -1
    cdef int check_expected_stream(self, PublishHeaders* h) except -1
    cdef int check_last_sequence(self, PublishHeaders* h) except -1
    cdef int check_subject_sequence(self, Message* m, PublishHeaders* h) except -1
    cdef int check_source_header(self, PublishHeaders* h) except -1
    cdef int check_headers(self, Message* m, PublishHeaders* h, uint64_t* seq, Draft draft) except -1
    cdef int check_room(self, bint rollup, Message* m) except -1
    cdef uint64_t last_seq_on(self, Message* m, PublishHeaders* h) except? 18446744073709551615
    cdef uint64_t find_duplicate(self, Text id) except? 18446744073709551615
    cdef int clear_refusal(self) except -1
    # Refusals; each returns REFUSED.
    cdef int refuse(self, int code, int err_code, str description) except -1
    cdef int refuse_sequence(self, uint64_t actual) except -1
    cdef int refuse_for_disk(self, object error) except -1
    cdef int refuse_for_room(self) except -1
    cdef int refuse_msgs(self) except -1
    cdef int refuse_bytes(self) except -1
    cdef int refuse_msgs_per_subject(self) except -1
    cdef int ask(self, int stage, Message* m, PublishHeaders* h, Draft draft) except -1  # 0: continue; REFUSED, HANDLED
    cdef int append(self, Message* m, PublishHeaders* h, uint64_t ts_ns, int flags, uint64_t* seq) except -1
    cdef int append_or_skip(self, Message* m, PublishHeaders* h, uint64_t ts_ns, int flags, uint64_t* seq, Draft draft) except -1
    cdef int skip(self, PublishHeaders* h, uint64_t* seq) except -1
    cdef int remember(self, PublishHeaders* h, uint64_t seq) except -1
    cdef int forget_ids(self) except -1                                # forget all message ids, also the last one
    cdef int recall_last(self, PublishHeaders* h) except -1            # the last stored message has these headers
    cdef int recall(self, PublishHeaders* h, uint64_t seq, uint64_t ts_ns) except -1  # a stored message inside the duplicate window has these headers
    cdef uint64_t forget_old_ids(self) except? 18446744073709551615    # drop ids outside the duplicate window; when to call again (ns, 0: there are none)
    # Store a message of an origin (mirrored: with the origin's sequence and time); an Outcome.
    cdef int accept_sourced(self, Message* m, uint64_t* seq, uint64_t ts_ns, int flags, bint mirrored) except -1
    cdef uint64_t size_of(self, Message* m) noexcept
    cdef uint32_t id_of(self, const char* subject, uint32_t n) except? 4294967295
    cdef int tidied(self, Message* m) except -1
    cdef int trim_subject(self, uint32_t subject_id) except -1
    cdef int trim(self) except -1
    cdef int evict(self, uint64_t seq) except -1                       # remove a message and tell the consumers that hold it; 1: removed
