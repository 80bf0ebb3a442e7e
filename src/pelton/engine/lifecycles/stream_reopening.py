"""Opens offline streams again after an error of the disk.

Opening needs only reads from the disk (core/log/recovery_writes). After a disk error, the engine
tries again after one second, then after two, and so on up to a minute. A try opens a few
segments at a time, so that clients are served meanwhile. A stream whose files are not valid is not tried
again. The stream stays offline until it is open.
"""

from pelton.api import ApiError
from pelton.engine.account.account import JetStreamAccount, OfflineStream, ReopenRetry
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.base.settings import SECOND
from pelton.engine.files.files import BadFileError
from pelton.engine.lifecycles import streams
from pelton.engine.lifecycles.stream_opening import UnopenedStream
from pelton.engine.sources import upstreams

STEPS = 4
"""How many steps of an opening one call of `retry` makes."""
LAST_RETRY_NS = 60 * SECOND


def retry(account: JetStreamAccount, now_ns: int) -> None:
    """Called several times a second while a stream is offline."""
    for name, offline in list(account.offline.items()):
        if offline.retry is not None and now_ns >= offline.retry.again_ns:
            _try(account, name, offline, offline.retry, now_ns)


def _try(
    account: JetStreamAccount, name: str, offline: OfflineStream, retry: ReopenRetry, now_ns: int
) -> None:
    try:
        entry = _step(account, name, offline, retry)
    except OSError as error:
        retry.end()
        retry.again_ns = now_ns + retry.wait_ns
        retry.wait_ns = min(2 * retry.wait_ns, LAST_RETRY_NS)
        account.offline[name] = OfflineStream(str(error), offline.files, retry)
    # an error in the content of the files: another try does not help
    except (BadFileError, ApiError) as error:
        retry.end()
        streams.put_offline(account, name, offline.files, str(error))
    else:
        if entry is not None:
            _serve(account, entry)
            seconds = (now_ns - retry.since_ns) / SECOND
            account.report(f"stream {name} is online again after {seconds:.1f} s")


def _step(
    account: JetStreamAccount, name: str, offline: OfflineStream, retry: ReopenRetry
) -> StreamEntry | None:
    """Do some steps of the opening; return the stream when it is open. OSError, BadFileError,
    ApiError.
    """
    if retry.pending is None:
        meta = offline.files.read(account.report)
        if meta is None or meta.config.name != name:
            raise BadFileError("the configuration of the stream is missing")
        retry.pending = UnopenedStream(offline.files, meta, lambda _: None)
    pending = retry.pending
    streams.check_new(account, pending.config)  # another stream may have taken its subjects since
    steps = pending.begin(account)
    left = STEPS
    # once the stream is in `account.streams`, finish the opening in this try
    while left or name in account.streams:
        left -= 1
        try:
            next(steps)
        except StopIteration as end:
            retry.pending = None
            entry: StreamEntry = end.value
            return entry
    return None


def _serve(account: JetStreamAccount, entry: StreamEntry) -> None:
    streams.forget_offline(account, entry.config.name)
    streams.serve(account, entry)
    upstreams.start(account, entry)
    upstreams.origin_made(account, entry)
