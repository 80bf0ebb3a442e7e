"""Profiles of the running server: processor time, threads, memory.

The processor profile samples: every few milliseconds a thread reads the stack of the loop and counts
it. Its text has one line per stack, ``outer;inner count``, which flame graph tools read. Functions of
the core are not Python frames: their time counts for the line that called them.
"""

import gc
import sys
import threading
import time
import tracemalloc
from base64 import b64encode
from collections import Counter
from types import FrameType
from typing import Any

import msgspec

from pelton.server.http import Answer, text_answer
from pelton.server.monitor.query import Query, QueryError
from pelton.server.monitor.server_state import ServerState
from pelton.server.monitor.stacksz import stacks

INTERVAL_SECONDS = 0.005
MOST_SECONDS = 15
TOP = 30
_SECOND_NS = 1_000_000_000


class Options(msgspec.Struct):
    """`duration` of a CPU profile, in nanoseconds."""

    name: str = ""
    debug: int = 0
    duration: int = 0


def refusal(options: Options) -> str:
    """Why the profile does not exist; "" when it does."""
    if not options.name:
        return "Profile name not specified"
    if options.name == "cpu":
        if not 0 < options.duration <= MOST_SECONDS * _SECOND_NS:
            from pelton.api.times import format_duration

            return f"Duration {format_duration(options.duration)} should be between 0s and 15s"
        return ""
    return "" if options.name in PROFILES else f'Profile "{options.name}" not found'


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """{profile, error}; the profile is base64. "cpu" takes `duration`."""
    problem = refusal(options)
    if problem:
        return {"profile": None, "error": problem}
    if options.name == "cpu":
        made = processor(options.duration / _SECOND_NS, server_state.loop_thread)
    else:
        made = PROFILES[options.name]()
    return {"profile": b64encode(made.encode()).decode(), "error": ""}


def processor(seconds: float, thread: int) -> str:
    """Sample a thread's stack for a time. The caller must be another thread."""
    found: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        frame = sys._current_frames().get(thread)  # the only access to another thread's stack
        found[folded(frame) if frame is not None else "(gone)"] += 1
        time.sleep(INTERVAL_SECONDS)
    return "".join(f"{stack} {count}\n" for stack, count in found.most_common())


def folded(frame: FrameType | None) -> str:
    """A stack in the format of flame graphs: outermost first, separated by semicolons."""
    names = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "?")
        names.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}".replace(";", ","))
        frame = frame.f_back
    return ";".join(reversed(names))


def heap() -> str:
    """Objects by type, the collector's generations, and traced allocations if tracing is on."""
    kinds = Counter(type(each).__qualname__ for each in gc.get_objects())
    lines = [f"objects that the collector knows: {sum(kinds.values())}"]
    lines += [f"{count:>10} {name}" for name, count in kinds.most_common(TOP)]
    for number, each in enumerate(gc.get_stats()):
        shown = ", ".join(f"{name} {value}" for name, value in each.items())
        lines.append(f"generation {number}: {shown}")
    if not tracemalloc.is_tracing():
        lines.append("allocations are not traced; ask for allocs?seconds=5 to trace for a while")
    return "\n".join(lines) + "\n"


def allocated() -> str:
    """Places of the traced allocations."""
    if not tracemalloc.is_tracing():
        return "allocations are not traced\n"
    found = tracemalloc.take_snapshot().statistics("lineno")
    return "".join(f"{each}\n" for each in found[:TOP])


def allocations(seconds: float) -> str:
    """Trace allocations for a time, and report the places of those that are still in use."""
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        time.sleep(seconds)
        return allocated()
    finally:
        if started:
            tracemalloc.stop()


def threads() -> str:
    """The number of threads, and their names."""
    names = "".join(f"{each.name}\n" for each in threading.enumerate())
    return f"threads: {threading.active_count()}\n{names}"


PROFILES = {
    "goroutine": stacks,
    "threadcreate": threads,
    "heap": heap,
    "allocs": allocated,
    "block": stacks,
    "mutex": stacks,
}
PAGE = "/debug/pprof"


def seconds_of(query: Query, default: int) -> float:
    """The duration of the profile. Raises QueryError."""
    seconds = query.number("seconds") or default
    if not 0 < seconds <= MOST_SECONDS:
        raise QueryError(f"seconds has to be 1 to {MOST_SECONDS}")
    return seconds


def answer(server_state: ServerState, path: str, query: Query) -> Answer:
    """A page of the profile port. Takes up to `seconds`, so not on the event loop's thread."""
    name = path.removeprefix(PAGE).strip("/")
    try:
        if not path.startswith(PAGE):
            return text_answer(404, "404 page not found\n")
        if not name:
            names = ["profile?seconds=5", "allocs?seconds=5", *sorted({*PROFILES} - {"allocs"})]
            links = "".join(f'<li><a href="{PAGE}/{each}">{each}</a>' for each in names)
            page = f"<!doctype html><title>{PAGE}</title><ul>{links}</ul>"
            return Answer(200, "text/html; charset=utf-8", page.encode())
        if name in ("profile", "cpu"):
            return text_answer(200, processor(seconds_of(query, 5), server_state.loop_thread))
        if name == "allocs":
            return text_answer(200, allocations(seconds_of(query, 5)))
        if name in PROFILES:
            return text_answer(200, PROFILES[name]())
    except QueryError as problem:
        return text_answer(400, str(problem))
    return text_answer(404, f"Unknown profile {name}\n")
