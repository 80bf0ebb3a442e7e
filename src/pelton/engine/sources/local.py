"""An upstream whose origin is in the same account.

`core/stream/source_copy` copies messages from the origin's log into the follower's as soon as they
are as durable as the origin promises. When the origin does not exist yet, copying starts when
it is created.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pelton.api import ApiError
from pelton.api import errors_generated as errors
from pelton.api.errors import ErrorBody
from pelton.api.streams import StreamSource, StreamSourceInfo
from pelton.core.log.log import Log
from pelton.core.stream.source_copy import Copier, SourceWriter
from pelton.engine.base.hashes import stream_identity
from pelton.engine.base.settings import MILLISECOND, SECOND
from pelton.engine.base.steps import Pace, Steps
from pelton.engine.sources import identity

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry

RETRY_INTERVAL_NS = 250 * MILLISECOND
"""The wait before a message that the follower refused is tried again."""
START_UNITS = 40
"""The work to make or start an upstream: see engine/base/steps."""
CONTACT_INTERVAL_NS = SECOND
"""A local origin is always in contact: `active` in the info stays below this time."""


class Upstream(Protocol):
    """The copying side of one origin in the following stream."""

    source: StreamSource
    name: str
    writer: SourceWriter
    origin: str
    """The identity of the origin that the position belongs to, which a later stream of the same
    name does not share; "": not known.
    """

    @property
    def caught_up(self) -> bool:
        """Whether the follower had all messages of the origin at some time since the start."""

    def start(self) -> None:
        """Start to copy, if the origin exists."""

    def tick(self, now_ns: int) -> int:
        """Do what is due; return the time of the next call, 0: none."""

    def info(self, now_ns: int) -> StreamSourceInfo:
        """Return the progress as the API shows it."""

    def close(self, *, for_good: bool) -> None:
        """Stop; the copied messages stay. `for_good`: False when only the server stops."""


def first_sequence(source: StreamSource, writer: SourceWriter, origin: Log) -> int:
    """Return the sequence of the origin to copy next: at most one after its last message."""
    if taken(writer):
        wanted = taken(writer) + 1
    elif source.opt_start_seq:
        wanted = source.opt_start_seq
    elif source.opt_start_time is not None:
        wanted = origin.at_time(source.opt_start_time)
    else:
        wanted = 1
    return max(min(wanted, origin.last_seq + 1), origin.first_seq)


def taken(writer: SourceWriter) -> int:
    """Return the last sequence of the origin that the follower has copied or passed over."""
    return writer.target.log.last_seq if writer.mirror else writer.position


def position(writer: SourceWriter) -> int:
    """Return the position that an info shows."""
    return 0 if writer.mirror else writer.position


def refusal_body(refusal: tuple[int, int, str] | None) -> ErrorBody | None:
    """Return the reason why the follower refuses messages, as an API error."""
    if refusal is None:
        return None
    code, err_code, description = refusal
    return ErrorBody(code=code, err_code=err_code, description=description)


class ComingUpstream:
    """Stands for an upstream that is made in a later turn."""

    caught_up = False

    def __init__(self, source: StreamSource, name: str, seq: int) -> None:
        """`name` is the index name of the source, and `seq` its position; 0 for a mirror."""
        self.source = source
        self.name = name
        self._seq = seq

    def tick(self, now_ns: int) -> int:
        """See Upstream."""
        return 0

    def info(self, now_ns: int) -> StreamSourceInfo:
        """See Upstream."""
        info = source_info(self.source, self._seq)
        info.active = -1
        return info

    def close(self, *, for_good: bool) -> None:
        """See Upstream."""


def source_info(source: StreamSource, seq: int) -> StreamSourceInfo:
    """Return an info with the fields of the configuration, and the position of a source; 0 for a
    mirror.
    """
    return StreamSourceInfo(
        name=source.name,
        seq=seq,
        external=source.external,
        filter_subject=source.filter_subject,
        subject_transforms=list(source.subject_transforms),
    )


class LocalUpstream:
    """An upstream that copies an origin of the same account."""

    def __init__(
        self,
        account: "JetStreamAccount",
        source: StreamSource,
        name: str,
        writer: SourceWriter,
        *,
        blocked: Callable[[], None],
        met: Callable[[Upstream, bool], None],
        read: Callable[[], Upstream],
    ) -> None:
        """`name` is the index name of the source. `blocked` is called when the follower refuses a
        message and `tick` has to run. `met` is called for an origin that was not seen before, with
        True when that origin replaces another one and all of it is copied. `read` creates an
        upstream that reads the origin through a consumer.
        """
        self.source = source
        self.name = name
        self.writer = writer
        self.origin = ""
        self._account = account
        self._blocked = blocked
        self._met = met
        self._read = read
        self._reader: Upstream | None = None
        self._copier: Copier | None = None
        self._caught_up = False
        self._refused = False  # the disk refuses to note that the origin is another one
        # what is wrong with an origin that ends before the last copy, until it has passed that; and
        # the sequence of that copy
        self._shorter: tuple[str, int] = ("", 0)
        self._since_ns = 0
        self._made_turn = account.reactor.turns
        account.followers.setdefault(source.name, {})[self] = None

    @property
    def caught_up(self) -> bool:
        """See Upstream."""
        if self._reader is not None and self._reader.caught_up:
            self._caught_up = True
        if self._copier is not None and self._copier.caught_up:
            self._caught_up = True
        return self._caught_up

    def start(self) -> None:
        """See Upstream. Called again when the origin is created."""
        origin = self._account.streams.get(self.source.name)
        if origin is None:
            self._refused = False
        if origin is None or self._copier is not None or self._reader is not None:
            return
        if not self._meet(stream_identity(origin.created_ns)):
            return
        self._compare(origin.core.log.last_seq)
        if origin.config.retention != "limits":
            # the origin removes copied messages by their acks, which need a consumer
            self._reader = self._read()
            self._reader.start()
            return
        first = first_sequence(self.source, self.writer, origin.core.log)
        self._copier = Copier(origin.core, self.writer, first, identity.filters(self.source))
        self._copier.when_blocked = self._blocked
        self._since_ns = self._account.now_ns

    def _compare(self, last_seq: int) -> None:
        """Report an origin that ends before the last copy of its messages."""
        copied = taken(self.writer)
        if copied <= last_seq or self._shorter[1] == copied:
            return
        name = self.source.name
        text = (
            f"its origin {name} ends at sequence {last_seq}, and the copies of {name} go up to {copied}: the next "
            f"messages of {name} up to {copied} are not copied"
        )
        self._shorter = text, copied
        self._account.report(f"stream {self.writer.target.name}: {text}")

    def _error(self) -> ErrorBody | None:
        text, copied = self._shorter
        if text and taken(self.writer) == copied:
            failed = (
                errors.MirrorConsumerSetupFailedError
                if self.writer.mirror
                else errors.SourceConsumerSetupFailedError
            )
            return failed(text).body()
        return refusal_body(self.writer.refusal)

    def _meet(self, origin: str) -> bool:
        """Note the identity of the origin; False when it is another one and the disk refuses that:
        nothing is copied before it is saved.
        """
        if origin == self.origin:
            return True
        before, again = self.origin, bool(self.origin) and not self.writer.mirror
        if again:
            self.writer.restart()
        self.origin = origin
        try:
            self._met(self, again)
        except OSError:  # the log, which refuses messages as well, has it reported
            self.origin = before
            self._refused = True
            self._blocked()
            return False
        self._refused = False
        self.writer.identify(origin)
        return True

    def lost(self, *, for_good: bool = True) -> None:
        """Stop copying: the origin was deleted, or has another retention now."""
        if self._reader is not None:
            self._reader.close(for_good=for_good)
            self._reader = None
        if self._copier is not None:
            self._caught_up = self.caught_up
            self._copier.close()
            self._copier = None

    def tick(self, now_ns: int) -> int:
        """See Upstream."""
        if self._refused:
            self.start()
            if self._refused:
                return now_ns + RETRY_INTERVAL_NS
        if self._reader is not None:
            return self._reader.tick(now_ns)
        if self._copier is None or not self._copier.blocked:
            return 0
        self._copier.retry()
        return now_ns + RETRY_INTERVAL_NS

    def info(self, now_ns: int) -> StreamSourceInfo:
        """See Upstream."""
        if self._reader is not None:
            info = self._reader.info(now_ns)
            info.error = info.error or self._error()
            return info
        info = source_info(self.source, position(self.writer))
        info.active = -1
        if self._account.reactor.turns == self._made_turn:
            # the answer to the create request has no state yet
            if self.writer.mirror:
                info.filter_subject = ""
            return info
        if self._copier is None:
            missing: ApiError = errors.StreamNotFoundError()
            info.error = missing.body()
            return info
        info.lag = self._copier.lag()
        info.error = self._error()
        heard_ns = now_ns - max(self._copier.last_ns, self._since_ns)
        info.active = max(heard_ns, 0) % CONTACT_INTERVAL_NS
        return info

    def close(self, *, for_good: bool) -> None:
        """See Upstream."""
        self.lost(for_good=for_good)
        followers = self._account.followers.get(self.source.name, {})
        followers.pop(self, None)
        if not followers:
            self._account.followers.pop(self.source.name, None)


def origin_made(account: "JetStreamAccount", entry: "StreamEntry") -> None:
    """Start the upstreams that wait for this stream; many in steps, of which the first is done now."""
    work = _starting(account, entry.config.name)
    for _ in work:
        account.carry_out(work)
        return


def _starting(account: "JetStreamAccount", name: str) -> Steps[None]:
    pace = Pace()
    for upstream in list(account.followers.get(name, ())):
        if upstream in account.followers.get(name, ()):  # still
            upstream.start()
        if pace.over(START_UNITS):
            yield


def origin_gone(account: "JetStreamAccount", name: str) -> None:
    """Stop the upstreams of a stream that is deleted or has another retention."""
    for upstream in list(account.followers.get(name, ())):
        upstream.lost()
