"""The upstreams of a stream that follows other streams, and their positions.

The lifecycle of streams and the engine's timer call this module. A change of the configuration keeps
the upstreams that did not change; a mirror whose `mirror` is removed becomes an ordinary stream without
upstreams.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from pelton.api.streams import StreamConfig, StreamSource, StreamSourceInfo
from pelton.api.subjects import API_PREFIX
from pelton.core.stream.source_copy import SourceWriter
from pelton.engine.base.steps import Pace, Steps
from pelton.engine.sources import identity
from pelton.engine.sources.behind import INTERVAL_NS, BehindReport
from pelton.engine.sources.links import Link, RouterLink
from pelton.engine.sources.local import (
    START_UNITS,
    ComingUpstream,
    LocalUpstream,
    Upstream,
    origin_gone,
    origin_made,
)
from pelton.engine.sources.positions import Position, Positions

if TYPE_CHECKING:
    from pelton.core.log.log import Log
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry
    from pelton.engine.files.files import StreamFiles

__all__ = ["Upstreams", "changed", "origin_gone", "origin_made", "start", "stop"]


class Upstreams:
    """The upstreams of one stream."""

    def __init__(self, account: "JetStreamAccount", entry: "StreamEntry") -> None:
        """Create the object; `configure` starts to copy."""
        self._account = account
        self._entry = entry
        self.upstreams: list[Upstream | ComingUpstream] = []
        self._positions, entry.positions = entry.positions, None
        self._reports: dict[str, BehindReport] = {}  # by index name
        self._look_at_ns = 0
        self._making: list[Upstream | ComingUpstream] | None = (
            None  # `upstreams` while some are coming
        )
        self._stands_for = ""  # of a mirror: the origin whose direct gets it answers

    def configure(self, config: StreamConfig) -> None:
        """Follow the origins of a configuration from now on. Many new upstreams are made in steps, of
        which the first is done now.
        """
        wanted = [config.mirror] if config.mirror is not None else config.sources
        present = {
            upstream.name: upstream
            for upstream in self.upstreams
            if not isinstance(upstream, ComingUpstream)
        }
        names = [identity.index_name(source) for source in wanted]
        if self._positions is None:
            entry = self._entry
            self._positions = recall(self._account, config, entry.files, entry.core.log)
        sources = dict(zip(names, wanted, strict=True))
        kept = {
            name: upstream
            for name, upstream in present.items()
            if upstream.source == sources.get(name)
        }
        for name, upstream in present.items():
            if name not in kept:
                upstream.close(for_good=True)
                if self._positions is not None:
                    self._positions.leave(name)
        self.upstreams = [
            kept.get(name) or ComingUpstream(source, name, self._position_of(name).seq)
            for name, source in sources.items()
        ]
        work = self._make_coming(self.upstreams, mirror=config.mirror is not None)
        for _ in work:
            self._account.carry_out(work)
            break
        mirror = config.mirror
        self._stand_for(mirror.name if mirror is not None and config.mirror_direct else "")
        self._entry.upstreams_at_ns = 0

    @property
    def caught_up(self) -> bool:
        """Whether the stream had all messages of its origins at some time since the start."""
        return all(upstream.caught_up for upstream in self.upstreams)

    def tick(self, now_ns: int) -> int:
        """Do what is due; return the time of the next call."""
        due = [upstream.tick(now_ns) for upstream in self.upstreams]
        if self._positions is not None:
            try:
                due.append(self._positions.tick(now_ns))
            except OSError as error:
                name = self._entry.config.name
                self._account.report(
                    f"stream {name} cannot save the positions of its sources: {error}"
                )
        return min((due_ns for due_ns in due if due_ns), default=0)

    def look(self, now_ns: int) -> None:
        """Report upstreams that are behind, and ones that have caught up. Most calls do nothing."""
        if now_ns < self._look_at_ns:
            return
        self._look_at_ns = now_ns + INTERVAL_NS
        before, self._reports = self._reports, {}
        for upstream in self.upstreams:
            if isinstance(upstream, ComingUpstream):
                continue
            report = before.get(upstream.name)
            if report is None:
                report = BehindReport(self._entry.config.name, upstream.source.name)
            self._reports[upstream.name] = report
            line = report.look(now_ns, upstream.info(now_ns), upstream.writer.taken)
            if line:
                self._account.report(line)

    def infos(self, now_ns: int) -> list[StreamSourceInfo]:
        """Return the progress of each upstream, in the order of the configuration."""
        return [upstream.info(now_ns) for upstream in self.upstreams]

    def close(self, *, for_good: bool) -> None:
        """Stop following. `for_good`: False when only the server stops."""
        self._making = None
        self._stand_for("")
        for upstream in self.upstreams:
            upstream.close(for_good=for_good)

    def closed(self) -> None:
        """Save the positions after the stream's log is closed and on the disk."""
        if self._positions is not None:
            self._positions.close()
            with contextlib.suppress(OSError):  # the messages have the positions too
                self._positions.save()

    def _make_coming(
        self, upstreams: list[Upstream | ComingUpstream], *, mirror: bool
    ) -> Steps[None]:
        """Make and start the upstreams that are coming, until the configuration changes again."""
        pace = Pace()
        self._making = upstreams
        for place, coming in enumerate(upstreams):
            if not isinstance(coming, ComingUpstream):
                continue
            rename = yield from identity.renaming(coming.source, self._account.random_below, pace)
            if self._making is not upstreams:
                return
            made = self._make(coming.source, coming.name, rename, mirror=mirror)
            upstreams[place] = made
            self._follow(made)
            made.start()
            self._wake()
            if pace.over(START_UNITS):
                yield
                if self._making is not upstreams:
                    return

    def _position_of(self, name: str) -> Position:
        return Position() if self._positions is None else self._positions.of(name)

    def _make(
        self,
        source: StreamSource,
        name: str,
        rename: Callable[[str], str] | None,
        *,
        mirror: bool,
    ) -> Upstream:
        # loaded when a stream follows another one: few servers need the module
        from pelton.engine.sources.linked import LinkedUpstream

        account, core = self._account, self._entry.core
        before, after = identity.header_parts(name)
        position = self._position_of(name)
        writer = SourceWriter(
            core,
            mirror=mirror,
            position=position.seq if self._positions is not None else core.log.last_seq,
            anchor=self._positions.anchor_of(name) if self._positions is not None else 0,
            before=before,
            after=after,
            transform=rename,
        )
        origin = position.origin
        writer.identify(origin)
        link = self._link(source)
        owner = f"{account.name} {core.name} {self._entry.created_ns}"
        if link is not None:
            remote = LinkedUpstream(
                account, source, name, writer, link, owner=owner, wake=self._wake, met=self._met
            )
            remote.origin = origin
            return remote
        here = RouterLink(account.router)
        upstream = LocalUpstream(
            account,
            source,
            name,
            writer,
            blocked=self._wake,
            met=self._met,
            read=lambda: LinkedUpstream(
                account, source, name, writer, here, owner=owner, wake=self._wake
            ),
        )
        upstream.origin = origin
        return upstream

    def _link(self, source: StreamSource) -> Link | None:
        """Return the link to an origin; None: the origin is in the same account."""
        if source.external is None or not source.external.api:
            return RouterLink(self._account.router) if source.consumer is not None else None
        api = source.external.api
        remote = self._account.remotes.get(api)
        return remote if remote is not None else RouterLink(self._account.router, api or API_PREFIX)

    def _follow(self, upstream: Upstream) -> None:
        if self._positions is not None:
            self._positions.follow(upstream.name, upstream.writer, upstream.origin)

    def _met(self, upstream: Upstream, again: bool) -> None:
        """Called when an upstream meets its origin. When it replaces another one, save that before
        its first message is stored.
        """
        self._follow(upstream)
        if again and self._positions is not None:
            self._entry.core.log.fsync()
            self._positions.save()

    def _stand_for(self, origin: str) -> None:
        mirrors = self._account.direct_mirrors
        if self._stands_for == origin:
            return
        if self._stands_for:
            mirrors[self._stands_for].remove(self._entry)
            if not mirrors[self._stands_for]:
                del mirrors[self._stands_for]
        if origin:
            mirrors.setdefault(origin, []).append(self._entry)
        self._stands_for = origin

    def _wake(self) -> None:
        self._entry.upstreams_at_ns = 0


