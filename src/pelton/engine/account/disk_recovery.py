"""Recovery of streams whose disk fails: the engine retries, and reports the beginning and the end.

A stream whose log cannot write refuses publishes by itself (core/stream/committer). The engine calls
this module several times a second until the log takes messages again, whether or not clients
publish. The server's log gets one line when a failure begins and one when it ends; clients get an
advisory when the disk is full. This module knows nothing of files: core/log/disk_recovery repairs
them.
"""

import errno
from collections.abc import Callable

from msgspec import Struct

from pelton.engine.account.account import JetStreamAccount
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.base.settings import MILLISECOND, SECOND

FIRST_WAIT_NS = 250 * MILLISECOND
LAST_WAIT_NS = 5 * SECOND
"""The wait between two tries after a failed write or fsync doubles from the first to the last."""
READ_WAIT_NS = 2 * SECOND
"""Longer than any reader waits before it tries again."""
REWRITES = 32
"""The number of configuration files written in one step; the next step writes more."""
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_CONFIG_FILE = "writing a configuration file"


class DiskFailure(Struct):
    """A disk that does not accept the messages of a stream."""

    since_ns: int
    why: str
    wait_ns: int = FIRST_WAIT_NS
    again_ns: int = 0


def retry_writes(account: JetStreamAccount, stream: StreamEntry, now_ns: int) -> None:
    """Repair the log of a stream whose disk fails, or failed at the last call."""
    core = stream.core
    if stream.disk_failure is None:
        stream.disk_failure = DiskFailure(now_ns, core.failure)
        _report_failure(account, stream, now_ns)
    failure = stream.disk_failure
    if core.failure and now_ns >= failure.again_ns:
        done = core.mend()
        while done is False:  # one part is repaired, and the disk works
            done = core.mend()
        if done is None:
            failure.again_ns = now_ns + _wait(failure, stream)
    if core.failure and core.failure != failure.why:
        failure.why = core.failure
        _report_failure(account, stream, now_ns)
    if not core.failure:
        stream.disk_failure = None
        seconds = (now_ns - failure.since_ns) / SECOND
        account.report(f"stream {stream.config.name} accepts messages again after {seconds:.1f} s")


def retry_reads(account: JetStreamAccount, stream: StreamEntry, now_ns: int) -> None:
    """Try the read again while the disk fails to return messages; the messages are not lost."""
    name, why = stream.config.name, stream.core.unread
    if why and not stream.unread_since_ns:
        stream.unread_since_ns = stream.unread_at_ns = now_ns
        account.report(f"stream {name} cannot read messages from the disk and retries: {why}")
    elif why:
        stream.unread_at_ns = now_ns
    elif now_ns - stream.unread_at_ns >= READ_WAIT_NS:  # every reader has tried again since
        seconds = (now_ns - stream.unread_since_ns) / SECOND
        stream.unread_since_ns = 0
        account.report(f"stream {name} reads messages again after {seconds:.1f} s")
    if why:
        stream.core.read_again()


def take_back(stream: StreamEntry, name: str, write: Callable[[], None]) -> None:
    """Write the current configuration into files that may have a refused one, now or later.

    The next server, after a kill of this one, then finds no refused configuration.
    """
    try:
        write()
    except OSError:
        stream.rewrites[name] = write
    else:
        stream.rewrites.pop(name, None)


def retry_config_files(account: JetStreamAccount, stream: StreamEntry, now_ns: int) -> None:
    """Write the current configuration into files whose last write failed.

    A part of the failed call may be on the disk.
    """
    if now_ns < stream.rewrite_at_ns:
        return
    for name, write in list(stream.rewrites.items())[:REWRITES]:
        try:
            write()
        except OSError as error:
            stream.rewrite_at_ns = now_ns + LAST_WAIT_NS
            report_once(account, stream, _CONFIG_FILE, error)
            return
        del stream.rewrites[name]
    if not stream.rewrites:
        stream.reported_failures.discard(_CONFIG_FILE)


def retry_removals(account: JetStreamAccount, now_ns: int) -> None:
    """Finish the removal of deleted streams that a failing disk refused, or that the end of the
    process interrupted.
    """
    if now_ns < account.removals_at_ns:
        return
    try:
        account.removals_left = not account.files.finish_removals()
    except OSError:  # the client got the error with the answer to its delete
        account.removals_left = True
        account.removals_at_ns = now_ns + LAST_WAIT_NS


def report_once(
    account: JetStreamAccount, stream: StreamEntry, action: str, error: OSError
) -> None:
    """Report that an action failed, once until it has succeeded again."""
    if action not in stream.reported_failures:
        stream.reported_failures.add(action)
        account.report(f"stream {stream.config.name}: {action} failed: {error}")


def _wait(failure: DiskFailure, stream: StreamEntry) -> int:
    """Return the wait before the next try.

    A full disk is tried often, because a try is cheap and an operator may make room at any time.
    The wait after another failure grows with each try.
    """
    if stream.core.log.failure in _FULL:
        return FIRST_WAIT_NS
    wait_ns, failure.wait_ns = failure.wait_ns, min(2 * failure.wait_ns, LAST_WAIT_NS)
    return wait_ns


def _report_failure(account: JetStreamAccount, stream: StreamEntry, now_ns: int) -> None:
    name, why = stream.config.name, stream.core.failure
    account.report(f"stream {name} refuses messages until the disk accepts writes: {why}")
    if stream.core.log.failure in _FULL:
        ours = account.settings
        account.advisories.out_of_storage(ours.server_name, ours.server_id, name, now_ns)
