"""Memory of a log that sees ever new subjects and keeps few messages.

    python bench/bench_subjects.py [memory|file] [subjects] [kept]

Each message has a subject of its own; all but the newest `kept` are removed, as a stream with
max_msgs or a workqueue does it. Told are the bytes that the allocator has handed out, on the way.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import time

from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log

STEPS = 5


FIELDS = ["arena", "ordblks", "smblks", "hblks", "hblkhd"]
FIELDS += ["usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]


class _Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def in_use_bytes() -> int:
    """Bytes that the C allocator has handed out."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo
    found = libc.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def resident_bytes() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def main() -> None:
    """Print a line for each fifth of the way."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "memory"
    total = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    kept = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    with tempfile.TemporaryDirectory(prefix="pelton-subjects-") as folder:
        log = open_log(None if kind == "memory" else f"{folder}/log")
        slowest, began = 0.0, time.perf_counter()
        print(
            f"{kind}: {total} subjects, {kept} kept; at first {in_use_bytes() / 1e6:.1f} MB in use"
        )
        for k in range(1, total + 1):
            start = time.perf_counter()
            log.add(k, f"devices.{k * 0x9E3779B97F4A7C15 % 2**64:016x}.temperature", b"21.5")
            if k > kept:
                maintenance.delete(log, k - kept)
            slowest = max(slowest, time.perf_counter() - start)
            if k % 100 == 0:
                log.flush()
            if k % 10_000 == 0:
                maintenance.maintain(log)
            if k % (total // STEPS) == 0:
                spent = (time.perf_counter() - began) / k * 1e6
                print(
                    f"{k:>9} subjects: {in_use_bytes() / 1e6:7.1f} MB in use,"
                    f" {resident_bytes() / 1e6:7.1f} MB resident, {spent:.2f} us each, slowest {slowest * 1e3:.1f} ms"
                )
                slowest = 0.0
        maintenance.close(log)


if __name__ == "__main__":
    main()
