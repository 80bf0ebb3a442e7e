"""The headers a publisher may send to a stream: found in one pass over the block.

Header names are matched case-sensitively and whole; the first occurrence of a name wins, and an
empty value counts as absent. Knows nothing of streams: it says
what stands there, the stream decides.
"""
from libc.stdint cimport uint32_t
from pelton.core.base.buffer cimport Out


cdef enum RareHeader:
    # headers that need a rule most streams have switched off
    RARE_COUNTER = 1           # Nats-Incr
    RARE_TTL = 2               # Nats-TTL
    RARE_SCHEDULE = 4          # Nats-Schedule, Nats-Schedule-Next, Nats-Scheduler
    RARE_ROLLUP = 8            # Nats-Rollup
    RARE_BATCH = 16            # Nats-Batch-Id
    RARE_SOURCE = 32           # Nats-Stream-Source, which only a server may send


cdef struct Text:
    const char* at             # NULL: absent
    uint32_t n


cdef struct PublishHeaders:
    Text message_id            # Nats-Msg-Id
    Text stream                # Nats-Expected-Stream
    Text last_sequence         # Nats-Expected-Last-Sequence
    Text subject_sequence      # Nats-Expected-Last-Subject-Sequence
    Text subject               # Nats-Expected-Last-Subject-Sequence-Subject
    Text last_id               # Nats-Expected-Last-Msg-Id
    uint32_t rare              # RareHeader bits
    bint present               # any of the above
    bint untidy                # tidy() is needed before the block is stored


cdef void scan_headers(const char* p, uint32_t n, PublishHeaders* found) noexcept nogil
# Append the block to `out` as it is stored: a status line becomes plain NATS/1.0, Nats-Request-Info is left out.
cdef int tidy(const char* p, uint32_t n, Out* out) except -1
cdef Text header_value(const char* p, uint32_t n, const char* name, uint32_t name_len) noexcept nogil     # any header by name
