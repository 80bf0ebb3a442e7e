"""Memory that was freed, given back to the system."""
from libc.stdint cimport uint64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <malloc.h>
    /* Free pages go back to the system, also those below a block that is in use; 0. Only glibc has to be asked. */
    static uint64_t penstock_give_back(void) {
    #ifdef __GLIBC__
        malloc_trim(0);
    #endif
        return 0;
    }
    """
    uint64_t give_back "penstock_give_back" () nogil
