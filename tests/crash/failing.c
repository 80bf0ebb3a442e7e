/* Preloaded into a server: while a file named after a call is in the folder PELTON_FAULTS, that
 * call (sync, write, read) fails on files below PELTON_FAULTS_BELOW, with the errno written in it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fault(const char *call, int fd)
{
    const char *folder = getenv("PELTON_FAULTS"), *below = getenv("PELTON_FAULTS_BELOW");
    char path[PATH_MAX], link[64], name[PATH_MAX], text[16] = "";
    ssize_t n;
    int flag;
    if (folder == NULL || below == NULL)
        return 0;
    snprintf(name, sizeof name, "%s/%s", folder, call);
    flag = (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    if (flag < 0)
        return 0;
    n = syscall(SYS_read, flag, text, sizeof text - 1);
    syscall(SYS_close, flag);
    if (n <= 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return 0;
    path[n] = 0;
    return strncmp(path, below, strlen(below)) == 0 ? atoi(text) : 0;
}

#define FAILS(call, fd)                                                                            \
    do {                                                                                           \
        int saved = errno, code = fault(call, fd);                                                 \
        errno = saved;                                                                             \
        if (code) {                                                                                \
            errno = code;                                                                          \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)

int fdatasync(int fd)
{
    FAILS("sync", fd);
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    FAILS("sync", fd);
    return (int)syscall(SYS_fsync, fd);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    FAILS("write", fd);
    return syscall(SYS_pwrite64, fd, data, n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
    FAILS("write", fd);
    return syscall(SYS_pwrite64, fd, data, n, at);
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    FAILS("read", fd);
    return syscall(SYS_pread64, fd, data, n, at);
}

ssize_t pread64(int fd, void *data, size_t n, off64_t at)
{
    FAILS("read", fd);
    return syscall(SYS_pread64, fd, data, n, at);
}
