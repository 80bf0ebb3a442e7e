"""Opens the streams of an account at a start, one after the other and in steps.

    folders -> configurations -> a StartupGate on the subjects of each stream    at once
    a step: a segment of a log, some message ids, a stream's consumers           as often as the shell calls
    a stream is open: it gets its subjects and the messages that its gate holds
    all streams are open: mirrors and sources start, requests about all streams are answered

During the opening a GatedSink stands before the account's ApiSubjects and finds the stream of each
request. A stream with a waiting request is opened next; several such streams take steps in turn, so
that a small stream does not wait for a large one. A stream that cannot be opened is reported and
goes offline; requests that waited for it get that error.
"""

from collections import deque
from collections.abc import Callable, Generator

from pelton.core.broker.reactor import Connection
from pelton.core.broker.startup_gate import GatedSink, StartupGate
from pelton.core.consumer.api_subjects import PREFIXES
from pelton.core.log.recovery import LogOpening
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.files.files import BadFileError, StreamFile, StreamFiles
from pelton.engine.lifecycles import streams
from pelton.engine.sources import upstreams

_TODAYS = frozenset({"ACK", "API", "FC"})
# the second tokens of the dialects' requests
_DIALECTS = frozenset(
    [
        "ENABLED",
        "INFO",
        "MSGSET",
        "MSGSETS",
        "OBSERVABLE",
        "OBSERVABLES",
        "BYSEQ",
        "STREAM",
        "TEMPLATE",
    ]
)
# calls of $JS.API.STREAM about all streams
_OF_ALL = frozenset({"CREATE", "UPDATE", "RESTORE", "NAMES", "LIST"})
_ACK_TOKENS, _FLOW_TOKENS = 9, 5  # tokens of the subjects without domain and account


class UnopenedStream:
    """A stream that is not open yet."""

    def __init__(
        self, files: StreamFiles, meta: StreamFile, on_asked: Callable[["UnopenedStream"], None]
    ) -> None:
        """Create the stream in its closed state. `on_asked` is called at the first request that
        waits for the stream.
        """
        self.files = files
        self.meta = meta
        self.config = meta.config
        self.waiting = StartupGate(lambda: on_asked(self))
        self.log: LogOpening | None = None  # set at the first step
        self.steps: Generator[None, None, StreamEntry] | None = None

    def begin(self, account: JetStreamAccount) -> Generator[None, None, StreamEntry]:
        """Return the opening of the stream, the same generator at each call. Raises OSError."""
        if self.steps is None:
            self.log = LogOpening(
                self.files.log_folder,
                account.disk,
                first_seq=self.config.first_seq or 1,
                segment_bytes=account.settings.segment_bytes,
                numbered=self.config.mirror is not None,
                cipher=self.files.small.cipher,
                synced=self.files.synced,
            )
            self.steps = streams.recover(account, self.files, self.meta, self.log)
        return self.steps

    def end(self) -> None:
        """Give the opening up; the files stay as they are."""
        if self.steps is not None:
            self.steps.close()
        if self.log is not None:
            self.log.abandon()

    @property
    def progress(self) -> str:
        """The progress of the opening, for the operator."""
        if self.log is None:
            return self.config.name
        done, total = self.log.progress()
        return f"{self.config.name} (segment {done} of {total})"


