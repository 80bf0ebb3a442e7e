"""fsync of several files and folders at once."""

# errors[i] gets the errno of handles[i], 0 for success. Waits until all syncs have ended.
cdef void sync_handles(const int* handles, int* errors, int n) noexcept nogil