def recall(
    account: "JetStreamAccount", config: StreamConfig, files: "StreamFiles | None", log: "Log"
) -> Positions | None:
    """Read the positions of the sources of a stream whose log has just been opened: before its limits
    or anything else remove a message, which may be the only one that has a position.
    """
    if not config.sources or account.settings.frozen:
        return None
    problems: list[str] = []
    found = Positions(files, log)
    found.load({identity.index_name(source) for source in config.sources}, problems)
    for problem in problems:
        account.report(f"stream {config.name}: {problem}")
    return found


def start(account: "JetStreamAccount", entry: "StreamEntry") -> None:
    """Start the upstreams of a new stream, or of a recovered one when all streams are recovered."""
    config = entry.config
    if account.settings.frozen:
        return
    if config.mirror is not None or config.sources:
        entry.upstreams = Upstreams(account, entry)
        entry.upstreams.configure(config)


def changed(account: "JetStreamAccount", entry: "StreamEntry") -> None:
    """Apply a changed configuration."""
    if entry.upstreams is None:
        start(account, entry)
    elif entry.config.mirror is None and not entry.config.sources:
        stop(entry, for_good=True)
        entry.upstreams.closed()
        entry.upstreams = None
    else:
        entry.upstreams.configure(entry.config)


def stop(entry: "StreamEntry", *, for_good: bool) -> None:
    """Stop the upstreams of a stream. `for_good`: False when only the server stops."""
    if entry.upstreams is not None:
        entry.upstreams.close(for_good=for_good)