class StreamOpening:
    """Opens the streams of one account that is served already; `done` is set at the end."""

    def __init__(self, account: JetStreamAccount, may_open: Callable[[str], bool]) -> None:
        """Read the configurations of all streams. `may_open(folder of a log)` is asked before that
        log is opened.

        OSError: the store cannot be used.
        """
        self._may_open = may_open
        assert account.api_subjects is not None
        found = streams.found(account)
        pending = [UnopenedStream(files, meta, self._asked) for files, meta in found]
        self._account = account
        self._pending = {each.config.name: each for each in pending}
        # unopened streams; without waiting requests, the first has the next step
        self._turns = dict.fromkeys(pending)
        # streams with waiting requests; the first has the next step
        self._awaited: deque[UnopenedStream] = deque()
        # mirrors and streams with sources, which are served last
        self._late: list[tuple[UnopenedStream, StreamEntry]] = []
        self._all = StartupGate()  # requests that wait for all streams
        self._api_subjects = account.api_subjects
        self._front = GatedSink(self._api_subjects, self._needed)
        self.total = len(pending)
        self.left = len(pending)  # how many streams are not open yet
        self.done = False
        for each in pending:
            for subject in each.config.subjects:
                account.router.attach(subject, each.waiting)
        account.router.detach_prefix(self._api_subjects)
        for prefix in PREFIXES:
            account.router.attach_prefix(prefix, self._front)

    @property
    def awaited(self) -> bool:
        """Whether a request waits for a stream."""
        return bool(self._awaited)

    def take(
        self, source: Connection | None, subject: str, reply: str, headers: bytes, body: bytes
    ) -> bool:
        """Hold a request that did not come by its subject. False: the request need not wait."""
        waiting = self._needed(subject)
        if waiting is not None:
            waiting.hold(source, subject, reply, headers, body, self._api_subjects)
        return waiting is not None

    def finish(self) -> None:
        """Do all remaining steps, without asking `may_open`."""
        self._may_open = lambda log_folder: True
        while not self.done:
            self.step()

    def step(self) -> bool:
        """Do one step; not to be called when `done` is set. False: no log may be opened now."""
        if not self._turns:
            self._end()
            return True
        each = self._next()
        if each is None:
            return False
        try:
            next(each.begin(self._account))
        except StopIteration as end:
            self._opened(each, end.value)
        except (OSError, BadFileError) as error:
            self._fail(each, error)
        except Exception as error:
            # a fault of the server: go on with the other streams
            self._fail(each, f"internal error: {error!r}")
        return True

    def close(self) -> None:
        """Stop at the end of the server or the account; unopened streams stay on the disk as they
        are.
        """
        for each in self._turns:
            each.end()
        late = [each for each, _ in self._late]
        for each in [*self._turns, *late]:
            self._leave(each)
            each.waiting.abandon()
        self._turns.clear()
        self._awaited.clear()
        self._late.clear()
        self._step_aside()
        self._all.abandon()
        self.left = 0
        self.done = True

    def progress(self) -> str:
        """Return the progress for the operator."""
        now = ", ".join(each.progress for each in self._turns if each.steps is not None)
        return f"{self.total - self.left} of {self.total}" + (f", now {now}" if now else "")

    def _next(self) -> UnopenedStream | None:
        """Return the stream that has the next step: the streams with waiting requests in turn, else
        the first.
        """
        for _ in range(len(self._awaited)):
            self._awaited.rotate(-1)
            if self._may(self._awaited[-1]):
                return self._awaited[-1]
        return next(filter(self._may, self._turns), None)

    def _may(self, each: UnopenedStream) -> bool:
        files = each.files
        return each.steps is not None or files.synced or self._may_open(files.log_folder)

    def _asked(self, each: UnopenedStream) -> None:
        if each in self._turns:
            self._awaited.append(each)

    def _opened(self, each: UnopenedStream, entry: StreamEntry) -> None:
        self._over(each)
        if entry.config.mirror is not None or entry.config.sources:
            self._late.append((each, entry))
            return
        self._hand_over(each, entry)

    def _hand_over(self, each: UnopenedStream, entry: StreamEntry) -> None:
        streams.serve(self._account, entry)
        self._leave(each)
        del self._pending[each.config.name]
        each.waiting.pass_on(entry.core)

    def _fail(self, each: UnopenedStream, why: Exception | str) -> None:
        streams.put_offline(self._account, each.config.name, each.files, why)
        self._over(each)
        each.end()
        self._leave(each)
        del self._pending[each.config.name]
        each.waiting.pass_on(None)

    def _over(self, each: UnopenedStream) -> None:
        del self._turns[each]
        if each in self._awaited:
            self._awaited.remove(each)
        self.left -= 1

    def _leave(self, each: UnopenedStream) -> None:
        for subject in each.config.subjects:
            self._account.router.detach(subject, each.waiting)

    def _end(self) -> None:
        late, self._late = self._late, []
        self._step_aside()
        self.done = True
        self._account.complete = True
        try:
            for _, entry in late:
                upstreams.start(self._account, entry)
        finally:
            for each, entry in late:
                self._hand_over(each, entry)
            templates = self._account.templates
            if templates is not None and not self._account.settings.frozen:
                templates.open()
            self._all.pass_on(None)

    def _step_aside(self) -> None:
        router = self._account.router
        router.detach_prefix(self._front)
        for prefix in PREFIXES:
            router.attach_prefix(prefix, self._api_subjects)

    def _needed(self, subject: str) -> StartupGate | None:
        """Return the gate at which a request has to wait; None: it need not wait."""
        tokens = subject.split(".")
        if tokens[1] not in _TODAYS:
            return self._needed_by_dialect(tokens)
        name = tokens[2]
        if tokens[1] == "ACK" and len(tokens) > _ACK_TOKENS:
            name = tokens[4]
        elif tokens[1] == "FC":
            name = tokens[2] if len(tokens) <= _FLOW_TOKENS else tokens[4]
        elif tokens[1] == "API":
            found = _stream_of(tokens[2:])
            if found is None:
                return self._all
            name = found
        each = self._pending.get(name)
        if each is not None:
            return each.waiting
        if tokens[1:4] == ["API", "DIRECT", "GET"] and name not in self._account.streams:
            return self._all  # a mirror may answer for the stream
        return None

    def _needed_by_dialect(self, tokens: list[str]) -> StartupGate | None:
        """The same for a subject of a dialect (api/dialects)."""
        if tokens[1] in ("RN", "A") and len(tokens) > 2:
            each = self._pending.get(tokens[2])
            return each.waiting if each is not None else None
        return self._all if tokens[1] in _DIALECTS and tokens[2:3] != ["API"] else None


def _stream_of(tokens: list[str]) -> str | None:
    """Return the stream that an API call is about; None: all streams, or unknown."""
    if tokens[0] == "STREAM" and len(tokens) > 2 and tokens[1] not in _OF_ALL:
        return tokens[-1]
    if tokens[:2] == ["DIRECT", "GET"] and len(tokens) > 2:
        return tokens[2]
    if tokens[0] == "CONSUMER":
        at = 3 if tokens[1:3] in _TWO_WORDS else 2
        return tokens[at] if len(tokens) > at else None
    return None


_TWO_WORDS = (["DURABLE", "CREATE"], ["MSG", "NEXT"], ["LEADER", "STEPDOWN"])
