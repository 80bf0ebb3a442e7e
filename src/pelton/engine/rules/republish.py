"""republish: publishes a stored message again under another subject, with headers that name its stream
and sequence.

The message goes out when it is as durable as the stream promises, before its PubAck. A message that
the stream did not store for lack of interest is not republished.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pelton.api.times import format_time
from pelton.core.log import queries
from pelton.core.stream.draft import Draft
from pelton.core.stream.refusals import STAGE_COUNT, STAGE_STORED, STAGED
from pelton.engine.base import transforms
from pelton.engine.rules.base import Handler, Rule, Verdict
from pelton.engine.rules.header_blocks import STATUS

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry


def feature(account: "JetStreamAccount", entry: "StreamEntry") -> Rule | None:
    """Return the rule for streams that republish."""
    wanted = entry.config.republish
    if wanted is None:
        return None
    return Republish(entry, transforms.parse(wanted.src, wanted.dest, account.random_below))


class Republish(Rule):
    """Republishing of one stream."""

    every = True

    def __init__(self, entry: "StreamEntry", transform: transforms.Transform) -> None:
        """`transform` maps the stored subject to the published one."""
        self._core = entry.core
        self._headers_only = entry.config.republish is not None and (
            entry.config.republish.headers_only
        )
        self._apply = transform.apply
        self._time = (0, "")  # time and text of the current turn's messages
        self._head = f"Nats-Stream: {entry.config.name}\r\nNats-Subject: "

    def handlers(self) -> Mapping[int, Handler]:
        """Look up the previous message of the subject before the new one is stored."""
        return {STAGE_COUNT: self._before, STAGE_STORED: self._stored}

    def _before(self, draft: Draft) -> Verdict:
        # a message of the same batch, which has no sequence yet
        staged = draft.notes.get(STAGED, {}).get(draft.subject)
        draft.notes["previous"] = staged or queries.subject_state(self._core.log, draft.subject)[2]
        return None

    def _stored(self, draft: Draft) -> Verdict:
        if draft.skipped:
            return None
        target = self._apply(draft.subject)
        if target is None or not transforms.publishable(target):
            return None
        previous = draft.notes["previous"]
        if isinstance(previous, Draft):
            previous = previous.seq
        ts_ns, time = self._time
        if ts_ns != self._core.log.last_ts_ns:
            ts_ns = self._core.log.last_ts_ns
            time = format_time(ts_ns)
            self._time = (ts_ns, time)
        size = f"Nats-Msg-Size: {len(draft.payload)}\r\n" if self._headers_only else ""
        added = (
            f"{self._head}{draft.subject}\r\n"
            f"Nats-Sequence: {draft.seq}\r\n"
            f"Nats-Time-Stamp: {time}\r\n"
            f"Nats-Last-Sequence: {previous}\r\n{size}\r\n"
        )
        headers = (draft.headers[:-2] or STATUS) + added.encode("utf-8", "surrogateescape")
        payload = b"" if self._headers_only else draft.payload
        self._core.path.announce(target, payload, headers, after_seq=draft.seq)
        return None
