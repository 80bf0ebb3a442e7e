"""The memory that this process may use: that of the machine, or of its container."""

import os

_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UNKNOWN = 4 << 30


def memory_bytes() -> int:
    """Bytes of memory; a careful guess where nothing tells."""
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
