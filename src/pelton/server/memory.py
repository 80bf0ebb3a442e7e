"""The memory limit of this process: the machine's memory, or its container's limit."""

import os

_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UNKNOWN = 4 << 30


def memory_bytes() -> int:
    """Bytes of memory; a cautious guess when the system does not tell."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        found = _UNKNOWN
    for path in _CONTAINER:
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            found = min(found, int(text))
    return found
