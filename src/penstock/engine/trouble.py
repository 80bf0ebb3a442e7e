"""What the engine does while a stream's disk is in trouble: tries again, and says so, once each.

A stream whose log can't write refuses publishes by itself (core/stream/stream). Here it is called again and
again until it takes them, whether anybody publishes or not. The operator gets one line when it
begins, one when it is over; clients get an advisory when a disk is full. Knows nothing of files.
"""

import errno
from dataclasses import dataclass

from penstock.engine.account import Account
from penstock.engine.entries import StreamEntry
from penstock.engine.settings import MILLISECOND, SECOND

FIRST_WAIT_NS = 250 * MILLISECOND
LAST_WAIT_NS = 5 * SECOND
"""Between two tries after a failed write or fsync: each is double the one before, up to this."""
READ_WAIT_NS = 2 * SECOND
"""Longer than any reader waits before it tries again."""
REWRITES = 32
"""Configuration files that are written in one go; more go on at the next look."""
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


@dataclass(slots=True)
class Trouble:
    """A disk that does not take a stream's messages."""

    since_ns: int
    why: str
    wait_ns: int = FIRST_WAIT_NS
    again_ns: int = 0


def look(account: Account, stream: StreamEntry, now_ns: int) -> None:
    """Called some times a second for a stream that is in trouble, or was when last seen."""
    core = stream.core
    if stream.trouble is None:
        stream.trouble = Trouble(now_ns, core.failure)
        _tell(account, stream, now_ns)
    trouble = stream.trouble
    if core.failure and now_ns >= trouble.again_ns:
        done = core.mend()
        while done is False:  # a piece, and the disk works
            done = core.mend()
        if done is None:
            trouble.again_ns = now_ns + _wait(trouble, stream)
    if core.failure and core.failure != trouble.why:
        trouble.why = core.failure
        _tell(account, stream, now_ns)
    if not core.failure:
        stream.trouble = None
        seconds = (now_ns - trouble.since_ns) / SECOND
        account.report(
            f"stream {stream.config.name}: messages are taken again, after {seconds:.1f} s"
        )


def look_at_reads(account: Account, stream: StreamEntry, now_ns: int) -> None:
    """Called some times a second while the disk does not give messages back: they are not gone, and
    asked for again.
    """
    name, why = stream.config.name, stream.core.unread
    if why and not stream.unread_since_ns:
        stream.unread_since_ns = stream.unread_at_ns = now_ns
        account.report(f"stream {name}: messages can't be read, it is tried again: {why}")
    elif why:
        stream.unread_at_ns = now_ns
    elif now_ns - stream.unread_at_ns >= READ_WAIT_NS:  # who could not has tried again since
        seconds = (now_ns - stream.unread_since_ns) / SECOND
        stream.unread_since_ns = 0
        account.report(f"stream {name}: messages can be read again, after {seconds:.1f} s")
    if why:
        stream.core.read_again()


def write_again(account: Account, stream: StreamEntry, now_ns: int) -> None:
    """Bring configuration files whose last write failed to what they should be: a refused call may
    have got as far as the disk.
    """
    if now_ns < stream.rewrite_at_ns:
        return
    for name, write in list(stream.rewrites.items())[:REWRITES]:
        try:
            write()
        except OSError as error:
            stream.rewrite_at_ns = now_ns + LAST_WAIT_NS
            complain(account, stream, "a configuration file", error)
            return
        del stream.rewrites[name]
    if not stream.rewrites:
        stream.complaints.discard("a configuration file")


def remove_again(account: Account, now_ns: int) -> None:
    """Finish the removal of deleted streams that a disk in trouble has refused, or that the end of a
    process has cut short.
    """
    if now_ns < account.removals_at_ns:
        return
    try:
        account.owes_removals = not account.files.finish_removals()
    except OSError:  # the client that deleted it was told
        account.owes_removals = True
        account.removals_at_ns = now_ns + LAST_WAIT_NS


def complain(account: Account, stream: StreamEntry, what: str, error: OSError) -> None:
    """Tell the operator what does not work, until it has worked again only once."""
    if what not in stream.complaints:
        stream.complaints.add(what)
        account.report(f"stream {stream.config.name}: {what} failed: {error}")


def _wait(trouble: Trouble, stream: StreamEntry) -> int:
    """Room may be made at any time, and looking is cheap; a disk that failed is left in peace."""
    if stream.core.log.failure in _FULL:
        return FIRST_WAIT_NS
    wait_ns, trouble.wait_ns = trouble.wait_ns, min(2 * trouble.wait_ns, LAST_WAIT_NS)
    return wait_ns


def _tell(account: Account, stream: StreamEntry, now_ns: int) -> None:
    name, why = stream.config.name, stream.core.failure
    account.report(f"stream {name}: messages are refused until the disk takes them: {why}")
    if stream.core.log.failure in _FULL:
        ours = account.settings
        account.advisories.out_of_storage(ours.server_name, ours.server_id, name, now_ns)
