"""The common part of jobs: start, watch and stop streaming queries.

It checks that they run, says in one line why one does not, stops them at the end of a batch, and
handles signals meanwhile.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

_LOOK_EVERY_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
_STREAM_FAILED = re.compile(
    r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception:(.*?)"
    r"(?: SQLSTATE: \w+)?(?: \(no cause message\))?$"
)
_JAVA_FAILED = re.compile(
    r"An error occurred while calling [^\n]*\n: (?:[\w$]+\.)+[\w$]+: ([^\n]+)"
)
NO_REASON = "Spark gives no reason, as when its Python worker was killed"

WORKER_GONE = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "Timed out while waiting for the Python worker",
    NO_REASON,
)
"""Texts of errors whose cause is neither the data nor the pipeline."""


class QueryEndedError(RuntimeError):
    """A query has ended. The text is one line that says why."""


class JvmDied(QueryEndedError):
    """Spark has ended."""


def check_query(query: Any, *, may_end: bool = False) -> bool:
    """Whether a query runs; False if it ended normally and ``may_end`` is set.

    Raises :class:`QueryEndedError`.
    """
    try:
        active, failure = query.isActive, query.exception()
    except Exception:
        raise JvmDied("Spark's JVM died") from None
    if failure is not None:
        raise QueryEndedError(brief(failure)) from failure
    if not active and not may_end:
        raise QueryEndedError("it ended by itself")
    return bool(active)


def wait_for_begin(query: Any, seconds: float) -> None:
    """Wait until a started query has its first batch, or has nothing to do."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if not query.isActive or query.lastProgress is not None:
                return
            if query.status["message"].startswith(("Processing", "Waiting")):
                return
        except Exception:  # the JVM is gone, which is reported later
            return
        time.sleep(_LOOK_EVERY_SECONDS)


def stop_after_batch(queries: list[Any]) -> None:
    """Stop queries, each at the end of its current batch, but wait at most a minute.

    The next start repeats an interrupted batch.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    begun = {id(query): _last_batch(query) for query in queries}
    waiting = list(queries)
    while waiting:
        late = time.monotonic() >= deadline
        for query in list(waiting):
            if late or _between_batches(query) or _last_batch(query) != begun[id(query)]:
                with contextlib.suppress(Exception):  # if the JVM is gone, the query has stopped
                    query.stop()
                waiting.remove(query)
        if waiting:
            time.sleep(_LOOK_EVERY_SECONDS)


def _last_batch(query: Any) -> object:
    try:
        progress = query.lastProgress
        return None if progress is None else progress["batchId"]
    except Exception:  # the JVM is gone, or does not answer
        return None


def _between_batches(query: Any) -> bool:
    try:
        return not query.isActive or not query.status["isTriggerActive"]
    except Exception:  # the JVM is gone
        return True


def brief(error: Exception) -> str:
    """The one line of Spark's pages of text that says what went wrong.

    It is the line of the innermost error of this package or of Python, else the first line.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("pelton.")]
    if ours:
        return ours[-1].partition(": ")[2]
    before_java = str(error).partition("\n\tat ")[0]
    if "Traceback (most recent call last)" in before_java:
        behind = before_java.rpartition("Traceback (most recent call last)")[2].splitlines()
        said = [line for line in behind[1:] if line and not line[0].isspace()]
        if said:
            return said[0].strip()
    if not lines:
        return type(error).__name__
    if java := _JAVA_FAILED.match(str(error)):
        return java[1].strip()
    match = _STREAM_FAILED.match(lines[0])
    return lines[0] if match is None else match[1].strip() or NO_REASON


def is_ours(error: BaseException | None) -> bool:
    """Whether an error, or what Spark quotes in it, is one of this package."""
    lines = str(error).splitlines()
    module = type(error).__module__
    return module.startswith("pelton.") or any(line.strip().startswith("pelton.") for line in lines)


@contextlib.contextmanager
def stop_signals(stopping: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for a clean stop; a second Ctrl-C stops at once."""

    def ask(*_: object) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    kept = {which: signal.signal(which, ask) for which in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for which, handler in kept.items():
            signal.signal(which, handler)
