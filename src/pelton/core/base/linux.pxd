"""Declarations of the system calls that the event loop and syncs use: sockets, epoll, timerfd, threads."""
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int, void*, size_t, int)
    ssize_t send(int, const void*, size_t, int)
    int MSG_NOSIGNAL, MSG_DONTWAIT
cdef extern from "<unistd.h>" nogil:
    ssize_t read(int, void*, size_t)
    ssize_t write(int, const void*, size_t)
    int close(int)
    int fdatasync(int)
    int fsync(int)
cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
    int poll(pollfd*, unsigned long, int)
    int POLLIN
cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event*)
    int epoll_wait(int, epoll_event*, int, int)
    int EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, EPOLL_CLOEXEC
cdef extern from "<sys/timerfd.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    struct itimerspec:
        timespec it_interval
        timespec it_value
    int timerfd_create(int, int)
    int timerfd_settime(int, int, const itimerspec*, itimerspec*)
    int TFD_NONBLOCK, TFD_CLOEXEC
cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC
    int clock_gettime(int, timespec*)
    int nanosleep(const timespec*, timespec*)
cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    int pthread_create(pthread_t*, const void*, void* (*)(void*) noexcept nogil, void*)
    int pthread_detach(pthread_t)
    int pthread_join(pthread_t, void**)
cdef extern from *:
    """
    #include <stdint.h>
    #include <malloc.h>
    /* Free pages go back to the system, also those below a block that is in use; 0. Only glibc has to be asked. */
    static uint64_t pelton_give_back(void) {
    #ifdef __GLIBC__
        malloc_trim(0);
    #endif
        return 0;
    }
    """
    uint64_t give_back "pelton_give_back" () nogil
cdef extern from "<stdlib.h>" nogil:
    void* malloc(size_t)
    void free(void*)
