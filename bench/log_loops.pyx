# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Loops over the record log for bench_log.py: without a Python object per message."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memset
from pelton.core.log.log cimport Log, Record
from pelton.core.log.subject_table cimport SubjectState


def append(Log log, long n, bytes subject, bytes body, bint by_id, long turn):
    """n messages; written after every `turn` of them (0: never by us)."""
    cdef long i
    cdef uint32_t id = log.subject_id(subject, len(subject))
    cdef const char* s = subject
    cdef const char* b = body
    cdef uint32_t sn = len(subject), bn = len(body)
    for i in range(n):
        if by_id:
            log.append_id(1000 + i, id, b, 0, bn, 0)
        else:
            log.append(1000 + i, s, sn, b, 0, bn, 0)
        if turn and i % turn == turn - 1:
            log.files.write()


def read_all(Log log):
    """Every live message in order; their bytes."""
    cdef Record r
    cdef uint64_t seq = log.next_live(1), total = 0
    while seq:
        if log.read(seq, &r):
            total += r.body_len
        seq = log.next_live(seq + 1)
    return total


def read_random(Log log, long n, uint64_t seed):
    """n messages anywhere."""
    cdef Record r
    cdef long i
    cdef uint64_t found = 0
    for i in range(n):
        seed = seed * 6364136223846793005u + 1442695040888963407u
        found += log.read(1 + (seed >> 33) % log.span.last_seq, &r)
    return found


def many_subjects(Log log, long n, long subjects, int keep, bytes body, bint scattered):
    """n messages on so many subjects (round robin, or anywhere), each keeping its newest `keep`."""
    cdef long i, k
    cdef char name[32]
    cdef uint32_t id, length
    cdef SubjectState* state
    cdef uint64_t seed = 1
    cdef const char* b = body
    cdef uint32_t bn = len(body)
    for i in range(n):
        seed = seed * 6364136223846793005u + 1442695040888963407u
        k = (seed >> 33) % subjects if scattered else i % subjects
        length = snprintf(name, 32, "kv.%ld", k)
        id = log.subject_id(name, length)
        log.append_id(1000 + i, id, b, 0, bn, 0)
        state = log.subject(id)
        while state.msgs > <uint64_t>keep:
            log.remove(state.first)
            state = log.subject(id)
        if i % 500 == 499:
            log.files.write()


def remove_head(Log log, long n):
    """The n oldest messages, as limits do it."""
    cdef long i
    for i in range(n):
        log.remove(log.span.first_seq)
        if i % 500 == 499:
            log.files.write()
    log.files.write()


def scan_wanted(Log log, bytes wanted):
    """Messages of the wanted subjects, by the index alone."""
    cdef const uint8_t* w = <const uint8_t*><const char*>wanted
    cdef uint64_t seq = 0, n = 0
    while True:
        seq = log.next_wanted(seq + 1, log.span.last_seq, w, len(wanted))
        if seq == 0:
            return n
        n += 1
