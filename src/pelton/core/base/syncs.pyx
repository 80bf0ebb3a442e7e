"""fsync of several files and folders at once, in threads: of syncs that wait at the same time the kernel makes few flushes of the device.

The threads never touch Python and have ended when the call returns. Knows nothing of what the files are.
"""
from libc.errno cimport EINTR, errno
from pelton.core.base.linux cimport fsync, pthread_create, pthread_join, pthread_t

cdef enum:
    THREADS = 8

cdef struct Share:
    const int* handles
    int* errors
    int first
    int end
    int step


cdef void* sync_share(void* argument) noexcept nogil:
    cdef Share* share = <Share*>argument
    cdef int i = share.first
    while i < share.end:
        share.errors[i] = 0
        # not fdatasync: for a folder, some file systems leave its names out of that
        while fsync(share.handles[i]) != 0:
            if errno != EINTR:
                share.errors[i] = errno
                break
        i += share.step
    return NULL


cdef void sync_handles(const int* handles, int* errors, int n) noexcept nogil:
    cdef Share shares[THREADS]
    cdef pthread_t threads[THREADS]
    cdef bint started[THREADS]
    cdef int count = THREADS if n > THREADS else n
    cdef int i
    for i in range(count):
        shares[i].handles = handles
        shares[i].errors = errors
        shares[i].first = i
        shares[i].end = n
        shares[i].step = count
    for i in range(1, count):
        started[i] = pthread_create(&threads[i], NULL, sync_share, &shares[i]) == 0
    if count:
        sync_share(&shares[0])
    for i in range(1, count):
        if started[i]:
            pthread_join(threads[i], NULL)
        else:
            sync_share(&shares[i])             # the system has no more threads
